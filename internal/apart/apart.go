// Package apart starts processes of root that outlive the Slurm step or hook in which
// they are started. Slurm kills all processes in a step's cgroups, so these leave them.
package apart

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/slurm-v/slurm-v/slurm"
)

// hasLeft is what the new program prints once it survives the end of the step or hook.
const hasLeft = "left the step\n"

// Start starts this program with other arguments in a new session, and returns when it
// has left the cgroups of this process. The program must begin with [Stand].
func Start(args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := keepDescriptors(); err != nil {
		return err
	}
	c := exec.Command(self, args...)
	c.Dir, c.Env = "/", slurm.RootEnviron()
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

// keepDescriptors lets no descriptor of this process but the standard ones reach the new
// one. Whoever reads the status pipe of a hook's agent would wait for the new process.
func keepDescriptors() error {
	entries, err := os.ReadDir("/proc/self/fd")
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return err
}

// Stand must be the first call of a program that [Start] has started.
func Stand() error {
	if err := leaveCgroups("/sys/fs/cgroup"); err != nil {
		return err
	}
	if _, err := os.Stdout.WriteString(hasLeft); err != nil {
		return err
	}
	return os.Stdout.Close()
}

// leaveCgroups moves this process from the step's cgroups, whose processes Slurm kills,
// to the roots of the hierarchies.
func leaveCgroups(root string) error {
	files, err := filepath.Glob(filepath.Join(root, "*", "cgroup.procs"))
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil {
		files = []string{filepath.Join(root, "cgroup.procs")} // version 2 has a single hierarchy
	}
	for _, file := range files {
		if err := os.WriteFile(file, []byte("0"), 0o200); err != nil {
			return fmt.Errorf("leave the step's cgroup: %w", err)
		}
	}
	return nil
}
