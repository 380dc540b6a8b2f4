package guest

import (
	"testing"
)

// The limits of this process arrive at a program.
func TestTaskLimits(t *testing.T) {
	limits := TaskLimits()
	if len(limits) != len(limitNames) {
		t.Errorf("%d limits of %d: %v", len(limits), len(limitNames), limits)
	}
	for i, l := range limits {
		if l.Name == "fsize" {
			limits[i].Value = 5 << 20
		}
	}
	v := startVM(t)
	cmd := shell("ulimit -f; ulimit -H -s")
	cmd.Limits = limits
	if got := finish(t, start(t, v.Session, cmd), ""); got.stdout != "10240\nunlimited\n" {
		t.Errorf("limits in the program: %+v", got)
	}
}
