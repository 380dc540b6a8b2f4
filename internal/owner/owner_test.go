package owner

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

var alice = Owner{Name: "alice", UID: 54321, GID: 54321, Groups: []Group{{GID: 54322}}}

// shelf makes a directory that everybody may pass.
func shelf(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("becomes other users: run as root")
	}
	return filetest.PassableDir(t)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// write makes a file with the mode that belongs to whose.
func write(t *testing.T, path string, mode fs.FileMode, whose Owner) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte("text"), mode), os.Chmod(path, mode), os.Chown(path, int(whose.UID), int(whose.GID)))
	return path
}

func TestOpenHasTheOwnersRights(t *testing.T) {
	dir := shelf(t)
	must(t, os.Mkdir(dir+"/closed", 0o700), os.Symlink(dir+"/mine", dir+"/link"), os.Symlink("circle", dir+"/circle"),
		unix.Mkfifo(dir+"/pipe", 0o666))
	write(t, dir+"/mine", 0o600, alice)
	write(t, dir+"/group", 0o640, Owner{GID: alice.Groups[0].GID})
	write(t, dir+"/roots", 0o600, Owner{})
	write(t, dir+"/closed/x", 0o644, alice)
	tests := map[string]struct {
		path string
		real string // its true path
		want error
	}{
		"their own":                 {path: "mine", real: "mine"},
		"their group's":             {path: "group", real: "group"},
		"by a link":                 {path: "link", real: "mine"},
		"root's":                    {path: "roots", want: fs.ErrPermission},
		"behind a closed directory": {path: "closed/x", want: fs.ErrPermission},
		"nothing":                   {path: "nothing", want: fs.ErrNotExist},
		"a circle":                  {path: "circle", want: unix.ELOOP},
		"a directory":               {path: ".", want: ErrDirectory},
		"a pipe":                    {path: "pipe", want: ErrNotRegular},
		"a device":                  {path: "../../../dev/null", want: ErrNotRegular},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(dir, tt.path)
			if strings.HasPrefix(tt.path, "../") {
				path = "/dev/null"
			}
			file, real, err := alice.Open(t.Context(), path)
			if !errors.Is(err, tt.want) {
				t.Fatalf("error = %v, want %v", err, tt.want)
			}
			if tt.want != nil {
				return
			}
			text, err := io.ReadAll(file)
			if err != nil || string(text) != "text" || real != filepath.Join(dir, tt.real) || file.Name() != real {
				t.Errorf("%q of %s: error %v", text, real, err)
			}
		})
	}
}

// Opening a pipe wakes a writer that waits for a reader. So Open must find out what a
// file is without opening it.
func TestOpenLeavesPipesAlone(t *testing.T) {
	path := shelf(t) + "/pipe"
	must(t, unix.Mkfifo(path, 0o666), os.Chmod(path, 0o666))
	writing := make(chan error, 1)
	go func() {
		file, err := os.OpenFile(path, os.O_WRONLY, 0)
		writing <- errors.Join(err, file.Close())
	}()
	for range 20 { // the writer may come late
		if _, _, err := alice.Open(t.Context(), path); !errors.Is(err, ErrNotRegular) {
			t.Fatalf("error = %v", err)
		}
	}
	select {
	case err := <-writing:
		t.Errorf("the pipe was opened: the writer had a reader, error %v", err)
	default:
		file, err := os.Open(path)
		must(t, err, <-writing, file.Close())
	}
}

// Files of procfs and sysfs depend on the reader. The first is open to every user: it
// shows alice her own data, but would show root other data.
func TestOpenRefusesTheKernelsFiles(t *testing.T) {
	dir := shelf(t)
	mine := write(t, dir+"/mine", 0o644, alice)
	if _, _, err := alice.Open(t.Context(), mine); err != nil {
		t.Fatalf("a stored file: %v", err)
	}
	for _, path := range []string{"/proc/self/maps", "/proc/iomem", "/proc/sys/kernel/osrelease", "/sys/kernel/mm/transparent_hugepage/enabled"} {
		if _, err := os.ReadFile(path); err != nil {
			t.Fatalf("root cannot read it either: %v", err)
		}
		if _, _, err := alice.Open(t.Context(), path); !errors.Is(err, ErrKernelFile) {
			t.Errorf("%s: error = %v, want %v", path, err, ErrKernelFile)
		}
	}
	for _, path := range []string{"/proc/1/maps", fmt.Sprintf("/proc/%d/maps", os.Getpid())} {
		if _, _, err := alice.Open(t.Context(), path); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%s: error = %v", path, err)
		}
	}
}

