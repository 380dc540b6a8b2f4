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

// StepProcess is the process of an srun that asks the agents of a job. It is ended with
// SIGTERM, so that its tasks on the nodes end too. This also happens if this process is
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

// A StepError is the failure of a step, in the words of srun or its tasks.
type StepError struct{ Err error }

func (e *StepError) Error() string { return e.Err.Error() }
func (e *StepError) Unwrap() error { return e.Err }

// Query runs the process that start makes and gives each message of the agents to take. If
// an agent refuses, Query returns the first refusal, in the agent's words; the other nodes
// still answer. If the step itself fails, it returns a [StepError]. An error of take ends
// the step.
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

// refusal returns the agent's error if the message is a refusal.
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

// NewStepError makes a StepError of the first sentence that srun has printed, or else of
// its exit status.
func NewStepError(err error, words string) error {
	for line := range strings.Lines(words) {
		if line = strings.TrimSpace(line); line != "" {
			return &StepError{errors.New(line)}
		}
	}
	return &StepError{fmt.Errorf("srun: %w", err)}
}
