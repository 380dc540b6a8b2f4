package main

import "testing"

func TestDrainedByUs(t *testing.T) {
	tests := map[string]struct {
		line string
		want bool
	}{
		"a node that we drained":            {"NodeName=n1 CPUAlloc=0 State=IDLE+DRAIN ThreadsPerCore=1 Reason=slurm-v: job 7 left something [root@2026-01-02]", true},
		"a node that somebody else drained": {"NodeName=n1 State=IDLE+DRAIN Reason=bad disk after slurm-v: [root@2026-01-02]", false},
		"a node in use":                     {"NodeName=n1 State=IDLE ThreadsPerCore=1", false},
		"a node that is down with our word": {"NodeName=n1 State=DOWN Reason=slurm-v: job 7", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := drainedByUs(tt.line); got != tt.want {
				t.Errorf("drainedByUs = %v", got)
			}
		})
	}
}
