package hypervisor

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/play"
)

const someUUID = "11111111-2222-8333-8444-555555555555"

// standIn runs a process whose command line looks like that of a domain's QEMU.
func standIn(t *testing.T, uuid string) *exec.Cmd {
	t.Helper()
	c := exec.Command("sh", "-c", "while :; do sleep 1; done", "qemu", "-uuid", uuid, "-S")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _, _ = c.Process.Wait() })
	return c
}

func TestKillDomainEndsItsProcessAndNoOther(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	meant, other := standIn(t, someUUID), standIn(t, "99999999-2222-8333-8444-555555555555")
	awaitEmulator(t, someUUID)
	done := make(chan error, 1)
	go func() { done <- meant.Wait() }()
	var ended []string
	kill := func() error {
		return Kill(ctx, []string{someUUID}, func(uuid string) error { ended = append(ended, uuid); return nil })
	}
	if err := kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the process ended by itself")
	}
	if play.HasEnded(t, other.Process.Pid) {
		t.Error("the process of another domain has ended")
	}
	if err := kill(); err != nil {
		t.Errorf("killing what is gone: %v", err)
	}
	if diff := cmp.Diff([]string{someUUID, someUUID}, ended); diff != "" {
		t.Errorf("ended domains differ (-want +got):\n%s", diff)
	}
}

// awaitEmulator waits for exec: until then the child has its parent's words.
func awaitEmulator(t *testing.T, uuid string) {
	t.Helper()
	for range 500 {
		if pids, err := emulators("/proc"); err == nil && len(pids[uuid]) == 1 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the process does not show up")
}

func TestDemandIsCPUTime(t *testing.T) {
	before, err := demand("/proc/self")
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); {
	}
	after, err := demand("/proc/self")
	if err != nil || after-before < 50*time.Millisecond {
		t.Errorf("100 ms of computing make a demand of %v, %v", after-before, err)
	}
	if d, err := demand("/proc/none"); err == nil {
		t.Errorf("a process that is none demands %v", d)
	}
}

// Of a kernel that does not count, nobody knows whether a process computes.
func TestDemandThatNoKernelCounts(t *testing.T) {
	for name, tt := range map[string]struct {
		schedstat string // "" is no file
		want      time.Duration
	}{
		"counts":           {"2000 300 7\n", 2300},
		"counts nothing":   {"0 0 0\n", 0},
		"has no such file": {"", 0},
	} {
		dir := t.TempDir()
		task := filepath.Join(dir, "task", "1")
		if err := os.MkdirAll(task, 0o700); err != nil {
			t.Fatal(err)
		}
		if tt.schedstat != "" {
			if err := os.WriteFile(filepath.Join(task, "schedstat"), []byte(tt.schedstat), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := demand(dir); got != tt.want || (err == nil) != (tt.want > 0) {
			t.Errorf("a kernel that %s: %v, %v", name, got, err)
		}
	}
}

// A process is a domain's QEMU by one word of its command line.
func TestDomainOf(t *testing.T) {
	for words, want := range map[string]string{
		"qemu\x00-name\x00x\x00-uuid\x00" + someUUID + "\x00-S\x00": someUUID,
		"sh\x00x-uuid\x00" + someUUID + "\x00":                      "",
		"sh\x00-uuid=" + someUUID + "\x00":                          "",
		"":                                                          "",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "cmdline"), []byte(words), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := domainOf(dir); got != want {
			t.Errorf("domainOf(%q) = %q, want %q", words, got, want)
		}
	}
}

func TestThreadsOfAProcess(t *testing.T) {
	got, err := threads("/proc/self")
	if err != nil || !regexp.MustCompile(`(^|; )hypervisor.test [RS] \S+ [0-9.]+s(; |$)`).MatchString(got) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := threads(t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a process that has ended: %v", err)
	}
}
