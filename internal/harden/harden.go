// Package harden frees a root process from the influence of the user who caused its
// start, through Slurm in a step or through sudo.
package harden

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/program"
	"github.com/slurm-v/slurm-v/slurm"
)

// The variables that the plugin and the node's daemons set, and that sudo sets. All other
// variables may come from the user.
var (
	PluginVariables = append([]string{"SLURMV_*", slurm.EnvNodeName}, slurm.ConfVariables...)
	SudoVariables   = []string{"SUDO_UID"}
)

// Process must be the first call of a root process that was started in a user's step.
// Until then umask, directory, limits and environment are the user's: a umask of 0777
// would keep everybody else out of the directories that root makes, a limit could end the
// process half way. Process keeps the variables; in their names, NAME* stands for all
// with prefix NAME.
func Process(variables []string) error {
	unix.Umask(0o022)
	if err := os.Chdir("/"); err != nil {
		return err
	}
	clearEnvironment(variables)
	return raiseLimits()
}

// clearEnvironment keeps only the variables; NAME* stands for all with prefix NAME.
func clearEnvironment(variables []string) {
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if !slices.ContainsFunc(variables, func(v string) bool { return matches(v, name) }) {
			_ = os.Unsetenv(name)
		}
	}
	_ = os.Setenv("PATH", program.Path)
}

func matches(variable, name string) bool {
	prefix, all := strings.CutSuffix(variable, "*")
	return name == variable || all && strings.HasPrefix(name, prefix)
}

// enoughFiles is more than an agent with many VMs opens.
const enoughFiles = 16384

// limits are the least values that root's work needs. QEMU inherits them.
var limits = []struct {
	name     string
	resource int
	least    uint64
}{
	{"file size", unix.RLIMIT_FSIZE, unix.RLIM_INFINITY},
	{"CPU time", unix.RLIMIT_CPU, unix.RLIM_INFINITY},
	{"address space", unix.RLIMIT_AS, unix.RLIM_INFINITY},
	{"data", unix.RLIMIT_DATA, unix.RLIM_INFINITY},
	{"open files", unix.RLIMIT_NOFILE, enoughFiles},
}

// raiseLimits also forbids core files, which would put root's memory into a user's
// directory.
func raiseLimits() error {
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}); err != nil {
		return fmt.Errorf("forbid core files: %w", err)
	}
	for _, limit := range limits {
		var now unix.Rlimit
		if err := unix.Getrlimit(limit.resource, &now); err != nil {
			return fmt.Errorf("read the limit of %s: %w", limit.name, err)
		}
		if now.Cur >= limit.least {
			continue
		}
		raised := unix.Rlimit{Cur: limit.least, Max: max(now.Max, limit.least)}
		if err := unix.Setrlimit(limit.resource, &raised); err != nil {
			return fmt.Errorf("raise the limit of %s from %d to %d: %w", limit.name, now.Cur, raised.Cur, err)
		}
	}
	return nil
}