// standIn starts a process of the user's whose working directory is dir.
func standIn(t *testing.T, whose Owner, dir string) int {
	t.Helper()
	cmd := whose.Command(t.Context(), "/bin/sleep", "1000")
	cmd.Dir = dir
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// A link below /proc/PID leads past all directories on the way, for everybody who may
// inspect that process: root may inspect every process, and alice hers.
func TestOpenFollowsNoLinkOfTheKernels(t *testing.T) {
	dir := shelf(t)
	must(t, os.Mkdir(dir+"/closed", 0o700), os.Mkdir(dir+"/closed/job", 0o755))
	write(t, dir+"/closed/job/file", 0o644, Owner{})
	tests := map[string]struct {
		victim Owner
		want   error
	}{
		"into somebody else's process": {Owner{Name: "bob", UID: 54323, GID: 54323}, fs.ErrPermission},
		"into one of their own":        {alice, ErrKernelFile},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			must(t, os.Chown(dir+"/closed", int(tt.victim.UID), int(tt.victim.GID)))
			past := fmt.Sprintf("/proc/%d/cwd/file", standIn(t, tt.victim, dir+"/closed/job"))
			if text, err := os.ReadFile(past); err != nil || string(text) != "text" {
				t.Fatalf("the link does not lead there: %q, %v", text, err)
			}
			if _, _, err := alice.Open(t.Context(), past); !errors.Is(err, tt.want) {
				t.Errorf("error = %v, want %v", err, tt.want)
			}
		})
	}
}

// The process that opens can send back any descriptor that its user has.
func TestExamineLooksAtWhatCameBack(t *testing.T) {
	dir := shelf(t)
	open := func(path string) int {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		must(t, err)
		return fd
	}
	mine, gone := write(t, dir+"/mine", 0o644, alice), open(write(t, dir+"/gone", 0o644, alice))
	must(t, os.Remove(dir+"/gone"))
	if path, err := examine(open(mine), regular); err != nil || path != mine {
		t.Errorf("a stored file: %q, %v", path, err)
	}
	for name, tt := range map[string]struct {
		fd   int
		want error
	}{
		"a file of the kernel": {open("/proc/self/maps"), ErrKernelFile},
		"a directory":          {open(dir), ErrDirectory},
		"a device":             {open("/dev/zero"), ErrNotRegular},
		"a file that is gone":  {gone, fs.ErrNotExist},
		"no descriptor":        {-1, unix.EBADF},
	} {
		if path, err := examine(tt.fd, regular); !errors.Is(err, tt.want) {
			t.Errorf("%s: %q, error = %v, want %v", name, path, err, tt.want)
		}
	}
}

