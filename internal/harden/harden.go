// Package harden makes a process of root's its own that was started by somebody else: by
// Slurm in a user's step, or by a user with sudo.
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

// What the plugin and the node's daemons set, and what sudo says. Everything else in
// the environment may be the user's.
var (
	PluginVariables = append([]string{"SLURMV_*", slurm.EnvNodeName}, slurm.ConfVariables...)
	SudoVariables   = []string{"SUDO_UID"}
)

// Process comes before all else in a process of root's that was started in a user's step.
// Its umask, directory, limits and environment are the user's until then: a umask of
// 0777 would shut all others out of the directories that it makes, a limit would end it
// half way. It keeps the variables, of which NAME* is all that begin with NAME.
func Process(variables []string) error {
	unix.Umask(0o022)
	if err := os.Chdir("/"); err != nil {
		return err
	}
	clearEnvironment(variables)
	return raiseLimits()
}

// clearEnvironment keeps the variables, of which NAME* is all that begin with NAME.
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

// enoughFiles is more than an agent of many VMs opens.
const enoughFiles = 16384

// limits are the least that root's work needs. QEMU inherits them.
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

// raiseLimits also forbids core files: root's memory is not for the user's directory.
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
