//go:build cluster

// Package test runs scenarios on the real cluster that scripts/cluster makes:
// real Slurm, libvirt, QEMU, MPI, as ordinary users. `make test` brings the
// cluster up first.
package test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// patience bounds any one command on the cluster; it ends a test that hangs. A slow machine
// needs more: SLURMV_PATIENCE is a factor.
var patience = 20 * time.Minute * max(1, factor())

func factor() time.Duration {
	n, _ := strconv.Atoi(os.Getenv("SLURMV_PATIENCE"))
	return time.Duration(n)
}

// cluster is the script that runs commands in the cluster.
var cluster = filepath.Join("..", "scripts", "cluster")

func TestMain(m *testing.M) {
	flag.Parse()
	if flag.Lookup("test.list").Value.String() != "" { // it needs no cluster
		os.Exit(m.Run())
	}
	if out, err := exec.Command(cluster, "status").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "%s\nthe cluster is not up: run scripts/cluster up\n", out)
		os.Exit(1)
	}
	if *templates {
		if err := makeTemplates(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	stop, err := states.follow()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go stalls.follow()
	code := m.Run()
	stop()
	_ = os.WriteFile("../build/logs/stalls", []byte(stalls.String()+"\n"), 0o644)
	_ = os.WriteFile("../build/logs/clocks", []byte(guestClocks.String()+"\n"), 0o644)
	os.Exit(code)
}

// An outcome is what a command on the cluster did.
type outcome struct {
	stdout, stderr string
	code           int
}

// A user is somebody on the cluster.
type user string

const (
	alice user = "alice"
	bob   user = "bob"
	root  user = "root"
)

// keepsTrying makes Slurm's commands, where a script names them, try again when munged hangs
// up on them, as it does on a busy machine: by default, SIGPIPE ends them before.
const keepsTrying = `for c in sbatch scancel scontrol squeue sacct; do eval "$c() (trap '' PIPE; exec $c \"\$@\")"; done; `

// command runs a shell script as u; see runIn.
func (u user) command(ctx context.Context, script string, options ...string) *exec.Cmd {
	args := append([]string{"run", "--user", string(u)}, options...)
	return exec.CommandContext(ctx, cluster, append(args, "--", "bash", "-c", keepsTrying+script)...)
}

// runIn runs a shell script as u, on the login node or where the further options
// of `scripts/cluster run` say, with stdin as its standard input.
func (u user) runIn(t *testing.T, stdin []byte, script string, options ...string) outcome {
	t.Helper()
	return u.runWithin(t, patience, stdin, script, options...)
}

// runWithin is runIn for a script that may take longer than others.
func (u user) runWithin(t *testing.T, limit time.Duration, stdin []byte, script string, options ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := u.command(ctx, script, options...)
	var stdout, stderr bytes.Buffer
	c.Stdin, c.Stdout, c.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", script, err)
	}
	if ctx.Err() != nil {
		t.Fatalf("%s: not done after %v\nstdout: %s\nstderr: %s", script, limit, stdout.Bytes(), stderr.Bytes())
	}
	return outcome{stdout.String(), stderr.String(), c.ProcessState.ExitCode()}
}

func (u user) run(t *testing.T, script string, options ...string) outcome {
	t.Helper()
	return u.runIn(t, nil, script, options...)
}

// must runs a script that has to succeed and returns what it printed.
func (u user) must(t *testing.T, script string, options ...string) string {
	t.Helper()
	o := u.run(t, script, options...)
	if o.code != 0 {
		t.Fatalf("%s: exit status %d\nstdout: %s\nstderr: %s", script, o.code, o.stdout, o.stderr)
	}
	return strings.TrimSpace(o.stdout)
}

// source returns, for a job's script, what puts a program's source from testdata into the job's directory.
func source(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return "cat > " + name + " << 'END OF SOURCE'\n" + string(text) + "END OF SOURCE\n"
}

// A job is one that a test submitted.
type job struct {
	t    *testing.T
	user user
	id   string
	dir  string // its working directory
}

