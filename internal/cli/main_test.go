package cli

import (
	"errors"
	"testing"

	"github.com/slurm-v/slurm-v/internal/jobvms"
)

func TestExitCode(t *testing.T) {
	tests := map[string]struct {
		err  error
		want int
	}{
		"all well":               {nil, 0},
		"an error":               {errors.New("x"), 1},
		"a program's own":        {jobvms.ExitStatus(7), 7},
		"a usage error":          {Usagef("x"), 2},
		"an error beside others": {errors.Join(errors.New("x"), Usagef("y")), 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := exitCode(tt.err); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}
