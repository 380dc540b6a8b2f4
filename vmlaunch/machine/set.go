package machine

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

// A Trace is what people get to know of a launch.
type Trace struct {
	Log      *slog.Logger
	Clock    *Stopwatch
	Progress func(vmstep.Progress) // called from several goroutines

	file *Log
}

// Open starts the log of the job on this node, which its user gets to see, in the
// directory dir. Until then what is logged is lost.
func (r *Trace) Open(dir string) (err error) {
	if r.file, err = CreateLog(filepath.Join(dir, "agent.log")); err != nil {
		return err
	}
	r.Log = slog.New(slog.NewTextHandler(r.file, nil))
	return nil
}

// A Set is the VMs of one job on one node.
type Set struct {
	*Trace

	Plan     plan.Plan
	Machines []*Machine
	Image    atomic.Pointer[nodeagent.Image] // what became of the image; nil until that is known
	Underlay string                          // address by which other nodes reach the VMs; "" is none

	gone     chan struct{} // closed when a VM has ended by itself
	goneOnce sync.Once
}

// NewSet is the VMs of a plan, of which none runs yet.
func NewSet(p plan.Plan, clock *Stopwatch, progress func(vmstep.Progress)) *Set {
	s := &Set{
		Trace: &Trace{Log: slog.New(slog.DiscardHandler), Clock: clock, Progress: progress},
		Plan:  p, gone: make(chan struct{}),
	}
	for _, vm := range p.VMs {
		s.Machines = append(s.Machines, New(vm, s.Trace))
	}
	return s
}

// Close ends what this process holds open. The VMs go on.
func (s *Set) Close() {
	for _, m := range s.Machines {
		m.Close()
	}
	if s.file != nil {
		_ = s.file.Close()
	}
}

// Stopped notes that the guest of the VM with that UUID has ended, as [hypervisor.Driver]
// tells. While the job runs that is the guest's own doing: reclaim kills QEMU after this
// process is gone.
func (s *Set) Stopped(uuid, reason string) {
	if reason == hypervisor.QEMUEnded && cgroup.OutOfMemory("/", os.Getpid()) {
		reason += " (the job's memory is used up)" // QEMU is in the cgroup of this process
	}
	for _, m := range s.Machines {
		if m.Plan.UUID != uuid {
			continue
		}
		endsJob := m.stopped(reason)
		s.Log.Warn("VM ended", "vm", m.Plan.Name, "reason", reason)
		m.EndSession()
		if endsJob {
			s.goneOnce.Do(func() { close(s.gone) })
		}
	}
}

// Gone is closed when a VM has ended by itself.
func (s *Set) Gone() <-chan struct{} { return s.gone }

// Failure is the sentences about the VMs that have ended by themselves; nil while all run.
func (s *Set) Failure() (all error) {
	for _, m := range s.Machines {
		all = errors.Join(all, m.Failure(s.Plan.Job.Node))
	}
	return all
}

// Describe returns the VMs of this node and what state they are in.
func (s *Set) Describe() nodeagent.NodeVMs {
	d := nodeagent.NodeVMs{
		Node: s.Plan.Job.Node, Rank: s.Plan.Job.Rank, Unpinned: s.Plan.Unpinned, Underlay: s.Underlay,
		Began: s.Clock.Began, Image: s.Image.Load(), Stages: s.Clock.Noted(),
	}
	for _, m := range s.Machines {
		d.VMs = append(d.VMs, m.Describe())
	}
	return d
}
