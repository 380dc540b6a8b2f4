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
)

// An ExitStatus is that of a program which was run for the user. There is nothing to add
// to what the program has said, so it has no text.
type ExitStatus int

func (s ExitStatus) Error() string { return "" }

// An Exec is a step that runs a command in a VM. Its standard input and output are this
// process's own.
type Exec struct {
	Job      slurm.StepJob
	Node     string // that the VM is on
	VM       int    // number in the job
	Terminal bool   // give the command one
}

// Run runs a command that speaks for itself, but for srun's remark on its exit status: that
// is the error, an [ExitStatus]. words gets the rest of its standard error.
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
	agent := []string{"exec", "--vm=" + strconv.Itoa(e.VM)}
	if e.Terminal {
		agent = append(agent, "--terminal")
	}
	s := Step{Job: e.Job, Node: e.Node, Agent: append(append(agent, "--"), command...), Stdin: os.Stdin}
	c := s.command(ctx)
	if e.Terminal {
		c.Args = append([]string{c.Args[0], "--pty"}, c.Args[1:]...)
	}
	c.Dir = ""
	c.Stdout = os.Stdout
	return c
}
