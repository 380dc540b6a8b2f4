//go:build !noguests

package vmlaunch

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/vmstep"
)

// Some tests need processes that this one cannot be: of other users, without privileges,
// with few descriptors. They are this program again; the variable says which part it plays.
const playVariable = "SLURMV_PLAY"

// TestPlay is that process.
func TestPlay(t *testing.T) {
	part, rest, _ := strings.Cut(os.Getenv(playVariable), " ")
	switch part {
	case "":
		t.Skip("it is played by other tests")
	case "agent":
		playAgent(t, rest)
	case "caller":
		playCaller(rest)
	case "shed":
		playShed(t)
	case "qemu":
		playQEMU(t, rest)
	}
}

// play starts this program in a part. It prints to the returned reader and lives until
// its standard input ends.
func play(t *testing.T, part string, as *syscall.SysProcAttr) *player {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("run as root: it takes processes of several users")
	}
	c := exec.Command("/proc/self/exe", "-test.run=^TestPlay$", "-test.v")
	c.Dir, c.Env, c.SysProcAttr, c.Stderr = "/", append(os.Environ(), playVariable+"="+part), as, os.Stderr
	in, inErr := c.StdinPipe()
	out, outErr := c.StdoutPipe()
	if err := errors.Join(inErr, outErr, c.Start()); err != nil {
		t.Fatal(err)
	}
	p := &player{Cmd: c, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() {
		_ = in.Close()
		_ = c.Wait() // it ends by itself, with what it has started
	})
	return p
}

type player struct {
	*exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func asUser(uid uint32) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
}

// says returns what follows in the next line that begins with word, "" at the end.
func (p *player) says(word string) string {
	for {
		line, err := p.out.ReadString('\n')
		if rest, found := strings.CutPrefix(line, word+": "); found {
			return strings.TrimSpace(rest)
		}
		if err != nil {
			return ""
		}
	}
}

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
func startAgent(t *testing.T, part agentPart) (agent *player, socket, proc string) {
	t.Helper()
	dir := openDir(t)
	log := filepath.Join(dir, "qemu", "vm.log")
	if err := errors.Join(os.Mkdir(filepath.Dir(log), 0o700), os.WriteFile(log, nil, 0o600), os.Truncate(log, part.Log)); err != nil {
		t.Fatal(err)
	}
	part.Run, part.Proc, part.Owner, part.Job = dir, t.TempDir(), jobOwner, 7
	text, _ := json.Marshal(part)
	agent = play(t, "agent "+string(text), nil)
	if agent.says("agent") != "ready" {
		t.Fatal("the agent did not become ready")
	}
	return agent, filepath.Join(dir, "agent.sock"), part.Proc
}

// openDir is a directory that all users pass through.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "slurmv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

const (
	jobOwner = 65533
	stranger = 65534
)

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
	plan := Plan{Run: part.Run, State: part.Run, Programs: 1024, VMs: []VMPlan{{}}}
	plan.Owner = Owner{Name: "alice", UID: part.Owner, GID: part.Owner}
	plan.Job.ID.Job = part.Job
	n := newNode(plan, nil, startStopwatch(time.Time{}), func(vmstep.Progress) {})
	n.machines, n.proc, n.network.Nodes = nil, part.Proc, part.Nodes
	err := n.Serve(t.Context(), func() {
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
	p := play(t, "caller "+socket+" "+what, asUser(uid))
	place := filepath.Join(proc, strconv.Itoa(p.Process.Pid))
	line := fmt.Sprintf("0::/system.slice/slurmstepd.scope/job_%d/step_0/user/task_0\n", job)
	if err := errors.Join(os.Mkdir(place, 0o755), os.WriteFile(filepath.Join(place, "cgroup"), []byte(line), 0o644)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(p.in, "go")
	return p.says("caller")
}

func playCaller(what string) {
	in := bufio.NewReader(os.Stdin)
	_, _ = in.ReadString('\n')
	words := strings.Fields(what)
	if words[1] == "hold" {
		count, _ := strconv.Atoi(words[2])
		fmt.Println("caller:", hold(words[0], count))
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

// hold opens connections that say nothing, and returns how many the agent keeps.
func hold(socket string, count int) string {
	kept := 0
	for range count {
		conn, err := net.Dial("unix", socket)
		if err != nil {
			return err.Error()
		}
		_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
		if _, err = conn.Read(make([]byte, 1)); errors.Is(err, os.ErrDeadlineExceeded) {
			kept++
			held = append(held, conn)
		}
	}
	return fmt.Sprintf("%d kept", kept)
}

// held are connections that must not be closed by the garbage collector.
var held []net.Conn
