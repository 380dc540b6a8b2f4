package vmstep

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/internal/environ"
)

// sysV are the names by which a UCX_TLS has UCX's transport sysv: its own, and those of groups of transports.
// A backslash says that a name is no group's.
var sysV = []string{"sysv", `\sysv`, "mm", "sm", "shm"}

// checkUCX returns an error if the user's variables let UCX use between two VMs what works in one only: UCX
// takes them for one machine.
func checkUCX(env []string) error {
	transports, devices := environ.Value(env, "UCX_TLS"), environ.Value(env, "UCX_NET_DEVICES")
	if allows(transports, sysV...) {
		return fmt.Errorf("UCX_TLS=%s lets UCX use System V's memory, which another VM has not: set UCX_TLS=%s, or leave it unset",
			transports, withoutSysV(transports))
	}
	if allows(devices, "lo") && (transports == "" || allows(transports, "tcp")) {
		return fmt.Errorf("UCX_NET_DEVICES=%s lets UCX use lo, which leads to no other VM: set it to the other interfaces, or leave it unset", devices)
	}
	return nil
}

// allows reports whether a list of UCX's allows one of the names: all, or those that are in the list, or all but
// those that are in the list after ^.
func allows(list string, names ...string) bool {
	list, inverse := strings.CutPrefix(list, "^")
	if list == "all" {
		return true // ^all is all
	}
	named := slices.ContainsFunc(strings.Split(list, ","), func(item string) bool { return slices.Contains(names, item) })
	return named != inverse
}

// withoutSysV is what to write instead of a UCX_TLS that allows sysv.
func withoutSysV(transports string) string {
	if strings.TrimPrefix(transports, "^") == "all" {
		return "^sysv"
	}
	if strings.HasPrefix(transports, "^") {
		return transports + ",sysv"
	}
	list := strings.Split(transports, ",")
	for i, item := range list {
		if slices.Contains(sysV, item) {
			list[i] = "posix"
		}
	}
	return strings.Join(slices.Compact(list), ",")
}
