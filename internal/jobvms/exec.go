package jobvms

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"

	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// An ExitStatus is the exit status of a program that ran for the user. It has no text,
// since the program has printed its own messages.
type ExitStatus int

func (s ExitStatus) Error() string { return "" }

// An Exec is a step that runs a command in a VM, with this process's own standard input
// and output.
type Exec struct {
	Job      slurm.StepJob
	Node     string // the VM's node
	VM       int    // number in the job
	Terminal bool   // give the command a terminal
}

// Run runs a command whose messages suffice for the user. It removes srun's remark on the
// exit status, and returns that status as an [ExitStatus]. words gets the other lines of
// standard error.
func (e Exec) Run(ctx context.Context, command []string, words io.Writer) error {
	c := e.process(ctx, command)
	filter := &slurm.RemarkFilter{Out: words}
	c.Stderr = filter
	err := errors.Join(c.Run(), filter.Close())
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return ExitStatus(exit.ExitCode())
	case errors.Is(err, exec.ErrNotFound):
		return slurm.NotInPATH("srun")
	case err != nil:
		return fmt.Errorf("run the command: %w", err)
	}
	return nil
}

func (e Exec) process(ctx context.Context, command []string) *exec.Cmd {
	relay := []string{vmstep.RelayPath(), "--vm=" + strconv.Itoa(e.VM)}
	if e.Terminal {
		relay = append(relay, "--terminal")
	}
	s := Step{Job: e.Job, Node: e.Node, Command: append(append(relay, "--"), command...), Stdin: os.Stdin}
	c := s.command(ctx)
	if e.Terminal {
		c.Args = append([]string{c.Args[0], "--pty"}, c.Args[1:]...)
	}
	c.Dir = ""
	c.Stdout = os.Stdout
	return c
}
