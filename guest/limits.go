package guest

import (
	"math"

	"golang.org/x/sys/unix"
)

// limitNames are the limits that make sense in a VM as they were outside. The
// others bound what the VM itself bounds, or are raised by Go in every process.
var limitNames = map[string]int{
	"core":    unix.RLIMIT_CORE,
	"cpu":     unix.RLIMIT_CPU,
	"data":    unix.RLIMIT_DATA,
	"fsize":   unix.RLIMIT_FSIZE,
	"memlock": unix.RLIMIT_MEMLOCK,
	"stack":   unix.RLIMIT_STACK,
}

// TaskLimits returns this process's own limits for [Command.Limits]: in a Slurm
// task those which Slurm propagated from the user's shell.
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

// setLimit sets a soft limit and makes the hard one unlimited: it is the
// user's own VM.
func setLimit(l Limit) {
	which, known := limitNames[l.Name]
	if !known {
		return
	}
	_ = unix.Setrlimit(which, &unix.Rlimit{Cur: l.Value, Max: math.MaxUint64})
}
