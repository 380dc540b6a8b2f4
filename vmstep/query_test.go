package vmstep

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
)

func TestQuery(t *testing.T) {
	frame := func(node, kind string, value any) string {
		var b strings.Builder
		if err := WriteFrame(&b, node, kind, value); err != nil {
			t.Fatal(err)
		}
		return "printf '%s\\n' '" + strings.TrimSpace(b.String()) + "'; "
	}
	ready := frame("n2", KindReady, "yes")
	no := frame("n1", KindFailed, Failure{Error: "no VMs here"})
	tests := map[string]struct {
		script string
		reject error
		taken  string
		want   string // of the error; "" for none
		srun   bool   // the error is srun's
	}{
		"an answer":                             {script: "echo a TaskProlog speaks; " + ready, taken: "n2"},
		"a refusal, and an answer":              {script: no + ready, taken: "n2", want: "node n1: no VMs here"},
		"a refusal is more than an exit status": {script: no + "echo srun: error >&2; exit 1", want: "node n1: no VMs here"},
		"srun's first sentence":                 {script: "echo >&2; echo srun: error: a >&2; echo b >&2; exit 1", want: "srun: error: a", srun: true},
		"an exit status alone":                  {script: "exit 3", want: "srun: exit status 3", srun: true},
		"an answer that is not taken":           {script: ready + "exec sleep 60", reject: errors.New("enough"), want: "enough"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var taken string
			err := Query(t.Context(), func(ctx context.Context) *exec.Cmd {
				return StepProcess(ctx, []string{"/bin/sh", "-c", tt.script}, nil)
			}, func(m Message) error {
				if tt.reject == nil {
					taken += m.Node
				}
				return tt.reject
			})
			var failed *StepError
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("error = %v", err)
			case tt.want != "" && (err == nil || err.Error() != tt.want):
				t.Errorf("error = %v, want %s", err, tt.want)
			case errors.As(err, &failed) != tt.srun:
				t.Errorf("error of srun: %v, want %v", !tt.srun, tt.srun)
			case taken != tt.taken:
				t.Errorf("taken from %q, want %q", taken, tt.taken)
			}
		})
	}
}
