package jobspec

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
)

// Granted reports whether a submission itself asks for the CPUs, the memory and the VFs
// that each node needs according to r. It is for sites where no Lua script adds them.
//
// Granted counts only what Slurm promises for every node of the job; 16 tasks on two
// nodes may be 15 and 1. The error has the lines to add to the batch script, and names
// the options to remove so that the lines take effect. The node later compares with what
// Slurm has really given.
func Granted(r Resources, sub slurm.Submission) error {
	short := shortage{sub: sub, need: r, cpus: sub.CPUs(), mib: sub.MemoryMiB(r.CPUsPerNode)}
	if short.cpus >= r.CPUsPerNode && short.mib >= r.MemoryMiBPerNode && !short.ofVFs() {
		return nil
	}
	return short
}

// A shortage is the error of [Granted].
type shortage struct {
	sub  slurm.Submission
	need Resources
	cpus int
	mib  int64
}

// ofVFs reports whether VFs or their bandwidth are short; --gres asks for both.
func (s shortage) ofVFs() bool {
	list := s.sub.GRES()
	return s.need.VFsCounted && (slurm.RequestedGRES(list, GRESVF) < int64(s.need.VFsPerNode) || slurm.RequestedGRES(list, GRESVFBW) < s.need.VFMbpsPerNode)
}

// Error says what is short, and what to write and to remove.
func (s shortage) Error() string {
	needs, lines := s.missing()
	text := fmt.Sprintf("the VMs need %s on every node, and the job does not ask for that; ", joinAnd(needs))
	if remove := s.sub.Given(s.inTheWay()...); len(remove) > 0 {
		text += "remove " + joinAnd(remove) + ", and "
	}
	if s.sub.Command == "salloc" {
		return text + "add to salloc: " + strings.ReplaceAll(strings.Join(lines, " "), "#SBATCH ", "")
	}
	return text + "add to the batch script:\n" + strings.Join(lines, "\n")
}

// missing returns what is short, in words and as lines of a batch script.
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

// plainGRES matches an item that Slurm accepts and that needs no quotes.
var plainGRES = regexp.MustCompile(`^[A-Za-z0-9_.:=/-]+$`)

// otherGRES returns the items other than VFs in the user's own --gres.
func (s shortage) otherGRES() []string {
	return slices.DeleteFunc(slurm.GRESItems(s.sub.GRES()), func(item string) bool {
		name := slurm.GRESName(item)
		return name == GRESVF || name == GRESVFBW || !plainGRES.MatchString(item)
	})
}

func joinAnd(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " and " + words[last]
}

// inTheWay names options that would cancel the missing lines, or make Slurm refuse them.
// The submission need not have all of these options.
func (s shortage) inTheWay() (names []string) {
	if s.cpus < s.need.CPUsPerNode {
		names = append(names, "mincpus")
		if s.sub.WithScript(s.need.cpuDirective()).CPUs() < s.need.CPUsPerNode {
			names = append(names, "cpus-per-task", "overcommit")
		}
	}
	if s.mib < s.need.MemoryMiBPerNode {
		names = append(names, "mem", "mem-per-cpu", "mem-per-gpu")
	}
	if s.ofVFs() {
		names = append(names, "gres")
	}
	return names
}
