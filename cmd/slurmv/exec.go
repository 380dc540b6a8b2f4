package main

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

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

func newExec() *cobra.Command {
	var terminal bool
	c := &cobra.Command{
		Use:   "exec [-t] [JOB][/VM] -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a VM",
		Long: `Run a command in a VM of a running job, as the job's owner.

Standard input, output and error are connected to the command, and its exit status
is slurmv's. The working directory is this one, if the VM has it. The command ends
when slurmv or the job ends.

EXIT STATUS
===========

    the command's own; 128 + N if signal N killed it
    1   also: the VM or its node does not answer, or the job has none
    2   also: the command line cannot be run`,
		Example: `  slurmv exec 4217 -- uname -a
  slurmv exec 4217/vm3 -- tail -f /var/log/messages
  slurmv exec -t 4217/vm1 -- bash`,
		Args: atLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			before := c.ArgsLenAtDash()
			if before < 0 || before > 1 || before == len(args) {
				return usagef("write -- between the VM and the command, as in slurmv exec 4217/vm0 -- uname -a")
			}
			t, err := targetOf(args[:before], os.Getenv)
			if err != nil {
				return err
			}
			return runExec(c.Context(), t, terminal, args[before:], c.ErrOrStderr())
		},
	}
	c.Flags().BoolVarP(&terminal, "terminal", "t", false, "give the command a terminal: for shells and editors")
	return c
}

func runExec(ctx context.Context, t target, terminal bool, command []string, words io.Writer) error {
	if terminal && !term.IsTerminal(int(os.Stdin.Fd())) {
		return usagef("-t: standard input is not a terminal; leave out -t")
	}
	job, node, err := findVM(ctx, t)
	if err != nil {
		return err
	}
	return runProgram(execStep(ctx, job, node, t.vm, terminal, command), words)
}

// execStep is the step that runs a command in a VM. Its standard streams are
// slurmv's own.
func execStep(ctx context.Context, job vmJob, node string, vm int, terminal bool, command []string) *exec.Cmd {
	agent := []string{"exec", "--vm=" + strconv.Itoa(vm)}
	if terminal {
		agent = append(agent, "--terminal")
	}
	s := step{job: job, node: node, agent: append(append(agent, "--"), command...), stdin: os.Stdin}
	c := s.command(ctx)
	if terminal {
		c.Args = append([]string{c.Args[0], "--pty"}, c.Args[1:]...)
	}
	c.Dir = ""
	c.Stdout = os.Stdout
	return c
}

// runProgram runs a command that speaks for itself, but for srun's remark on its
// exit status, which slurmv passes on as its own.
func runProgram(c *exec.Cmd, words io.Writer) error {
	filter := &remarkFilter{out: words}
	c.Stderr = filter
	err := errors.Join(c.Run(), filter.Close())
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exitError{exit.ExitCode()}
	case errors.Is(err, exec.ErrNotFound):
		return slurmError("srun", err)
	case err != nil:
		return fmt.Errorf("run the command: %w", err)
	}
	return nil
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
