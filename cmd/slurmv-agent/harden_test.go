package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/program"
)

// stateVariable makes this test program the agent, which leaves in that file what its
// process is like at its end.
const stateVariable = "AGENT_TEST_STATE"

func TestMain(m *testing.M) {
	path := os.Getenv(stateVariable)
	if path == "" {
		os.Exit(m.Run())
	}
	_ = os.Unsetenv(stateVariable)
	root := newRoot()
	root.SetArgs(os.Args[1:])
	if len(os.Args) > 1 {
		if err := root.ExecuteContext(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	if err := os.WriteFile(path, []byte(processState()), 0o600); err != nil {
		panic(err)
	}
}

var interesting = regexp.MustCompile(`(?m)^(?:Umask:.*|Max (?:cpu time|file size|data size|core file size|address space) +\w+)`)

// processState is everything about this process that its caller could have set.
func processState() string {
	status, _ := os.ReadFile("/proc/self/status")
	limits, _ := os.ReadFile("/proc/self/limits")
	dir, _ := os.Getwd()
	lines := interesting.FindAllString(string(status)+string(limits), -1)
	for i, line := range lines {
		lines[i] = strings.Join(strings.Fields(line), " ")
	}
	env := slices.Sorted(slices.Values(os.Environ()))
	return strings.Join(append(append(lines, "in "+dir), env...), "\n")
}

// lowest is the option of the shell's ulimit for the lowest limits that root can raise:
// in some containers root raises no hard limits.
func lowest() string {
	var now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MSGQUEUE, &now); err != nil {
		panic(err)
	}
	if unix.Setrlimit(unix.RLIMIT_MSGQUEUE, &unix.Rlimit{Cur: now.Cur, Max: now.Max + 1}) != nil {
		return "-S"
	}
	return ""
}

// startHostile runs the agent as the worst caller would, and returns what became of its
// process.
func startHostile(t *testing.T, args ...string) []string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("not root: run as root, whose limits can be raised")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state")
	script := `umask 0777; ulimit -c 1000; for limit in "-t 90" "-f 8" "-v 8000000" "-d 7000000"; do ulimit ` + lowest() + ` $limit; done; exec "$@" 3>/dev/null`
	c := exec.Command("/bin/sh", append([]string{"-c", script, "sh", self}, args...)...)
	c.Dir = t.TempDir()
	c.Env = []string{stateVariable + "=" + state, "PATH=" + c.Dir + ":/usr/bin", "PWD=" + c.Dir, "SLURM_CONF=/evil", "LD_LIBRARY_PATH=/evil",
		"TMPDIR=/evil", "SLURMV_STEP=7"}
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.ReplaceAll(string(text), c.Dir, "CALLER"), "\n")
}

func TestRootsProcessesAreHardened(t *testing.T) {
	site := filepath.Join(t.TempDir(), "slurmv.toml")
	if err := os.WriteFile(site, []byte("paths.state = '"+t.TempDir()+"'"), 0o600); err != nil {
		t.Fatal(err)
	}
	callers := []string{"Umask: 0777", "Max cpu time 90", "Max file size 4096", "Max data size 7168000000",
		"Max core file size 512000", "Max address space 8192000000", "in CALLER",
		"LD_LIBRARY_PATH=/evil", "PATH=CALLER:/usr/bin", "PWD=CALLER", "SLURMV_STEP=7", "SLURM_CONF=/evil", "TMPDIR=/evil"}
	hard := []string{"Umask: 0022", "Max cpu time unlimited", "Max file size unlimited", "Max data size unlimited",
		"Max core file size 0", "Max address space unlimited", "in /",
		"PATH=" + program.Path}
	byPlugin := append(slices.Clone(hard), "SLURMV_STEP=7", "SLURM_CONF=/evil") // the plugin sets these
	tests := map[string]struct {
		args []string
		want []string
	}{
		"a caller's state arrives": {nil, callers},
		"launch by sudo":           {[]string{"launch", "--task"}, hard},
		"reclaim by sudo":          {[]string{"reclaim", "--task"}, hard},
		"launch":                   {[]string{"launch"}, byPlugin},
		"reclaim":                  {[]string{"reclaim", "--job", "1", "--node", "n1", "--config", site}, byPlugin},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, startHostile(t, tt.args...)); diff != "" {
				t.Errorf("the process differs (-want +got):\n%s", diff)
			}
		})
	}
}
