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
	"regexp"
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

	// SparesRanks says that the user wants the other ranks to live on when this one is gone.
	SparesRanks bool

	// Shared is memory that MPI may use; nil if it has none.
	Shared *SharedMemory

	member     pmi.Membership
	passed     atomic.Uint64          // signals that Slurm has sent, a bit for each
	terminated atomic.Int64           // when Slurm has sent SIGTERM last, in ns since 1970
	abort      atomic.Pointer[[]byte] // the program's own, which is kept back
	ends       atomic.Bool            // Slurm has been asked to end the run

	abortPatience, killPatience time.Duration // others than the constants, for tests
}

const (
	// confirmation bounds how long the task waits for the guest to confirm that nothing of
	// the program is left. The agent goes on waiting without the task.
	confirmation = 10 * time.Second

	// lastWords bounds how long what an ended program has said to PMI may be on its way.
	// A guest without cgroups leaves processes that keep the conversation open.
	lastWords = 2 * time.Second
)

// Run relays until the program has ended and all its output is written. An error means that
// nobody knows how the program ended. The caller then calls [Task.Leave].
func (t *Task) Run(p *guest.Process) (guest.Exit, error) {
	done := make(chan struct{})
	defer close(done)
	go t.feed(p)
	go t.pass(p, done)
	t.listen()
	said := t.talk(p)
	go t.warn(p, initPatience, done)
	var output sync.WaitGroup
	output.Go(func() { drain(t.Stdout, p.Stdout) })
	output.Go(func() { drain(t.Stderr, p.Stderr) })
	exit, err := p.Wait()
	output.Wait()
	t.explain(exit, said)
	if err == nil {
		t.regret()
		exit = t.judge(exit, p)
	}
	waitAtMost(confirmation, func() { _ = p.Close() })
	if err == nil {
		t.Rank.Absence.Tell()
	}
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
				t.note(number)
				_ = p.Signal(number)
			}
		}
	}
}

// note remembers a signal of Slurm's.
func (t *Task) note(number syscall.Signal) {
	t.passed.Or(1 << number)
	if number == syscall.SIGTERM {
		t.terminated.Store(time.Now().UnixNano())
	}
}

// talk connects the program to Slurm's PMI server. The channel gets why the conversation broke, or nil, at its end.
func (t *Task) talk(p *guest.Process) <-chan error {
	ended := make(chan error, 1)
	if t.PMI == nil || p.PMI == nil {
		ended <- nil
		return ended
	}
	t.Rank.Member, t.Rank.PMIx, t.Rank.Abort, t.Rank.Absence = &t.member, t.PMIx, t.hold, t.absence()
	go func() {
		err := pmi.Relay(t.PMI, p.PMI, t.Rank)
		_ = p.PMI.Close()
		ended <- err
	}()
	return ended
}

// alone reports whether the program could have asked for the other ranks and has not.
func (t *Task) alone() bool { return t.PMI != nil && !t.member.Joined() }

// wrongStart is the sentence about a program that uses an MPI library and is one of several
// tasks, but knows nothing of the others; "" if it is none. link joins what is known and what follows.
func (t *Task) wrongStart(p *guest.Process, link string) string {
	library := p.MPI()
	if t.Rank.Ranks < 2 || library == "" || !t.alone() {
		return ""
	}
	return fmt.Sprintf("the program uses %s, which has not asked %s for the other ranks", library, t.asked()) + link +
		fmt.Sprintf("each of the %d tasks computes alone. %s (if that is meant: --mpi=none)", t.Rank.Ranks, t.rightStart(library))
}

// asked is whom the program could have asked.
func (t *Task) asked() string {
	if t.PMIx {
		return "PMIx"
	}
	return "Slurm's PMI"
}

// openMPI matches the names of Open MPI's libraries, also those for Fortran and C++, which need it: libmpi.so.40, or
// libmpi.so.40.30.4, as the file is called.
var openMPI = regexp.MustCompile(`^libmpi(_mpifh|_usempi[a-z0-9_]*|_cxx|_java)?\.so\.([0-9]+)(\.[0-9]+)*$`)

