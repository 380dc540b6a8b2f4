// Package relay is the Slurm task that stands for a program in a VM: what comes
// to the task goes to the program, and the other way round.
//
// Streams, signals and PMI come in as values; finding the VM and starting the
// program are the caller's. A stream that nobody reads stalls only itself.
package relay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/pmi"
)

// A Task is what Slurm gave the task.
type Task struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Signals        <-chan os.Signal

	// Size is the size of the task's terminal, asked when it has changed; nil
	// without a terminal.
	Size func() guest.WindowSize

	// PMI is the descriptor of PMI_FD, and Rank the program's place among the
	// others of its job; nil without PMI.
	PMI  io.ReadWriteCloser
	Rank pmi.Layout
}

// confirmation bounds the wait for the guest's word that nothing of the program
// is left. The agent goes on waiting for it without the task.
const confirmation = 10 * time.Second

// Run relays until the program has ended and all its output is written. An error
// means that the program's end is unknown.
func (t *Task) Run(p *guest.Process) (guest.Exit, error) {
	done := make(chan struct{})
	defer close(done)
	go t.feed(p)
	go t.pass(p, done)
	broken := t.talk(p)
	var output sync.WaitGroup
	output.Go(func() { drain(t.Stdout, p.Stdout) })
	output.Go(func() { drain(t.Stderr, p.Stderr) })
	exit, err := p.Wait()
	output.Wait()
	t.explain(exit, broken)
	waitAtMost(confirmation, func() { _ = p.Close() })
	return exit, err
}

// feed copies standard input. Its end is the program's end of file; a program
// that does not read it stalls only this.
func (t *Task) feed(p *guest.Process) {
	_, _ = io.Copy(p.Stdin, t.Stdin)
	_ = p.Stdin.Close()
}

// drain copies output. If nobody takes it here any more, the program is told,
// as a closed pipe would.
func drain(w io.Writer, out io.ReadCloser) {
	_, _ = io.Copy(w, out)
	_ = out.Close()
}

// pass hands signals on.
func (t *Task) pass(p *guest.Process, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case s := <-t.Signals:
			if s == syscall.SIGWINCH && t.Size != nil {
				_ = p.Resize(t.Size())
			} else if number, ok := s.(syscall.Signal); ok {
				_ = p.Signal(number)
			}
		}
	}
}

// talk joins the program to Slurm's PMI server. The channel gets what went wrong.
func (t *Task) talk(p *guest.Process) <-chan error {
	broken := make(chan error, 1)
	if t.PMI == nil || p.PMI == nil {
		return broken
	}
	go func() {
		err := pmi.Relay(t.PMI, p.PMI, t.Rank)
		_ = p.PMI.Close()
		_ = t.PMI.Close()
		if err != nil && !errors.Is(err, guest.ErrLost) {
			broken <- err
		}
	}()
	return broken
}

// explain says why the PMI conversation broke, if the program did not live with
// it: MPI's own words would be about a closed descriptor.
func (t *Task) explain(exit guest.Exit, broken <-chan error) {
	select {
	case err := <-broken:
		if exit != (guest.Exit{}) {
			fmt.Fprintln(t.Stderr, "slurm-v:", err)
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
