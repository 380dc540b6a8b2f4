package guest

import (
	"bufio"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

func TestLibraryOfAProgram(t *testing.T) {
	dir := filetest.PassableDir(t)
	program := filetest.MPIProgram(t, dir, "libmpi.so.40")
	filetest.Write(t, filepath.Join(dir, "script"), "#!/bin/sh\n")
	filetest.Write(t, filepath.Join(dir, "garbage"), "\x7fELF but not really")
	for path, want := range map[string]string{program: "libmpi.so.40", "/bin/sh": "", dir + "/script": "", dir + "/garbage": "", dir + "/none": ""} {
		if got := libraryOf(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

func TestNamesOfMPILibraries(t *testing.T) {
	for name, want := range map[string]bool{
		"libmpi.so.40": true, "libmpi.so": true, "libmpich.so.12": true, "libmpi_mpifh.so.40": true, "libmpi_usempif08.so.40": true,
		"libmpifort.so.12": true, "libmpichfort.so.12": true, "libmpicxx.so.12": true, "libmpi_cray.so.12": true, "libmpi_gnu_123.so.12": true,
		"libmpi_ibm.so.3": true, "libmpifort_cray.so.12": true,
		"libmpir.so.23": false, "libmpiP.so": false, "libmpi4py.so": false, "libmpc.so.3": false, "libmpi.so.40.py": false, "xlibmpi.so": false,
	} {
		if got := mpiLibrary.MatchString(name); got != want {
			t.Errorf("%s is an MPI library: %v", name, got)
		}
	}
}

func TestLibraryThatIsMapped(t *testing.T) {
	program := exec.CommandContext(t.Context(), filetest.MPIProgram(t, t.TempDir(), "libmpich.so.12"), "", "100")
	out, err := program.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := program.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = program.Process.Kill(); _ = program.Wait() }()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	if got := mappedBy(program.Process.Pid); got != "libmpich.so.12" {
		t.Errorf("%q is mapped", got)
	}
	if got := mappedBy(os.Getpid()); got != "" {
		t.Errorf("this test has mapped %s", got)
	}
}

// usesMPI runs a program to its end, and returns the MPI library that the host has heard of.
func usesMPI(t *testing.T, v *vm, cmd Command) string {
	t.Helper()
	p, err := v.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	go func() { _, _ = io.Copy(io.Discard, p.Stdout) }()
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
	return p.MPI()
}

// The host hears of the library only if the program has PMI.
func TestHostHearsOfTheLibrary(t *testing.T) {
	dir := filetest.PassableDir(t)
	program := filetest.MPIProgram(t, dir, "libmpi.so.40")
	v := startVM(t)
	for _, withPMI := range []bool{true, false} {
		cmd := shell("")
		cmd.Args, cmd.Dir, cmd.PMI = Strings{program}, dir, withPMI
		if got, want := usesMPI(t, v, cmd), map[bool]string{true: "libmpi.so.40"}[withPMI]; got != want {
			t.Errorf("with PMI %v: %q, want %q", withPMI, got, want)
		}
	}
}

// A program behind a script may live for some milliseconds, between two looks at what is mapped.
func TestHostHearsOfTheLibraryOfAShortProgram(t *testing.T) {
	dir := filetest.PassableDir(t)
	if err := os.Link(filetest.MPIProgram(t, dir, "libmpi.so.40"), filepath.Join(dir, "ompi_info")); err != nil {
		t.Fatal(err)
	}
	filetest.Build(t, []string{"testdata/thread.c"}, []string{"cc", "-o", filepath.Join(dir, "thread"), "testdata/thread.c", "-pthread"})
	v := startVM(t)
	for name, tt := range map[string]struct{ script, want string }{
		"behind a shell":              {"./program; :", "libmpi.so.40"},
		"that a thread becomes":       {"./thread ./program; :", "libmpi.so.40"},
		"behind many processes":       {"for i in $(seq 150); do (:); /bin/true; done; ./program; :", "libmpi.so.40"},
		"whose parent has ended":      {`f=$(mktemp); (setsid sh -c './program; rm "$0"' "$f" &); while test -e "$f"; do sleep 0.01; done`, "libmpi.so.40"},
		"that is loaded into another": {"LD_PRELOAD=./libmpi.so.40 /bin/true; :", "libmpi.so.40"},
		"that is only listed":         {"ldd ./program; :", ""},
		"that tells about itself":     {"./ompi_info; :", ""},
		"that another program runs":   {"sleep 0.1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := shell(tt.script)
			cmd.Dir, cmd.PMI = dir, true
			if got := usesMPI(t, v, cmd); got != tt.want {
				t.Errorf("the host hears of %q, want %q", got, tt.want)
			}
		})
	}
}

// A script may run for weeks and start millions of processes.
func TestProcessesThatHaveEndedAreForgotten(t *testing.T) {
	m := mappings{programs: map[int]member{7: {7, 1}}, libraries: map[int]string{}}
	for _, e := range []mapEvent{
		{kind: unix.PERF_RECORD_FORK, pid: 8, parent: 7},
		{kind: unix.PERF_RECORD_FORK, pid: 9, parent: 8},
		{kind: unix.PERF_RECORD_FORK, pid: 9, parent: 9}, // a thread
		{kind: unix.PERF_RECORD_EXIT, pid: 9},            // one of its threads
		{kind: unix.PERF_RECORD_EXIT, pid: 8},
		{kind: unix.PERF_RECORD_MMAP, pid: 8, name: "libmpi.so.12"}, // of a number that is used again
	} {
		m.follow(e)
	}
	if diff := cmp.Diff(map[int]member{7: {7, 1}, 9: {7, 1}}, m.programs, cmp.AllowUnexported(member{})); diff != "" || len(m.libraries) > 0 {
		t.Errorf("libraries %v, processes (-want +got):\n%s", m.libraries, diff)
	}
}

// If a thread becomes a new program, the kernel ends the others before, also the one with the process's number. The agent's
// own child has threads that nobody has counted.
func TestAThreadThatBecomesAProgramStaysInItsProgram(t *testing.T) {
	for name, pid := range map[string]int{"the agent's child": 7, "a program of a script": 8} {
		t.Run(name, func(t *testing.T) {
			m := mappings{programs: map[int]member{7: {7, 1}}, libraries: map[int]string{}}
			for _, e := range []mapEvent{
				{kind: unix.PERF_RECORD_FORK, pid: 8, parent: 7},
				{kind: unix.PERF_RECORD_FORK, pid: 8, parent: 8},
				{kind: unix.PERF_RECORD_EXIT, pid: pid},
				{kind: unix.PERF_RECORD_MMAP, pid: pid, name: "libmpi.so.40"},
			} {
				m.follow(e)
			}
			if m.libraries[7] != "libmpi.so.40" {
				t.Errorf("the program has %q", m.libraries[7])
			}
		})
	}
}

// A ring takes memory, and the records of all processes of the VM.
func TestRingsAreOpenWhileProgramsRun(t *testing.T) {
	online := filepath.Join(t.TempDir(), "online")
	var opened []*ring
	m := newMappings(online, func(int) *ring {
		r := ringWithoutKernel(t)
		opened = append(opened, r)
		return r
	})
	for _, step := range []struct {
		what   string
		do     func()
		online string
		cpus   []int
		all    bool
	}{
		{"two programs start", func() { m.add(7); m.add(8) }, "0", []int{0}, true},
		{"one has ended", func() { m.remove(7) }, "0", []int{0}, true},
		{"a CPU has come online", func() {}, "0-1", []int{0, 1}, false},
		{"both have ended", func() { m.remove(8) }, "0-1", nil, false},
		{"another one starts", func() { m.add(9) }, "0-1", []int{0, 1}, true},
		{"a CPU has gone offline", func() {}, "0", []int{0, 1}, false},
		{"and is there again", func() {}, "0-1", []int{0, 1}, false},
	} {
		if err := os.WriteFile(online, []byte(step.online+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		step.do()
		_, all := m.library(9)
		if cpus := slices.Sorted(maps.Keys(m.rings)); !slices.Equal(cpus, step.cpus) || all != step.all {
			t.Errorf("%s: the rings are those of CPUs %v, want %v; all mappings are known: %v", step.what, cpus, step.cpus, all)
		}
	}
	for i, r := range opened[:2] {
		if _, err := r.file.Stat(); err == nil {
			t.Errorf("ring %d is not closed", i)
		}
	}
}

// ringWithoutKernel returns a ring into which nobody writes.
func ringWithoutKernel(t *testing.T) *ring {
	file, other, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = errors.Join(file.Close(), other.Close()) })
	return &ring{file, make([]byte, os.Getpagesize()+ringBytes)}
}

func TestARingThatWasFullHasGaps(t *testing.T) {
	for size, want := range map[int]bool{0: false, ringBytes / 2: false, ringBytes: true, ringBytes - 4096: true} {
		if isFull(make([]byte, size)) != want {
			t.Errorf("%d bytes: %v", size, !want)
		}
	}
}
