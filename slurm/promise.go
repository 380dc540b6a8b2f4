package slurm

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// The methods below count only what Slurm promises for every node of the job: 16 tasks on
// two nodes may be 15 and 1.

// CPUs returns the least number of CPUs that any node of the job has; MaxInt stands for
// all CPUs of the node.
func (s Submission) CPUs() int {
	if exclusive, ok := s.options["exclusive"]; ok && (exclusive.value == "" || exclusive.value == "exclusive") {
		return math.MaxInt
	}
	perTask := max(1, s.number("cpus-per-task"))
	if _, ok := s.options["overcommit"]; ok {
		return perTask // with --overcommit, Slurm gives each node the CPUs of one task only
	}
	return max(s.tasks()*perTask, s.minCPUs(perTask))
}

// tasks returns the least number of tasks on any node. With --ntasks, --ntasks-per-node
// is only a maximum.
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

// minCPUs returns the CPUs that --mincpus guarantees. Slurm rounds the number down to
// whole tasks. With several CPUs per task, --ntasks-per-node limits the tasks that count.
func (s Submission) minCPUs(perTask int) int {
	cpus := s.number("mincpus") / perTask * perTask
	if perNode := s.number("ntasks-per-node"); perTask > 1 && perNode > 0 {
		cpus = min(cpus, perNode*perTask)
	}
	return cpus
}

// nodes returns the number of nodes; 0 if it is a range or missing.
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

// maxDigits keeps numbers small enough to add and multiply.
const maxDigits = 6

func wholeNumber(text string) (n int, ok bool) {
	if len(text) > maxDigits || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(text)
	return n, err == nil
}

// maxCPUs is more than any node has, and small enough to multiply with a size.
const maxCPUs = 1 << 16

// MemoryMiB returns the least memory that any node gives the job, in MiB; MaxInt64 stands
// for all memory of the node. With --mem-per-cpu and whole nodes it counts cpusNeeded
// CPUs: a job that gets fewer is refused for them anyway.
func (s Submission) MemoryMiB(cpusNeeded int) int64 {
	name := s.memoryOption()
	mib, ok := parseMiB(s.options[name].value)
	switch {
	case !ok || name == "mem-per-gpu":
		return 0
	case mib == 0:
		return math.MaxInt64
	case name == "mem-per-cpu":
		cpus := s.CPUs()
		if cpus == math.MaxInt {
			cpus = cpusNeeded
		}
		return mib * int64(min(cpus, maxCPUs))
	}
	return mib
}

// memoryOption returns the option that decides; Slurm allows only one of them. If one is
// on the command line or in the script, Slurm ignores the variables of all three.
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

// parseMiB reads a size as Slurm does: it takes 8GB for 8G, and rounds up.
func parseMiB(text string) (int64, bool) {
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

// GRES returns the value of --gres, or "".
func (s Submission) GRES() string { return s.options["gres"].value }
