package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/sshkey"
	"github.com/slurm-v/slurm-v/vmstep"
)

func newSSH() *cobra.Command {
	return &cobra.Command{
		Use:   "ssh [JOB][/VM] [-- COMMAND [ARGUMENT...]]",
		Short: "Log in to a VM with ssh",
		Long: `Log in to a VM of a running job with ssh, as the job's owner.

The connection goes through Slurm and the VM's own channel, so it needs no network
between this host and the VM. It uses the guest's own sshd, with keys that are made
for this login and forgotten after it. If the image has no sshd, use slurmv exec -t.

EXIT STATUS
===========

    ssh's own: the command's, 255 if the connection failed
    1   also: the VM or its node does not answer, or the image has no sshd
    2   also: the command line cannot be run`,
		Example: `  slurmv ssh 4217
  slurmv ssh 4217/vm3 -- dmesg`,
		RunE: func(c *cobra.Command, args []string) error {
			before := c.ArgsLenAtDash()
			if before < 0 {
				before = len(args)
			}
			if before > 1 {
				return usagef("write -- between the VM and the command, as in slurmv ssh 4217/vm0 -- dmesg")
			}
			t, err := targetOf(args[:before], os.Getenv)
			if err != nil {
				return err
			}
			return runSSH(c.Context(), t, args[before:])
		},
	}
}

func runSSH(ctx context.Context, t target, command []string) error {
	job, node, err := findVM(ctx, t)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "slurmv-ssh-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	login, err := newLogin(dir, t, node)
	if err != nil {
		return err
	}
	if err := login.announce(ctx, job); err != nil {
		return fmt.Errorf("%w; slurmv exec -t %s -- sh needs no sshd", err, t)
	}
	return login.run(command)
}

// A login is one use of ssh: its files are in a directory that only the user can
// enter and that is gone afterwards.
type login struct {
	dir    string
	target target
	node   string
	user   string
	self   string // path of slurmv

	told sshkey.Announcement
}

func newLogin(dir string, t target, node string) (*login, error) {
	account, err := user.Current()
	if err != nil {
		return nil, fmt.Errorf("find my account: %w", err)
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	l := &login{dir: dir, target: t, node: node, user: account.Username, self: self}
	return l, l.makeKeys()
}

func (l *login) makeKeys() error {
	mine, err := sshkey.New("slurmv")
	if err != nil {
		return err
	}
	host, err := sshkey.New("slurmv")
	if err != nil {
		return err
	}
	l.told = sshkey.Announcement{Authorized: mine.Public, Host: host.Private}
	return os.WriteFile(l.keyFile(), []byte(mine.Private), 0o600)
}

func (l *login) keyFile() string { return filepath.Join(l.dir, "key") }

var errNoSSH = errors.New("OpenSSH's client is not in PATH: install it, or use slurmv exec -t")

// announce lets the key in. The keys go by standard input: a command line is for
// everybody to see.
func (l *login) announce(ctx context.Context, job vmJob) error {
	text, err := json.Marshal(l.told)
	if err != nil {
		return err
	}
	return step{job: job, node: l.node, agent: []string{"query", "key"}, stdin: bytes.NewReader(text)}.run(ctx, ignore)
}

func ignore(vmstep.Message) error { return nil }

// args are ssh's. Nothing of the user's own configuration applies: it is about
// other hosts. The host's key is not looked at: the way there, through Slurm and
// the VM's own channel, says which VM it is.
func (l *login) args(command []string) []string {
	proxy := fmt.Sprintf("%s forward --node=%s %s 22", shellQuote(l.self), l.node, l.target)
	options := []string{
		"ProxyCommand=" + strings.ReplaceAll(proxy, "%", "%%"),
		"IdentityFile=" + l.keyFile(), "IdentitiesOnly=yes", "IdentityAgent=none", "PreferredAuthentications=publickey",
		"StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "GlobalKnownHostsFile=/dev/null", "LogLevel=ERROR",
	}
	args := []string{"-F", "none", "-l", l.user}
	for _, o := range options {
		args = append(args, "-o", o)
	}
	return append(append(args, "vm"+strconv.Itoa(l.target.vm)), command...)
}

// run leaves signals to ssh, which shares the terminal; slurmv has to stay to
// clean up.
func (l *login) run(command []string) error {
	c := exec.Command("ssh", l.args(command)...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return exitError{exit.ExitCode()}
	case errors.Is(err, exec.ErrNotFound):
		return errNoSSH
	}
	return err
}

// shellQuote makes one word for the shell that ssh starts a ProxyCommand with.
func shellQuote(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
