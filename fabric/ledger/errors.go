package ledger

import (
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

var (
	// errUnknown says that the ledger has no tags of that job.
	errUnknown = errors.New("the ledger does not have this job; `slurmv fabric pool` shows those that it has")

	// ErrEnded says that the job has ended, and that its tags are being released.
	ErrEnded = errors.New("the job has ended, and its tags are being released")

	// ErrRunning says that the job has not ended.
	ErrRunning = errors.New("the job has not ended, and uses its tags; cancel it first")

	// ErrExhausted matches every [ExhaustedError].
	ErrExhausted = errors.New("too few tags are free")
)

// An ExhaustedError says that a pool has too few free tags.
type ExhaustedError struct {
	Pool             string
	Kind             fabric.Kind
	Want, Free, Size int
	// Next is when as many tags as wanted are free if nothing happens but cooling; zero if
	// that does not suffice.
	Next time.Time
}

func (e *ExhaustedError) Error() string {
	text := fmt.Sprintf("pool %q: %s", e.Pool, e.why())
	if e.Next.IsZero() {
		return text + "; jobs and their nodes have the others"
	}
	return text + "; the others cool until " + e.Next.Format(time.TimeOnly)
}

// why is what a job reads that goes on without its tags.
func (e *ExhaustedError) why() string {
	return fmt.Sprintf("%s wanted, %d of %d free", plural(e.Want, e.Kind), e.Free, e.Size)
}

// Is reports whether target is [ErrExhausted].
func (e *ExhaustedError) Is(target error) bool { return target == ErrExhausted }

// A limitError says that no job can have so many tags.
type limitError struct {
	Kind fabric.Kind
	Want int
}

func (e *limitError) Error() string {
	return fmt.Sprintf("%s wanted; a job can have 0 to %d", plural(e.Want, e.Kind), config.MaxVNIs)
}

// A ConflictError says that two jobs have one tag.
type ConflictError struct {
	Kind       fabric.Kind
	Tag        fabric.Tag
	Job, Other journal.ID
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("%s is job %s's and job %s's; cancel one of them, and when both are gone: slurmv fabric release --force", e.tag(), e.Job, e.Other)
}

func (e *ConflictError) tag() string { return e.Kind.Word() + " " + e.Tag.Text(e.Kind) }

// why is the reason of the quarantine of one job: the other.
func (e *ConflictError) why(other journal.ID) string {
	return e.tag() + " is also job " + other.String() + "'s"
}

// An otherJobError says that the ledger has another job with this number: it is not the
// ledger of this cluster, or slurmctld has begun its numbers anew.
type otherJobError struct {
	Job     journal.ID
	Cluster string
	UID     uint32
}

func (e *otherJobError) Error() string {
	return fmt.Sprintf("the ledger has a job %s already, of user %d on cluster %q; when it is gone: slurmv fabric release --force %d", e.Job, e.UID, e.Cluster, e.Job.Job)
}

// A damagedError says that the file is no ledger, or cannot be read.
type damagedError struct {
	Path string
	Err  error
}

func (e *damagedError) Error() string {
	return fmt.Sprintf("%s: %v; restore it from a copy, or move it away: the next reservation then makes a new ledger from the jobs that run. Run `slurmv fabric clean` on the nodes first, for those that have ended", e.Path, e.Err)
}

func (e *damagedError) Unwrap() error { return e.Err }

func plural(n int, kind fabric.Kind) string {
	if n == 1 {
		return "1 " + kind.Word()
	}
	return fmt.Sprintf("%d %ss", n, kind.Word())
}
