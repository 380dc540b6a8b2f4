package sriov

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// holding starts a process of uid with the file open, or with another one.
func holding(t *testing.T, path string, uid uint32) (ended func() bool) {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	c := exec.Command("sleep", "60")
	c.ExtraFiles = []*os.File{file}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { _ = c.Wait(); close(done) }()
	t.Cleanup(func() { _ = c.Process.Kill(); <-done })
	return func() bool {
		select {
		case <-done:
			return true
		case <-time.After(300 * time.Millisecond):
			return false
		}
	}
}

func TestEndKillsTheOwnersHoldersOnly(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("run as root: the processes are others'")
	}
	const account, other = 54321, 54322
	path, elsewhere := filepath.Join(t.TempDir(), "12"), filepath.Join(t.TempDir(), "13")
	for _, file := range []string{path, elsewhere} {
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	tests := map[string]struct {
		ended func() bool
		want  bool
	}{
		"the owner's":                       {holding(t, path, account), true},
		"the owner's, with another file":    {holding(t, elsewhere, account), false},
		"another user's, who was handed it": {holding(t, path, other), false},
		"root's":                            {holding(t, path, 0), false},
	}
	if err := (kernel{}).End(t.Context(), path, account); err != nil {
		t.Fatal(err)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.ended(); got != tt.want {
				t.Errorf("ended: %v, want %v", got, tt.want)
			}
		})
	}
}
