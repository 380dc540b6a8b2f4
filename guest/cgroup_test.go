package guest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCgroupDirs(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"version 2":       {"0::/system.slice/slurmv-guest.service\n", []string{"system.slice/slurmv-guest.service", "unified/system.slice/slurmv-guest.service"}},
		"version 2, root": {"0::/\n", []string{".", "unified"}},
		"both":            {"2:freezer:/a\n1:name=systemd:/b\n0::/c\n", []string{"c", "unified/c", "freezer/a", "systemd/b"}},
		"version 1":       {"3:cpu,cpuacct:/x\n2:pids:/a:b\n", []string{"pids/a:b"}},
		"none":            {"", []string{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := cgroupDirs(tt.text)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("directories differ (-want +got):\n%s", diff)
			}
		})
	}
}

// Both versions kill everything, also below, and an agent that starts finds
// what the last one left.
func TestCgroupVersions(t *testing.T) {
	for _, hierarchy := range []string{"unified", "pids", "."} {
		t.Run(hierarchy, func(t *testing.T) {
			c := testCgroups(t, hierarchy)
			g, err := c.create("one")
			if err != nil {
				t.Fatal(err)
			}
			below := filepath.Join(g.dir, "below")
			if err := os.Mkdir(below, 0o755); err != nil {
				t.Fatal(err)
			}
			var children []*exec.Cmd
			for _, dir := range []string{g.dir, below} {
				child := exec.Command("sleep", "1000")
				if err := child.Start(); err != nil {
					t.Fatal(err)
				}
				children = append(children, child)
				pid := strconv.Itoa(child.Process.Pid)
				if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(pid), 0); err != nil {
					t.Fatal(err)
				}
				go func() { _ = child.Wait() }()
			}
			if err := c.Clear(); err != nil {
				t.Error(err)
			}
			for _, child := range children {
				_ = child.Process.Kill()
			}
			if _, err := os.Stat(g.dir); !os.IsNotExist(err) {
				t.Errorf("the cgroup is still there: %v", err)
			}
		})
	}
}

func TestCgroupOutsideOfAny(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "programs")
	if _, err := newCgroups(dir); err == nil {
		t.Error("a plain directory is taken for a cgroup")
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("a directory is made outside of any hierarchy: %v", err)
	}
}
