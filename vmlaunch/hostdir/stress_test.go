package hostdir

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

// Random operations of several processes' threads at once, each checked, and all read again from the node.
func TestRandomOperations(t *testing.T) {
	v := newVM(t)
	program := filepath.Join(t.TempDir(), "fsstress")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../test/fsstress").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program, "-operations", fmt.Sprint(stressOperations), "-workers", fmt.Sprint(stressWorkers),
		"-also", v.host, v.guest).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}
