package vmlaunch

import (
	"context"
	"os/exec"
	"syscall"
	"testing"
	"time"
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
	if err := killDomain(ctx, someUUID); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the process ended by itself")
	}
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the process of another domain is gone: %v", err)
	}
	if err := killDomain(ctx, someUUID); err != nil {
		t.Errorf("killing what is gone: %v", err)
	}
}

// awaitEmulator waits for exec: until then the child has its parent's words.
func awaitEmulator(t *testing.T, uuid string) {
	t.Helper()
	for range 500 {
		if pids, err := emulators("/proc", uuid); err == nil && len(pids) == 1 {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatal("the process does not show up")
}
