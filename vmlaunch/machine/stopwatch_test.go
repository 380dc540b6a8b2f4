package machine

import (
	"errors"
	"testing"
	"time"
)

func TestQueueIsTheTimeSinceTheRequest(t *testing.T) {
	tests := map[string]struct {
		ago  time.Duration
		want bool
	}{
		"a moment ago":       {2 * time.Second, true},
		"by a clock ahead":   {-time.Minute, false},
		"an invented number": {1000 * time.Hour, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			stages := StartStopwatch(time.Now().Round(0).Add(-tt.ago)).Noted()
			if got := len(stages) == 1 && stages[0].Start <= -tt.ago && stages[0].End == 0; got != tt.want {
				t.Errorf("stages are %v", stages)
			}
		})
	}
	if stages := StartStopwatch(time.Time{}).Noted(); stages != nil {
		t.Errorf("a request that is not known was queued: %v", stages)
	}
}

func TestSharedStagesAreOrderedByTheirBeginning(t *testing.T) {
	w := StartStopwatch(time.Time{})
	failure := errors.New("no")
	err := w.During("outer", func() error {
		return w.During("inner", func() error { return failure })
	})
	if !errors.Is(err, failure) {
		t.Errorf("error is %v", err)
	}
	stages := w.Noted() // inner has ended first
	if len(stages) != 2 || stages[0].Name != "outer" || stages[0].Start > stages[1].Start || stages[0].End < stages[1].End {
		t.Errorf("stages are %v", stages)
	}
}
