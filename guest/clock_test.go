package guest

import (
	"testing"
	"time"
)

// However slow the questions are, the step makes up for what the clock was late.
func TestSetClock(t *testing.T) {
	v := startVM(t)
	trip, err := v.SetClock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v.machine.mu.Lock()
	defer v.machine.mu.Unlock()
	if off := (v.machine.ahead - time.Hour).Abs(); off > trip {
		t.Errorf("the clock is %v off, after a trip of %v", off, trip)
	}
}
