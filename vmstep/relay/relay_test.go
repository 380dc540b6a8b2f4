package relay

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/internal/pmi"
)

func TestMain(m *testing.M) {
	guest.RunProgram() // this program is the guest's end, too
	os.Exit(m.Run())
}

// wire returns the two ends of a stream connection.
func wire(t *testing.T) (a, b net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "wire")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return ends[0], ends[1]
}

// A vm is a guest in this process and an agent before it.
type vm struct {
	relay *guest.Session // the relay's end
	agent *guest.Session // the agent's end of the channel to the guest
}

func newVM(t *testing.T) vm {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	host, port := wire(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		(&guest.Server{}).Serve(ctx, port)
	}()
	agent, err := guest.Connect(ctx, host)
	if err != nil {
		t.Fatal(err)
	}
	near, far := wire(t)
	mux, err := guest.NewRelay(far)
	if err != nil {
		t.Fatal(err)
	}
	go guest.Proxy(ctx, mux, agent, func(*guest.Header) error { return nil })
	relay, err := guest.NewSession(near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		relay.Close()
		agent.Close()
		cancel()
		<-served
	})
	return vm{relay, agent}
}

// start starts a shell script in the VM.
func (v vm) start(t *testing.T, script string, withPMI bool) *guest.Process {
	t.Helper()
	return v.startProgram(t, withPMI, "/bin/bash", "-c", script)
}

