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
	Quiet  bool  // it says so only if the run fails for it
	Refuse error // why MPI cannot have the memory; nil if it can
}

// listen gives MPI the memory, and says when it begins to talk through it.
func (t *Task) listen() {
	s := t.Shared
	if s == nil || s.Refuse != nil {
		return
	}
	t.Rank.Shared = &s.PMI
	if !s.Speaks || s.Quiet {
		return
	}
	s.PMI.Met = func(transport string) {
		fmt.Fprintf(t.Stderr, "slurm-v: MPI talks through shared memory between the %d VMs of %s (%s)\n", s.VMs, s.Node, transport)
	}
}

// unused is why the program's MPI has not used the memory; "" if it has, or if another task says so.
func (t *Task) unused() string {
	s := t.Shared
	const foreign = "the program is static or not linked with glibc, so Slurm-V cannot help it"
	switch {
	case s == nil:
		return ""
	case s.PMI.Refused():
		return foreign
	case !s.Speaks || !t.member.Joined() || len(s.PMI.Transports()) > 0:
		return ""
	case s.Refuse != nil:
		return s.Refuse.Error()
	case !s.PMI.Ready():
		return foreign
	}
	return "its transport is none that Slurm-V knows"
}

// regret says at the program's end that MPI has not used the memory, if it need not.
func (t *Task) regret() {
	if reason := t.unused(); reason != "" && !t.Shared.PMI.Must && !t.Shared.Quiet {
		fmt.Fprintf(t.Stderr, "slurm-v: MPI talked between the %d VMs of %s by the network, not through shared memory: %s\n", t.Shared.VMs, t.Shared.Node, reason)
	}
}

// disappointment says that MPI has not used the memory although it must; "" if all is well.
func (t *Task) disappointment() string {
	reason := t.unused()
	if reason == "" || !t.Shared.PMI.Must {
		return ""
	}
	return fmt.Sprintf("--mpi-shm=on: MPI does not talk through shared memory between the %d VMs of %s: %s", t.Shared.VMs, t.Shared.Node, reason)
}
