package opensm

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/internal/durable"
)

const beDaemon = "SLURMV_TEST_BE_OPENSM"

// TestMain can also run as a daemon that writes a byte to a file for every SIGHUP.
func TestMain(m *testing.M) {
	file := os.Getenv(beDaemon)
	if file == "" {
		os.Exit(m.Run())
	}
	hups := make(chan os.Signal, 100)
	signal.Notify(hups, syscall.SIGHUP)
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_APPEND, 0)
	for text := "."; err == nil; text = "H" {
		_, err = f.WriteString(text)
		<-hups
	}
	panic(err)
}

// A double is a process that counts the signals it gets.
type double struct{ file, pidFile string }

// startDouble starts a program of that name, with the rights of uid.
func startDouble(t *testing.T, name string, uid uint32) double {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	text, err := os.ReadFile("/proc/self/exe")
	if err := errors.Join(err, os.WriteFile(program, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	return runDouble(t, program, uid)
}

// runDouble returns when the program is there and can be told.
func runDouble(t *testing.T, program string, uid uint32) double {
	t.Helper()
	dir := t.TempDir()
	d := double{filepath.Join(dir, "hups"), filepath.Join(dir, "pid")}
	err := os.Chmod(filepath.Dir(dir), 0o711) // for the program of another user
	if err := errors.Join(err, os.WriteFile(d.file, nil, 0o666), os.Chmod(d.file, 0o666)); err != nil {
		t.Fatal(err)
	}
	c := exec.Command(program)
	c.Env = append(os.Environ(), beDaemon+"="+d.file)
	if uid != 0 {
		c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	if err := os.WriteFile(d.pidFile, fmt.Appendln(nil, c.Process.Pid), 0o644); err != nil {
		t.Fatal(err)
	}
	d.await(t, 0)
	return d
}

// await waits until the double has got n signals.
func (d double) await(t *testing.T, n int) {
	t.Helper()
	want := "." + strings.Repeat("H", n)
	for end := time.Now().Add(20 * time.Second); d.got() != want; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("the signals are %q, want %q", d.got(), want)
		}
	}
}

func (d double) got() string {
	text, _ := os.ReadFile(d.file)
	return string(text)
}

func partitionsFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "partitions.conf")
	if err := os.WriteFile(file, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
	return file
}

func add(pkey fabric.Tag, members ...fabric.GUID) func(Partitions) error {
	return func(p Partitions) error { p[pkey] = members; return nil }
}

func mustApply(t *testing.T, file, pidFile string, change func(Partitions) error) (note string) {
	t.Helper()
	note, err := Apply(t.Context(), file, pidFile, change)
	if err != nil {
		t.Fatal(err)
	}
	return note
}

func inode(t *testing.T, file string) uint64 {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat(file, &stat); err != nil {
		t.Fatal(err)
	}
	return stat.Ino
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestApplyChangesTheFileAndTellsOpenSMOnce(t *testing.T) {
	sm, file := startDouble(t, "opensm", 0), partitionsFile(t, siteText)
	for range 3 {
		note := mustApply(t, file, sm.pidFile, add(0x1004, vfsOf(7, 2)...))
		sm.await(t, 1) // before the next: two signals at once count as one
		if note != "" {
			t.Errorf("note = %q", note)
		}
	}
	mustApply(t, file, sm.pidFile, add(0x1005, hostPort))
	if got := read(t, file); got != siteText+blockOfTwoJobs {
		t.Errorf("the file is\n%s", got)
	}
	sm.await(t, 2)
	before := inode(t, file)
	mustApply(t, file, sm.pidFile, func(Partitions) error { return nil })
	if inode(t, file) != before {
		t.Error("what is as it should be was written again")
	}
	mustApply(t, file, sm.pidFile, add(0x1006, hostPort))
	sm.await(t, 3) // the positive control: one more, and none for what was the same
}

func TestApplyKeepsOwnerModeAndLink(t *testing.T) {
	file := partitionsFile(t, siteText)
	link := filepath.Join(t.TempDir(), "link.conf")
	if err := errors.Join(os.Symlink(file, link), os.Chmod(file, 0o664)); err != nil {
		t.Fatal(err)
	}
	if os.Getuid() == 0 {
		if err := os.Chown(file, 6001, 6002); err != nil {
			t.Fatal(err)
		}
	}
	var was, is unix.Stat_t
	err := unix.Stat(file, &was)
	mustApply(t, link, filepath.Join(t.TempDir(), "none"), add(0x1004, vfsOf(7, 2)...))
	if err := errors.Join(err, unix.Stat(file, &is)); err != nil {
		t.Fatal(err)
	}
	if was.Uid != is.Uid || was.Gid != is.Gid || was.Mode != is.Mode || is.Ino == was.Ino {
		t.Errorf("it was %+v and is %+v", was, is)
	}
	if to, err := os.Readlink(link); err != nil || to != file {
		t.Errorf("the link leads to %s, %v", to, err)
	}
	left, _ := filepath.Glob(file + "*")
	if len(left) != 2 {
		t.Errorf("beside the file there are %s", left)
	}
}

func TestWhoIsTold(t *testing.T) {
	file := partitionsFile(t, siteText)
	next := fabric.Tag(0x1000)
	apply := func(pidFile string) string {
		next++
		return mustApply(t, file, pidFile, add(next, hostPort))
	}
	const notRunning = "OpenSM does not run on this host; the change takes effect when it starts"

	sm := startDouble(t, "opensm", 0)
	if note := apply(sm.pidFile); note != "" {
		t.Errorf("note = %q", note)
	}
	sm.await(t, 1)

	other := startDouble(t, "sleeper", 0)
	if note := apply(other.pidFile); !strings.Contains(note, "which is sleeper and not OpenSM: "+notRunning) {
		t.Errorf("note = %q", note)
	}
	link := filepath.Join(t.TempDir(), "opensm") // the name is right, the program is not
	if err := os.Symlink("/proc/self/exe", link); err != nil {
		t.Fatal(err)
	}
	byName := runDouble(t, link, 0)
	if note := apply(byName.pidFile); !strings.Contains(note, notRunning) {
		t.Errorf("note = %q", note)
	}
	if note := apply(filepath.Join(t.TempDir(), "absent")); !strings.Contains(note, "absent is not there: "+notRunning) {
		t.Errorf("note = %q", note)
	}

	if note := apply(""); note != "" { // all of this host
		t.Errorf("note = %q", note)
	}
	sm.await(t, 2)
	if other.got() != "." || byName.got() != "." {
		t.Errorf("others were told, too: %s, %s", other.got(), byName.got())
	}
}

// Any user can run a program that is called opensm.
func TestAUsersProgramIsNotTold(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("runs a program as another user: run as root")
	}
	file := partitionsFile(t, siteText)
	users := startDouble(t, "opensm", 6001)
	if note := mustApply(t, file, users.pidFile, add(0x1004, hostPort)); !strings.Contains(note, "OpenSM does not run") {
		t.Errorf("note = %q", note)
	}
	roots := startDouble(t, "opensm", 0)
	mustApply(t, file, "", add(0x1005, hostPort))
	roots.await(t, 1)
	if users.got() != "." {
		t.Errorf("the user's program was told: %s", users.got())
	}
}