// pauses is for bash in VMs: a pause that forks no process. A fork costs ten milliseconds of a
// core in an emulated VM, and several VMs that look five times a second for a file keep one busy.
const pauses = `
mkfifo /tmp/pause.$$ && exec 9<>/tmp/pause.$$ && rm /tmp/pause.$$
pause() { read -rt 0.3 -u 9 || :; }
`

// rest is for bash in VMs that wait for signals.
const rest = `while :; do sleep 1000 & wait $!; done`

// firstAddress is that of vm0: in the job's own network, or somewhere in the cloud's.
func firstAddress() string {
	if inOpenStack() {
		return " 10.79."
	}
	return "172.30.0.1"
}

// inOpenStack reports whether nova makes the cluster's VMs, see scripts/openstack.
func inOpenStack() bool { return os.Getenv("SLURMV_BACKEND") == "openstack" }

// small is a VM job that starts quickly: one VM on one node.
const small = "--nodes=1 --vm-per-node=1 --memory-per-vm=384M --time=90"

// submit submits a batch script in a directory of its own; options are sbatch's. The job
// has the test's name, for squeue and sacct. When the test ends the job is cancelled and the
// nodes are checked for leaks.
func (u user) submit(t *testing.T, options, script string) *job {
	t.Helper()
	submit := "cd $(mktemp -d ~/job-XXXXXX) && cat > script && pwd && sbatch --parsable --output=out --job-name=" + t.Name() + " " + options + " script"
	o := u.runIn(t, []byte("#!/bin/bash\n"+script), submit)
	if o.code != 0 {
		t.Fatalf("%s: exit status %d\nstdout: %s\nstderr: %s", submit, o.code, o.stdout, o.stderr)
	}
	dir, id, _ := strings.Cut(strings.TrimSpace(o.stdout), "\n")
	j := &job{t, u, id, dir}
	t.Cleanup(j.finish)
	return j
}

// writeFile makes a file that is there as a whole or not at all: jobs wait for it.
func (u user) writeFile(t *testing.T, path, text string) {
	t.Helper()
	if o := u.runIn(t, []byte(text), "f=$(mktemp "+path+".XXXXXX) && cat > $f && mv $f "+path); o.code != 0 {
		t.Fatalf("write %s: %s", path, o.stderr)
	}
}

// finish makes sure that nothing of the job is left, but for what shows why a test failed.
func (j *job) finish() {
	if !isOver(j.state()) {
		j.user.run(j.t, "scancel "+j.id)
		j.await("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL")
	}
	checkLeaks(j.t, j.id)
	guestClocks.add(j.reason())
	if j.t.Failed() {
		j.keep()
		return
	}
	j.user.run(j.t, "rm -rf "+j.dir)
}

// keep keeps what shows why the test failed, and prints the end of it.
func (j *job) keep() {
	name := strings.ReplaceAll(j.t.Name(), "/", "_") + "/job-" + j.id
	j.t.Logf("job %s: %s", j.id, j.user.keep(name, j.dir))
}

// keep copies a directory of the user's, in which jobs ran, and Slurm's logs to
// build/failures/NAME. It returns where they are, and the ends of the jobs' logs.
func (u user) keep(name, dir string) string {
	to := filepath.Join("..", "build", "failures", name)
	_ = os.MkdirAll(to, 0o755)
	slurm, _ := filepath.Glob(clusterDir() + "/log/slurm*.log")
	if out, err := exec.Command("cp", append(slurm, to)...).CombinedOutput(); err != nil {
		return fmt.Sprintf("Slurm's logs cannot be kept: %v: %s", err, out)
	}
	files, err := u.command(context.Background(), "cd "+dir+" && tar -c .").Output()
	if err == nil {
		unpack := exec.Command("tar", "-x", "-C", to)
		unpack.Stdin = bytes.NewReader(files)
		err = unpack.Run()
	}
	ends, _ := u.command(context.Background(), "cd "+dir+" && tail -n 8 slurmv-*/*/agent.log slurmv-*/*/*.console").Output()
	return fmt.Sprintf("stalls: %s\nthe logs are in %s (%v); those of the VMs end so:\n%s", &stalls, to, err, ends)
}

