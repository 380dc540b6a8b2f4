package relay

import (
	"fmt"

	"github.com/slurm-v/slurm-v/internal/pmi"
)

// A SharedMemory is memory that the VMs of the node share, and what MPI does with it.
type SharedMemory struct {
	PMI    pmi.Shared
	Node   string
	VMs    int   // that the run's tasks on the node are in
	Speaks bool  // this task says for all of its node what MPI does
	Refuse error // why MPI cannot have the memory; nil if it can
}

// listen gives MPI the memory, and says when it begins to talk through it.
func (t *Task) listen() {
	s := t.Shared
	if s == nil || s.Refuse != nil {
		return
	}
	t.Rank.Shared = &s.PMI
	if !s.Speaks {
		return
	}
	s.PMI.Met = func(transport string) {
		fmt.Fprintf(t.Stderr, "slurm-v: MPI talks through shared memory between the %d VMs of %s (%s)\n", s.VMs, s.Node, transport)
	}
}

// regret says at the program's end that MPI has not used the memory. heard reports whether the
// program has used MPI at all.
func (t *Task) regret(heard bool) {
	s := t.Shared
	if s == nil || !s.Speaks || !heard || len(s.PMI.Transports()) > 0 {
		return
	}
	reason := "its transport is none that Slurm-V knows"
	switch {
	case s.Refuse != nil:
		reason = s.Refuse.Error()
	case !s.PMI.Ready():
		reason = "the program is static or not linked with glibc, so Slurm-V cannot help it"
	}
	fmt.Fprintf(t.Stderr, "slurm-v: MPI talked between the %d VMs of %s by the network, not through shared memory: %s\n", s.VMs, s.Node, reason)
}
