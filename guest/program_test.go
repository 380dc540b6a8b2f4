package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProgram(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"noexec":  "#!/bin/sh\n",
		"script":  "#!/bin/sh\necho script in $PWD\n",
		"orphan":  "#!/no/such/interpreter\n",
		"garbage": "\x7fELF but not really",
	} {
		mode := os.FileMode(0o755)
		if name == "noexec" {
			mode = 0o644
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) Command {
		c := shell("")
		c.Args, c.Dir = args, dir
		return c
	}
	with := func(c Command, change func(*Command)) Command {
		change(&c)
		return c
	}
	tests := map[string]struct {
		cmd   Command
		stdin string
		want  result
	}{
		"writes both outputs": {cmd: shell("echo out; echo err >&2"), want: result{"out\n", "err\n", Exit{}}},
		"returns its code":    {cmd: shell("exit 3"), want: result{exit: Exit{Code: 3}}},
		"is killed":           {cmd: shell("kill -SEGV $$"), want: result{exit: Exit{Signal: 11}}},
		"reads its input":     {cmd: shell("cat"), stdin: "in\n", want: result{stdout: "in\n"}},
		"gets its arguments":  {cmd: shell(`printf '%s|' "$@"`, "a b", "", "\xff\n"), want: result{stdout: "a b||\xff\n|"}},
		"gets its variables and no others": {
			cmd:  with(run("env"), func(c *Command) { c.Env = append(c.Env, "X=\xff y") }),
			want: result{stdout: "PATH=/usr/bin:/bin\nLC_ALL=C\nX=\xff y\n"},
		},
		"is found in its directory":       {cmd: run("./script"), want: result{stdout: "script in " + dir + "\n"}},
		"is found in PATH":                {cmd: with(run("script"), func(c *Command) { c.Env = []string{"PATH=/no:" + dir} }), want: result{stdout: "script in " + dir + "\n"}},
		"is found in a relative PATH":     {cmd: with(run("script"), func(c *Command) { c.Env = []string{"PATH=."} }), want: result{stdout: "script in " + dir + "\n"}},
		"is not found":                    {cmd: run("./no"), want: result{stderr: "slurmv: error: execve(): ./no: No such file or directory\n", exit: Exit{Code: 2}}},
		"is not found in PATH":            {cmd: run("no"), want: result{stderr: "slurmv: error: execve(): no: No such file or directory\n", exit: Exit{Code: 2}}},
		"may not be executed":             {cmd: run("./noexec"), want: result{stderr: "slurmv: error: execve(): ./noexec: Permission denied\n", exit: Exit{Code: 13}}},
		"may not be executed in PATH":     {cmd: with(run("noexec"), func(c *Command) { c.Env = []string{"PATH=" + dir} }), want: result{stderr: "slurmv: error: execve(): noexec: Permission denied\n", exit: Exit{Code: 13}}},
		"is not a program":                {cmd: run("./garbage"), want: result{stderr: "slurmv: error: execve(): ./garbage: Exec format error\n", exit: Exit{Code: 8}}},
		"names a missing interpreter":     {cmd: run("./orphan"), want: result{stderr: "slurmv: error: execve(): bad interpreter(/no/such/interpreter): No such file or directory\n", exit: Exit{Code: 2}}},
		"has its umask":                   {cmd: with(shell("umask"), func(c *Command) { c.Umask = 0o27 }), want: result{stdout: "0027\n"}},
		"has its limits":                  {cmd: with(shell("ulimit -s; ulimit -c"), func(c *Command) { c.Limits = []Limit{{"stack", 3 << 20}, {"core", 0}, {"unknown", 1}} }), want: result{stdout: "3072\n0\n"}},
		"runs in /tmp if it must":         {cmd: with(shell("pwd"), func(c *Command) { c.Dir = "/no" }), want: result{stdout: "/tmp\n", stderr: "slurmv: error: couldn't chdir to `/no': No such file or directory: going to /tmp instead\n"}},
		"leads a process group":           {cmd: shell(`test "$(ps -o pgid= $$)" -eq $$ && test "$(ps -o sid= $$)" -eq $$ && echo yes`), want: result{stdout: "yes\n"}},
		"has no descriptor of the agent":  {cmd: shell("ls /proc/$$/fd"), want: result{stdout: "0\n1\n2\n"}},
		"starts with signals unblocked":   {cmd: shell("grep Sig[BI] /proc/self/status"), want: result{stdout: "SigBlk:\t0000000000000000\nSigIgn:\t" + ignoredSignals(t) + "\n"}},
		"does not see what it should not": {cmd: shell("cat /proc/$$/cmdline | tr '\\0' ' '"), want: result{stdout: "sh -c cat /proc/$$/cmdline | tr '\\0' ' ' sh "}},
	}
	v := startVM(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := finish(t, start(t, v.Session, tt.cmd), tt.stdin)
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("result differs (-want +got):\n%s", diff)
			}
		})
	}
}

