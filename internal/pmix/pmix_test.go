package pmix

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// build makes slurmv-pmix as the product has it, and a rank.
func build(t *testing.T) (server, client string) {
	t.Helper()
	dir := t.TempDir()
	server, client = filepath.Join(dir, "slurmv-pmix"), filepath.Join(dir, "client")
	// What a test opens itself decides whether its cached result still holds.
	sources, _ := filepath.Glob("*.[ch]")
	for _, file := range append(sources, "testdata/client.c", "../../Makefile") {
		if _, err := os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []string{
		"make -s -C ../.. BUILD=" + dir + " " + server,
		"cc -o " + client + " testdata/client.c $(pkg-config --cflags --libs pmix)",
	} {
		if out, err := exec.Command("sh", "-c", c).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c, err, out)
		}
	}
	return server, client
}

// A slurm is a PMI server of dialect 1, for ranks in VMs of two.
type slurm struct {
	ranks   int
	mapping string

	mu      sync.Mutex
	values  map[string]string
	waiting []io.Writer
	heard   []string // other commands
}

// What the relay is told when a program has connected, and when it has finalized.
const joins, leaves = "cmd=slurmv-pmix joined=1", "cmd=slurmv-pmix joined=0"

func (s *slurm) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		s.answer(conn, lines.Text())
	}
}

func (s *slurm) answer(to io.Writer, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fields := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(word, "=")
		fields[name] = value
	}
	switch value, found := s.values[fields["key"]]; fields["cmd"] {
	case "init":
		_, _ = io.WriteString(to, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n")
	case "get_my_kvsname":
		_, _ = io.WriteString(to, "cmd=my_kvsname kvsname=7.1\n")
	case "put":
		s.values[fields["key"]] = fields["value"]
		_, _ = io.WriteString(to, "cmd=put_result rc=0\n")
	case "get":
		if !found {
			_, _ = io.WriteString(to, "cmd=get_result rc=1\n")
			return
		}
		_, _ = fmt.Fprintf(to, "cmd=get_result rc=0 value=%s\n", value)
	case "barrier_in":
		s.enter(to)
	default:
		s.heard = append(s.heard, line)
		if line == leaves {
			_, _ = io.WriteString(to, "cmd=slurmv-pmix rc=0\n")
		}
	}
}

func (s *slurm) enter(rank io.Writer) {
	if s.waiting = append(s.waiting, rank); len(s.waiting) < s.ranks {
		return
	}
	for _, w := range s.waiting {
		_, _ = io.WriteString(w, "cmd=barrier_out rc=0\n")
	}
	s.waiting = nil
}

