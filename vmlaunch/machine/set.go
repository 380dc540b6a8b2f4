package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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

	file *logFile
}

// Open starts the job's log on this node, in the directory dir. The user can read it later.
// Messages before Open are lost.
func (r *Trace) Open(dir string) (err error) {
	if r.file, err = createLog(filepath.Join(dir, "agent.log")); err != nil {
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
	Image    atomic.Pointer[nodeagent.Image] // how the image was staged; nil until it is
	Underlay string                          // address by which other nodes reach the VMs; "" is none

	gone     chan struct{} // closed when a VM has ended by itself
	goneOnce sync.Once
	template atomic.Pointer[Machine] // becomes a template now; nil while no VM does

	patience time.Duration // panicPatience; another in tests
}

// NewSet returns the VMs of a plan. None of them runs yet.
func NewSet(p plan.Plan, clock *Stopwatch, progress func(vmstep.Progress)) *Set {
	s := &Set{
		Trace: &Trace{Log: slog.New(slog.DiscardHandler), Clock: clock, Progress: progress},
		Plan:  p, gone: make(chan struct{}), patience: panicPatience,
	}
	for _, vm := range p.VMs {
		s.Machines = append(s.Machines, New(vm, s.Trace))
	}
	return s
}

// Close closes what this process holds open. The VMs keep running.
func (s *Set) Close() {
	for _, m := range s.Machines {
		m.Close()
	}
	if s.file != nil {
		_ = s.file.Close()
	}
}

// WatchTemplate makes Stopped and Record notice the end of a VM that becomes a template, until the caller calls end. The job goes on
// without it.
func (s *Set) WatchTemplate(m *Machine) (end func()) {
	m.Restoring()
	s.template.Store(m)
	return func() { s.template.Store(nil) }
}

// running returns the job's VMs and the one that becomes a template.
func (s *Set) running() []*Machine {
	if m := s.template.Load(); m != nil {
		return append(slices.Clone(s.Machines), m)
	}
	return s.Machines
}

// Stopped notes that the guest of the VM with that UUID has ended. [hypervisor.Driver]
// calls it. The guest ended by itself: reclaim kills QEMU only after this process has
// ended.
func (s *Set) Stopped(uuid, reason string) {
	outOfMemory := func() bool { return cgroup.OutOfMemory("/", os.Getpid()) }
	for _, m := range s.running() {
		if m.Plan.UUID != uuid {
			continue
		}
		said := func() string { return hypervisor.LastWords(s.Plan.EmulatorLogs(), m.Plan.Domain) }
		reason := withCause(reason, s.Plan.Hardware, outOfMemory, said)
		endsJob := m.stopped(reason)
		s.Log.Warn("VM ended", "vm", m.Plan.Name, "reason", reason)
		m.EndSession()
		if endsJob {
			s.goneOnce.Do(func() { close(s.gone) })
		}
	}
}

// Record begins to record the console of a VM, to a file in the directory logs. A VM whose kernel panics has ended: Linux
// stands still then, unless the image says otherwise, and only its console tells.
func (s *Set) Record(m *Machine, console io.ReadWriteCloser, logs string) (err error) {
	path := filepath.Join(logs, m.Plan.Name+".console")
	m.Console, err = openConsole(console, path, func(why string) { s.panicked(m, why) })
	return err
}

// panicPatience is how long a guest may take to show that it lives, although its console tells of a panic.
const panicPatience = 10 * time.Second

// panicked ends the VM, unless its guest agent answers: programs can write to the console, too.
func (s *Set) panicked(m *Machine, why string) {
	if session := m.Session(); session != nil {
		ctx, cancel := context.WithTimeout(context.Background(), s.patience)
		defer cancel()
		if _, err := session.ClockSource(ctx); err == nil {
			s.Log.Info("the console tells of a kernel panic, and the guest agent answers", "vm", m.Plan.Name, "panic", why)
			return
		}
	}
	s.Stopped(m.Plan.UUID, fmt.Sprintf("stopped with a kernel panic: %q", why))
}

// withCause adds to the end of a QEMU that the kernel has killed it for lack of memory, or else what it said last. outOfMemory is about
// the cgroup of this process, in which QEMU is unless another program has started it; that has its log, too.
func withCause(reason string, on plan.Hardware, outOfMemory func() bool, said func() string) string {
	if reason != hypervisor.QEMUEnded || on.Foreign {
		return reason
	}
	if outOfMemory() {
		return reason + " (the job's memory is used up)"
	}
	if words := said(); words != "" {
		return fmt.Sprintf("%s; its log ends with %q", reason, words)
	}
	return reason
}

// Gone is closed when a VM has ended by itself.
func (s *Set) Gone() <-chan struct{} { return s.gone }

// Failure is one sentence about each VM that has ended by itself; nil while all run.
func (s *Set) Failure() (all error) {
	for _, m := range s.Machines {
		all = errors.Join(all, m.Failure(s.Plan.Job.Node))
	}
	return all
}

// Describe returns the VMs of this node and their states.
func (s *Set) Describe() nodeagent.NodeVMs {
	d := nodeagent.NodeVMs{
		Node: s.Plan.Job.Node, Rank: s.Plan.Job.Rank, Unpinned: s.Plan.Unpinned, Underlay: s.Underlay,
		Accel: string(s.Plan.Hardware.Accel), Firmware: string(s.Plan.BootsBy()),
		Began: s.Clock.Began, Image: s.Image.Load(), Stages: s.Clock.Noted(),
	}
	for _, m := range s.Machines {
		d.VMs = append(d.VMs, m.Describe())
	}
	return d
}
