package guest

import (
	"math"

	"golang.org/x/sys/unix"
)

// limitNames are the limits that programs in a VM get from the Slurm task. The other limits
// do not make sense there: the VM itself bounds the resource, or Go raises the limit in
// every process.
var limitNames = map[string]int{
	"core":    unix.RLIMIT_CORE,
	"cpu":     unix.RLIMIT_CPU,
	"data":    unix.RLIMIT_DATA,
	"fsize":   unix.RLIMIT_FSIZE,
	"memlock": unix.RLIMIT_MEMLOCK,
	"stack":   unix.RLIMIT_STACK,
}

// TaskLimits returns this process's own limits for [Command.Limits]. In a Slurm task these
// are the limits that Slurm propagated from the user's shell.
func TaskLimits() []Limit {
	var limits []Limit
	for name, which := range limitNames {
		var l unix.Rlimit
		if err := unix.Getrlimit(which, &l); err == nil {
			limits = append(limits, Limit{name, l.Cur})
		}
	}
	return limits
}

// setLimit sets a soft limit and makes the hard limit unlimited, because the VM belongs to
// the user.
func setLimit(l Limit) {
	which, known := limitNames[l.Name]
	if !known {
		return
	}
	_ = unix.Setrlimit(which, &unix.Rlimit{Cur: l.Value, Max: math.MaxUint64})
}
