package guest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/internal/pmix/pmixtest"
)

// A run has ranks in one VM.
type run struct {
	*pmixtest.Slurm
	vm   *vm
	step string
}

func pmixVM(t *testing.T, cgroups *Cgroups, path string) *vm {
	t.Helper()
	return startServer(t, &Server{Cgroups: cgroups, pmix: pmixServers{path: path}})
}

func (v *vm) run(step string, ranks int) *run {
	return &run{&pmixtest.Slurm{Ranks: ranks, Mapping: fmt.Sprintf("(vector,(0,1,%d))", ranks)}, v, step}
}

// start starts a rank. Its relay begins to speak PMI when the program runs.
func (r *run) start(t *testing.T, rank int, cmd Command) *Process {
	t.Helper()
	cmd.PMI, cmd.PMIx = true, true
	cmd.Env = append(cmd.Env, "SLURM_JOB_ID=7", "SLURM_STEP_ID="+r.step, fmt.Sprint("PMI_RANK=", rank), fmt.Sprint("PMI_SIZE=", r.Ranks))
	p := start(t, r.vm.Session, cmd)
	go r.Serve(rank, p.PMI)
	return p
}

// results finishes the ranks, whatever they still want to read.
func results(t *testing.T, ranks ...*Process) []result {
	t.Helper()
	done := make([]result, len(ranks))
	var all []chan result
	for _, p := range ranks {
		c := make(chan result, 1)
		all = append(all, c)
		go func() { c <- finish(t, p, "") }()
	}
	for i, c := range all {
		select {
		case done[i] = <-c:
		case <-time.After(30 * time.Second):
			t.Fatalf("rank %d does not end", i)
		}
	}
	return done
}

// servers are the processes of PMIx servers in the VM.
func (v *vm) servers(t *testing.T) (pids []int) {
	t.Helper()
	lists, _ := filepath.Glob(filepath.Join(v.dir, "pmix-*", "cgroup.procs"))
	for _, list := range lists {
		text, _ := os.ReadFile(list)
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// waits is a program that is ended by others.
func waits(cmd Command) Command {
	cmd.Args = Strings{"sh", "-c", "echo up; sleep 1000"}
	return cmd
}

func TestRanksOfARunShareAServer(t *testing.T) {
	path, client := pmixtest.Build(t, "..")
	for name, cgroups := range map[string]bool{"with cgroups": true, "without cgroups": false} {
		t.Run(name, func(t *testing.T) {
			var groups *Cgroups
			if cgroups {
				groups = testCgroups(t)
			}
			r := pmixVM(t, groups, path).run("1", 3)
			cmd := shell("")
			cmd.Args = Strings{client, "local"}
			cmd.Env = append(cmd.Env, "LD_PRELOAD=/nowhere.so")
			for i, got := range results(t, r.start(t, 2, cmd), r.start(t, 0, cmd), r.start(t, 1, cmd)) {
				rank := []int{2, 0, 1}[i]
				if got.exit != (Exit{}) {
					t.Errorf("rank %d: %+v", rank, got)
				}
				for other := range 3 {
					if want := fmt.Sprintf("%d has the segment of %d: true\n", rank, other); !strings.Contains(got.stdout, want) {
						t.Errorf("rank %d: no line %q in\n%s", rank, want, got.stdout)
					}
				}
				// The server would say that it cannot preload it, too, and to the first rank.
				if n := strings.Count(got.stderr, "/nowhere.so"); n != 1 {
					t.Errorf("rank %d: %d processes have got its LD_PRELOAD\n%s", rank, n, got.stderr)
				}
			}
		})
	}
}

// A program whose MPI may use shared memory has a descriptor of its PMI, and knows which one.
func TestRankThatMayUseSharedMemoryHasPMI(t *testing.T) {
	path, _ := pmixtest.Build(t, "..")
	v := pmixVM(t, testCgroups(t), path)
	const script = `if [ "$SLURMV_PMI_FD" = 4 ]; then echo cmd=mine >&4; stat -Lc %i /proc/self/fd/4; echo "$SLURMV_PMI_SOCKET"; fi; ls /proc/self/fd | tr '\n' ' '`
	for name, tt := range map[string]struct {
		env  []string
		has  bool
		open string // descriptors; ls has one of its own
	}{
		"that may":     {[]string{"SLURMV_MPI_SHM=/dev/slurmv/ivshmem0:x:0:0"}, true, "0 1 2 3 4 "},
		"that may not": {nil, false, "0 1 2 3 "},
	} {
		t.Run(name, func(t *testing.T) {
			r := v.run("1", 1)
			cmd := shell(script)
			cmd.Env = append(cmd.Env, tt.env...)
			got := results(t, r.start(t, 0, cmd))[0]
			lines := strings.Split(got.stdout, "\n")
			if open := lines[len(lines)-1]; open != tt.open {
				t.Errorf("it has the descriptors %s, want %s: %+v", open, tt.open, got)
			}
			if told := slices.Contains(r.Heard(), "0: cmd=mine"); told != tt.has || tt.has && (len(lines) != 3 || lines[0] != lines[1]) {
				t.Errorf("Slurm has heard %q, and the program says %q", r.Heard(), got.stdout)
			}
		})
	}
}

// A rank fails with the words and the status that it would have without PMIx, and without waiting
// for the others.
func TestRankThatCannotRun(t *testing.T) {
	path, _ := pmixtest.Build(t, "..")
	dir := filetest.PassableDir(t)
	garbage := filepath.Join(dir, "garbage")
	filetest.Write(t, garbage, "\x7fELF but not really")
	if err := os.Chmod(garbage, 0o755); err != nil {
		t.Fatal(err)
	}
	v := pmixVM(t, testCgroups(t), path)
	for name, tt := range map[string]struct {
		program string
		ranks   int
		want    result
	}{
		"it is no program":     {garbage, 1, result{stderr: "slurmv: error: execve(): " + garbage + ": Exec format error\n", exit: Exit{Code: 8}}},
		"it is not there":      {"./no", 2, result{stderr: "slurmv: error: execve(): ./no: No such file or directory\n", exit: Exit{Code: 2}}},
		"it is not executable": {"/etc/passwd", 2, result{stderr: "slurmv: error: execve(): /etc/passwd: Permission denied\n", exit: Exit{Code: 13}}},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := shell("")
			cmd.Args = Strings{tt.program}
			if got := results(t, v.run("1", tt.ranks).start(t, 0, cmd))[0]; got != tt.want {
				t.Errorf("%+v, want %+v", got, tt.want)
			}
		})
	}
}