func TestAnswersThatMakeNoSense(t *testing.T) {
	for name, answer := range map[string][]byte{"nothing": {}, "too short": {1, 2}, "success without a file": {0}} {
		if err := readRefusal(answer); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	long := strings.Repeat("x", 3*unix.PathMax)
	if err := readRefusal(refusal(&fs.PathError{Op: "open", Path: long, Err: unix.EACCES})); !errors.Is(err, fs.ErrPermission) || len(err.Error()) > 2*unix.PathMax {
		t.Errorf("a long path: %d bytes", len(err.Error()))
	}
}

// stuckOpener starts a process that opens a file and stops just before it answers.
func stuckOpener(t *testing.T, path string) int {
	t.Helper()
	ours, theirs, err := socketPair("test")
	must(t, err)
	defer theirs.Close()
	must(t, unix.SetNonblock(int(theirs.Fd()), true))
	for err == nil {
		err = unix.Sendmsg(int(theirs.Fd()), make([]byte, 4096), nil, nil, unix.MSG_DONTWAIT)
	}
	must(t, unix.SetNonblock(int(theirs.Fd()), false))
	cmd := alice.Command(t.Context(), "/proc/self/exe", string(regular), path)
	cmd.Args[0], cmd.Env, cmd.ExtraFiles = openerName, []string{"A=secret"}, []*os.File{theirs}
	must(t, cmd.Start())
	t.Cleanup(func() { _ = ours.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}

// status returns a field of /proc/PID/status.
func status(t *testing.T, pid int, field string) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); name == field {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	t.Fatalf("no %s in %s", field, text)
	return ""
}

// awaitFile waits until the process has the file open.
func awaitFile(t *testing.T, pid int, path string) {
	t.Helper()
	for t.Context().Err() == nil {
		links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
		opened := 0
		for _, link := range links {
			if at, err := os.Readlink(link); err == nil && at == path {
				opened++
			}
		}
		if opened == 2 { // one by finding, one by opening
			return
		}
	}
}

func TestTheOpenerIsWhollyTheOwner(t *testing.T) {
	dir := shelf(t)
	path := write(t, dir+"/mine", 0o600, alice)
	pid := stuckOpener(t, path)
	awaitFile(t, pid, path)
	for field, want := range map[string]string{
		"Uid": "54321 54321 54321 54321", "Gid": "54321 54321 54321 54321", "Groups": "54322",
		"CapEff": "0000000000000000", "CapPrm": "0000000000000000", "CapInh": "0000000000000000",
	} {
		if got := status(t, pid, field); got != want {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
	}
	look := func(pid int) error {
		return alice.Command(t.Context(), "/bin/cat", "/proc/"+strconv.Itoa(pid)+"/environ").Run()
	}
	if err := look(standIn(t, alice, "/")); err != nil {
		t.Errorf("alice cannot look into a process of hers: %v", err)
	}
	if err := look(pid); err == nil {
		t.Error("alice looks into the process that opens")
	}
}

func TestOpenEndsWithItsContext(t *testing.T) {
	dir := shelf(t)
	path := write(t, dir+"/mine", 0o600, alice)
	cause := errors.New("the job was cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, _, err := alice.Open(ctx, path); !errors.Is(err, cause) {
		t.Errorf("error = %v", err)
	}
}

func TestManyOpenAtOnceLeaveNothing(t *testing.T) {
	dir := shelf(t)
	path := write(t, dir+"/mine", 0o600, alice)
	descriptors := func() int { all, _ := os.ReadDir("/proc/self/fd"); return len(all) }
	before := descriptors()
	failed := make(chan error)
	for i := range 40 {
		go func() {
			file, _, err := alice.Open(t.Context(), path+strings.Repeat("x", i%2))
			if err == nil {
				err = file.Close()
			}
			failed <- err
		}()
	}
	missing := 0
	for range 40 {
		if errors.Is(<-failed, fs.ErrNotExist) {
			missing++
		}
	}
	if missing != 20 {
		t.Errorf("%d of 20 were missing", missing)
	}
	// The processes are waited for in the background: each is a descriptor until it has ended.
	for end := time.Now().Add(20 * time.Second); descriptors() > before+2; time.Sleep(time.Millisecond) { // 2 are the runtime's own
		if time.Now().After(end) {
			t.Fatalf("%d descriptors, %d before", descriptors(), before)
		}
	}
}

func TestCommandIsTheOwners(t *testing.T) {
	shelf(t)
	t.Setenv("SECRET", "x")
	var out bytes.Buffer
	cmd := alice.Command(t.Context(), "/bin/sh", "-c", "id -u; id -g; id -G; pwd; echo $SECRET; ulimit -c")
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil || !strings.HasPrefix(out.String(), "54321\n54321\n54321 54322\n/\n\n") {
		t.Errorf("%q, %v", out.String(), err)
	}
}

// A program counts as ended even if another process of the owner holds its output open.
func TestCommandDoesNotWaitForWhoHoldsItsOutput(t *testing.T) {
	shelf(t)
	cmd := alice.Command(t.Context(), "/bin/sh", "-c", "sleep 1000 & echo $! >&2")
	cmd.WaitDelay /= 100
	var out io.Writer = &bytes.Buffer{}
	holder, writer, err := os.Pipe()
	must(t, err)
	cmd.Stdout, cmd.Stderr = out, writer
	ended := make(chan error, 1)
	go func() { ended <- cmd.Run() }()
	var pid int
	_, err = fmt.Fscan(holder, &pid)
	must(t, err)
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	select {
	case err := <-ended:
		if !errors.Is(err, exec.ErrWaitDelay) {
			t.Errorf("error = %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("the program has ended, and its output is waited for")
	}
}

func TestTailIsBounded(t *testing.T) {
	var tail Tail
	for range 100 {
		fmt.Fprintf(&tail, "%s\n", bytes.Repeat([]byte("x"), 1<<20))
	}
	fmt.Fprint(&tail, "the\x1b[2J end\n")
	if line := tail.Line(); len(tail.text) > 1<<13 || line != "the?[2J end" {
		t.Errorf("%d bytes, %q", len(tail.text), line)
	}
}

func TestAServerStartsOrSaysWhyNot(t *testing.T) {
	for name, tt := range map[string]struct{ program, script, want string }{
		"it is ready":               {script: `printf '\0' >&3; cat <&3`},
		"it says why not":           {script: `printf 'enter it: permission denied' >&3; cat <&3`, want: "enter it: permission denied"},
		"it speaks to the terminal": {script: `printf 'x\nno\033[2J' >&3; cat <&3`, want: "no?[2J"},
		"it ends without a word":    {script: `exit 1`, want: "its process has ended before it was ready"},
		"there is no such program":  {program: "/none", want: "start its process: fork/exec /none: no such file or directory"},
	} {
		t.Run(name, func(t *testing.T) {
			control, err := StartServer(t.Context(), exec.Command(cmp.Or(tt.program, "/bin/sh"), "-c", tt.script), "test")
			if err == nil {
				err = control.Close()
			}
			if got := fmt.Sprint(err); got != cmp.Or(tt.want, "<nil>") {
				t.Errorf("error = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestAServerThatSaysNothingIsEnded(t *testing.T) {
	reader, writer, err := os.Pipe()
	must(t, err)
	c := exec.Command("/bin/sh", "-c", "echo started; exec sleep 1000")
	c.Stdout = writer
	cause := errors.New("the job was cancelled")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, _ = io.ReadFull(reader, make([]byte, len("started\n")))
		cancel(cause)
	}()
	if _, err := StartServer(ctx, c, "test"); !errors.Is(err, cause) {
		t.Errorf("error = %v, want %v", err, cause)
	}
	must(t, writer.Close(), reader.SetReadDeadline(time.Now().Add(20*time.Second)))
	if _, err := reader.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the process has its output open: %v", err)
	}
}
