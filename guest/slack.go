package guest

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

// A thread's slack allows the kernel to fire the thread's timers later, together with
// others. Threads and processes inherit it from the thread that starts them: see prctl(2),
// PR_SET_TIMERSLACK.
const (
	agentSlack   = 4 * time.Millisecond
	programSlack = 50 * time.Microsecond // Linux's default
)

// SlackTimers lets the timers of all threads of this process, the agent, fire later.
// Whenever anything happens, Go's runtime wakes up many times at intervals of 20 µs. In a
// VM, the hypervisor has to set a timer and deliver an interrupt for each of these, only
// for an agent that mostly waits.
func SlackTimers() error {
	threads, err := os.ReadDir("/proc/self/task")
	for _, thread := range threads {
		// A thread that has ended does not matter.
		if e := setSlack(thread.Name(), agentSlack); !errors.Is(e, os.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	return err
}

// MakeOrdinary undoes, for a thread of a process that the agent has started, what the
// process inherits from the agent: the late timers and, for the whole process, the
// protection from being killed when memory is short. Everything that the thread starts
// becomes ordinary too. A process has the number of its first thread.
func MakeOrdinary(thread int) error {
	number := strconv.Itoa(thread)
	return errors.Join(setSlack(number, programSlack), os.WriteFile("/proc/"+number+"/oom_score_adj", []byte("0"), 0))
}

// setSlack sets the slack of one thread. There is no slack of a whole process.
func setSlack(thread string, slack time.Duration) error {
	err := os.WriteFile("/proc/"+thread+"/timerslack_ns", strconv.AppendInt(nil, slack.Nanoseconds(), 10), 0)
	if err != nil {
		return fmt.Errorf("set the slack of timers: %w", err)
	}
	return nil
}
