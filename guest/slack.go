package guest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
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

// MakeOrdinary takes from a thread of a process that the agent has started, and so from all
// that it starts, what it has from the agent: timers that can wait, and, with the whole
// process, life when memory is short. A process has the number of its first thread.
func MakeOrdinary(thread int) error {
	number := strconv.Itoa(thread)
	return errors.Join(setSlack(number, programSlack), os.WriteFile("/proc/"+number+"/oom_score_adj", []byte("0"), 0))
}

// setSlack sets it for one thread: a process has none of its own.
func setSlack(thread string, slack time.Duration) error {
	err := os.WriteFile("/proc/"+thread+"/timerslack_ns", strconv.AppendInt(nil, slack.Nanoseconds(), 10), 0)
	if err != nil {
		return fmt.Errorf("set the slack of timers: %w", err)
	}
	return nil
}