// ignoredSignals is the set that this process was started with, without SIGHUP and SIGINT,
// which no program inherits as ignored: make, for one, has signal 32 of the C library in it,
// nohup has SIGHUP.
func ignoredSignals(t *testing.T) string {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "SigIgn:\t")
	text, _, _ := strings.Cut(rest, "\n")
	set, err := strconv.ParseUint(text, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%016x", set&^0b11)
}

func TestProgramOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("becomes another user: run as root")
	}
	v := startVM(t)
	cmd := shell("id -u; id -g; id -G; cat /etc/shadow")
	cmd.UID, cmd.GID, cmd.Groups = 4321, 4322, []uint32{4323, 4324}
	got := finish(t, start(t, v.Session, cmd), "")
	want := result{"4321\n4322\n4322 4323 4324\n", "cat: /etc/shadow: Permission denied\n", Exit{Code: 1}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(result{})); diff != "" {
		t.Errorf("result differs (-want +got):\n%s", diff)
	}
}

func TestRefusedCommands(t *testing.T) {
	v := startVM(t)
	tests := map[string]struct {
		change func(*Command)
		want   string
	}{
		"no program":             {func(c *Command) { c.Args = nil }, "no program is named"},
		"a zero byte":            {func(c *Command) { c.Args = append(c.Args, "a\x00b") }, "zero byte"},
		"a zero byte in Dir":     {func(c *Command) { c.Dir = "a\x00b" }, "not UTF-8"},
		"an endless environment": {func(c *Command) { c.Env = append(c.Env, strings.Repeat("x", maxHeader)) }, "too long"},
		"PMIx without PMI":       {func(c *Command) { c.PMIx = true }, "PMIx needs PMI"},
		"too many groups":        {func(c *Command) { c.Groups = make([]uint32, maxGroups+1) }, "groups"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := shell("true")
			tt.change(&cmd)
			if _, err := v.Start(t.Context(), cmd); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
	if got := finish(t, start(t, v.Session, shell("echo alive")), ""); got.stdout != "alive\n" {
		t.Errorf("afterwards: %+v", got)
	}
}

func TestLargeInput(t *testing.T) {
	v := startVM(t)
	in := strings.Repeat("0123456789abcde\n", 1<<16)
	if got := finish(t, start(t, v.Session, shell("cat")), in); got.stdout != in {
		t.Errorf("%d of %d bytes came back", len(got.stdout), len(in))
	}
}

func TestLargeOutput(t *testing.T) {
	v := startVM(t)
	p := start(t, v.Session, shell("head -c 100000000 /dev/zero; exit 7"))
	n, err := io.Copy(io.Discard, p.Stdout)
	if n != 100000000 || err != nil {
		t.Errorf("read %d bytes, %v", n, err)
	}
	if exit, err := p.Wait(); exit.Code != 7 || err != nil {
		t.Errorf("exit = %v, %v", exit, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestManyPrograms(t *testing.T) {
	v := startVM(t)
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			p, err := v.Start(t.Context(), shell("cat; exit $1", string(rune('0'+i%10))))
			if err != nil {
				t.Error(err)
				return
			}
			if got := finish(t, p, "x"); got.stdout != "x" || got.exit.Code != i%10 {
				t.Errorf("program %d: %+v", i, got)
			}
		})
	}
	all.Wait()
	if n := v.mux.NumStreams(); n != 0 {
		t.Errorf("%d streams are left open", n)
	}
}

// A program whose output nobody reads stalls neither another program nor its
// own signals.
func TestReaderThatNeverReads(t *testing.T) {
	v := startVM(t)
	stuck := start(t, v.Session, shell(`trap 'echo caught >&2; exit 5' USR1; cat /dev/zero & echo up >&2; wait`))
	expectLine(t, stuck.Stderr, "up")
	if got := finish(t, start(t, v.Session, shell("head -c 1000000 /dev/zero | wc -c")), ""); got.stdout != "1000000\n" {
		t.Errorf("the other program: %+v", got)
	}
	if err := stuck.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	expectLine(t, stuck.Stderr, "caught")
	if err := stuck.Close(); err != nil {
		t.Error(err)
	}
}

func TestSignals(t *testing.T) {
	v := startVM(t)
	tests := map[string]struct {
		script string
		signal syscall.Signal
		want   Exit
	}{
		"TERM ends it":           {"echo up; sleep 1000", syscall.SIGTERM, Exit{Signal: 15}},
		"KILL ends it":           {"echo up; sleep 1000", syscall.SIGKILL, Exit{Signal: 9}},
		"USR1 is caught":         {"trap 'exit 4' USR1; echo up; sleep 1000 & wait", syscall.SIGUSR1, Exit{Code: 4}},
		"a child gets it too":    {"trap : TERM; (trap 'exit 6' TERM; echo up; sleep 1000 & wait) & wait $!; wait $!", syscall.SIGTERM, Exit{Code: 6}},
		"KILL reaches a session": {"echo up; setsid sleep 1000", syscall.SIGKILL, Exit{Signal: 9}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := start(t, v.Session, shell(tt.script))
			expectLine(t, p.Stdout, "up")
			if err := p.Signal(tt.signal); err != nil {
				t.Fatal(err)
			}
			if got := finish(t, p, ""); got.exit != tt.want {
				t.Errorf("exit = %v, want %v", got.exit, tt.want)
			}
			if err := p.Signal(tt.signal); err != nil {
				t.Errorf("a signal after the end: %v", err)
			}
		})
	}
}

func TestInputThatNobodyReads(t *testing.T) {
	v := startVM(t)
	p := start(t, v.Session, shell("exec <&-; echo closed; sleep 1000"))
	expectLine(t, p.Stdout, "closed")
	var err error
	for err == nil {
		_, err = p.Stdin.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write = %v, want %v", err, io.ErrClosedPipe)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestInputAfterTheEnd(t *testing.T) {
	v := startVM(t)
	p := start(t, v.Session, shell("exit 0"))
	if _, err := p.Wait(); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, err = p.Stdin.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("write = %v, want %v", err, io.ErrClosedPipe)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

func TestOutputThatNobodyReads(t *testing.T) {
	v := startVM(t)
	p := start(t, v.Session, shell("exec cat /dev/zero"))
	if err := p.Stdout.Close(); err != nil {
		t.Fatal(err)
	}
	if exit, err := p.Wait(); exit.Signal != int(syscall.SIGPIPE) || err != nil {
		t.Errorf("exit = %v, %v, want the signal of a closed pipe", exit, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}

// When a program ends, its other processes are killed, and do not delay its end.
func TestChildrenLeftBehind(t *testing.T) {
	v := startVM(t)
	p := start(t, v.Session, shell("setsid sleep 1000 & echo $!"))
	got := finish(t, p, "")
	pid := strings.TrimSpace(got.stdout)
	if _, err := strconv.Atoi(pid); err != nil {
		t.Fatalf("it left nothing behind: %+v", got)
	}
	if status, err := os.ReadFile("/proc/" + pid + "/status"); err == nil && !bytes.Contains(status, []byte("(zombie)")) {
		t.Errorf("process %s lives:\n%s", pid, status)
	}
}

func TestPMIDescriptor(t *testing.T) {
	v := startVM(t)
	cmd := shell(`read -r line <&$PMI_FD; echo "got $line" >&$PMI_FD; cat <&$PMI_FD`)
	cmd.PMI = true
	cmd.Env = append(cmd.Env, "PMI_FD=77")
	p := start(t, v.Session, cmd)
	if _, err := io.WriteString(p.PMI, "hello\n"); err != nil {
		t.Fatal(err)
	}
	expectLine(t, p.PMI, "got hello")
	if _, err := io.WriteString(p.PMI, "rest"); err != nil {
		t.Fatal(err)
	}
	p.PMI.(interface{ CloseWrite() error }).CloseWrite()
	if got := finish(t, p, ""); got.stdout != "rest" {
		t.Errorf("result = %+v", got)
	}
	if rest, err := io.ReadAll(p.PMI); len(rest) > 0 || err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("PMI after the end: %q, %v", rest, err)
	}
}

func TestTerminal(t *testing.T) {
	v := startVM(t)
	cmd := shell(`test -t 0 -a -t 1 -a -t 2 && echo terminal; trap 'stty size' WINCH; stty size; while ! read x; do :; done; echo "read $x"; cat; echo end`)
	cmd.Terminal = &WindowSize{Rows: 11, Columns: 22}
	p := start(t, v.Session, cmd)
	expectLine(t, p.Stdout, "terminal")
	expectLine(t, p.Stdout, "11 22")
	if err := p.Resize(WindowSize{33, 44}); err != nil {
		t.Fatal(err)
	}
	expectLine(t, p.Stdout, "33 44")
	_, _ = io.WriteString(p.Stdin, "abc\n")
	expectLine(t, p.Stdout, "abc") // the echo
	expectLine(t, p.Stdout, "read abc")
	_ = p.Stdin.Close()
	expectLine(t, p.Stdout, "end")
	if exit, err := p.Wait(); exit != (Exit{}) || err != nil {
		t.Errorf("exit = %v, %v", exit, err)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
