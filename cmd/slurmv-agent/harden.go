package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/program"
)

// What the plugin and the node's daemons set, and what sudo says. Everything else in
// the environment may be the user's.
var (
	pluginVariables = []string{"SLURMV_*", "SLURM_CONF", "SLURM_CONF_SERVER", "SLURMD_NODENAME"}
	sudoVariables   = []string{"SUDO_UID"}
)

// harden comes before all else in a process of root's that was started in a user's step.
// Its umask, directory, limits and environment are the user's until then: a umask of
// 0777 would shut all others out of the directories that it makes, a limit would end it
// half way.
func harden(variables []string) error {
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

// hardened makes a command with --config and --task begin so, whoever starts it. launch
// does it by itself, since it has to tell its errors in another way.
func hardened(c *cobra.Command) *cobra.Command {
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		path, variables := c.Flag("config").Value.String(), pluginVariables
		if c.Flag("task").Value.String() == "true" {
			path, variables = config.Path, sudoVariables
		}
		if err := harden(variables); err != nil {
			return err
		}
		cfg, _ := config.Load(path) // the command itself says what is wrong with it
		slurmBin = cfg.Slurm.Bin
		return nil
	}
	return c
}
