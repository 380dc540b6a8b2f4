package pmix

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/internal/pmix/pmixtest"
)

// Files that read numbers do without _GNU_SOURCE, with which the functions for that are those of glibc 2.38. Images may be
// older, down to 2.34, if this is built with glibc 2.34 or newer.
func TestServerRunsInOldImages(t *testing.T) {
	server, _ := pmixtest.Build(t, "../..")
	filetest.NeedsGlibc(t, server, 34)
}

// A vm is a VM of a run: a PMIx server that sees another host name.
type vm struct {
	server *exec.Cmd
	agent  *net.UnixConn // the guest agent's end

	programs     context.Context // ends with killPrograms
	killPrograms context.CancelFunc

	// prepare is called for each program, with its end of PMI; it may be nil.
	prepare func(program *exec.Cmd, pmi *os.File)
}

// asUser makes processes with one user, whoever runs the test.
func asUser(flags uintptr) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Cloneflags: flags | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
}

func startVM(t *testing.T, name, server string, out *os.File) *vm {
	t.Helper()
	agent, theirs := pair(t)
	c := exec.Command("sh", "-c", `hostname "$0" && exec "$1"`, name, server)
	c.Stdout, c.Stderr = out, out
	c.ExtraFiles = []*os.File{out, theirs} // the guest agent's socket is descriptor 4
	c.Env = append(os.Environ(), "SLURM_JOB_ID=7", "SLURM_STEP_ID=1")
	c.SysProcAttr = asUser(syscall.CLONE_NEWUTS)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	_ = theirs.Close()
	v := &vm{server: c, agent: agent}
	v.programs, v.killPrograms = context.WithCancel(t.Context())
	t.Cleanup(func() { v.end(t) })
	return v
}

// end ends the server as the guest agent does, and returns its exit status.
func (v *vm) end(t *testing.T) int {
	t.Helper()
	_ = v.agent.Close()
	if v.server.ProcessState == nil {
		kill := time.AfterFunc(time.Minute, func() { _ = v.server.Process.Kill() })
		_ = v.server.Wait()
		if !kill.Stop() {
			t.Error("the server did not end with the agent's socket")
		}
	}
	return v.server.ProcessState.ExitCode()
}

// pair returns a connection and its other end, for another process.
func pair(t *testing.T) (*net.UnixConn, *os.File) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	_ = ours.Close()
	t.Cleanup(func() { _, _ = conn.Close(), theirs.Close() })
	return conn.(*net.UnixConn), theirs
}

