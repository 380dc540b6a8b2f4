//go:build cluster

package test

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strings"
	"sync"
)

// A board has the states of all jobs. One program asks slurmctld for all tests: a question of
// each test for each of its jobs would take a tenth of the machine.
type board struct {
	mu       sync.Mutex
	news     *sync.Cond
	begun    int               // answers
	complete int               // of these
	states   map[string]string // by job, from the last complete answer
	err      error             // why no more answers come
}

var states = &board{}

// watch prints an answer of squeue's time and again: a line "ask", a line for each job or array
// task, and a line "answered". %F is the same for all tasks of an array.
const watch = `while sleep 1; do echo ask; squeue -h -t all -o '%F %T' && echo answered; done`

// follow reads the states until the program is ended by the function that it returns.
func (b *board) follow() (stop func(), err error) {
	b.news = sync.NewCond(&b.mu)
	ctx, stop := context.WithCancel(context.Background())
	c := root.command(ctx, watch)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err == nil {
		go b.read(c, bufio.NewScanner(out))
	}
	return stop, err
}

func (b *board) read(c *exec.Cmd, lines *bufio.Scanner) {
	now := map[string]string{}
	for lines.Scan() {
		b.mu.Lock()
		job, state, _ := strings.Cut(lines.Text(), " ")
		switch job {
		case "ask":
			b.begun++
			now = map[string]string{}
		case "answered":
			b.complete, b.states = b.begun, now
			b.news.Broadcast()
		default:
			if _, known := now[job]; !known || !isOver(state) {
				now[job] = state // an array is over with its last task
			}
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	b.err = fmt.Errorf("squeue is asked no more: %w", c.Wait())
	b.news.Broadcast()
	b.mu.Unlock()
}

// of returns a job's state, such as RUNNING, as slurmctld says it after of was called.
func (b *board) of(job string) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for next := b.begun + 1; b.complete < next && b.err == nil; {
		b.news.Wait()
	}
	return b.states[job], b.err
}

// isOver reports whether a job in that state will not change any more. A job that slurmctld does
// not list has no state, and is not over.
func isOver(state string) bool {
	switch state {
	case "", "PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "SIGNALING", "REQUEUED", "REQUEUE_HOLD":
		return false
	}
	return true
}