// Ranks without their server end, and one of them says why.
func TestServerThatEndsBeforeItsRanks(t *testing.T) {
	good, _ := pmixtest.Build(t, "..")
	bad := filepath.Join(filetest.PassableDir(t), PMIxServer)
	for name, tt := range map[string]struct {
		path string
		kill bool
		want string
	}{
		"it is killed":       {good, true, "slurm-v: --mpi=pmix: the PMIx server of this VM has ended (signal: killed), and the ranks that it served end with it\n"},
		"it cannot run":      {bad, false, "slurmv: error: --mpi=pmix: the image may have another C library than glibc 2.34 or newer\n"},
		"it has said enough": {"/bin/false", false, "the PMIx server of this VM has ended (exit status 1)"},
	} {
		t.Run(name, func(t *testing.T) {
			v := pmixVM(t, testCgroups(t), tt.path)
			r := v.run("1", 2)
			ranks := []*Process{r.start(t, 0, waits(shell(""))), r.start(t, 1, waits(shell("")))}
			if tt.kill {
				expectLine(t, ranks[0].Stdout, "up")
				expectLine(t, ranks[1].Stdout, "up")
				for _, pid := range v.servers(t) {
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
			}
			said := ""
			for i, got := range results(t, ranks...) {
				said += got.stderr
				if got.exit != (Exit{Code: 1}) {
					t.Errorf("rank %d: %v, want exit code 1", i, got.exit)
				}
			}
			if strings.Count(said, tt.want) != 1 {
				t.Errorf("the ranks said %q, want once %q", said, tt.want)
			}
		})
	}
}

// A server ends with the last rank of its run, not with another, and not with another run's.
func TestServersEnd(t *testing.T) {
	path, _ := pmixtest.Build(t, "..")
	v := pmixVM(t, testCgroups(t), path)
	one, two := v.run("1", 2), v.run("2", 1)
	ranks := []*Process{one.start(t, 0, waits(shell(""))), one.start(t, 1, waits(shell(""))), two.start(t, 0, waits(shell("")))}
	for _, p := range ranks {
		expectLine(t, p.Stdout, "up")
	}
	for i, left := range []int{2, 1, 0} {
		if i == 0 {
			_ = ranks[0].Signal(syscall.SIGKILL)
			if exit, err := ranks[0].Wait(); exit.Signal != 9 || err != nil {
				t.Errorf("rank 0: %v, %v, want that the signal has ended it", exit, err)
			}
		}
		if err := ranks[i].Close(); err != nil {
			t.Error(err)
		}
		if n := len(v.servers(t)); n != left {
			t.Errorf("%d servers are left, want %d", n, left)
		}
	}
}

// A rank that the host's PMI has left does not wait for ever, whether it waits for others or not.
func TestPMIThatEndsBeforeItsRank(t *testing.T) {
	path, _ := pmixtest.Build(t, "..")
	for name, ranks := range map[string]int{"the rank runs": 1, "the rank waits for another": 2} {
		t.Run(name, func(t *testing.T) {
			r := pmixVM(t, testCgroups(t), path).run("1", ranks)
			p := r.start(t, 0, waits(shell("")))
			if ranks == 1 {
				expectLine(t, p.Stdout, "up")
			}
			for ranks > 1 && r.Waiting() == 0 {
				time.Sleep(time.Millisecond)
			}
			_ = p.PMI.Close()
			if got := results(t, p)[0]; got.exit != (Exit{Code: 1}) {
				t.Errorf("%+v, want exit code 1", got)
			}
		})
	}
}

// A server that hangs is killed with all that it has started.
func TestServerThatDoesNotEnd(t *testing.T) {
	path := filepath.Join(filetest.PassableDir(t), PMIxServer)
	filetest.Write(t, path, "#!/bin/sh\nsleep 1000 & sleep 1000\n")
	if err := os.Chmod(path, 0o755); err != nil {
		t.Fatal(err)
	}
	v := pmixVM(t, testCgroups(t), path)
	p := v.run("1", 1).start(t, 0, waits(shell("")))
	for len(v.servers(t)) < 3 {
		time.Sleep(time.Millisecond)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if pids := v.servers(t); len(pids) > 0 {
		t.Errorf("processes %v are left", pids)
	}
}

// A run that is cancelled while a rank has not come leaves nothing.
func TestRankThatNeverComes(t *testing.T) {
	path, _ := pmixtest.Build(t, "..")
	v := pmixVM(t, testCgroups(t), path)
	r := v.run("1", 2)
	p := r.start(t, 0, waits(shell("")))
	for r.Waiting() == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if out, _ := io.ReadAll(p.Stdout); len(out) > 0 {
		t.Errorf("the rank has run: %q", out)
	}
	if pids := v.servers(t); len(pids) > 0 {
		t.Errorf("servers %v are left", pids)
	}
}
