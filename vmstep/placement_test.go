package vmstep

import (
	"strings"
	"testing"
)

func TestPlaceFromEnv(t *testing.T) {
	tests := map[string]struct {
		procid, ntasks, localid, nodeid, perNode string
		want                                     Place
		err                                      string
	}{
		"one task":             {"0", "1", "0", "0", "1", Place{0, 1, 0, 1}, ""},
		"a repeated entry":     {"5", "6", "1", "2", "2(x3)", Place{5, 6, 1, 2}, ""},
		"an entry behind":      {"6", "7", "0", "3", "2(x3),1", Place{6, 7, 0, 1}, ""},
		"several entries":      {"4", "8", "1", "1", "3,4,1", Place{4, 8, 1, 4}, ""},
		"outside of a step":    {"", "1", "0", "0", "1", Place{}, "runs as a task of a Slurm step"},
		"too few nodes":        {"5", "6", "1", "3", "2(x3)", Place{}, "too few nodes"},
		"an id that is high":   {"5", "6", "2", "2", "2(x3)", Place{}, "task 2 of 2 tasks"},
		"a list that is none":  {"5", "6", "1", "2", "x", Place{}, "SLURM_STEP_TASKS_PER_NODE"},
		"a count that is none": {"5", "6", "1", "2", "2(xy)", Place{}, "SLURM_STEP_TASKS_PER_NODE"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{"SLURM_PROCID": tt.procid, "SLURM_STEP_NUM_TASKS": tt.ntasks,
				"SLURM_LOCALID": tt.localid, "SLURM_NODEID": tt.nodeid, "SLURM_STEP_TASKS_PER_NODE": tt.perNode}
			got, err := PlaceFromEnv(func(name string) string { return env[name] })
			switch {
			case tt.err == "" && err != nil:
				t.Fatal(err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Fatalf("error = %v, want one with %q", err, tt.err)
			case err == nil && got != tt.want:
				t.Errorf("place = %+v, want %+v", got, tt.want)
			}
		})
	}
}
