package trash

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/mountinfo"
)

// stranger is a user whose trees are removed.
const stranger = 54321

// TestMain can also run as a user who does something in a directory.
func TestMain(m *testing.M) {
	if dir := os.Getenv("TRASH_TEST_BUSY"); dir != "" {
		stayBusy(dir)
	}
	os.Exit(m.Run())
}

// aTree makes a directory that belongs to a stranger, in one that belongs to root.
func aTree(t *testing.T) (bin Trash, tree string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("run as root: it takes directories from their owner")
	}
	dir := t.TempDir()
	tree = filepath.Join(dir, "vm0")
	must(t, os.Mkdir(tree, 0o700), os.Chown(tree, stranger, stranger))
	return In(dir), tree
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// mustGo discards a tree and empties the trash.
func mustGo(t *testing.T, bin Trash, tree string) {
	t.Helper()
	must(t, bin.Discard(tree))
	if _, err := os.Lstat(tree); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("discarded, and still there: %v", err)
	}
	must(t, bin.Empty(t.Context()))
	mustBeEmpty(t, bin)
}

func mustBeEmpty(t *testing.T, bin Trash) {
	t.Helper()
	left, err := os.ReadDir(bin.dir)
	if len(left) > 0 || bin.Left() {
		t.Errorf("%d entries are left, such as %v; error %v", len(left), left[0], err)
	}
}

func TestOrdinaryTree(t *testing.T) {
	bin, tree := aTree(t)
	must(t, os.MkdirAll(filepath.Join(tree, "a", "b"), 0o755), os.Mkdir(filepath.Join(tree, "empty"), 0o755),
		os.WriteFile(filepath.Join(tree, "a", "file"), []byte("text"), 0o644))
	mustGo(t, bin, tree)
	if info, err := os.Stat(bin.dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the trash is open to others: %v, %v", info.Mode(), err)
	}
}

func TestNothingToDiscard(t *testing.T) {
	bin := In(t.TempDir())
	must(t, bin.Empty(t.Context()), bin.Discard(filepath.Join(t.TempDir(), "none")), bin.Empty(t.Context()))
}

// After a boot, a job's tree below /run is gone, and so is the trash there.
func TestNothingIsMadeForNothing(t *testing.T) {
	run := filepath.Join(t.TempDir(), "run")
	must(t, In(run).Discard(filepath.Join(run, "jobs", "7.0")))
	if info, err := os.Stat(run); err == nil {
		t.Errorf("%s was made, with the mode %v", run, info.Mode())
	}
}

func TestDiscardOfAFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	must(t, os.WriteFile(path, nil, 0o600), In(dir).Discard(path))
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// deepen makes nested directories, and returns the innermost one, open.
func deepen(t *testing.T, dir string, levels int) int {
	t.Helper()
	at, err := unix.Open(dir, unix.O_DIRECTORY, 0)
	must(t, err)
	for range levels {
		must(t, unix.Mkdirat(at, "d", 0o700), unix.Fchownat(at, "d", stranger, stranger, 0))
		next, err := unix.Openat(at, "d", unix.O_DIRECTORY, 0)
		must(t, err, unix.Close(at))
		at = next
	}
	return at
}

// A removal with a descriptor for each level, such as os.RemoveAll, would fail here.
func TestDeepTreeNeedsFewDescriptors(t *testing.T) {
	bin, tree := aTree(t)
	must(t, unix.Close(deepen(t, tree, 3000)))
	withDescriptors(t, 64, func() { mustGo(t, bin, tree) })
}

// withDescriptors calls run while the process may have at most `most` open files.
func withDescriptors(t *testing.T, most uint64, run func()) {
	t.Helper()
	var before syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &before))
	must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: most, Max: before.Max}))
	defer func() { must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &before)) }()
	run()
}

func TestWideTree(t *testing.T) {
	bin, tree := aTree(t)
	for i := range 1000 {
		must(t, os.MkdirAll(fmt.Sprintf("%s/%d/a/b", tree, i), 0o700))
	}
	withDescriptors(t, 64, func() { mustGo(t, bin, tree) })
}

