package vmstep

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/slurm/slurmtest"
)

// fakeSrun is the variable that makes this test program a srun; its value is
// what that srun does.
const fakeSrun = "VMSTEP_TEST_SRUN"

func TestMain(m *testing.M) {
	if act := os.Getenv(fakeSrun); act != "" {
		os.Exit(playSrun(act))
	}
	if words := os.Getenv(squatVariable); words != "" {
		os.Exit(playSquatter(strings.Fields(words)))
	}
	os.Exit(m.Run())
}

// playSrun acts as the VM step's srun with both nodes behind it.
func playSrun(act string) int {
	say := func(node, kind string, v any) { WriteFrame(os.Stdout, node, kind, v) }
	if f, err := os.OpenFile(os.Getenv("VMSTEP_TEST_LOG"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
		fmt.Fprintln(f, "srun", act)
		f.Close()
	}
	for node, kind := range map[string]string{"n1": "libvirt", "n2": kindOfSecond(act)} {
		WriteFrame(os.Stderr, node, KindBackend, Backend{Type: kind})
	}
	switch act {
	case "refused":
		fmt.Fprintln(os.Stderr, "slurmstepd-n1: error: slurmv: node n1: no image")
		fmt.Fprintln(os.Stderr, "srun: error: n1: task 0: Exited with exit code 1")
		return 1
	case "elsewhere":
		WriteFrame(os.Stderr, "n1", KindFailed, Failure{Error: "node n1: the VMs of job 7 are already running", Elsewhere: true})
		fmt.Fprintln(os.Stderr, "slurmstepd-n1: error: slurmv: node n1: the VMs of job 7 are already running")
		return 1
	case "silent":
		return 3
	case "two kinds":
		<-make(chan int) // until it is terminated
	case "twice":
		say("n1", KindVMs, nodeVMs("n1", 0, 0))
		say("n2", KindVMs, nodeVMs("n2", 1, 0))
		<-make(chan int) // until it is terminated
	}
	for vm, node := range []string{"n1", "n2"} {
		say(node, KindProgress, Progress{VM: vm, Stage: "boot", Millis: 10})
		say(node, KindVMs, nodeVMs(node, vm, vm))
	}
	if act == "hold fails" {
		say("n2", KindFailed, Failure{Error: "the agent is gone"})
		return 1
	}
	awaitLine(KindMap)
	say("n1", KindReady, nil)
	say("n2", KindReady, nil)
	if act == "cancelled" {
		awaitFile(os.Getenv("VMSTEP_TEST_LOG") + ".go")
		fmt.Fprintln(os.Stderr, "slurmstepd-n1: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-20T14:11:07 ***")
		return 1
	}
	awaitEOF() // the keeper's end
	return 0
}

// kindOfSecond is the back-end of the second node.
func kindOfSecond(act string) string {
	if act == "two kinds" {
		return "openstack"
	}
	return "libvirt"
}

func awaitLine(kind string) {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		if strings.Contains(in.Text(), " "+kind+" ") {
			return
		}
	}
}

func awaitEOF() {
	buf := make([]byte, 100)
	for {
		if _, err := os.Stdin.Read(buf); err != nil {
			return
		}
	}
}

