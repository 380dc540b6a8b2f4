package vmstep

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/pmi"
)

// A Relay is a Slurm task that stands for a program in a VM: what comes to the
// task goes to the program, and the other way round.
type Relay struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Signals        <-chan os.Signal

	// Size is the size of the task's terminal, asked when it has changed; nil
	// without a terminal.
	Size func() guest.Size

	// PMI is the descriptor of PMI_FD, and Rank the program's place among the
	// others of its job; nil without PMI.
	PMI  io.ReadWriteCloser
	Rank pmi.Job
}

// confirmation bounds the wait for the guest's word that nothing of the program
// is left. The agent goes on waiting for it without the task.
const confirmation = 10 * time.Second

// Run relays until the program has ended and all its output is written. An error
// means that the program's end is unknown.
func (r *Relay) Run(p *guest.Process) (guest.Exit, error) {
	done := make(chan struct{})
	defer close(done)
	go r.feed(p)
	go r.pass(p, done)
	broken := r.talk(p)
	var output sync.WaitGroup
	output.Go(func() { drain(r.Stdout, p.Stdout) })
	output.Go(func() { drain(r.Stderr, p.Stderr) })
	exit, err := p.Wait()
	output.Wait()
	r.explain(exit, broken)
	waitAtMost(confirmation, func() { _ = p.Close() })
	return exit, err
}

// feed copies standard input. Its end is the program's end of file; a program
// that does not read it stalls only this.
func (r *Relay) feed(p *guest.Process) {
	_, _ = io.Copy(p.Stdin, r.Stdin)
	_ = p.Stdin.Close()
}

// drain copies output. If nobody takes it here any more, the program is told,
// as a closed pipe would.
func drain(w io.Writer, out io.ReadCloser) {
	_, _ = io.Copy(w, out)
	_ = out.Close()
}

// pass hands signals on.
func (r *Relay) pass(p *guest.Process, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case s := <-r.Signals:
			if s == syscall.SIGWINCH && r.Size != nil {
				_ = p.Resize(r.Size())
			} else if number, ok := s.(syscall.Signal); ok {
				_ = p.Signal(number)
			}
		}
	}
}

// talk joins the program to Slurm's PMI server. The channel gets what went wrong.
func (r *Relay) talk(p *guest.Process) <-chan error {
	broken := make(chan error, 1)
	if r.PMI == nil || p.PMI == nil {
		return broken
	}
	go func() {
		err := pmi.Relay(r.PMI, p.PMI, r.Rank)
		_ = p.PMI.Close()
		_ = r.PMI.Close()
		if err != nil && !errors.Is(err, guest.ErrLost) {
			broken <- err
		}
	}()
	return broken
}

// explain says why the PMI conversation broke, if the program did not live with
// it: MPI's own words would be about a closed descriptor.
func (r *Relay) explain(exit guest.Exit, broken <-chan error) {
	select {
	case err := <-broken:
		if exit != (guest.Exit{}) {
			fmt.Fprintln(r.Stderr, "slurm-v:", err)
		}
	default:
	}
}

func waitAtMost(d time.Duration, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(d):
	}
}
