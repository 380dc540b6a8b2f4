package workload

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

// A server plays Slurm's PMI server for the ranks of a test.
type server struct {
	mu      sync.Mutex
	ranks   int
	values  map[string]string
	waiting []net.Conn
}

const mapping = "(vector,(0,2,2))"

func newServer(ranks int) *server {
	return &server{ranks: ranks, values: map[string]string{"PMI_process_mapping": mapping}}
}

// rank connects a rank to the server.
func (s *server) rank(t *testing.T, number int) *Rank {
	t.Helper()
	here, there := net.Pipe()
	t.Cleanup(func() { here.Close() })
	go s.serve(there)
	r, err := join(here, number, s.ranks)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *server) serve(conn net.Conn) {
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		fields := map[string]string{}
		for _, f := range strings.Fields(lines.Text()) {
			name, value, _ := strings.Cut(f, "=")
			fields[name] = value
		}
		s.answer(conn, fields)
	}
}

func (s *server) answer(conn net.Conn, f map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch f["cmd"] {
	case "init":
		fmt.Fprintln(conn, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	case "get_my_kvsname":
		fmt.Fprintln(conn, "cmd=my_kvsname kvsname=7.0")
	case "put":
		s.values[f["key"]] = f["value"]
		fmt.Fprintln(conn, "cmd=put_result rc=0")
	case "get":
		if value, found := s.values[f["key"]]; found && f["kvsname"] == "7.0" {
			fmt.Fprintln(conn, "cmd=get_result rc=0 value="+value)
			return
		}
		fmt.Fprintln(conn, "cmd=get_result rc=1")
	case "barrier_in":
		if s.waiting = append(s.waiting, conn); len(s.waiting) == s.ranks {
			for _, c := range s.waiting {
				fmt.Fprintln(c, "cmd=barrier_out")
			}
			s.waiting = nil
		}
	case "finalize":
		fmt.Fprintln(conn, "cmd=finalize_ack")
	}
}

// together has that many ranks do the same.
func together(t *testing.T, ranks int, do func(*Rank) error) {
	t.Helper()
	if len(ownAddresses()) == 0 {
		t.Skip("this host has no IPv4 address but the loopback's: ranks cannot reach each other")
	}
	s := newServer(ranks)
	var all sync.WaitGroup
	failed := make([]error, ranks)
	for i := range ranks {
		r := s.rank(t, i)
		all.Go(func() { failed[i] = errors.Join(do(r), r.Leave()) })
	}
	all.Wait()
	if err := errors.Join(failed...); err != nil {
		t.Fatal(err)
	}
}

func nothing(string) string { return "" }

func TestRanksMeet(t *testing.T) {
	for _, ranks := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			found := make([]Finding, ranks)
			together(t, ranks, func(r *Rank) error { return r.Meet(&found[r.Number], nothing) })
			want := make([]Finding, ranks)
			for i := range want {
				want[i] = Finding{Sum: ranks * (ranks - 1) / 2, Mapping: mapping}
			}
			if diff := cmp.Diff(want, found); diff != "" {
				t.Errorf("findings differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMeasure(t *testing.T) {
	samples := make([]Sample, 3)
	load := Load{Loops: 1000, Elements: 1000, Passes: 10, Answers: 5, Blocks: 1}
	together(t, 3, func(r *Rank) (err error) {
		samples[r.Number], err = r.Measure(load, nothing)
		return err
	})
	for i, s := range samples {
		if first := i == 0; s.Rank != i || s.Compute <= 0 || s.Memory <= 0 || (s.Latency > 0) != first || (s.Bandwidth > 0) != first {
			t.Errorf("rank %d has %+v", i, s)
		}
		if s.Checksum != samples[0].Checksum {
			t.Errorf("rank %d computes %d, and rank 0 %d", i, s.Checksum, samples[0].Checksum)
		}
	}
	if other, _ := compute(1001); other == samples[0].Checksum {
		t.Error("the checksum does not depend on the number of loops")
	}
}

// Somebody who finds the port of a rank, and does not know its token, is not taken for one.
func TestStrangersAreNotRanks(t *testing.T) {
	together(t, 1, func(r *Rank) error {
		l, err := r.listen(nil)
		if err != nil {
			return err
		}
		stranger, err := net.Dial("tcp4", l.tcp.Addr().String())
		if err != nil {
			return err
		}
		fmt.Fprint(stranger, strings.Repeat("x", len(l.token))+"stranger")
		friend, err := r.dial(0)
		if err != nil {
			return err
		}
		fmt.Fprint(friend, "friend")
		conn, err := l.accept()
		if err != nil {
			return err
		}
		got := make([]byte, 6)
		if _, err := io.ReadFull(conn, got); err != nil || string(got) != "friend" {
			return fmt.Errorf("heard %q: %w", got, err)
		}
		return nil
	})
}

func TestPMIErrors(t *testing.T) {
	tests := map[string]struct{ answers, want string }{
		"refused":          {"cmd=response_to_init rc=1\n", `PMI: cmd=init pmi_version=1 pmi_subversion=1: the answer is "cmd=response_to_init rc=1"`},
		"another answer":   {"cmd=barrier_out\n", `the answer is "cmd=barrier_out"`},
		"no answer":        {"", "EOF"},
		"only half of it":  {"cmd=response_to_init rc=0\n", "PMI: cmd=get_my_kvsname: EOF"},
		"all is as wanted": {"cmd=response_to_init rc=0\ncmd=my_kvsname kvsname=7.0\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := join(struct {
				io.Reader
				io.Writer
			}{strings.NewReader(tt.answers), io.Discard}, 0, 1)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

func TestStreams(t *testing.T) {
	var out, words bytes.Buffer
	status := Streams(strings.NewReader("words\n"), &out, &words)
	if status != StreamsStatus || out.String() != "WORDS\n" || words.String() != "6 bytes on standard input\n" {
		t.Errorf("status %d, output %q, words %q", status, out.String(), words.String())
	}
}

func TestReadTopology(t *testing.T) {
	for name, tt := range map[string]struct {
		cpus [][2]string // socket and core of each
		want Topology
	}{
		"a socket of two cores":         {[][2]string{{"0", "0"}, {"0", "1"}}, Topology{2, 1, 2, 1}},
		"hyper-threads":                 {[][2]string{{"0", "0"}, {"0", "0"}, {"0", "4"}, {"0", "4"}}, Topology{4, 1, 2, 2}},
		"two sockets with equal cores":  {[][2]string{{"0", "0"}, {"0", "1"}, {"1", "0"}, {"1", "1"}}, Topology{4, 2, 2, 1}},
		"a kernel that tells nothing":   {nil, Topology{}},
		"a socket for each of the CPUs": {[][2]string{{"0", "0"}, {"1", "0"}}, Topology{2, 2, 1, 1}},
	} {
		root := t.TempDir()
		for i, cpu := range tt.cpus {
			dir := fmt.Sprintf("%s/sys/devices/system/cpu/cpu%d/topology/", root, i)
			filetest.Write(t, dir+"physical_package_id", cpu[0]+"\n")
			filetest.Write(t, dir+"core_id", cpu[1]+"\n")
		}
		if got := ReadTopology(root); got != tt.want {
			t.Errorf("%s: %+v, want %+v", name, got, tt.want)
		}
	}
}

func TestReadPages(t *testing.T) {
	root := t.TempDir()
	for pid, of := range map[string][2]string{
		"10": {"guest=slurmv-7.0-vm0,debug-threads=on", "Private_Hugetlb:   524288 kB"},
		"11": {"guest=slurmv-7.0-vm1,debug-threads=on", "Shared_Hugetlb:   1024 kB\nPrivate_Hugetlb:    524288 kB"},
		"12": {"guest=slurmv-71.0-vm0", "Private_Hugetlb:   524288 kB"},
	} {
		filetest.Write(t, root+"/proc/"+pid+"/cmdline", "/usr/bin/qemu\x00-name\x00"+of[0]+"\x00")
		filetest.Write(t, root+"/proc/"+pid+"/smaps_rollup", "Rss:   1 kB\n"+of[1]+"\n")
	}
	if got, want := ReadPages(root, "7"), (Pages{VMs: 2, HugeMiB: 1025}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestReadMachine(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"cpuinfo": "processor\t: 0\nmodel name\t: A CPU @ 2.00GHz: fast\n\nprocessor\t: 1\nmodel name\t: A CPU @ 2.00GHz: fast\n",
		"meminfo": "MemTotal:        2097152 kB\nMemFree:         1 kB\n",
	} {
		if err := errors.Join(os.MkdirAll(root+"/proc", 0o755), os.WriteFile(root+"/proc/"+name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	m, err := ReadMachine(root)
	if m.Kernel == "" || err != nil {
		t.Errorf("kernel %q, %v", m.Kernel, err)
	}
	m.Kernel = ""
	if want := (Machine{CPU: "A CPU @ 2.00GHz: fast", CPUs: 2, MiB: 2048}); m != want {
		t.Errorf("machine is %+v, want %+v", m, want)
	}
}