// Between the file's change and the signal the process may die, or may not signal OpenSM.
func TestWhatOpenSMWasNotToldItIsToldLater(t *testing.T) {
	sm, file := startDouble(t, "opensm", 0), partitionsFile(t, siteText)
	broken := filepath.Join(t.TempDir(), "pid")
	if err := os.WriteFile(broken, []byte("opensm\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	change := add(0x1004, hostPort)
	if _, err := Apply(t.Context(), file, broken, change); err == nil || !strings.Contains(err.Error(), "and not OpenSM's process id") {
		t.Errorf("error = %v", err)
	}
	if !strings.Contains(read(t, file), "slurmv_1004") {
		t.Error("the file is not changed")
	}
	mustApply(t, file, sm.pidFile, change)
	sm.await(t, 1)
	mustApply(t, file, sm.pidFile, change)
	mustApply(t, file, sm.pidFile, add(0x1005, hostPort))
	sm.await(t, 2)
}

func TestChangesAtTheSameTime(t *testing.T) {
	file := partitionsFile(t, siteText)
	none := filepath.Join(t.TempDir(), "none")
	var each sync.WaitGroup
	for i := range 20 {
		each.Go(func() { mustApply(t, file, none, add(fabric.Tag(0x1000+i), hostPort)) })
	}
	each.Wait()
	if p, err := parse(read(t, file)); err != nil || len(p) != 20 {
		t.Errorf("%d partitions are there, %v", len(p), err)
	}
}

func TestApplyGivesUpWithItsContext(t *testing.T) {
	file := partitionsFile(t, siteText)
	lock, err := durable.Lock(t.Context(), file+lockSuffix, os.O_CREATE)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := Apply(ctx, file, "", add(0x1004, hostPort)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error = %v", err)
	}
}

func TestApplyLeavesWhatItCannotRead(t *testing.T) {
	refused := errors.New("no")
	tests := map[string]struct {
		text   string
		change func(Partitions) error
		want   string
	}{
		"a damaged block":      {siteText + "# slurm-v begin\n", add(0x1004, hostPort), "line 5: "},
		"a site without lines": {"", add(0x1004, hostPort), "it has no partition of the site"},
		"the change's error":   {siteText, func(Partitions) error { return refused }, "no"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sm, file := startDouble(t, "opensm", 0), partitionsFile(t, tt.text)
			_, err := Apply(t.Context(), file, sm.pidFile, tt.change)
			if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
			if read(t, file) != tt.text || sm.got() != "." {
				t.Errorf("the file is\n%s, the signals are %s", read(t, file), sm.got())
			}
		})
	}
}

func TestApplyWithoutAFile(t *testing.T) {
	absent := filepath.Join(t.TempDir(), "partitions.conf")
	if _, err := Apply(t.Context(), absent, "", add(0x1004, hostPort)); !errors.Is(err, errNoSite) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error = %v", err)
	}
	if _, err := os.Stat(absent); err == nil {
		t.Error("the file was made")
	}
	mustApply(t, absent, "", func(p Partitions) error { delete(p, 0x1004); return nil })
}
