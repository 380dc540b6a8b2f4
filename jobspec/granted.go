package jobspec

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// Granted reports whether a submission itself asks for the CPUs, the memory and the
// VFs that r says each node needs, for sites where no Lua script adds them. The
// parameters are those of [ReadSubmission].
//
// It counts only what Slurm promises for every node of the job; 16 tasks on two
// nodes may be 15 and 1. The error has the lines to add to the batch script and
// names what must go for them to have their effect. The node compares once more
// with what Slurm really gave.
func Granted(r Resources, argv []string, script string, env func(string) string) error {
	sub := ReadSubmission(argv, script, env)
	short := shortage{sub: sub, need: r, cpus: sub.cpus(), mib: sub.memory(r.CPUsPerNode)}
	if short.cpus >= r.CPUsPerNode && short.mib >= r.MemoryMiBPerNode && !short.ofVFs() {
		return nil
	}
	return short
}

// A shortage is the error of [Granted].
type shortage struct {
	sub  Submission
	need Resources
	cpus int
	mib  int64
}

// ofVFs reports whether VFs or their bandwidth are short, which are in one option.
func (s shortage) ofVFs() bool {
	list := s.sub.options["gres"].value
	return s.need.VFsCounted && (gresCount(list, gresVF) < int64(s.need.VFsPerNode) || gresCount(list, gresVFBW) < s.need.VFMbpsPerNode)
}

// Error says what is short, and what to write and to remove.
func (s shortage) Error() string {
	needs, lines := s.missing()
	text := fmt.Sprintf("the VMs need %s on every node, and the job does not ask for that; ", joinAnd(needs))
	if remove := s.inTheWay(); len(remove) > 0 {
		text += "remove " + joinAnd(remove) + ", and "
	}
	if s.sub.command == "salloc" {
		return text + "add to salloc: " + strings.ReplaceAll(strings.Join(lines, " "), "#SBATCH ", "")
	}
	return text + "add to the batch script:\n" + strings.Join(lines, "\n")
}

// missing returns what is short in words and as lines of a batch script.
func (s shortage) missing() (needs, lines []string) {
	if s.cpus < s.need.CPUsPerNode {
		needs = append(needs, fmt.Sprintf("%d CPUs", s.need.CPUsPerNode))
		lines = append(lines, s.need.cpuDirective())
	}
	if s.mib < s.need.MemoryMiBPerNode {
		needs = append(needs, fmt.Sprintf("%s of memory", config.Size(s.need.MemoryMiBPerNode)))
		lines = append(lines, s.need.memoryDirective())
	}
	if s.ofVFs() {
		needs = append(needs, s.need.vfWords())
		lines = append(lines, s.need.gresDirective(s.otherGRES()...))
	}
	return needs, lines
}

// vfWords returns "4 VFs", or "4 VFs with 80000 Mb/s".
func (r Resources) vfWords() string {
	words := fmt.Sprintf("%d VFs", r.VFsPerNode)
	if r.VFMbpsPerNode > 0 {
		words += fmt.Sprintf(" with %d Mb/s", r.VFMbpsPerNode)
	}
	return words
}

// plainGRES is an item that Slurm takes and that needs no quotes.
var plainGRES = regexp.MustCompile(`^[A-Za-z0-9_.:=/-]+$`)

// otherGRES returns what the user's own --gres has beside the VFs.
func (s shortage) otherGRES() []string {
	return slices.DeleteFunc(gresItems(s.sub.options["gres"].value), func(item string) bool {
		return gresName(item) == gresVF || gresName(item) == gresVFBW || !plainGRES.MatchString(item)
	})
}