// come hands a rank to the VM's server. The rank's program starts when the server has told its
// environment, and the result gets how it ended; -1 if the server tells nothing.
func (v *vm) come(t *testing.T, s *pmixtest.Slurm, rank int, out *os.File, words ...string) <-chan int {
	t.Helper()
	ours, theirs := pair(t)
	answer, process := pair(t)
	go s.Serve(rank, ours)
	message := binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, uint32(rank)), uint32(s.Ranks))
	if _, _, err := v.agent.WriteMsgUnix(message, syscall.UnixRights(int(theirs.Fd()), int(process.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	_ = process.Close()
	code := make(chan int, 1)
	go func() {
		defer theirs.Close()
		text, _ := io.ReadAll(answer)
		given, whole := strings.CutSuffix(string(text), "\x00\x00")
		if !whole {
			code <- -1
			return
		}
		c := exec.CommandContext(v.programs, words[0], words[1:]...)
		c.Stdout, c.Stderr = out, out
		c.Env = append(os.Environ(), strings.Split(given, "\x00")...)
		c.SysProcAttr = asUser(0)
		if v.prepare != nil {
			v.prepare(c, theirs)
		}
		_ = c.Run()
		code <- c.ProcessState.ExitCode()
	}()
	return code
}

// outputFile takes the output of several processes.
func outputFile(t *testing.T) *os.File {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "out"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func written(t *testing.T, file *os.File) string {
	t.Helper()
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// run runs four ranks in two VMs and returns their output and how they ended. The later of a VM
// comes first.
func run(t *testing.T, s *pmixtest.Slurm, server string, words ...string) (string, []int) {
	t.Helper()
	s.Ranks = 4
	out := outputFile(t)
	vms := []*vm{startVM(t, "vm0", server, out), startVM(t, "vm1", server, out)}
	ended := make([]<-chan int, s.Ranks)
	for i := range ended {
		rank := s.Ranks - 1 - i
		ended[rank] = vms[rank/2].come(t, s, rank, out, words...)
	}
	codes := make([]int, s.Ranks)
	for rank, code := range ended {
		codes[rank] = <-code
	}
	for deadline := time.Now().Add(time.Minute); len(s.Heard()) < s.Ranks && time.Now().Before(deadline); {
		time.Sleep(time.Millisecond) // a relay hears that its program has connected a moment after the program
	}
	for _, v := range vms {
		v.end(t)
	}
	return written(t, out), codes
}

// each is what the relays of four ranks hear if each rank says the same.
func each(line string) (heard []string) {
	for rank := range 4 {
		heard = append(heard, fmt.Sprint(rank, ": ", line))
	}
	return heard
}

func TestRanksOfTwoVMsAreOneWorld(t *testing.T) {
	server, client := pmixtest.Build(t, "../..")
	s := &pmixtest.Slurm{Mapping: "(vector,(0,2,2))"}
	out, codes := run(t, s, server, client)
	for rank := range 4 {
		peers := []string{"0,1", "2,3"}[rank/2]
		want := []string{fmt.Sprintf("%d of 4 with %s at vm%d\n", rank, peers, rank/2)}
		for other := range 4 {
			want = append(want, fmt.Sprintf("%d has the card of %d: 5000 bytes\n", rank, other))
		}
		for _, line := range want {
			if !strings.Contains(out, line) {
				t.Errorf("no line %q in\n%s", line, out)
			}
		}
	}
	if !slices.Equal(codes, []int{0, 0, 0, 0}) {
		t.Errorf("the ranks ended with %v\n%s", codes, out)
	}
	if heard, want := s.Heard(), slices.Sorted(slices.Values(slices.Concat(each(pmixtest.Joins), each(pmixtest.Leaves)))); !slices.Equal(heard, want) {
		t.Errorf("the relays heard %q, want that each rank has joined and left", heard)
	}
}

func TestExitStatusIsTheProgramsOwn(t *testing.T) {
	server, client := pmixtest.Build(t, "../..")
	if out, codes := run(t, &pmixtest.Slurm{Mapping: "(vector,(0,2,2))"}, server, client, "9"); !slices.Equal(codes, []int{9, 9, 9, 9}) {
		t.Errorf("the ranks ended with %v, want 9\n%s", codes, out)
	}
}

// Open MPI 5 leaves its explanations of errors to the server.
func TestTheServerSaysWhatRanksExplain(t *testing.T) {
	server, client := pmixtest.Build(t, "../..")
	out, codes := run(t, &pmixtest.Slurm{Mapping: "(vector,(0,2,2))"}, server, client, "explain")
	if n := strings.Count(out, "an explanation\nof two lines\n"); n != 4 || !slices.Equal(codes, []int{0, 0, 0, 0}) {
		t.Errorf("%v, the servers say what %d ranks explain, want 4:\n%s", codes, n, out)
	}
}

// A program that ends without PMIx_Finalize has not left.
func TestARankThatDoesNotFinalizeStays(t *testing.T) {
	server, client := pmixtest.Build(t, "../..")
	s := &pmixtest.Slurm{Mapping: "(vector,(0,2,2))"}
	out, codes := run(t, s, server, client, "exit")
	if heard := s.Heard(); !slices.Equal(heard, each(pmixtest.Joins)) || !slices.Equal(codes, []int{0, 0, 0, 0}) {
		t.Errorf("%v, the relays heard %q, want that each rank has joined\n%s", codes, heard, out)
	}
}

// What a rank has put for its neighbours only, they get, and nobody else does.
func TestNeighboursGetWhatIsForThem(t *testing.T) {
	server, client := pmixtest.Build(t, "../..")
	out, codes := run(t, &pmixtest.Slurm{Mapping: "(vector,(0,2,2))"}, server, client, "local")
	for rank := range 4 {
		for other := range 4 {
			want := fmt.Sprintf("%d has the segment of %d: %v\n", rank, other, rank/2 == other/2)
			if !strings.Contains(out, want) {
				t.Errorf("no line %q", want)
			}
		}
	}
	if t.Failed() {
		t.Errorf("%v\n%s", codes, out)
	}
}

// Without a mapping, the names of the VMs tell which ranks are together.
func TestMappings(t *testing.T) {
	server, client := pmixtest.Build(t, "../..")
	for mapping, want := range map[string]string{
		"nonsense":         "2 of 4 with 2,3 at vm1\n",
		"(vector,(0,2,2))": "2 of 4 with 2,3 at vm1\n",
	} {
		if out, _ := run(t, &pmixtest.Slurm{Mapping: mapping}, server, client); !strings.Contains(out, want) {
			t.Errorf("%s: no line %q in\n%s", mapping, want, out)
		}
	}
}

// A run in one VM needs Slurm's PMI for the start only.
func TestFencesOfOneVM(t *testing.T) {
	server, client := pmixtest.Build(t, "../..")
	out := outputFile(t)
	s := &pmixtest.Slurm{Ranks: 2, Mapping: "(vector,(0,1,2))"}
	v := startVM(t, "vm0", server, out)
	first, second := v.come(t, s, 0, out, client), v.come(t, s, 1, out, client)
	if codes := []int{<-first, <-second}; !slices.Equal(codes, []int{0, 0}) {
		t.Errorf("%v\n%s", codes, written(t, out))
	}
	if keys := s.Keys(); !slices.Equal(keys, []string{"pmix-vm-0"}) {
		t.Errorf("Slurm was told %s", keys)
	}
}

func TestAbort(t *testing.T) {
	server, client := pmixtest.Build(t, "../..")
	out := outputFile(t)
	s := &pmixtest.Slurm{Ranks: 2, Mapping: "(vector,(0,1,2))"}
	v := startVM(t, "vm0", server, out)
	other := v.come(t, s, 0, out, client, "abort")
	<-v.come(t, s, 1, out, client, "abort")
	// The rank has ended, and Slurm reads its last words when it gets to it.
	for until := time.Now().Add(time.Minute); !slices.Contains(s.Heard(), "1: cmd=abort exitcode=7"); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("Slurm heard %q, want rank 1's abort\n%s", s.Heard(), written(t, out))
		}
	}
	// Slurm kills the ranks. libpmix waits for ever in some functions if its server ends first.
	v.killPrograms()
	if code := <-other; code == 0 {
		t.Errorf("rank 0 ended well, without rank 1\n%s", written(t, out))
	}
}

// Each sentence says what is wrong, and the server ends.
func TestServersThatCannotServe(t *testing.T) {
	server, client := pmixtest.Build(t, "../..")
	for name, tt := range map[string]struct {
		library string
		slurm   *pmixtest.Slurm
		ranks   []int
		want    string
	}{
		"the image has no library": {
			library: "/nowhere/libpmix.so.2", slurm: &pmixtest.Slurm{Ranks: 1},
			want: "slurm-v: --mpi=pmix: cannot use the image's PMIx library (/nowhere/libpmix.so.2: cannot open",
		},
		"two programs are the same rank": {slurm: &pmixtest.Slurm{Ranks: 2}, ranks: []int{0, 0}, want: "rank 0 of 2, which another is or cannot be"},
		"a rank is beyond the run":       {slurm: &pmixtest.Slurm{Ranks: 2}, ranks: []int{2}, want: "rank 2 of 2, which another is or cannot be"},
		"Slurm's PMI makes no sense":     {slurm: &pmixtest.Slurm{Ranks: 1, Garbled: true}, ranks: []int{0}, want: "Slurm's PMI server answers rank 0 with 'cmd=what'"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.library != "" {
				t.Setenv("SLURMV_LIBPMIX", tt.library)
			}
			out := outputFile(t)
			v := startVM(t, "vm0", server, out)
			for _, rank := range tt.ranks {
				v.come(t, tt.slurm, rank, out, client)
			}
			kill := time.AfterFunc(time.Minute, func() { _ = v.server.Process.Kill() })
			_ = v.server.Wait()
			kill.Stop()
			if text := written(t, out); !strings.Contains(text, tt.want) || v.server.ProcessState.ExitCode() != 1 {
				t.Errorf("%v and\n%s\nwant 1 and %q", v.server.ProcessState, text, tt.want)
			}
		})
	}
}

// A rank that never comes keeps the others waiting, but not the server from ending.
func TestServerEndsWhileARankIsMissing(t *testing.T) {
	server, client := pmixtest.Build(t, "../..")
	out := outputFile(t)
	s := &pmixtest.Slurm{Ranks: 2, Mapping: "(vector,(0,1,2))"}
	v := startVM(t, "vm0", server, out)
	code := v.come(t, s, 0, out, client)
	for s.Waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	select {
	case c := <-code:
		t.Errorf("rank 0 did not wait: %d\n%s", c, written(t, out))
	default:
	}
	if status := v.end(t); status != 0 {
		t.Errorf("the server ended with %d\n%s", status, written(t, out))
	}
	if c := <-code; c != -1 {
		t.Errorf("rank 0 was told to begin: %d", c)
	}
}
