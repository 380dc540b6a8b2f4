// Package relay is the Slurm task that stands for a program in a VM. It passes the task's
// input to the program, and the program's output to the task.
//
// Streams, signals and PMI come in as values. The caller finds the VM and starts the
// program. A stream that nobody reads blocks no other stream.
package relay

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/pmi"
)

// A Task is what Slurm gives to a task.
type Task struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Signals        <-chan os.Signal

	// Size returns the size of the task's terminal; it is called when the size has changed.
	// nil means no terminal.
	Size func() guest.WindowSize

	// PMI is the descriptor from PMI_FD; nil without PMI. Rank is the program's place among
	// the programs of its job.
	PMI  io.ReadWriteCloser
	Rank pmi.Layout

	// PMIx says that a PMIx server speaks PMI for the program; see internal/pmix.
	PMIx bool

	// Shared is memory that MPI may use; nil if it has none.
	Shared *SharedMemory

	within atomic.Bool // the program has connected to its PMIx server and not finalized
}

// confirmation bounds how long the task waits for the guest to confirm that nothing of the
// program is left. The agent goes on waiting without the task.
const confirmation = 10 * time.Second

// Run relays until the program has ended and all its output is written. An error means that
// nobody knows how the program ended.
func (t *Task) Run(p *guest.Process) (guest.Exit, error) {
	done := make(chan struct{})
	defer close(done)
	go t.feed(p)
	go t.pass(p, done)
	t.listen()
	alone, broken := t.talk(p)
	go t.warn(p, alone, done)
	var output sync.WaitGroup
	output.Go(func() { drain(t.Stdout, p.Stdout) })
	output.Go(func() { drain(t.Stderr, p.Stderr) })
	exit, err := p.Wait()
	output.Wait()
	t.explain(exit, broken)
	t.regret(t.PMI != nil && !alone())
	exit = t.judge(exit, p, alone)
	waitAtMost(confirmation, func() { _ = p.Close() })
	return exit, err
}

// feed copies standard input to the program and then closes it. A program that does not
// read its input blocks only feed.
func (t *Task) feed(p *guest.Process) {
	_, _ = io.Copy(p.Stdin, t.Stdin)
	_ = p.Stdin.Close()
}

// drain copies output. If the output's reader on this side is gone, it closes the program's
// end, as a broken pipe would.
func drain(w io.Writer, out io.ReadCloser) {
	_, _ = io.Copy(w, out)
	_ = out.Close()
}

// pass passes signals on to the program.
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

// talk connects the program to Slurm's PMI server. alone reports whether the program could
// have spoken to the server and has not. The channel gets the error if the conversation
// breaks.
func (t *Task) talk(p *guest.Process) (alone func() bool, broken chan error) {
	broken = make(chan error, 1)
	if t.PMI == nil || p.PMI == nil {
		return func() bool { return false }, broken
	}
	server := &listener{ReadWriter: t.PMI}
	var joined atomic.Bool
	t.Rank.Joined = func(now bool) {
		t.within.Store(now)
		joined.Store(joined.Load() || now)
	}
	go func() {
		err := pmi.Relay(server, p.PMI, t.Rank)
		_ = p.PMI.Close()
		_ = t.PMI.Close()
		if err != nil && !errors.Is(err, guest.ErrLost) {
			broken <- err
		}
	}()
	if t.PMIx {
		return func() bool { return !joined.Load() }, broken
	}
	return func() bool { return !server.heard.Load() }, broken
}

// A listener is a PMI server that knows whether the program has spoken to it.
type listener struct {
	io.ReadWriter
	heard atomic.Bool
}

func (l *listener) Write(message []byte) (int, error) {
	l.heard.Store(true)
	return l.ReadWriter.Write(message)
}

// wrongStart is the sentence about a program that uses an MPI library and is one of several
// tasks, but knows nothing of the others; "" if it is none.
func (t *Task) wrongStart(p *guest.Process, alone func() bool) string {
	library := p.MPI()
	if t.Rank.Ranks < 2 || library == "" || !alone() {
		return ""
	}
	return fmt.Sprintf("the program uses %s, which has not asked %s for the other ranks: each of the %d tasks computes alone. %s (if that is meant: --mpi=none)",
		library, t.asked(), t.Rank.Ranks, t.rightStart(library))
}

// asked is whom the program could have asked.
func (t *Task) asked() string {
	if t.PMIx {
		return "PMIx"
	}
	return "Slurm's PMI"
}

// isOpenMPI goes by the library's number: Open MPI has counted from 20 on since version 2.0; libraries with MPICH's
// binary interface are libmpi.so.12.
func isOpenMPI(library string) bool {
	return strings.HasPrefix(library, "libmpi.so.") && library != "libmpi.so.12"
}

// rightStart says how programs with that MPI library are started.
func (t *Task) rightStart(library string) string {
	switch {
	case isOpenMPI(library) && !t.PMIx:
		return "Open MPI starts with: slurm-v-run --mpi=pmix …"
	case isOpenMPI(library):
		return "Open MPI starts otherwise with: slurm-v-run --launcher=ssh mpirun …"
	case t.PMIx:
		return "Leave out --mpi=pmix: libraries other than Open MPI ask Slurm's PMI"
	}
	return "This library was not built for PMI-1 or PMI-2 of Slurm; start it with: slurm-v-run --launcher=ssh mpirun …"
}

// How long a program may compute before its MPI speaks. Open MPI opens a hundred files before, which took more than 30 s
// in emulated VMs of a busy machine.
const (
	initPatience = 30 * time.Second
	pmixPatience = 2 * time.Minute
)

// warn warns of a wrong start while the program runs. It ends nothing, because a program may
// read its input before it starts MPI.
func (t *Task) warn(p *guest.Process, alone func() bool, done <-chan struct{}) {
	patience := initPatience
	if t.PMIx {
		patience = pmixPatience
	}
	for {
		select {
		case <-done:
			return
		case <-time.After(patience):
		}
		if !alone() {
			return
		}
		if sentence := t.wrongStart(p, alone); sentence != "" {
			fmt.Fprintln(t.Stderr, "slurm-v: warning:", sentence)
			return
		}
	}
}

// judge makes a program fail that has ended well although it was started wrongly, or has left ranks behind that wait
// for it: srun ends them when a task fails.
func (t *Task) judge(exit guest.Exit, p *guest.Process, alone func() bool) guest.Exit {
	sentence := t.wrongStart(p, alone)
	switch {
	case exit != (guest.Exit{}):
		t.hint(p, alone)
		return exit
	case sentence != "":
		fmt.Fprintln(t.Stderr, "slurm-v: wrong start:", sentence)
	case t.within.Load() && t.Rank.Ranks > 1:
		fmt.Fprintln(t.Stderr, "slurm-v: the program has ended without MPI_Finalize, and the other ranks may wait for it")
	default:
		return exit
	}
	return guest.Exit{Code: 1}
}

// hint says how Open MPI is started to those whose program has failed, perhaps for that: Open MPI 4 sees Slurm's
// variables and refuses to compute alone, but names no way that there is here.
func (t *Task) hint(p *guest.Process, alone func() bool) {
	if library := p.MPI(); isOpenMPI(library) && !t.PMIx && alone() {
		fmt.Fprintf(t.Stderr, "slurm-v: wrong start: the program uses %s, which does not ask Slurm's PMI. %s\n", library, t.rightStart(library))
	}
}

// explain prints why the PMI conversation broke, if the program failed too: MPI itself
// would only complain about a closed descriptor.
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