// awaitFile waits for a file, or for the end of the test, whose directory goes then.
func awaitFile(path string) {
	for {
		_, err := os.Stat(path)
		_, dirErr := os.Stat(filepath.Dir(path))
		if err == nil || dirErr != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// A testKeeper is a keeper for the test, started on demand.
type testKeeper struct {
	addresses []string
	log       string
	gone      chan struct{} // closed when the job is gone
	ended     chan error    // what Serve returned
	starts    atomic.Int32  // keepers that came to listen
	start     func() error
}

var stages atomic.Int32

func newTestKeeper(t *testing.T, act string) *testKeeper {
	t.Helper()
	s := &testKeeper{
		addresses: Addresses(os.Getuid(), Job{ID: uint32(os.Getpid()), Restart: uint32(stages.Add(1)), Secret: rand.Text()}),
		log:       t.TempDir() + "/log",
		gone:      make(chan struct{}),
		ended:     make(chan error, 1),
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	s.start = func() error {
		l, err := Listen(s.addresses)
		if errors.Is(err, ErrKept) {
			return nil
		}
		if err != nil {
			return err
		}
		s.starts.Add(1)
		go func() { s.ended <- s.keeper(act).Serve(ctx, l) }()
		return nil
	}
	return s
}

func (k *testKeeper) keeper(act string) *Keeper {
	return &Keeper{
		Nodes:   2,
		VMs:     2,
		Linger:  time.Second,
		Command: []string{os.Args[0]},
		Env:     append(os.Environ(), fakeSrun+"="+act, "VMSTEP_TEST_LOG="+k.log),
		JobGone: func(context.Context) bool {
			select {
			case <-k.gone:
				return true
			default:
				return false
			}
		},
	}
}

func (k *testKeeper) connect(t *testing.T, restart bool) *Client {
	t.Helper()
	c, err := Connect(context.Background(), k.addresses, restart, k.start)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (k *testKeeper) sruns() int {
	text, _ := os.ReadFile(k.log)
	return strings.Count(string(text), "srun ")
}

func TestManyClientsStartTheVMsOnce(t *testing.T) {
	startMany(t, newTestKeeper(t, "works"))
}

func startMany(t *testing.T, s *testKeeper) {
	t.Helper()
	results := make(chan error)
	for range 8 {
		go func() {
			c, err := Connect(context.Background(), s.addresses, false, s.start)
			if err == nil {
				defer c.Close()
				_, err = c.Wait(func(Event) {})
			}
			results <- err
		}()
	}
	for range 8 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if s.starts.Load() != 1 || s.sruns() != 1 {
		t.Errorf("%d keepers and %d VM steps were started, want 1 of each", s.starts.Load(), s.sruns())
	}
}

func TestEveryClientHearsTheWholeStory(t *testing.T) {
	s := newTestKeeper(t, "hold fails")
	want := []string{"starting", "n1 vm0 boot", "n2 vm1 boot", "failed"}
	for _, which := range []string{"first", "late"} {
		c := s.connect(t, false)
		var got []string
		last := c.Now
		for last.State != StateFailed || len(got) == 0 {
			e, err := c.Next()
			if err != nil {
				t.Fatal(err)
			}
			last = e
			switch {
			case e.State != "":
				got = append(got, e.State)
			case e.Progress != nil:
				got = append(got, fmt.Sprintf("%s vm%d %s", e.Node, e.Progress.VM, e.Progress.Stage))
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the %s client heard something else (-want +got):\n%s", which, diff)
		}
	}
}

func TestOutcomes(t *testing.T) {
	tests := map[string]string{
		"works":      "",
		"elsewhere":  "",
		"refused":    "the VMs could not be started: node n1: no image",
		"hold fails": "the VMs could not be started: node n2: the agent is gone",
		"two kinds":  "the VMs could not be started: VMs are made by libvirt on n1 and by openstack on n2: choose nodes of one kind by --partition, --constraint or --exclude",
		"silent":     "the VMs could not be started: srun of the VM step ended: exit status 3",
		"twice":      "the VMs could not be started: the nodes report contradictory VMs: vm0 of node n1 and vm0 of node n2 both have number 0",
	}
	for act, want := range tests {
		t.Run(act, func(t *testing.T) {
			s := newTestKeeper(t, act)
			for _, which := range []string{"first", "second"} {
				got := ""
				if _, err := s.connect(t, false).Wait(func(Event) {}); err != nil {
					got = err.Error()
				}
				if got != want {
					t.Errorf("the %s client was told %q, want %q", which, got, want)
				}
			}
		})
	}
}

func TestClientsMayGoAtAnyTime(t *testing.T) {
	s := newTestKeeper(t, "works")
	first := s.connect(t, false)
	first.Close() // before anything has happened
	second := s.connect(t, false)
	second.Next()
	second.Close() // in the middle
	if _, err := s.connect(t, false).Wait(func(Event) {}); err != nil {
		t.Error(err)
	}
	if s.sruns() != 1 {
		t.Errorf("%d VM steps were started, want 1", s.sruns())
	}
}

// A client of another program may connect and say nothing, or nonsense.
func TestOddClientsDoNoHarm(t *testing.T) {
	s := newTestKeeper(t, "works")
	s.connect(t, false)
	for _, words := range []string{"", "{", "[]\n", strings.Repeat("x", 1<<17)} {
		conn, err := net.Dial("unix", s.addresses[0])
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, words)
	}
	if _, err := s.connect(t, false).Wait(func(Event) {}); err != nil {
		t.Error(err)
	}
}

func TestEndedVMsAreStartedAgainOnlyOnDemand(t *testing.T) {
	s := newTestKeeper(t, "cancelled")
	c := s.connect(t, false)
	if _, err := c.Wait(func(Event) {}); err != nil {
		t.Fatal(err)
	}
	os.WriteFile(s.log+".go", nil, 0o600)
	if got := c.UntilEnd(); got != "the step was cancelled" {
		t.Errorf("reason = %q", got)
	}
	_, err := s.connect(t, false).Wait(func(Event) {})
	if err == nil || err.Error() != "the VMs of this job have ended: the step was cancelled" {
		t.Errorf("a later client was told %v", err)
	}
	os.Remove(s.log + ".go")
	if _, err := s.connect(t, true).Wait(func(Event) {}); err != nil {
		t.Errorf("the second start: %v", err)
	}
	if s.sruns() != 2 {
		t.Errorf("%d VM steps were started, want 2", s.sruns())
	}
}

func TestTheKeeperEndsWithItsJob(t *testing.T) {
	s := newTestKeeper(t, "refused")
	s.connect(t, false).Wait(func(Event) {})
	close(s.gone)
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
	if _, err := net.Dial("unix", s.addresses[0]); err == nil {
		t.Error("somebody still listens")
	}
}

func TestTheKeeperLeavesWhenTheVMsAreElsewhere(t *testing.T) {
	s := newTestKeeper(t, "elsewhere")
	s.connect(t, false).Wait(func(Event) {})
	if err := <-s.ended; err != nil {
		t.Error(err)
	}
}

func TestConnectTellsWhyThereIsNoKeeper(t *testing.T) {
	_, err := Connect(context.Background(), []string{"@slurmv-test/none"}, false, func() error { return errors.New("srun is not in PATH") })
	if err == nil || !strings.Contains(err.Error(), "srun is not in PATH") {
		t.Errorf("error = %v", err)
	}
}

func TestStepCommandSaysEverything(t *testing.T) {
	got := strings.Join(StepCommand("/bin/srun", "/libexec/slurmv-agent", 3), " ")
	want := "/bin/srun --overlap -N3 -n3 --ntasks-per-node=1 --mpi=none --cpu-bind=none --mem=0 " +
		"--kill-on-bad-exit=1 --no-kill --wait=0 --input=all --job-name=slurm-v /libexec/slurmv-agent hold"
	if got != want {
		t.Errorf("command = %s", got)
	}
}

func TestStepCommandUsesOptionsOfTheInstalledSrun(t *testing.T) {
	help := slurmtest.SrunHelp(t)
	for _, word := range StepCommand("srun", "agent", 1) {
		if name, _, _ := strings.Cut(word, "="); strings.HasPrefix(name, "--") && !strings.Contains(help, name) && name != "--cpu-bind" {
			t.Errorf("srun --help does not know %s", name)
		}
	}
	if _, err := exec.LookPath("srun"); err != nil {
		t.Error(err)
	}
}
