package relay

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/pmi"
)

const (
	// abortPatience bounds how long a program may live after it has asked Slurm to end its run.
	abortPatience = 5 * time.Second

	// killPatience bounds how long after SIGTERM the end of a program may follow from it. If Slurm ends a run, it kills what
	// is left KillWait later, 30 s by default.
	killPatience = time.Minute

	// readPatience bounds how long slurmstepd may take to read the last words of a task.
	readPatience = time.Second
)

// hold keeps the program's own abort back. Slurm 24.11 kills all tasks of the run as soon as it hears of it, and what the
// program says at its end would be lost. It is sent by [Task.Leave], or when a program does not end.
func (t *Task) hold(abort []byte) {
	t.abort.Store(&abort)
	time.AfterFunc(cmp.Or(t.abortPatience, abortPatience), func() { t.endRun(t.abort.Swap(nil)) })
}

// Leave ends the conversation with Slurm's PMI server. If the program was a rank and has not finalized, the others
// may wait for it for ever, so Slurm is asked to end them. Then the task must end at once: Slurm may kill it, too.
func (t *Task) Leave(exit guest.Exit) {
	if t.PMI == nil {
		return
	}
	abort := t.abort.Swap(nil)
	if abort == nil && !t.ends.Load() && t.unfinished() && !t.PMIx && !t.SparesRanks && !t.told(exit) {
		message := t.member.Abort()
		abort = &message
	}
	t.endRun(abort)
	_ = t.PMI.Close()
}

// endRun asks Slurm to end all tasks of the run, if there is such a message.
func (t *Task) endRun(abort *[]byte) {
	if abort == nil {
		return
	}
	t.ends.Store(true)
	awaitRead(readPatience, t.Stdout, t.Stderr)
	_, _ = t.PMI.Write(*abort)
}

// awaitRead waits until the readers of pipes have read all that was written.
func awaitRead(patience time.Duration, streams ...any) {
	for end := time.Now().Add(patience); slices.ContainsFunc(streams, hasUnread) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// hasUnread reports whether the stream is a pipe with bytes in it. TIOCINQ, which is FIONREAD, counts them at either end.
func hasUnread(stream any) bool {
	file, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return false
	}
	n, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCINQ)
	return err == nil && n > 0
}

// absence is what the relay needs so that no rank waits for ever for a task that has ended without MPI_Init.
func (t *Task) absence() *pmi.Absence {
	if t.Rank.Absence == nil || t.SparesRanks {
		return nil
	}
	t.Rank.Absence.Misses = t.miss
	return t.Rank.Absence
}

// NeverStarted says that the program of this task could not be started.
func (t *Task) NeverStarted() {
	if t.PMI == nil {
		return
	}
	t.Rank.Member, t.Rank.Absence = &t.member, t.absence()
	_ = pmi.Relay(t.PMI, noProgram{}, t.Rank)
	t.Rank.Absence.Tell()
	_ = t.PMI.Close()
}

// noProgram is a program's end of the conversation with PMI.
type noProgram struct{}

func (noProgram) Read([]byte) (int, error)    { return 0, io.EOF }
func (noProgram) Write(p []byte) (int, error) { return len(p), nil }

// miss ends the run: a task has ended, and this rank would wait for it for ever.
func (t *Task) miss(task string) {
	number, node, _ := strings.Cut(task, "@")
	fmt.Fprintf(t.Stderr, "slurm-v: task %s on %s has ended without MPI_Init, and the other tasks would wait for it there for ever. The run ends.\n", number, node)
	message := t.member.Abort()
	t.endRun(&message)
}

// unfinished reports whether the program has left ranks behind that may wait for it.
func (t *Task) unfinished() bool { return t.member.Within() && t.Rank.Ranks > 1 }

// told reports whether Slurm has just sent the task the signal by which it ends all tasks of a run, or ever that of which
// the program died. The others have it, too, and slurmctld should not hear of it from each of them. A SIGTERM that the program
// has outlived ends nothing.
func (t *Task) told(exit guest.Exit) bool {
	since := time.Since(time.Unix(0, t.terminated.Load()))
	return t.passed.Load()&(1<<exit.Signal)&^1 != 0 || since < cmp.Or(t.killPatience, killPatience)
}
