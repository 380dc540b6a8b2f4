package slurm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/slurm-v/slurm-v/internal/program"
)

// A Client runs Slurm's commands. The zero Client is for root in a user's job. It runs
// the commands by their absolute paths and passes on nothing of this process's
// environment: the user's SLURM_CONF could name a slurmctld of the user's.
type Client struct {
	Bin string   // directory of Slurm's commands, if not in [program.Path]: [slurm] bin of the configuration
	Env []string // environment of the commands; nil for nothing but PATH

	byPATH bool // find the commands as the user's shell does
}

// User returns the client for users: it finds the commands by PATH. env is their
// environment; variables that would filter or reshape the answers are removed.
func User(env []string) Client {
	kept := slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		return strings.HasPrefix(entry, "SQUEUE_") || strings.HasPrefix(entry, "SACCT_") || strings.HasPrefix(entry, timeFormat+"=")
	})
	return Client{Env: append(kept, timeFormat+"=%s"), byPATH: true}
}

// ErrUnknownJob matches the error if Slurm does not know a job, or has forgotten it.
var ErrUnknownJob = errors.New("Slurm does not know the job")

// A CommandError is the failure of a Slurm command that was started.
type CommandError struct {
	Command string // if root ran it, with its arguments
	Stderr  string // trimmed
	Err     error  // its exit status
	byRoot  bool
}

func (e *CommandError) Error() string {
	switch {
	case e.Stderr == "":
		return fmt.Sprintf("%s: %v", e.Command, e.Err)
	case e.byRoot:
		return fmt.Sprintf("%s: %v: %s", e.Command, e.Err, e.Stderr)
	}
	return e.Command + ": " + e.Stderr
}

// Unwrap returns the exit status.
func (e *CommandError) Unwrap() error { return e.Err }

// Is reports whether target is [ErrUnknownJob] and Slurm's answer means that.
func (e *CommandError) Is(target error) bool {
	return target == ErrUnknownJob && strings.Contains(e.Stderr, "Invalid job id")
}

// Run returns what a command prints. A client of [User] can also run commands other than
// Slurm's.
func (c Client) Run(ctx context.Context, name string, args ...string) (string, error) {
	command, err := c.command(ctx, name, args...)
	if err != nil {
		return "", err
	}
	out, err := command.Output()
	if err != nil {
		return "", c.failure(err, name, args)
	}
	return string(out), nil
}

// ignoringSIGPIPE makes a shell become a command that SIGPIPE does not end. munged hangs up
// on a client that sends nothing for 2 seconds, as on a busy node. libmunge then tries again,
// but Slurm's commands leave SIGPIPE at its default, which ends them before.
const ignoringSIGPIPE = `trap '' PIPE; exec "$0" "$@"`

// command returns the command with its path and environment. It needs no shell if this process ignores SIGPIPE: what it starts
// inherits that.
func (c Client) command(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	path, err := c.find(name)
	if err != nil {
		return nil, err
	}
	command := exec.CommandContext(ctx, path, args...)
	if !signal.Ignored(syscall.SIGPIPE) {
		command = exec.CommandContext(ctx, "/bin/sh", slices.Concat([]string{"-c", ignoringSIGPIPE, path}, args)...)
	}
	if command.Env = c.Env; c.Env == nil {
		command.Env = pathOnly()
	}
	return command, nil
}

func pathOnly() []string { return []string{"PATH=" + program.Path} }

func (c Client) find(name string) (path string, err error) {
	if c.byPATH {
		return lookPATH(name)
	}
	path, err = program.Find(c.Bin, name)
	if err != nil {
		return "", fmt.Errorf("%w; where Slurm is installed elsewhere, say so by bin in [slurm] of slurmv.toml", err)
	}
	return path, nil
}

func lookPATH(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", NotInPATH(name)
	case err != nil:
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return path, nil
}

// NotInPATH returns the error for a command that is not in the user's PATH.
func NotInPATH(name string) error {
	return fmt.Errorf("%s is not in PATH: load the module of your site's Slurm, or add its bin directory", name)
}

// failure adds the command's error output: an exit status alone helps nobody.
func (c Client) failure(err error, name string, args []string) error {
	if !c.byPATH {
		name += " " + strings.Join(args, " ")
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("%s: %w", name, err)
	}
	return &CommandError{Command: name, Stderr: strings.TrimSpace(string(exit.Stderr)), Err: err, byRoot: !c.byPATH}
}

// Srun returns the absolute path of the srun that PATH finds.
func Srun() (string, error) {
	path, err := lookPATH("srun")
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// SrunHelp returns the output of srun --help, which has its own and its plugins' options,
// or "". Variables that set options of steps are removed, since they would disturb srun.
func SrunHelp() string {
	path, err := Srun()
	if err != nil {
		return ""
	}
	command := exec.Command(path, "--help")
	command.Env = slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "SLURM_DEBUG=") })
	text, _ := command.Output()
	return string(text)
}
