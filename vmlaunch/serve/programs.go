package serve

import (
	"context"
	"fmt"
	"sync"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// programs counts the programs that run in the VMs of the node, until no more may start.
type programs struct {
	plan   plan.Plan
	ending chan struct{} // closed when no new program may start

	mu      sync.Mutex // no Add after Wait: guards ending against running
	once    sync.Once
	running sync.WaitGroup
	in      map[*machine.Machine]int
}

func newPrograms(p plan.Plan) *programs {
	return &programs{plan: p, ending: make(chan struct{}), in: map[*machine.Machine]int{}}
}

// begin counts a program in. It refuses it if the job is ending or the VM runs as many
// programs as the site allows.
func (p *programs) begin(m *machine.Machine) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.ending:
		return fmt.Errorf("the VMs of job %d are ending; no program can be started any more", p.plan.Job.ID.Job)
	default:
	}
	if p.in[m] >= p.plan.Programs {
		return fmt.Errorf("%s runs %d programs already, the most that this site allows in a VM (limits.programs_per_vm)", m.Plan.Name, p.in[m])
	}
	p.in[m]++
	p.running.Add(1)
	return nil
}

// end counts a program out.
func (p *programs) end(m *machine.Machine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.in[m]--
	p.running.Done()
}

// finish lets no new program start, and returns when the running ones have ended or ctx
// has.
func (p *programs) finish(ctx context.Context) {
	p.mu.Lock()
	p.once.Do(func() { close(p.ending) })
	p.mu.Unlock()
	done := make(chan struct{})
	go func() { p.running.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// inVM makes a program run as the job's owner, whatever its relay asked for, and with the
// variables about what the job has in the VM.
func (s *Server) inVM(m *machine.Machine) func(h *guest.Header) error {
	return func(h *guest.Header) error {
		if h.Command == nil {
			return nil
		}
		h.Command.Env = s.environ(m, h.Command.Env)
		h.Command.UID, h.Command.GID, h.Command.Groups = s.plan.Owner.UID, s.plan.Owner.GID, s.plan.Owner.GroupIDs()
		return nil
	}
}
