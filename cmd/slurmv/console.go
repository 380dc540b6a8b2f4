package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/vmstep"
)

// leaveKey ends slurmv console --follow, as it ends virsh console: Ctrl-].
const leaveKey = 0x1d

func newConsole() *cobra.Command {
	var follow bool
	c := &cobra.Command{
		Use:   "console [flags] [JOB][/VM]",
		Short: "Show the serial console of a VM",
		Long: `Show what a VM has printed on its serial console: the messages of its kernel
and of its boot.

With --follow it also shows what the VM prints from now on. If standard input is a
terminal, you type on the console; Ctrl-] leaves it.

EXIT STATUS
===========

    0   the console was shown
    1   the VM or its node does not answer, or the job has none
    2   the command line cannot be run`,
		Example: `  slurmv console 4217
  slurmv console --follow 4217/vm3`,
		Args: cli.AtMostOne(),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := targetOf(args, os.Getenv)
			if err != nil {
				return err
			}
			return runConsole(c.Context(), t, follow, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().BoolVarP(&follow, "follow", "f", false, "show new output as it comes, and type on the console")
	return c
}

func runConsole(ctx context.Context, t jobvms.Target, follow bool, out, words io.Writer) error {
	job, node, err := jobvms.FindVM(ctx, t)
	if err != nil {
		return err
	}
	s := jobvms.Step{Job: job, Node: node, Command: vmstep.AgentQuery("console", "--vm="+strconv.Itoa(t.VM))}
	if !follow {
		return s.Run(ctx, jobvms.StreamTo(out))
	}
	s.Command = append(s.Command, "--follow")
	if fd := int(os.Stdin.Fd()); term.IsTerminal(fd) {
		fmt.Fprintf(words, "Console of %s; Ctrl-] leaves it.\n", t)
		return onTerminal(ctx, s, fd, out)
	}
	return withoutInterrupt(ctx, s.Run(ctx, jobvms.StreamTo(out)))
}

// onTerminal passes every key but leaveKey to the VM.
func onTerminal(ctx context.Context, s jobvms.Step, fd int, out io.Writer) error {
	old, err := term.MakeRaw(fd)
	if err != nil {
		return err
	}
	defer func() { _ = term.Restore(fd, old) }()
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	s.Stdin = &keyReader{in: os.Stdin, leave: leave}
	return withoutInterrupt(ctx, s.Run(ctx, jobvms.StreamTo(out)))
}

// withoutInterrupt returns no error if the user has left with leaveKey or Ctrl-C.
func withoutInterrupt(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil
	}
	return err
}

// A keyReader reads keys until leaveKey.
type keyReader struct {
	in    io.Reader
	leave func()
}

func (r *keyReader) Read(p []byte) (int, error) {
	n, err := r.in.Read(p)
	for i, key := range p[:n] {
		if key == leaveKey {
			r.leave()
			return i, io.EOF
		}
	}
	return n, err
}
