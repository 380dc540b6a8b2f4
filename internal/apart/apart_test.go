package apart

import (
	"os"
	"path/filepath"
	"testing"
)

func TestLeaveCgroups(t *testing.T) {
	for name, files := range map[string][]string{
		"version 1": {"cpuset/cgroup.procs", "memory/cgroup.procs"},
		"version 2": {"cgroup.procs"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, file := range files {
				path := filepath.Join(root, file)
				if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if err := leaveCgroups(root); err != nil {
				t.Fatal(err)
			}
			for _, file := range files {
				if text, _ := os.ReadFile(filepath.Join(root, file)); string(text) != "0" {
					t.Errorf("%s has %q, want 0", file, text)
				}
			}
		})
	}
}