func (v vm) startProgram(t *testing.T, withPMI bool, args ...string) *guest.Process {
	t.Helper()
	p, err := v.relay.Start(context.Background(), guest.Command{
		Args: args, Env: []string{"PATH=/usr/bin:/bin"}, Dir: "/",
		UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Umask: 0o22, PMI: withPMI,
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestATaskIsItsProgram(t *testing.T) {
	tests := map[string]struct {
		script, stdin  string
		stdout, stderr string
		exit           guest.Exit
	}{
		"its output":        {script: "echo out; echo err >&2", stdout: "out\n", stderr: "err\n"},
		"its exit code":     {script: "exit 3", exit: guest.Exit{Code: 3}},
		"its signal":        {script: "kill -SEGV $$", exit: guest.Exit{Signal: 11}},
		"its input":         {script: "cat", stdin: "one\ntwo", stdout: "one\ntwo"},
		"input it ignores":  {script: "echo done", stdin: strings.Repeat("x", 1<<20), stdout: "done\n"},
		"what it leaves":    {script: "sleep 1000 & echo done", stdout: "done\n"},
		"output at the end": {script: "head -c 3000000 /dev/zero | tr '\\0' x; exit 1", stdout: strings.Repeat("x", 3000000), exit: guest.Exit{Code: 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			task := Task{Stdin: strings.NewReader(tt.stdin), Stdout: &stdout, Stderr: &stderr}
			exit, err := task.Run(newVM(t).start(t, tt.script, false))
			if err != nil {
				t.Fatal(err)
			}
			if exit != tt.exit {
				t.Errorf("exit = %v, want %v", exit, tt.exit)
			}
			if stdout.String() != tt.stdout {
				t.Errorf("%d bytes of stdout, want %d: %.100q", stdout.Len(), len(tt.stdout), stdout.String())
			}
			if !strings.Contains(stderr.String(), tt.stderr) {
				t.Errorf("stderr = %q, want %q", stderr.String(), tt.stderr)
			}
		})
	}
}

func TestInputArrivesWhole(t *testing.T) {
	data := make([]byte, 1<<20)
	rand.Read(data)
	var stdout bytes.Buffer
	task := Task{Stdin: bytes.NewReader(data), Stdout: &stdout, Stderr: io.Discard}
	if _, err := task.Run(newVM(t).start(t, "cat", false)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stdout.Bytes(), data) {
		t.Errorf("%d bytes came back other than the %d sent", stdout.Len(), len(data))
	}
}

func TestSignalsReachTheProgram(t *testing.T) {
	signals := make(chan os.Signal, 1)
	out, in := io.Pipe()
	task := Task{Stdin: strings.NewReader(""), Stdout: in, Stderr: io.Discard, Signals: signals}
	p := newVM(t).start(t, `trap 'echo got it; exit 4' USR1; echo ready; while :; do sleep 0.01; done`, false)
	go func() {
		lines := bufio.NewScanner(out)
		lines.Scan() // ready
		signals <- syscall.SIGUSR1
		io.Copy(io.Discard, out)
	}()
	exit, err := task.Run(p)
	if err != nil || exit != (guest.Exit{Code: 4}) {
		t.Errorf("exit = %v, %v, want code 4", exit, err)
	}
}

type closedPipe struct{}

func (closedPipe) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestAProgramLearnsThatNobodyReads(t *testing.T) {
	task := Task{Stdin: strings.NewReader(""), Stdout: closedPipe{}, Stderr: io.Discard}
	exit, err := task.Run(newVM(t).start(t, "exec cat /dev/zero", false))
	if err != nil || exit != (guest.Exit{Signal: int(syscall.SIGPIPE)}) {
		t.Errorf("exit = %v, %v, want SIGPIPE", exit, err)
	}
}

func TestTheLossOfTheVMIsAnError(t *testing.T) {
	v := newVM(t)
	out, in := io.Pipe()
	task := Task{Stdin: strings.NewReader(""), Stdout: in, Stderr: io.Discard}
	p := v.start(t, "echo ready; sleep 1000", false)
	go func() {
		bufio.NewReader(out).ReadString('\n')
		v.agent.Close()
		io.Copy(io.Discard, out)
	}()
	if exit, err := task.Run(p); !errors.Is(err, guest.ErrLost) {
		t.Errorf("exit = %v, error = %v, want %v", exit, err, guest.ErrLost)
	}
}

// talkPMI plays slurmstepd: it answers what a program asks of it.
func talkPMI(server io.ReadWriter) {
	answers := map[string]string{
		"cmd=init":        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
		"cmd=get":         "cmd=get_result rc=0 value=(vector,(0,2,4))\n",
		"cmd=finalize":    "cmd=finalize_ack rc=0\n",
		"cmd=lookup_name": "cmd=lookup_result info=ok port=1@n2\n",
	}
	lines := bufio.NewScanner(server)
	for lines.Scan() {
		cmd, _, _ := strings.Cut(lines.Text(), " ")
		fmt.Fprint(server, answers[cmd])
	}
}

func TestPMIPassesThroughAndNamesVMs(t *testing.T) {
	server, ours := wire(t)
	go talkPMI(server)
	var stdout, stderr bytes.Buffer
	task := Task{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, PMI: ours,
		Rank: pmi.Layout{Ranks: 8, VMsPerNode: 2, Distribution: pmi.DistBlock}}
	p := newVM(t).start(t, `
		ask() { echo "$1" >&$PMI_FD; read -r answer <&$PMI_FD; echo "$answer"; }
		ask 'cmd=init pmi_version=1 pmi_subversion=1'
		ask 'cmd=get kvsname=1.0 key=PMI_process_mapping'
		ask 'cmd=finalize'`, true)
	exit, err := task.Run(p)
	want := "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\ncmd=get_result rc=0 value=(vector,(0,4,2))\ncmd=finalize_ack rc=0\n"
	if stdout.String() != want || exit != (guest.Exit{}) || err != nil {
		t.Errorf("exit = %v, %v\nstdout = %q\nwant     %q\nstderr = %q", exit, err, stdout.String(), want, stderr.String())
	}
}

// A program's libraries have links' names, and in its memory those of files.
func TestNamesOfOpenMPI(t *testing.T) {
	for name, want := range map[string]bool{
		"libmpi.so.40": true, "libmpi.so.40.30.4": true, "libmpi_mpifh.so.40.30.0": true, "libmpi_usempif08.so.40": true,
		"libmpi.so.12": false, "libmpi.so.12.0.0": false, "libmpich.so.12.1.8": false, "libmpi.so": false,
	} {
		if isOpenMPI(name) != want {
			t.Errorf("%s is Open MPI's: %v", name, !want)
		}
	}
}

// A rank of an MPI program that asks nobody for the other ranks computes alone, and must not
// end as if all was well.
func TestWrongStart(t *testing.T) {
	openMPI, mpich, fortran := t.TempDir(), t.TempDir(), t.TempDir()
	alone := filetest.MPIProgram(t, openMPI, "libmpi.so.40")
	other := filetest.MPIProgram(t, mpich, "libmpich.so.12")
	inFortran := filetest.MPIProgram(t, fortran, "libmpi_mpifh.so.40")
	const joins = "echo cmd=slurmv-pmix joined=1 >&$PMI_FD; echo cmd=init >&$PMI_FD; read -r answer <&$PMI_FD\n" // an answer: it has been heard
	const leaves = "echo cmd=slurmv-pmix joined=0 >&$PMI_FD; read -r answer <&$PMI_FD; [ \"$answer\" = 'cmd=slurmv-pmix rc=0' ] || exit 9\n"
	tests := map[string]struct {
		args  []string
		ranks int
		exit  guest.Exit
		want  string // in what it says; "" if it says nothing
	}{
		"Open MPI, alone":                 {[]string{alone}, 2, guest.Exit{Code: 1}, "uses libmpi.so.40, which has not asked Slurm's PMI for the other ranks: each of the 2 tasks computes alone. Open MPI starts with: slurm-v-run --mpi=pmix"},
		"Open MPI in Fortran":             {[]string{inFortran}, 2, guest.Exit{Code: 1}, "uses libmpi_mpifh.so.40, which has not asked Slurm's PMI for the other ranks: each of the 2 tasks computes alone. Open MPI starts with: slurm-v-run --mpi=pmix"},
		"Open MPI does not join":          {[]string{alone, "asks"}, 2, guest.Exit{Code: 1}, "which has not asked PMIx for the other ranks: each of the 2 tasks computes alone. Open MPI starts otherwise with: slurm-v-run --launcher=ssh mpirun"},
		"Open MPI joins":                  {[]string{"/bin/sh", "-c", `` + joins + leaves + `exec "$0"`, alone}, 2, guest.Exit{}, ""},
		"Open MPI joins, twice":           {[]string{"/bin/sh", "-c", joins + leaves + joins + `exec "$0"`, alone}, 2, guest.Exit{Code: 1}, "the program has ended without MPI_Finalize"},
		"it joins and stays":              {[]string{"/bin/sh", "-c", joins}, 2, guest.Exit{Code: 1}, "the program has ended without MPI_Finalize"},
		"it joins and stays, alone":       {[]string{"/bin/sh", "-c", joins}, 1, guest.Exit{}, ""},
		"it joins and fails":              {[]string{"/bin/sh", "-c", joins + "exit 5"}, 2, guest.Exit{Code: 5}, ""},
		"MPICH without Slurm's PMI":       {[]string{other}, 8, guest.Exit{Code: 1}, "libmpich.so.12, which has not asked Slurm's PMI for the other ranks: each of the 8 tasks computes alone. This library was not built for PMI-1 or PMI-2"},
		"MPICH with Slurm's PMI":          {[]string{other, "asks"}, 2, guest.Exit{}, ""},
		"one task":                        {[]string{alone}, 1, guest.Exit{}, ""},
		"no MPI":                          {[]string{"/bin/echo", "hello"}, 2, guest.Exit{}, ""},
		"Open MPI fails, alone":           {[]string{alone, "", "", "7"}, 2, guest.Exit{Code: 7}, "wrong start: the program uses libmpi.so.40, which does not ask Slurm's PMI. Open MPI starts with: slurm-v-run --mpi=pmix"},
		"Open MPI fails, one task":        {[]string{alone, "", "", "7"}, 1, guest.Exit{Code: 7}, "Open MPI starts with: slurm-v-run --mpi=pmix"},
		"MPICH stays":                     {[]string{other, "stays"}, 2, guest.Exit{Code: 1}, "the program has ended without MPI_Finalize"},
		"MPICH stays, alone":              {[]string{other, "stays"}, 1, guest.Exit{}, ""},
		"MPICH stays and fails":           {[]string{other, "stays", "", "7"}, 2, guest.Exit{Code: 7}, ""},
		"MPICH with --mpi=pmix joins not": {[]string{other}, 2, guest.Exit{Code: 1}, "which has not asked PMIx for the other ranks: each of the 2 tasks computes alone. Start it with --mpi=pmi2"},
		"its own code is kept":            {[]string{other, "", "", "7"}, 2, guest.Exit{Code: 7}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server, ours := wire(t)
			go talkPMI(server)
			var stdout, stderr bytes.Buffer
			task := Task{Stdin: strings.NewReader(""), Stdout: &stdout, Stderr: &stderr, PMI: ours, PMIx: strings.Contains(name, "join"), Rank: pmi.Layout{Ranks: tt.ranks, VMsPerNode: 1}}
			exit, err := task.Run(newVM(t).startProgram(t, true, tt.args...))
			if exit != tt.exit || err != nil {
				t.Errorf("exit = %v, %v, want %v", exit, err, tt.exit)
			}
			if said := stderr.String(); !strings.Contains(said, tt.want) || (said != "") != (tt.want != "") {
				t.Errorf("it says %q, want %q", said, tt.want)
			}
		})
	}
}

// A program that runs may be slow, or wait for its input, and still ask for the other ranks.
func TestAWarningIsNoVerdict(t *testing.T) {
	p := newVM(t).startProgram(t, true, filetest.MPIProgram(t, t.TempDir(), "libmpi.so.40"))
	server, ours := wire(t)
	defer server.Close()
	var stderr bytes.Buffer
	task := Task{Stderr: &stderr, PMI: ours, PMIx: true, Rank: pmi.Layout{Ranks: 2}}
	task.warn(p, time.Millisecond, nil)
	const want = "slurm-v: warning: the program uses libmpi.so.40, which has not asked PMIx for the other ranks in 1ms. If it is past MPI_Init, each of the 2 tasks computes alone. Open MPI starts"
	if !strings.HasPrefix(stderr.String(), want) {
		t.Errorf("it says %q, want %q", stderr.String(), want)
	}
}

// A slurmstepd answers a program by talkPMI, and keeps what it has heard.
type slurmstepd struct {
	heard bytes.Buffer
	ended chan struct{}
}

func startStepd(server net.Conn) *slurmstepd {
	s := &slurmstepd{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		hearPMI(server, &s.heard)
	}()
	return s
}

// hearPMI answers a program by talkPMI, and writes down what it hears, until it cannot.
func hearPMI(server io.ReadWriter, heard io.Writer) {
	talkPMI(struct {
		io.Reader
		io.Writer
	}{io.TeeReader(server, heard), server})
}

// Parts of scripts: a function that asks PMI, and a rank's first question in each dialect.
const (
	asks  = `ask() { printf "$1" >&$PMI_FD; read -r answer <&$PMI_FD; }; `
	init1 = asks + `ask 'cmd=init pmi_version=1 pmi_subversion=1\n'; `
	init2 = asks + `ask 'cmd=init pmi_version=2 pmi_subversion=0\n'; `
)

// The others wait for a rank that is gone, and Slurm does not end them by itself.
func TestARankThatIsGoneEndsTheOthers(t *testing.T) {
	const (
		pmi1 = "cmd=abort exitcode=1\n"
		pmi2 = "65    cmd=abort;isworld=TRUE;msg=a rank has ended without MPI_Finalize;"
	)
	tests := map[string]struct {
		pmix, spares bool
		ranks        int // 2 if 0
		script       string
		signal       syscall.Signal // that Slurm sends when the program has said ready
		killPatience time.Duration  // the constant if 0
		lost         bool           // the VM goes then
		want         string         // at the end of what slurmstepd hears; "" for no abort
	}{
		"killed":                        {script: init1 + "kill -9 $$", want: pmi1},
		"killed, PMI-2":                 {script: init2 + "kill -9 $$", want: pmi2},
		"it fails":                      {script: init1 + "exit 5", want: pmi1},
		"it ends well":                  {script: init1 + "exit 0", want: pmi1},
		"its VM is lost":                {script: init1 + "echo ready; sleep 1000", lost: true, want: pmi1},
		"it has finalized":              {script: init1 + `ask 'cmd=finalize\n'; kill -9 $$`},
		"it has no MPI":                 {script: "kill -9 $$"},
		"it is the only rank":           {ranks: 1, script: init1 + "kill -9 $$"},
		"Slurm ends it, as the others":  {script: init1 + "echo ready; sleep 1000", signal: syscall.SIGTERM},
		"Slurm kills it in another way": {script: init1 + "echo ready; sleep 1000", signal: syscall.SIGUSR1},
		"Slurm has ended it":            {script: init1 + "trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done", signal: syscall.SIGTERM},
		"killed after another signal":   {script: init1 + "trap 'kill -9 $$' USR1; echo ready; while :; do sleep 0.01; done", signal: syscall.SIGUSR1, want: pmi1},
		"killed, long after SIGTERM":    {script: init1 + "trap : TERM; echo ready; sleep 0.3; sleep 0.3; kill -9 $$", signal: syscall.SIGTERM, killPatience: time.Millisecond, want: pmi1},
		"MPI_Abort after SIGTERM":       {script: init1 + `trap : TERM; echo ready; sleep 0.3; sleep 0.3; printf 'cmd=abort exitcode=6\n' >&$PMI_FD; sleep 0.3; exit 6`, signal: syscall.SIGTERM, want: "cmd=abort exitcode=6\n"},
		"the user spares the others":    {spares: true, script: init1 + "kill -9 $$"},
		"srun knows, with PMIx":         {pmix: true, script: init1 + `printf 'cmd=slurmv-pmix joined=1\n' >&$PMI_FD; kill -9 $$`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			server, ours := wire(t)
			stepd := startStepd(server)
			out, in := io.Pipe()
			signals := make(chan os.Signal, 1)
			task := &Task{Stdin: strings.NewReader(""), Stdout: in, Stderr: io.Discard, Signals: signals, PMI: ours, PMIx: tt.pmix,
				SparesRanks: tt.spares, killPatience: tt.killPatience, Rank: pmi.Layout{Ranks: cmp.Or(tt.ranks, 2), VMsPerNode: 1}}
			v := newVM(t)
			p := v.start(t, tt.script, true)
			go func() {
				if line, _ := bufio.NewReader(out).ReadString('\n'); line == "ready\n" && tt.lost {
					v.agent.Close()
				} else if line == "ready\n" {
					signals <- tt.signal
				}
				io.Copy(io.Discard, out)
			}()
			exit, err := task.Run(p)
			in.Close()
			if lost := errors.Is(err, guest.ErrLost); lost != tt.lost {
				t.Errorf("error = %v", err)
			}
			task.Leave(exit)
			<-stepd.ended
			heard := stepd.heard.String()
			if !strings.HasSuffix(heard, tt.want) || strings.Contains(heard, "abort") != (tt.want != "") {
				t.Errorf("slurmstepd hears %q, want %q", heard, tt.want)
			}
		})
	}
}