// rank starts a rank in a VM: a process that sees another host name.
func (s *slurm) rank(t *testing.T, rank int, out *os.File, words ...string) *exec.Cmd {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "ours"), os.NewFile(uintptr(fds[1]), "theirs")
	defer func() { _, _ = ours.Close(), theirs.Close() }()
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	go s.serve(conn)
	t.Cleanup(func() { _ = conn.Close() }) // the rank's server ends then
	c := exec.Command("sh", slices.Concat([]string{"-c", `hostname "$0" && exec "$@"`, fmt.Sprint("vm", rank/2)}, words)...)
	c.Stdout, c.Stderr = out, out
	c.ExtraFiles = []*os.File{theirs}
	c.Env = append(os.Environ(), "PMI_FD=3", fmt.Sprint("PMI_RANK=", rank), fmt.Sprint("PMI_SIZE=", s.ranks), "SLURM_JOB_ID=7", "SLURM_STEP_ID=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUTS | syscall.CLONE_NEWUSER,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// outputFile takes the output of several processes. It is a file, because a pipe would stay open
// until the servers end.
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

// run runs four ranks in two VMs and returns their output and how they ended.
func run(t *testing.T, s *slurm, words ...string) (string, []int) {
	t.Helper()
	s.ranks, s.values = 4, map[string]string{"PMI_process_mapping": s.mapping}
	out := outputFile(t)
	ranks := make([]*exec.Cmd, s.ranks)
	for i := range ranks {
		ranks[i] = s.rank(t, i, out, words...)
	}
	codes := make([]int, s.ranks)
	for i, r := range ranks {
		var exit *exec.ExitError
		if err := r.Wait(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		codes[i] = r.ProcessState.ExitCode()
	}
	return written(t, out), codes
}

func TestRanksOfTwoVMsAreOneWorld(t *testing.T) {
	server, client := build(t)
	s := &slurm{mapping: "(vector,(0,2,2))"}
	out, codes := run(t, s, server, client, client)
	for rank := range 4 {
		peers := []string{"0,1", "2,3"}[rank/2]
		want := []string{fmt.Sprintf("%d of 4 with %s at vm%d\n", rank, peers, rank/2), "PMI_FD is not set\n"}
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
	s.mu.Lock()
	defer s.mu.Unlock()
	slices.Sort(s.heard)
	if want := slices.Concat(slices.Repeat([]string{leaves}, 4), slices.Repeat([]string{joins}, 4)); !slices.Equal(s.heard, want) {
		t.Errorf("the relays heard %q, want that each rank has joined and left", s.heard)
	}
}

func TestExitStatusIsTheProgramsOwn(t *testing.T) {
	server, client := build(t)
	if out, codes := run(t, &slurm{mapping: "(vector,(0,2,2))"}, server, client, client, "9"); !slices.Equal(codes, []int{9, 9, 9, 9}) {
		t.Errorf("the ranks ended with %v, want 9\n%s", codes, out)
	}
}

// A program that ends without PMIx_Finalize has not left.
func TestARankThatDoesNotFinalizeStays(t *testing.T) {
	server, client := build(t)
	s := &slurm{mapping: "(vector,(0,2,2))"}
	out, codes := run(t, s, server, client, client, "exit")
	s.mu.Lock() // the relays of such ranks are still there
	defer s.mu.Unlock()
	if !slices.Equal(s.heard, slices.Repeat([]string{joins}, 4)) || !slices.Equal(codes, []int{0, 0, 0, 0}) {
		t.Errorf("%v, the relays heard %q, want that each rank has joined\n%s", codes, s.heard, out)
	}
}

// Without a mapping, the names of the VMs tell which ranks are together.
func TestMappings(t *testing.T) {
	server, client := build(t)
	for mapping, want := range map[string]string{
		"nonsense":         "2 of 4 with 2,3 at vm1\n",
		"(vector,(0,1,4))": "2 of 4 with 0,1,2,3 at vm0\n",
	} {
		if out, _ := run(t, &slurm{mapping: mapping}, server, client, client); !strings.Contains(out, want) {
			t.Errorf("%s: no line %q in\n%s", mapping, want, out)
		}
	}
}

func TestAbort(t *testing.T) {
	server, client := build(t)
	out := outputFile(t)
	s := &slurm{ranks: 2, values: map[string]string{}}
	ranks := []*exec.Cmd{s.rank(t, 0, out, server, client, client, "abort"), s.rank(t, 1, out, server, client, client, "abort")}
	_ = ranks[1].Wait()
	_ = ranks[0].Process.Kill() // as Slurm does
	_ = ranks[0].Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.heard, "cmd=abort exitcode=7") {
		t.Errorf("Slurm heard %q, want the abort\n%s", s.heard, written(t, out))
	}
}

func TestImageWithoutLibrary(t *testing.T) {
	server, client := build(t)
	t.Setenv("SLURMV_LIBPMIX", "/nowhere/libpmix.so.2")
	out, codes := run(t, &slurm{mapping: "(vector,(0,2,2))"}, server, client, client)
	want := "slurm-v: --mpi=pmix: cannot use the image's PMIx library (/nowhere/libpmix.so.2: cannot open"
	if !strings.Contains(out, want) || !slices.Equal(codes, []int{1, 1, 1, 1}) {
		t.Errorf("%v and\n%s\nwant 1 and %q", codes, out, want)
	}
}