// state is what slurmctld says, such as RUNNING.
func (j *job) state() string {
	j.t.Helper()
	state, err := states.of(j.id)
	if err != nil {
		j.t.Fatal(err)
	}
	return state
}

// exitCode is slurmctld's "code:signal".
func (j *job) exitCode() string {
	return field(j.user.must(j.t, "scontrol show job "+j.id), "ExitCode")
}

// The fields of scontrol show job that say what a job has asked for, and what it has. Slurm
// 22.05 has one for both.
const (
	requested = "(?:Req)?TRES"
	allocated = "(?:Alloc)?TRES"
)

func field(text, name string) string {
	found := regexp.MustCompile(`\b` + name + `=(\S+)`).FindStringSubmatch(text)
	if found == nil {
		return ""
	}
	return found[1]
}

// await waits until the job is in one of the states, which it returns.
func (j *job) await(states ...string) string {
	j.t.Helper()
	var now string
	j.eventually("reaches "+strings.Join(states, " or "), func() bool {
		now = j.state()
		for _, s := range states {
			if s == now {
				return true
			}
		}
		return false
	})
	return now
}

// awaitOutput waits until the job's output contains text.
func (j *job) awaitOutput(text string) {
	j.t.Helper()
	j.eventually("prints "+text, func() bool { return strings.Contains(j.output(), text) })
}

// eventually waits for what a job that is not over yet will do. A job that goes on has time: whatever it
// prints gives it the whole patience again.
func (j *job) eventually(what string, done func() bool) {
	j.t.Helper()
	state := ""
	end := func() bool { state = j.state(); return done() || isOver(state) }
	if !pollWhile(func() string { return state + j.output() }, end) || isOver(state) && !done() {
		j.t.Fatalf("job %s never %s\nstate: %s, and now %s\noutput: %s", j.id, what, state, j.state(), j.output())
	}
}

// poll waits until done, and reports whether that came in time.
func poll(done func() bool) bool {
	return pollWhile(func() string { return "" }, done)
}

// pollWhile is poll for what shows progress by another text: it has the whole patience again then.
func pollWhile(progress func() string, done func() bool) bool {
	var end time.Time
	for last := "none yet"; !done(); time.Sleep(300 * time.Millisecond) {
		if now := progress(); now != last {
			last, end = now, time.Now().Add(patience)
		}
		if time.Now().After(end) {
			return false
		}
	}
	return true
}

// output is what the batch script has printed so far.
func (j *job) output() string {
	j.t.Helper()
	return j.read("out")
}

// file returns a file of the job's directory, without space at its ends.
func (j *job) file(name string) string {
	j.t.Helper()
	text, err := os.ReadFile(filepath.Join(j.dir, name))
	if err != nil {
		j.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// read returns what a file of the job's directory has so far; a file that is not there has nothing.
func (j *job) read(name string) string {
	text, _ := os.ReadFile(filepath.Join(j.dir, name))
	return string(text)
}

// exists reports whether the job's directory has a file.
func (j *job) exists(name string) bool {
	j.t.Helper()
	_, err := os.Stat(filepath.Join(j.dir, name))
	return err == nil
}

// completes waits for a normal end and returns the output.
func (j *job) completes() string {
	j.t.Helper()
	if s := j.await("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"); s != "COMPLETED" {
		j.t.Fatalf("job %s is %s\n%s", j.id, s, j.output())
	}
	return j.output()
}

// contains checks that text has every one of the parts.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in:\n%s", p, text)
		}
	}
}

// clusterNode cuts or gives back the power of a node.
func clusterNode(t *testing.T, node, power string) {
	t.Helper()
	if out, err := exec.Command(cluster, "node", node, power).CombinedOutput(); err != nil {
		t.Fatalf("node %s %s: %v\n%s", node, power, err, out)
	}
}
