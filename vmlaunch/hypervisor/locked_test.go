package hypervisor

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestLimitsOnLockedMemoryAreRaised(t *testing.T) {
	const unlimited = unix.RLIM_INFINITY
	for _, c := range []struct{ before, want unix.Rlimit }{
		{unix.Rlimit{Cur: 3, Max: 4}, unix.Rlimit{Cur: 5, Max: 6}},
		{unix.Rlimit{Cur: 3, Max: unlimited}, unix.Rlimit{Cur: 5, Max: unlimited}},
		{unix.Rlimit{Cur: unlimited, Max: unlimited}, unix.Rlimit{Cur: unlimited, Max: unlimited}},
	} {
		if got := raised(c.before, 2); got != c.want {
			t.Errorf("2 more than %v is %v, want %v", c.before, got, c.want)
		}
	}
}
