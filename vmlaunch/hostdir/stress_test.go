package hostdir

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// Random operations of several processes' threads at once, each checked, and all read again from the node.
func TestRandomOperations(t *testing.T) {
	program := filepath.Join(t.TempDir(), "fsstress")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../test/fsstress").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for seed := 1; seed <= stressRuns; seed++ {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			v := newVM(t)
			out, err := exec.CommandContext(t.Context(), program, "-operations", fmt.Sprint(stressOperations), "-workers", fmt.Sprint(stressWorkers),
				"-seed", fmt.Sprint(seed*stressWorkers), "-also", v.host, v.guest).CombinedOutput() // each worker has the next seed
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			t.Logf("%s", out)
		})
	}
}
