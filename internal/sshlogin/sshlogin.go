// Package sshlogin logs in to a VM with OpenSSH's client. It makes keys for one login,
// and reaches the VM through Slurm and the VM's own channel instead of a network.
package sshlogin

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

	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/internal/sshkey"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// Run runs a command, or a shell, in the VM. ssh's exit status, if it is not 0, is a
// [jobvms.ExitStatus].
func Run(ctx context.Context, t jobvms.Target, command []string) error {
	job, node, err := jobvms.FindVM(ctx, t)
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

// A login is one use of ssh. Its files are in a directory that only the user can enter
// and that is removed afterwards.
type login struct {
	dir    string
	target jobvms.Target
	node   string
	user   string
	self   string // path of slurmv

	told sshkey.Announcement
}

func newLogin(dir string, t jobvms.Target, node string) (*login, error) {
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

// announce lets the key in. It sends the keys by standard input, because every user can
// read command lines.
func (l *login) announce(ctx context.Context, job slurm.StepJob) error {
	text, err := json.Marshal(l.told)
	if err != nil {
		return err
	}
	return jobvms.Step{Job: job, Node: l.node, Command: vmstep.AgentQuery("key"), Stdin: bytes.NewReader(text)}.Run(ctx, jobvms.Ignore)
}

// args returns ssh's arguments. They exclude the user's own configuration, which is about
// other hosts. They do not check the host's key: the connection goes through Slurm and
// the VM's own channel, which lead to the right VM.
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
	return append(append(args, "vm"+strconv.Itoa(l.target.VM)), command...)
}

// run ignores signals, which ssh gets from the same terminal; slurmv must stay to clean
// up.
func (l *login) run(command []string) error {
	c := exec.Command("ssh", l.args(command)...)
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := c.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		return jobvms.ExitStatus(exit.ExitCode())
	case errors.Is(err, exec.ErrNotFound):
		return errNoSSH
	}
	return err
}

// shellQuote quotes a word for the shell with which ssh starts a ProxyCommand.
func shellQuote(word string) string {
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