func TestHostileNamesAndModes(t *testing.T) {
	bin, tree := aTree(t)
	for _, name := range []string{"-rf", "...", " ", "a\nb", "\xff\xfe", "%2e", strings.Repeat("x", 255)} {
		dir := filepath.Join(tree, name)
		must(t, os.MkdirAll(filepath.Join(dir, name), 0o700), os.Chmod(dir, 0o1000), os.Chown(dir, stranger, stranger))
	}
	must(t, os.Symlink("/", filepath.Join(tree, "link")), unix.Mkfifo(filepath.Join(tree, "fifo"), 0))
	must(t, unix.Mknod(filepath.Join(tree, "device"), unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	mustGo(t, bin, tree)
}

// A file in the tree may have other names elsewhere, and a link may lead elsewhere.
func TestWhatIsElsewhereStays(t *testing.T) {
	bin, tree := aTree(t)
	elsewhere := filepath.Join(filepath.Dir(tree), "elsewhere")
	file := filepath.Join(elsewhere, "file")
	must(t, os.Mkdir(elsewhere, 0o755), os.WriteFile(file, []byte("text"), 0o644), os.Chown(file, 12345, 12345))
	inside := filepath.Join(tree, "a")
	must(t, os.Mkdir(inside, 0o700), os.Link(file, filepath.Join(inside, "hard")), os.Symlink(elsewhere, filepath.Join(inside, "soft")))
	mustGo(t, bin, tree)
	info, err := os.Stat(file)
	must(t, err)
	stat := info.Sys().(*syscall.Stat_t)
	if text, _ := os.ReadFile(file); string(text) != "text" || stat.Uid != 12345 || info.Mode().Perm() != 0o644 || stat.Nlink != 1 {
		t.Errorf("it has become %q, %v of %d", text, info.Mode(), stat.Uid)
	}
	if info, err := os.Stat(elsewhere); err != nil || info.Mode().Perm() != 0o755 {
		t.Errorf("the directory has become %v, %v", info, err)
	}
}

// fusermount lets users mount on their own directories.
func TestMounts(t *testing.T) {
	bin, tree := aTree(t)
	inOwnMounts(t, func() error {
		inside := filepath.Join(tree, "a", "mount")
		file := filepath.Join(tree, "a", "file")
		behind := filepath.Join(filepath.Dir(tree), "behind")
		err := errors.Join(os.MkdirAll(inside, 0o700), os.WriteFile(file, nil, 0o600), os.Mkdir(behind, 0o700),
			os.WriteFile(filepath.Join(behind, "kept"), nil, 0o600))
		for _, dir := range []string{inside, inside, tree} {
			err = errors.Join(err, unix.Mount(behind, dir, "", unix.MS_BIND, ""))
		}
		err = errors.Join(err, unix.Unmount(tree, 0), unix.Mount(file, file, "", unix.MS_BIND, ""), unix.Mount(behind, tree, "", unix.MS_BIND, ""))
		if err = errors.Join(err, bin.Discard(tree), bin.Empty(t.Context())); err == nil {
			mustBeEmpty(t, bin)
			_, err = os.Stat(filepath.Join(behind, "kept"))
		}
		return err
	})
}

// These mounts are where the remover's threads see them.
func TestMountsOnWhatIsRemovedByItsDescriptor(t *testing.T) {
	bin, tree := aTree(t)
	inside := filepath.Join(tree, "a", "mount")
	must(t, os.MkdirAll(inside, 0o700))
	mountOn(t, inside, 2)
	must(t, errors.Join(bin.Discard(tree), bin.Empty(t.Context())))
	mustBeEmpty(t, bin)
}

// A file may have more mounts than root would detach one by one, and get others meanwhile.
func TestMountsOnAFileThatIsRemoved(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	mountOn(t, file, maxMounts+1)
	must(t, RemoveFile(file))
	if _, err := os.Lstat(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, whereMountsStay(func() error {
		mounted := make(chan error)
		go func() { mounted <- unix.Mount(file, file, "", unix.MS_BIND, "") }()
		return errors.Join(<-mounted, os.Remove(file))
	}))
}

// mountOn mounts something like path on it, n times. At the end of the test nothing is mounted, wherever it is by then.
func mountOn(t *testing.T, path string, n int) {
	t.Helper()
	t.Cleanup(func() {
		mounts, _ := mountinfo.Read("/")
		for _, m := range mounts {
			if strings.Contains(m.Point, "/"+t.Name()) {
				_ = unix.Unmount(m.Point, unix.MNT_DETACH)
			}
		}
	})
	for range n {
		must(t, unix.Mount(path, path, "", unix.MS_BIND, ""))
	}
}

// inOwnMounts calls run in a mount namespace of its own.
func inOwnMounts(t *testing.T, run func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- withOwnMounts(run)
	}()
	must(t, <-done)
}

// stayBusy makes nested directories and files for as long as it can. It says when it has
// begun.
func stayBusy(dir string) {
	must := func(err error) {
		if err != nil {
			fmt.Println("end:", err)
			os.Exit(0)
		}
	}
	must(unix.Chdir(dir))
	for i := 0; ; i++ {
		must(unix.Mkdir("d", 0o777))
		must(unix.Mkdir(fmt.Sprint("e", i), 0o777))
		must(unix.Chdir("d"))
		if i == 100 {
			fmt.Println("busy")
		}
	}
}

// beBusy starts a process of the stranger that keeps making entries in a directory.
func beBusy(t *testing.T, dir string) (end func()) {
	t.Helper()
	self := filepath.Join(t.TempDir(), "test")
	must(t, os.Chmod(filepath.Dir(self), 0o755), os.Chmod(filepath.Dir(filepath.Dir(self)), 0o755))
	program, err := os.Executable()
	must(t, err, exec.Command("cp", program, self).Run())
	c := exec.Command(self)
	c.Dir, c.Env = "/", []string{"TRASH_TEST_BUSY=" + dir}
	c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: stranger, Gid: stranger}}
	c.Stderr = os.Stderr
	out, err := c.StdoutPipe()
	must(t, err, c.Start())
	end = func() { _ = c.Process.Kill(); _ = c.Wait() }
	t.Cleanup(end)
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "busy\n" {
		t.Fatalf("the stranger said %q", line)
	}
	return end
}

