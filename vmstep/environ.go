package vmstep

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/slurm"
)

// pluginPrefixes begin the variables that tell our plugin the job's request.
// The options of other plugins stay behind: they were meant for the programs.
var pluginPrefixes = []string{
	slurm.SpankPrefix + "SLURMV_", slurm.SpankPrefix + slurm.OptionPrefix + "slurmv_", slurm.OptionPrefix + "slurmv_",
}

// StepEnv returns the environment of the VM step's srun: env without anything
// that would change the step, such as SLURM_NTASKS or SLURM_CPU_BIND.
func StepEnv(env []string) []string {
	return keep(env, func(name string) bool {
		return slurm.Identifies(name) || hasPrefix(name, pluginPrefixes) || !slurm.OfAStep(name)
	})
}

// requestedVariable tells the agents when the VM step was asked for, in milliseconds
// since 1970. It is for their record of the launch, and believed for nothing else.
const requestedVariable = "SLURMV_REQUESTED"

// Requested is that variable as an entry of the environment.
func Requested(at time.Time) string {
	return requestedVariable + "=" + strconv.FormatInt(at.UnixMilli(), 10)
}

// RequestedAt reads it; the time is zero if it is not there or no number.
func RequestedAt(env func(string) string) time.Time {
	ms, err := strconv.ParseInt(env(requestedVariable), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// hostOnly are variables whose values mean nothing inside a VM, or which would
// mislead a program there.
var hostOnly = []string{
	"DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "HOSTNAME", "KRB5CCNAME", "PMI_FD", "SSH_AUTH_SOCK", "SSH_CLIENT",
	"SSH_CONNECTION", "SSH_TTY", "TMPDIR", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_SESSION_ID",
}

// ProgramEnv returns the environment of a program in a VM: the task's own
// without what belongs to the host, plus where it runs.
func ProgramEnv(env []string, vm string) []string {
	kept := keep(env, func(name string) bool {
		return !slices.Contains(hostOnly, name) && !slurm.OfTheHost(name) && !slurm.OfAPlugin(name) &&
			!strings.HasPrefix(name, "SLURMV_")
	})
	return append(kept, "HOSTNAME="+vm, "SLURMV_VM="+vm)
}

func keep(env []string, wanted func(name string) bool) []string {
	var kept []string
	for _, entry := range env {
		if name, _, ok := strings.Cut(entry, "="); ok && wanted(name) {
			kept = append(kept, entry)
		}
	}
	return kept
}

func hasPrefix(name string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
