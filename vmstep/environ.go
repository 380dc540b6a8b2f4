package vmstep

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/slurm"
)

// pluginPrefixes begin the variables that carry the job's request to our plugin. Variables
// with options of other plugins are not passed on: they are meant for the programs.
var pluginPrefixes = []string{
	slurm.SpankPrefix + "SLURMV_", slurm.SpankPrefix + slurm.OptionPrefix + "slurmv_", slurm.OptionPrefix + "slurmv_",
}

// StepEnv returns the environment of the VM step's srun: env without the variables that
// would change the step, such as SLURM_NTASKS or SLURM_CPU_BIND.
func StepEnv(env []string) []string {
	return keep(env, func(name string) bool {
		return slurm.Identifies(name) || hasPrefix(name, pluginPrefixes) || !slurm.OfAStep(name)
	})
}

// requestedVariable tells the agents when the user asked for the VM step, in milliseconds
// since 1970. Users can forge it, so agents only record it.
const requestedVariable = "SLURMV_REQUESTED"

// requestedAt returns requestedVariable as an entry of the environment.
func requestedAt(at time.Time) string {
	return requestedVariable + "=" + strconv.FormatInt(at.UnixMilli(), 10)
}

// RequestedAt reads requestedVariable. The time is zero if the variable is not set or is
// not a number.
func RequestedAt(env func(string) string) time.Time {
	ms, err := strconv.ParseInt(env(requestedVariable), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// hostOnly are variables that make no sense inside a VM, or would mislead a program there.
var hostOnly = []string{
	"DBUS_SESSION_BUS_ADDRESS", "DISPLAY", "HOSTNAME", "KRB5CCNAME", "PMI_FD", "SSH_AUTH_SOCK", "SSH_CLIENT",
	"SSH_CONNECTION", "SSH_TTY", "TMPDIR", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_SESSION_ID",
}

// libpmixVariable names the PMIx library that slurmv-pmix opens in the VM.
const libpmixVariable = "SLURMV_LIBPMIX"

// ProgramEnv returns the environment of a program in a VM: the task's own without the
// variables about the host, plus the VM's name.
func ProgramEnv(env []string, vm string) []string {
	kept := keep(env, func(name string) bool {
		return !slices.Contains(hostOnly, name) && !slurm.OfTheHost(name) && !slurm.OfAPlugin(name) &&
			(!strings.HasPrefix(name, "SLURMV_") || name == libpmixVariable)
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
