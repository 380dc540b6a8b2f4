package guest

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

// slackOf reads the slack of a thread, in nanoseconds.
func slackOf(t *testing.T, thread string) string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + thread + "/timerslack_ns")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// The agent's timers can wait, and those of what it starts cannot.
func TestTimers(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("changes other threads: run as root")
	}
	if err := SlackTimers(); err != nil {
		t.Fatal(err)
	}
	if got := slackOf(t, "self"); got != "4000000" {
		t.Errorf("agent: %s ns", got)
	}
	got := finish(t, start(t, startVM(t).Session, shell("cat /proc/self/timerslack_ns")), "")
	if got.stdout != "50000\n" {
		t.Errorf("program: %+v", got)
	}
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = other.Process.Kill(), other.Wait() }()
	pid := strconv.Itoa(other.Process.Pid)
	before := slackOf(t, pid)
	if err := MakeOrdinary(other.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if after := slackOf(t, pid); before != "4000000" || after != "50000" {
		t.Errorf("process: %s ns, then %s ns", before, after)
	}
}