// A process deep in the tree can go on there until the removal reaches its directory. A
// removal may end before that, and the next one does the rest.
func TestAUserWhoIsBusyInTheTree(t *testing.T) {
	bin, tree := aTree(t)
	must(t, os.Chmod(filepath.Dir(tree), 0o711), os.Chmod(filepath.Dir(filepath.Dir(tree)), 0o711))
	end := beBusy(t, tree)
	must(t, bin.Discard(tree))
	if _, err := os.Lstat(tree); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("discarded, and still there: %v", err)
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := bin.Empty(ctx)
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	end()
	must(t, bin.Empty(t.Context()))
	mustBeEmpty(t, bin)
}

// A process in a directory cannot write there once root owns the directory.
func TestOwnerCannotGoOnInADirectoryThatIsTaken(t *testing.T) {
	bin, tree := aTree(t)
	must(t, os.Chmod(tree, 0o777))
	at, err := unix.Open(tree, unix.O_DIRECTORY, 0)
	must(t, err)
	defer unix.Close(at)
	if err := asStranger(func() error { return unix.Mkdirat(at, "before", 0o700) }); err != nil {
		t.Fatalf("the probe itself fails: %v", err)
	}
	must(t, os.MkdirAll(bin.dir, 0o700), os.Rename(tree, filepath.Join(bin.dir, "x")))
	top, err := os.Open(bin.dir)
	must(t, err)
	defer top.Close()
	dir, err := take(top, "x")
	must(t, err)
	defer dir.Close()
	if err := asStranger(func() error { return unix.Mkdirat(at, "after", 0o700) }); !errors.Is(err, unix.EACCES) {
		t.Errorf("error = %v, want %v", err, unix.EACCES)
	}
}

// asStranger calls do on a thread with the stranger's identity.
func asStranger(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		for _, call := range []uintptr{unix.SYS_SETRESGID, unix.SYS_SETRESUID} {
			if _, _, errno := unix.RawSyscall(call, stranger, stranger, stranger); errno != 0 {
				done <- errno
				return
			}
		}
		done <- do()
	}()
	return <-done
}

func TestOnlyOneEmptiesAtATime(t *testing.T) {
	bin, tree := aTree(t)
	must(t, os.Mkdir(filepath.Join(tree, "a"), 0o700), bin.Discard(tree))
	other, err := os.Open(bin.dir)
	must(t, err, unix.Flock(int(other.Fd()), unix.LOCK_EX), bin.Empty(t.Context()))
	if !bin.Left() {
		t.Error("it did not leave the trash to the other one")
	}
	must(t, other.Close(), bin.Empty(t.Context()))
	mustBeEmpty(t, bin)
}

func TestCancelled(t *testing.T) {
	bin, tree := aTree(t)
	must(t, os.Mkdir(filepath.Join(tree, "a"), 0o700), bin.Discard(tree))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := bin.Empty(ctx); !errors.Is(err, context.Canceled) || !bin.Left() {
		t.Errorf("error = %v", err)
	}
}
