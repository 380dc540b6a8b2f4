//go:build !noguests

package serve

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/play"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// The door tells refused callers why. Admitted callers prove that the probe would get in.
func TestDoorLetsInTheJobAndRoot(t *testing.T) {
	_, socket, proc := startAgent(t, agentPart{})
	tests := map[string]struct {
		uid, job uint32
		want     string
	}{
		"root":                         {0, 0, "answered"},
		"a process of the job":         {play.Owner, 7, "answered"},
		"another job of the same user": {play.Owner, 8, "the calling process is not part of job 7"},
		"another user":                 {play.Stranger, 8, nodeagent.ErrForeign.Error()},
		"another user, as of the job":  {play.Stranger, 7, nodeagent.ErrForeign.Error()},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := call(t, socket, proc, tt.uid, tt.job, "ps"); got != tt.want {
				t.Errorf("%q; want %q", got, tt.want)
			}
		})
	}
}

// The kernel itself refuses other users: they do not even get into the queue.
func TestSocketIsTheOwnersAlone(t *testing.T) {
	_, socket, proc := startAgent(t, agentPart{})
	if got := call(t, socket, proc, play.Stranger, 8, "hold 1"); !strings.HasSuffix(got, "connect: permission denied") {
		t.Errorf("another user: %s", got)
	}
	if got := call(t, socket, proc, play.Owner, 7, "hold 1"); got != "1 kept" {
		t.Errorf("the owner: %s", got)
	}
}

// Without the mode of the socket a stranger gets as far as the door, which closes at sight.
func TestDoorJudgesBeforeItReads(t *testing.T) {
	agent, socket, proc := startAgent(t, agentPart{})
	if err := os.Chmod(socket, 0o666); err != nil {
		t.Fatal(err)
	}
	before, sockets := descriptors(t, agent, ""), descriptors(t, agent, "socket:")
	if got := call(t, socket, proc, play.Stranger, 7, "hold 300"); got != "0 kept" {
		t.Errorf("another user: %s", got)
	}
	for end := time.Now().Add(time.Minute); descriptors(t, agent, "") > before+1; time.Sleep(10 * time.Millisecond) { // the spare one
		if time.Now().After(end) {
			t.Fatalf("%d descriptors are open after the flood, %d before", descriptors(t, agent, ""), before)
		}
	}
	if got := call(t, socket, proc, play.Stranger, 7, "ps"); got != "job 7 belongs to alice" {
		t.Errorf("another user is told %q", got)
	}
	if got := call(t, socket, proc, play.Owner, 7, "hold 20"); got != "20 kept" {
		t.Errorf("the owner: %s", got)
	}
	// A caller's connect returns before the agent accepts, so the last ones may take a while.
	for end := time.Now().Add(helloTimeout / 2); descriptors(t, agent, "socket:") < sockets+20; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d sockets are open with 20 of the owner's connections, %d before", descriptors(t, agent, "socket:"), sockets)
		}
	}
}

// descriptors counts the open descriptors of a process whose links in /proc begin with kind.
func descriptors(t *testing.T, p *play.Player, kind string) (n int) {
	t.Helper()
	links, err := filepath.Glob(filepath.Join("/proc", strconv.Itoa(p.Process.Pid), "fd", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, kind) {
			n++
		}
	}
	return n
}

func TestOnlyRootStopsTheAgent(t *testing.T) {
	agent, socket, proc := startAgent(t, agentPart{})
	if got := call(t, socket, proc, play.Owner, 7, "stop"); !strings.HasPrefix(got, "only root may stop") {
		t.Errorf("the owner: %s", got)
	}
	if got := call(t, socket, proc, play.Owner, 7, "ps"); got != "answered" {
		t.Errorf("after that: %s", got)
	}
	if got := ask(socket, "stop"); got != "answered" {
		t.Errorf("root: %s", got)
	}
	if got := agent.Says("agent"); got != "ended <nil>" {
		t.Errorf("the agent: %s", got)
	}
}

// The owner's connections are bounded; root is served beside them.
func TestOwnerLeavesRoomForRoot(t *testing.T) {
	agent, socket, proc := startAgent(t, agentPart{Files: 128})
	got := call(t, socket, proc, play.Owner, 7, "hold 200")
	var kept int
	if _, err := fmt.Sscanf(got, "%d kept", &kept); err != nil || kept < 10 || kept > 128-otherDescriptors {
		t.Errorf("of the owner's 200 connections: %s; want 10 to %d", got, 128-otherDescriptors)
	}
	if got := call(t, socket, proc, play.Owner, 7, "ps"); !strings.Contains(got, "the most that it serves at once") {
		t.Errorf("the owner is told %q", got)
	}
	if got := ask(socket, "ps"); got != "answered" {
		t.Errorf("root: %s", got)
	}
	if got := ask(socket, "stop"); got != "answered" {
		t.Errorf("root's stop: %s", got)
	}
	if got := agent.Says("agent"); got != "ended <nil>" {
		t.Errorf("the agent: %s", got)
	}
}

// An agent without descriptors lives on, and still has one for root.
func TestDoorWithoutDescriptors(t *testing.T) {
	agent, socket, proc := startAgent(t, agentPart{NoFiles: true})
	for range 3 {
		if got := call(t, socket, proc, play.Owner, 7, "ps"); got == "answered" {
			t.Error("the owner got the last descriptor")
		}
		if got := ask(socket, "ps"); got != "answered" {
			t.Fatalf("root: %s", got)
		}
	}
	first, err := net.Dial("unix", socket) // root has the last one, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	second := make(chan string)
	go func() { second <- ask(socket, "stop") }()
	first.Close()
	if got := <-second; got != "answered" {
		t.Errorf("root's stop: %s", got)
	}
	if got := agent.Says("agent"); got != "ended <nil>" {
		t.Errorf("the agent: %s", got)
	}
}

func TestConnections(t *testing.T) {
	tests := map[string]struct{ vms, programs, free, want int }{
		"one for each program, and others": {4, 16, 100000, 4*16 + otherConnections},
		"as many as there are descriptors": {256, 1024, 1000, 1000 - otherDescriptors},
		"one at least":                     {1, 1, 10, 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := plan.Plan{VMs: make([]plan.VM, tt.vms), Programs: tt.programs}
			if got := connections(p, tt.free); got != tt.want {
				t.Errorf("connections = %d, want %d", got, tt.want)
			}
		})
	}
}

func TestPassing(t *testing.T) {
	if passing(net.ErrClosed) || passing(errors.New("x")) {
		t.Error("an error that stays is taken for one that passes")
	}
}

// longLog is more than an emulator's log may have.
const longLog = 4<<20 + 1

func TestServeBoundsEmulatorLogs(t *testing.T) {
	_, socket, _ := startAgent(t, agentPart{Log: longLog})
	log := filepath.Join(filepath.Dir(socket), "qemu", "vm.log")
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(10 * time.Millisecond) {
		if info, err := os.Stat(log); err == nil && info.Size() == 0 {
			return
		}
	}
	t.Error("the log is as long as it was")
}