// isOpenMPI goes by the library's number, too: Open MPI has counted from 20 on since version 2.0; libraries with MPICH's
// binary interface are libmpi.so.12.
func isOpenMPI(library string) bool {
	name := openMPI.FindStringSubmatch(library)
	return name != nil && name[2] != "12"
}

// rightStart says how programs with that MPI library are started.
func (t *Task) rightStart(library string) string {
	switch {
	case isOpenMPI(library) && !t.PMIx:
		return "Open MPI starts with: slurm-v-run --mpi=pmix …"
	case isOpenMPI(library):
		return "Open MPI starts otherwise with: slurm-v-run --launcher=ssh mpirun …"
	case t.PMIx:
		return "Start it with --mpi=pmi2: libraries other than Open MPI ask Slurm's PMI"
	}
	return "This library was not built for PMI-1 or PMI-2 of Slurm; start it with: slurm-v-run --launcher=ssh mpirun …"
}

// initPatience is how long a program may compute before its MPI speaks. Open MPI opens a hundred files before, and 64 ranks
// may start in a VM at once: either took more than 30 s in emulated VMs of a busy machine.
const initPatience = 2 * time.Minute

// warn warns of what may be a wrong start while the program runs. It ends nothing: the program may read its input
// before it starts MPI, or be slow.
func (t *Task) warn(p *guest.Process, patience time.Duration, done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-time.After(patience):
		}
		if !t.alone() {
			return
		}
		if sentence := t.wrongStart(p, fmt.Sprintf(" in %s. If it is past MPI_Init, ", patience)); sentence != "" {
			fmt.Fprintln(t.Stderr, "slurm-v: warning:", sentence)
			return
		}
	}
}

// judge makes a program fail that has ended well although it was started wrongly, has left ranks behind that wait
// for it, or had to use memory that it has not used. It says why.
func (t *Task) judge(exit guest.Exit, p *guest.Process) guest.Exit {
	complaint := t.disappointment()
	if complaint == "" && exit == (guest.Exit{}) {
		complaint = t.complaint(p)
	}
	if complaint != "" {
		fmt.Fprintln(t.Stderr, "slurm-v:", complaint)
	} else {
		t.hint(exit, p)
	}
	if complaint != "" && exit == (guest.Exit{}) {
		return guest.Exit{Code: 1}
	}
	return exit
}

// complaint says what is wrong with a program that has ended well; "" if nothing is.
func (t *Task) complaint(p *guest.Process) string {
	if sentence := t.wrongStart(p, ": "); sentence != "" {
		return "wrong start: " + sentence
	}
	if t.unfinished() {
		return "the program has ended without MPI_Finalize, and the other ranks may wait for it"
	}
	return ""
}

// hint says how Open MPI is started to those whose program has failed, perhaps for that: Open MPI 4 sees Slurm's
// variables and refuses to compute alone, but names no way that there is here.
func (t *Task) hint(exit guest.Exit, p *guest.Process) {
	if library := p.MPI(); exit != (guest.Exit{}) && isOpenMPI(library) && !t.PMIx && t.alone() {
		fmt.Fprintf(t.Stderr, "slurm-v: wrong start: the program uses %s, which does not ask Slurm's PMI. %s\n", library, t.rightStart(library))
	}
}

// explain prints why the PMI conversation broke, if the program failed too: MPI itself
// would only complain about a closed descriptor. What breaks because the VM is lost, or for
// want of shared memory, is said elsewhere.
func (t *Task) explain(exit guest.Exit, ended <-chan error) {
	patience := lastWords
	if t.PMIx { // its server speaks to PMI until this task ends, and what it says of the program has been answered before the program ends
		patience = 0
	}
	var err error
	select {
	case err = <-ended:
	case <-time.After(patience):
	}
	if err != nil && exit != (guest.Exit{}) && !errors.Is(err, guest.ErrLost) && !errors.Is(err, pmi.ErrNotShared) {
		fmt.Fprintln(t.Stderr, "slurm-v:", err)
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
