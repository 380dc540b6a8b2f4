package process_test

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/process"
)

func TestParseStatus(t *testing.T) {
	const status = "Name:\tUid:\nUmask:\t0022\nUid:\t0\t1000\t2\t3\nGid:\t7\t7\t7\t7\n"
	if diff := cmp.Diff([]string{"0", "1000", "2", "3"}, process.ParseStatus(status)["Uid"]); diff != "" {
		t.Errorf("uids differ (-want +got):\n%s", diff)
	}
	if got := process.ParseStatus("")["Uid"]; len(got) != 0 {
		t.Errorf("of nothing: %q", got)
	}
}

func TestHasAncestor(t *testing.T) {
	proc := t.TempDir()
	for pid, is := range map[string]struct{ name, parent string }{
		"1": {"init", "0"}, "10": {"slurmd", "1"}, "20": {"sh", "10"}, "30": {"clean", "20"}, "40": {"slurmd", "1"}, "50": {"lost", "45"},
	} {
		if err := os.Mkdir(filepath.Join(proc, pid), 0o755); err != nil {
			t.Fatal(err)
		}
		for name, text := range map[string]string{"comm": is.name + "\n", "status": "Name:\t" + is.name + "\nPPid:\t" + is.parent + "\n"} {
			if err := os.WriteFile(filepath.Join(proc, pid, name), []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tt := range map[string]struct {
		pid  string
		want bool
	}{
		"its parent":                 {"20", true},
		"its parent's parent":        {"30", true},
		"it is one itself":           {"40", false},
		"a parent that has ended":    {"50", false},
		"a process that there isn't": {"60", false},
	} {
		if got := process.HasAncestor(proc, tt.pid, "slurmd"); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
	}
	own, err := os.ReadFile("/proc/" + strconv.Itoa(os.Getppid()) + "/comm")
	if err != nil {
		t.Fatal(err)
	}
	if name := string(own[:len(own)-1]); !process.HasAncestor("/proc", strconv.Itoa(os.Getpid()), name) {
		t.Errorf("%s has not started this test", name)
	}
}
