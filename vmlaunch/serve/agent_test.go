//go:build !noguests

package serve

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/internal/play"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

// An agentPart is how an agent is to be played.
type agentPart struct {
	Run, Proc string
	Owner     uint32
	Job       uint32
	Nodes     int
	Log       int64  // what QEMU has printed, in bytes
	Files     uint64 // RLIMIT_NOFILE; 0 for what there is
	NoFiles   bool   // once it listens it may open the spare descriptor and no other
}

// startAgent plays the agent of job 7 of user 65533, which gives up its privileges as
// the real one. It looks its callers up in the returned directory.
func startAgent(t *testing.T, part agentPart) (agent *play.Player, socket, proc string) {
	t.Helper()
	dir := play.OpenDir(t)
	log := filepath.Join(dir, "qemu", "vm.log")
	if err := errors.Join(os.Mkdir(filepath.Dir(log), 0o700), os.WriteFile(log, nil, 0o600), os.Truncate(log, part.Log)); err != nil {
		t.Fatal(err)
	}
	part.Run, part.Proc, part.Owner, part.Job = dir, t.TempDir(), play.Owner, 7
	text, _ := json.Marshal(part)
	agent = play.Start(t, "agent "+string(text), nil)
	if agent.Says("agent") != "ready" {
		t.Fatal("the agent did not become ready")
	}
	return agent, filepath.Join(dir, "agent.sock"), part.Proc
}

func playAgent(t *testing.T, text string) {
	var part agentPart
	if err := json.Unmarshal([]byte(text), &part); err != nil {
		t.Fatal(err)
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(1) // also of a test that was ended
	}()
	unix.Umask(0o022)
	limitFiles(t, part.Files)
	p := plan.Plan{Run: part.Run, State: part.Run, Programs: 1024, VMs: []plan.VM{{}}}
	p.Owner = owner.Owner{Name: "alice", UID: part.Owner, GID: part.Owner}
	p.Job.ID.Job, p.Job.Nodes, p.Network.Type = part.Job, part.Nodes, config.NetworkJob
	set := machine.NewSet(p, machine.StartStopwatch(time.Time{}), func(vmstep.Progress) {})
	set.Machines = nil
	s := New(set, func(context.Context, []nodeagent.NodeVMs) error { return nil }, nil, func(_ *machine.Machine, env []string) []string { return env })
	s.proc = part.Proc
	putInJob(t, part.Proc, os.Getpid(), part.Job)
	err := s.Serve(t.Context(), func() {
		if part.NoFiles {
			limitFiles(t, uint64(lowestFree(t)+1))
		}
		fmt.Println("agent: ready")
	})
	fmt.Println("agent: ended", err)
}

func limitFiles(t *testing.T, files uint64) {
	if files == 0 {
		return
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: files, Max: files}); err != nil {
		t.Fatal(err)
	}
}

// lowestFree is the descriptor that is opened next.
func lowestFree(t *testing.T) int {
	fd, err := unix.Open(os.DevNull, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	return fd
}

// call plays a process of a user in a job, which talks to an agent: "ps" and "stop" ask
// it, "hold 100" opens a hundred connections that say nothing. It returns what became of
// that; the connections stay until the test ends.
func call(t *testing.T, socket, proc string, uid, job uint32, what string) string {
	t.Helper()
	p := play.Start(t, "caller "+socket+" "+what, play.As(uid))
	putInJob(t, proc, p.Process.Pid, job)
	fmt.Fprintln(p.In, "go")
	return p.Says("caller")
}

// putInJob has proc say that process pid is in a job.
func putInJob(t *testing.T, proc string, pid int, job uint32) {
	t.Helper()
	place := filepath.Join(proc, strconv.Itoa(pid))
	line := fmt.Sprintf("0::/system.slice/slurmstepd.scope/job_%d/step_0/user/task_0\n", job)
	if err := errors.Join(os.Mkdir(place, 0o755), os.WriteFile(filepath.Join(place, "cgroup"), []byte(line), 0o644)); err != nil {
		t.Fatal(err)
	}
}

func playCaller(_ *testing.T, what string) {
	in := bufio.NewReader(os.Stdin)
	_, _ = in.ReadString('\n')
	words := strings.Fields(what)
	if words[1] == "hold" {
		count, _ := strconv.Atoi(words[2])
		fmt.Println("caller:", play.Hold(words[0], count))
		_, _ = in.ReadString('\n')
		return
	}
	fmt.Println("caller:", ask(words[0], words[1]))
}

// ask returns "answered" or the error.
func ask(socket, op string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, err := nodeagent.Dial(ctx, socket)
	if err == nil && op == "ps" {
		_, err = client.PS(ctx)
	} else if err == nil {
		err = client.Stop(ctx)
	}
	if err != nil {
		return err.Error()
	}
	return "answered"
}

// TestPlay is a process of [play.Start].
func TestPlay(t *testing.T) {
	play.Main(t, map[string]func(*testing.T, string){"agent": playAgent, "caller": playCaller})
}
