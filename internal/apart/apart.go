// Package apart starts processes of root's that outlive the Slurm step, or the hook of
// Slurm's, in which they are started: Slurm kills all that is in a step's cgroups.
package apart

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/slurm-v/slurm-v/internal/program"
)

// hasLeft is what a program apart says once the end of the step, or of Slurm's hook,
// is not its own.
const hasLeft = "left the step\n"

// Start starts this program with other arguments in a session of its own, and
// returns when it has left the cgroups of this one: it has to begin with [Stand].
func Start(args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.Command(self, args...)
	c.Dir, c.Env = "/", []string{"PATH=" + program.Path}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := c.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	if said, err := io.ReadAll(out); string(said) != hasLeft {
		return errors.Join(fmt.Errorf("slurmv-agent %s ended early", args[0]), c.Wait(), err)
	}
	return nil
}

// Stand is what the program that [Start] has started does first.
func Stand() error {
	if err := leaveCgroups("/sys/fs/cgroup"); err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString(hasLeft); err != nil {
		return err
	}
	return os.Stdout.Close()
}

// leaveCgroups moves this process to the roots of the cgroup hierarchies, out of
// those of the step, with which it would be killed.
func leaveCgroups(root string) error {
	files, err := filepath.Glob(filepath.Join(root, "*", "cgroup.procs"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
		files = []string{filepath.Join(root, "cgroup.procs")} // version 2: all in one
	}
	for _, file := range files {
		if err := os.WriteFile(file, []byte("0"), 0o200); err != nil {
			return fmt.Errorf("leave the step's cgroup: %w", err)
		}
	}
	return nil
}
