package guest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// By its slack a thread lets the kernel fire its timers later, together with others. Threads
// and processes inherit it from what starts them: see prctl(2), PR_SET_TIMERSLACK.
const (
	agentSlack   = 4 * time.Millisecond
	programSlack = 50 * time.Microsecond // that of every process of Linux
)

// SlackTimers gives all threads of this process, the agent, timers that can wait. Go's
// runtime looks after itself many times at intervals of 20 µs whenever anything happens. In a
// VM each of these is a timer that the hypervisor has to set and an interrupt that it has to
// deliver, for the sake of a process that is there to wait.
func SlackTimers() error {
	threads, err := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		// One that has ended is of no interest.
		if e := setSlack(thread.Name(), agentSlack); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// MakeOrdinary takes from a process that the agent has started, and so from all that it
// starts, what it has from the agent: timers that can wait, and life when memory is short.
func MakeOrdinary(pid int) error {
	process := strconv.Itoa(pid)
	return errors.Join(setSlack(process, programSlack), os.WriteFile("/proc/"+process+"/oom_score_adj", []byte("0"), 0))
}

// setSlack needs the number of a thread: what a process has is its first thread's.
func setSlack(thread string, slack time.Duration) error {
	err := os.WriteFile("/proc/"+thread+"/timerslack_ns", strconv.AppendInt(nil, slack.Nanoseconds(), 10), 0)
	if err != nil {
		return fmt.Errorf("set the slack of timers: %w", err)
	}
	return nil
}

// sharpenThread gives the thread that it is called in the timers of any program.
func sharpenThread() {
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(programSlack.Nanoseconds()), 0, 0, 0) // nothing to fail
}
