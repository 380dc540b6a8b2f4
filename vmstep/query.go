package vmstep

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// StepProcess is the process of an srun which asks the agents of a job. It ends
// gently, so that the tasks on the nodes end, too, and also when this process is
// killed.
func StepProcess(ctx context.Context, args, env []string) *exec.Cmd {
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Env = env
	c.Dir = "/"
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 5 * time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return c
}

// A StepError is how a step failed, in srun's words or those of its tasks.
type StepError struct{ Err error }

func (e *StepError) Error() string { return e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// Query runs the process that start makes and gives each message of the agents to
// take. It returns the first refusal of an agent, in the agent's words, or else a
// [StepError]. One node that refuses does not keep the others from answering. An
// error of take ends the step.
func Query(ctx context.Context, start func(context.Context) *exec.Cmd, take func(Message) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var refused error
	var words bytes.Buffer
	c := start(ctx)
	c.Stderr = &words
	c.Stdout = &Frames{Message: func(m Message) {
		if err := refusal(m); err != nil && refused == nil {
			refused = err
		} else if err := take(m); err != nil {
			cancel(err)
		}
	}}
	err := c.Run()
	switch cause := context.Cause(ctx); {
	case cause != nil:
		return cause
	case refused != nil:
		return refused
	case err != nil:
		return NewStepError(err, words.String())
	}
	return nil
}

// refusal is the sentence in which an agent refuses.
func refusal(m Message) error {
	if m.Kind != KindFailed {
		return nil
	}
	var f Failure
	if err := m.Decode(&f); err != nil {
		return err
	}
	return fmt.Errorf("node %s: %s", m.Node, f.Error)
}

// NewStepError prefers the first sentence of what srun has said to its exit
// status.
func NewStepError(err error, words string) error {
	for line := range strings.Lines(words) {
		if line = strings.TrimSpace(line); line != "" {
			return &StepError{errors.New(line)}
		}
	}
	return &StepError{fmt.Errorf("srun: %w", err)}
}
