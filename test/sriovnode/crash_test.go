//go:build sriov

package sriovnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool"
)

// Of the environment of a process that is to die: at which of its steps, doing
// what, where its leases are.
const (
	dieAt   = "SRIOVNODE_DIE_AT"
	doing   = "SRIOVNODE_DOING"
	stateIn = "SRIOVNODE_STATE"
)

// A process is killed with SIGKILL before each step of taking a VF and of giving
// it back; the next one finds all that it has left.
func TestKilledAtEveryStep(t *testing.T) {
	for _, what := range []string{"acquire", "release"} {
		t.Run(what, func(t *testing.T) {
			before := snapshot(t)
			for n := 1; ; n++ {
				l := newLab(t)
				step, killed := l.kill(t, what, n)
				if !killed {
					if n < 12 {
						t.Errorf("there are only %d steps", n-1)
					}
					t.Logf("%d steps", n-1)
				}
				l.release(t, journal.ID{Job: 7})
				if l.checkClean(t, before); t.Failed() {
					t.Fatalf("killed before step %d, %q", n, step)
				}
				if !killed {
					return
				}
			}
		})
	}
}

// kill runs a process that is killed before step n, which it names, unless it ends
// before.
func (l lab) kill(t *testing.T, what string, n int) (step string, killed bool) {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), fmt.Sprint(dieAt, "=", n), doing+"="+what, stateIn+"="+l.state)
	out, err := c.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL {
		return lines[len(lines)-1], true
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return "", false
}

// liveAndDie is the process that dies.
func liveAndDie() {
	last, err := strconv.Atoi(os.Getenv(dieAt))
	if err != nil {
		fail(err)
	}
	l := lab{os.Getenv(stateIn)}
	if os.Getenv(doing) == "acquire" {
		l.take(killer(last))
		os.Exit(0)
	}
	l.take(func(string) {})
	if err := l.open(killer(last)).Release(context.Background(), journal.ID{Job: 7}); err != nil {
		fail(err)
	}
	os.Exit(0)
}

// killer returns a function that kills the process when it is called for the nth
// time, and says what comes then.
func killer(n int) func(step string) {
	var steps atomic.Int64
	return func(step string) {
		if steps.Add(1) == int64(n) {
			fmt.Println(step)
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
}

func (l lab) open(before func(string)) *vfpool.Pool {
	p, err := vfpool.OpenBefore(l.config(), "n1", before)
	if err != nil {
		fail(err)
	}
	return p
}

func (l lab) take(before func(string)) {
	c := claim(7, 100, vfsOfTheDying...)
	if _, err := l.open(before).Acquire(context.Background(), c); err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Println(err)
	os.Exit(1)
}
