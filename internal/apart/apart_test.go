package apart

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// The plugin gives the agent the status pipe as an open descriptor that it does not mark.
func TestDescriptorsAreKept(t *testing.T) {
	var pipe [2]int
	if err := unix.Pipe(pipe[:]); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	reaches := func() bool {
		flags, err := unix.FcntlInt(uintptr(pipe[1]), unix.F_GETFD, 0)
		return err == nil && flags&unix.FD_CLOEXEC == 0
	}
	if !reaches() {
		t.Fatal("the descriptor would not reach a new process anyway")
	}
	if err := keepDescriptors(); err != nil || reaches() {
		t.Errorf("the descriptor reaches the new process: %v", err)
	}
}

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