func joinAnd(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// inTheWay names the options with which the missing lines would be void, or
// refused by Slurm.
func (s shortage) inTheWay() []string {
	var names []string
	if s.cpus < s.need.CPUsPerNode {
		names = append(names, "mincpus")
		if s.sub.with("mincpus", s.need.CPUsPerNode).cpus() < s.need.CPUsPerNode {
			names = append(names, "cpus-per-task", "overcommit")
		}
	}
	if s.mib < s.need.MemoryMiBPerNode {
		names = append(names, "mem", "mem-per-cpu", "mem-per-gpu")
	}
	if s.ofVFs() {
		names = append(names, "gres")
	}
	return s.sub.given(names...)
}

// with returns the submission as it would be with another value of an option.
func (s Submission) with(name string, value int) Submission {
	s.options = maps.Clone(s.options)
	s.options[name] = setting{value: strconv.Itoa(value), source: fromScript}
	return s
}

// given names those options that the submission has, as the user wrote them.
func (s Submission) given(names ...string) []string {
	var texts []string
	for _, name := range names {
		setting, ok := s.options[name]
		switch {
		case ok && setting.byVariable:
			texts = append(texts, "the variable "+setting.source)
		case ok:
			texts = append(texts, "--"+name+" from "+setting.source)
		}
	}
	return texts
}

// cpus returns how many CPUs every node of the job has at the least; MaxInt
// stands for all that the node has.
func (s Submission) cpus() int {
	if exclusive, ok := s.options["exclusive"]; ok && (exclusive.value == "" || exclusive.value == "exclusive") {
		return math.MaxInt
	}
	perTask := max(1, s.number("cpus-per-task"))
	if _, ok := s.options["overcommit"]; ok {
		return perTask // Slurm gives each node one task's CPUs, whatever else is asked
	}
	return max(s.tasks()*perTask, s.minCPUs(perTask))
}

// tasks returns how many tasks every node runs at the least. With --ntasks,
// --ntasks-per-node is a maximum.
func (s Submission) tasks() int {
	perNode, tasks, nodes := s.number("ntasks-per-node"), s.number("ntasks"), s.nodes()
	switch {
	case tasks == 0:
		return max(1, perNode)
	case nodes == 1:
		return tasks
	case nodes > 0 && perNode > 0 && tasks >= nodes*perNode:
		return perNode
	}
	return 1
}

// minCPUs returns what --mincpus is worth. Slurm rounds it down to whole tasks,
// and with several CPUs per task to those tasks that --ntasks-per-node allows.
func (s Submission) minCPUs(perTask int) int {
	cpus := s.number("mincpus") / perTask * perTask
	if perNode := s.number("ntasks-per-node"); perTask > 1 && perNode > 0 {
		cpus = min(cpus, perNode*perTask)
	}
	return cpus
}

// nodes returns the number of nodes, 0 if it is not one number.
func (s Submission) nodes() int {
	least, most, isRange := strings.Cut(s.options["nodes"].value, "-")
	n, ok := wholeNumber(least)
	if !ok || isRange && most != least {
		return 0
	}
	return n
}

func (s Submission) number(name string) int {
	n, _ := wholeNumber(s.options[name].value)
	return n
}

// memory returns how many MiB every node of the job gives it at the least, if it
// gives enough CPUs; MaxInt64 stands for all that the node has.
func (s Submission) memory(cpusNeeded int) int64 {
	name := s.memoryOption()
	mib, ok := slurmMiB(s.options[name].value)
	switch {
	case !ok || name == "mem-per-gpu":
		return 0
	case mib == 0:
		return math.MaxInt64
	case name == "mem-per-cpu":
		cpus := s.cpus()
		if cpus == math.MaxInt { // at least as many as needed, or the job is refused for its CPUs
			cpus = cpusNeeded
		}
		return mib * int64(min(cpus, maxCount))
	}
	return mib
}

// memoryOption returns which of the options decides, of which Slurm allows one:
// one that was written down puts the variables of all of them out of effect.
func (s Submission) memoryOption() string {
	names := []string{"mem", "mem-per-cpu", "mem-per-gpu"}
	written := func(name string) bool { o, ok := s.options[name]; return ok && !o.byVariable }
	if i := slices.IndexFunc(names, written); i >= 0 {
		return names[i]
	}
	set := func(name string) bool { _, ok := s.options[name]; return ok }
	if i := slices.IndexFunc(names, set); i >= 0 {
		return names[i]
	}
	return ""
}

// slurmMiB reads a size as Slurm does, which takes 8GB for 8G and rounds up.
func slurmMiB(text string) (int64, bool) {
	number := strings.TrimRight(text, "KMGTkmgtBb")
	suffix := strings.TrimSuffix(strings.ToUpper(text[len(number):]), "B")
	if len(suffix) > 1 || number == "" || len(number) > 15 || strings.Trim(number, "0123456789") != "" {
		return 0, false
	}
	if suffix == "K" {
		kib, err := strconv.ParseInt(number, 10, 64)
		return (kib + 1023) / 1024, err == nil
	}
	size, err := config.ParseSize(number + suffix)
	return size.MiB(), err == nil
}
