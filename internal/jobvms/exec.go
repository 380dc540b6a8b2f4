package jobvms

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
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
	filter := &remarkFilter{out: words}
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

// remark is how srun comments on the exit status of a task.
var remark = regexp.MustCompile(`^srun: error: \S+: task 0: Exited with exit code [0-9]+$`)

// A remarkFilter passes on lines but for remarks. A line's beginning that cannot
// become one goes on at once: a prompt has no line end.
type remarkFilter struct {
	out  io.Writer
	line []byte // held back
}

const remarkStart = "srun: error: "

func (f *remarkFilter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		end := bytes.IndexByte(p, '\n') + 1
		if end == 0 {
			end = len(p)
		}
		f.line = append(f.line, p[:end]...)
		p = p[end:]
		if err := f.pass(); err != nil {
			return 0, err
		}
	}
	return n, nil
}

// pass lets go what is held back, unless it is or may become a remark.
func (f *remarkFilter) pass() error {
	whole := f.line[len(f.line)-1] == '\n'
	switch {
	case whole && remark.Match(bytes.TrimRight(f.line, "\r\n")):
		f.line = f.line[:0]
		return nil
	case !whole && len(f.line) < 1024 && mayBeRemark(f.line):
		return nil
	}
	return f.Close()
}

func mayBeRemark(line []byte) bool {
	n := min(len(line), len(remarkStart))
	return string(line[:n]) == remarkStart[:n]
}

// Close passes on what is held back.
func (f *remarkFilter) Close() error {
	line := f.line
	f.line = nil
	_, err := f.out.Write(line)
	return err
}
