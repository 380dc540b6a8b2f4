package cache

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMain is also the program of another process that wants a copy.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "get" {
		if err := getAsProcess(os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// getAsProcess prints what it got. Where stop is "copied" or "begun", it says so
// there and goes no further.
func getAsProcess(dir, path, holder, stop string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	halt := func(at string) {
		if at == stop {
			fmt.Println(at)
			time.Sleep(time.Hour) // not select {}, which Go ends as a deadlock if all threads rest at the same moment
		}
	}
	src := Source{File: file, Path: path, Owner: Everybody, Finish: func(*os.File) error { halt("copied"); return nil }}
	got, err := testCache(dir, 0).Get(noContext, src, holder, func(p Progress) {
		if !p.Waiting {
			halt("begun")
		}
	})
	if err == nil {
		fmt.Println("made:", got.Made)
	}
	return err
}

// testCache takes files that were written just now.
func testCache(dir string, limit int64) *Cache {
	c := Open(dir, limit)
	c.Granule = 0
	return c
}

// A process is another one that wants a copy.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func start(t *testing.T, c *Cache, path, holder, stop string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0], "get", c.dir, path, holder, stop)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &process{t, cmd, bufio.NewScanner(out)}
}

// line is the next that the process says.
func (p *process) line() string {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("a process ended without a word: %v", p.lines.Err())
	}
	return p.lines.Text()
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// image makes a file of size bytes, none of which are zero for long.
func image(t *testing.T, name string, size int) string {
	t.Helper()
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{1})
	_, _ = random.Read(data)
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(t, path).Sync(); err != nil { // until then its size on disk may be anything
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

func source(t *testing.T, path string) Source {
	t.Helper()
	return Source{File: open(t, path), Path: path, Owner: Everybody}
}

func get(t *testing.T, c *Cache, path, holder string) Copy {
	t.Helper()
	got, err := c.Get(t.Context(), source(t, path), holder, nil)
	if err != nil {
		t.Fatal(err)
	}
	sameContent(t, path, got.Path)
	return got
}

func sameContent(t *testing.T, want, got string) {
	t.Helper()
	a, errA := os.ReadFile(want)
	b, errB := os.ReadFile(got)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a, b) {
		t.Fatalf("%s, %d bytes, is no copy of %s, %d bytes", got, len(b), want, len(a))
	}
}

func keyOf(t *testing.T, path string) Key {
	t.Helper()
	src := source(t, path)
	is, err := stateOf(src.File)
	if err != nil {
		t.Fatal(err)
	}
	return src.key(is.Identity)
}

func (c *Cache) holdersOf(t *testing.T, path string) []string {
	t.Helper()
	seen, err := c.entry(keyOf(t, path)).describe()
	if err != nil {
		return nil // not there yet
	}
	return seen.Holders
}

func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 3000 {
		if done() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}

// All 64 are there before the first may begin.
func TestOfManyProcessesOneCopies(t *testing.T) {
	const many = 64
	c, path := testCache(t.TempDir(), 0), image(t, "i", 8<<20)
	e := c.entry(keyOf(t, path))
	if err := c.hold(t.Context(), e, "test"); err != nil {
		t.Fatal(err)
	}
	lock, _, err := e.lock(t.Context(), c.look, func(Progress) {})
	if err != nil {
		t.Fatal(err)
	}
	var all []*process
	for i := range many {
		all = append(all, start(t, c, path, fmt.Sprint(i), ""))
	}
	eventually(t, "all processes want the copy", func() bool { return len(c.holdersOf(t, path)) == many+1 })
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	said := map[string]int{}
	for _, p := range all {
		said[p.line()]++
	}
	if said["made: true"] != 1 || said["made: false"] != many-1 {
		t.Errorf("of %d processes: %v", many, said)
	}
	sameContent(t, path, e.file(0))
}

func TestAnotherTakesOverFromAKilledCopier(t *testing.T) {
	for _, stop := range []string{"begun", "copied"} {
		t.Run(stop, func(t *testing.T) {
			c, path := testCache(t.TempDir(), 0), image(t, "i", 8<<20)
			first := start(t, c, path, "1", stop)
			if said := first.line(); said != stop {
				t.Fatalf("the copier says %q", said)
			}
			second := start(t, c, path, "2", "")
			eventually(t, "the second waits", func() bool { return len(c.holdersOf(t, path)) == 2 })
			if _, err := os.Stat(c.entry(keyOf(t, path)).file(0)); err == nil {
				t.Error("half a copy has the name of a whole one")
			}
			first.kill()
			if said := second.line(); said != "made: true" {
				t.Errorf("the second says %q", said)
			}
			sameContent(t, path, c.entry(keyOf(t, path)).file(0))
		})
	}
}

// The leavings of kill -9 or a power cut, at any point, never count as a copy.
func TestHalfACopyIsNeverUsed(t *testing.T) {
	tests := map[string]func(t *testing.T, e entry){
		"the copy has its name, the record does not say whole": func(t *testing.T, e entry) {
			r, err := e.record()
			r.Copy = Identity{}
			if err = errors.Join(err, e.write(r)); err != nil {
				t.Fatal(err)
			}
		},
		"the record is torn":   func(t *testing.T, e entry) { overwrite(t, e.recordFile(), "{") },
		"the record is empty":  func(t *testing.T, e entry) { overwrite(t, e.recordFile(), "") },
		"there is no record":   func(t *testing.T, e entry) { remove(t, e.recordFile()) },
		"there is no copy":     func(t *testing.T, e entry) { remove(t, e.file(0)) },
		"the copy is shorter":  func(t *testing.T, e entry) { truncate(t, e.file(0)) },
		"somebody wrote to it": func(t *testing.T, e entry) { overwrite(t, e.file(0), "X") },
		"a part lies beside it": func(t *testing.T, e entry) {
			overwrite(t, e.file(0)+partial, "X")
			remove(t, e.recordFile())
		},
	}
	for name, spoil := range tests {
		t.Run(name, func(t *testing.T) {
			c, path := testCache(t.TempDir(), 0), image(t, "i", 100<<10)
			first := get(t, c, path, "1")
			spoil(t, c.entry(first.Key))
			if second := get(t, c, path, "2"); !second.Made || second.Path != first.Path {
				t.Errorf("got %+v", second)
			}
			if third := get(t, c, path, "3"); third.Made {
				t.Error("a whole copy was not used")
			}
		})
	}
}

func overwrite(t *testing.T, path, text string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0)
	if err == nil {
		_, err = file.WriteString(text)
	}
	if text == "" || text == "{" {
		err = errors.Join(err, file.Truncate(int64(len(text))))
	}
	if err = errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string) {
	t.Helper()
	if err := os.Truncate(path, 4096); err != nil {
		t.Fatal(err)
	}
}

// Not even one whose size and time of modification are those of before.
func TestAChangedSourceIsAnother(t *testing.T) {
	c, path := testCache(t.TempDir(), 0), image(t, "i", 100<<10)
	first := get(t, c, path, "1")
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the clock of the file system goes on", func() bool {
		overwrite(t, path, "Y")
		return keyOf(t, path) != first.Key
	})
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	second := get(t, c, path, "2")
	if !second.Made || second.Key == first.Key {
		t.Errorf("the changed file got %+v, the old one had %+v", second, first)
	}
	if _, err := os.Stat(first.Path); err != nil {
		t.Errorf("the copy that job 1 uses: %v", err)
	}
}

func TestASourceThatChangesMeanwhileIsRefused(t *testing.T) {
	c, path := testCache(t.TempDir(), 0), image(t, "i", 100<<10)
	src := source(t, path)
	src.Finish = func(*os.File) error { time.Sleep(20 * time.Millisecond); overwrite(t, path, "Y"); return nil }
	if _, err := c.Get(t.Context(), src, "1", nil); !errors.Is(err, errChanged) {
		t.Errorf("error = %v", err)
	}
	nothingIn(t, c)
}

func TestASourceThatHasJustChangedIsRefused(t *testing.T) {
	c, path := Open(t.TempDir(), 0), image(t, "i", 100<<10)
	c.Granule = time.Hour
	if _, err := c.Get(t.Context(), source(t, path), "1", nil); !errors.Is(err, errFresh) {
		t.Errorf("error = %v", err)
	}
	nothingIn(t, c)
}

func nothingIn(t *testing.T, c *Cache) {
	t.Helper()
	if all, err := c.List(); err != nil || len(all) > 0 {
		t.Errorf("the cache has %+v, error %v", all, err)
	}
}

func TestAFailedCopyLeavesNothing(t *testing.T) {
	c, path, failure := testCache(t.TempDir(), 0), image(t, "i", 100<<10), errors.New("no")
	src := source(t, path)
	src.Finish = func(*os.File) error { return failure }
	if _, err := c.Get(t.Context(), src, "1", nil); !errors.Is(err, failure) {
		t.Errorf("error = %v", err)
	}
	nothingIn(t, c)
}

func TestCopiesBelongToTheirOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("gives files to others: run as root")
	}
	c, path := testCache(t.TempDir(), 0), image(t, "i", 100<<10)
	for owner, want := range map[Whose]struct{ uid, mode uint32 }{Everybody: {0, 0o444}, {6001, 6001}: {6001, 0o400}} {
		src := source(t, path)
		src.Owner = owner
		got, err := c.Get(t.Context(), src, "1", nil)
		if err != nil || !got.Made {
			t.Fatalf("%+v, error %v", got, err)
		}
		var s unix.Stat_t
		if err := unix.Stat(got.Path, &s); err != nil || s.Uid != want.uid || s.Mode&0o7777 != want.mode {
			t.Errorf("the copy of %v: uid %d, mode %o, error %v", owner, s.Uid, s.Mode, err)
		}
	}
}

func TestLinksToTheFilesBelow(t *testing.T) {
	c, base, top := testCache(t.TempDir(), 0), image(t, "base", 100<<10), image(t, "top", 200<<10)
	below := get(t, c, base, "1")
	src := source(t, top)
	src.Below = []Copy{below}
	got, err := c.Get(t.Context(), src, "1", nil)
	if err != nil {
		t.Fatal(err)
	}
	sameContent(t, top, got.Path)
	sameContent(t, base, filepath.Join(filepath.Dir(got.Path), Name(0)))
	if alone := get(t, c, top, "1"); alone.Key == got.Key {
		t.Error("a file on another and the same file alone are one entry")
	}
}

func TestWaitEndsWithItsContext(t *testing.T) {
	c, path := testCache(t.TempDir(), 0), image(t, "i", 100<<10)
	first := start(t, c, path, "1", "copied")
	if said := first.line(); said != "copied" {
		t.Fatal(said)
	}
	ctx, cancel := contextWithCause(t)
	told := false
	_, err := c.Get(ctx, source(t, path), "2", func(p Progress) { told = p.Waiting && p.Total >= 100<<10; cancel(errStop) })
	if !errors.Is(err, errStop) || !told {
		t.Errorf("error = %v, told of the wait: %v", err, told)
	}
	if held := strings.Join(c.holdersOf(t, path), " "); held != "1" {
		t.Errorf("held by %q", held)
	}
}

// The job that copies may be suspended. Others wait as long as it gets further.
func TestWaitForACopyThatGetsNoFurther(t *testing.T) {
	c, path := testCache(t.TempDir(), 0), image(t, "i", 100<<10)
	c.look = 20 * time.Millisecond
	first := start(t, c, path, "1", "copied")
	if said := first.line(); said != "copied" {
		t.Fatal(said)
	}
	if err := first.cmd.Process.Signal(unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	looks := 0
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, err := c.Get(ctx, source(t, path), "2", func(Progress) {
		if looks++; looks < 3*stalledLooks {
			grow(t, c.entry(keyOf(t, path)).file(0)+partial)
		}
	})
	if !errors.Is(err, errStalled) || looks < 3*stalledLooks {
		t.Errorf("error = %v after %d looks", err, looks)
	}
	if held := strings.Join(c.holdersOf(t, path), " "); held != "1" {
		t.Errorf("held by %q", held)
	}
	first.kill()
	if got := get(t, c, path, "3"); !got.Made {
		t.Error("the copy of one who was killed counts")
	}
}

// grow makes a file larger, as a copy does.
func grow(t *testing.T, path string) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		_, err = file.Write(make([]byte, 1<<20))
	}
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		t.Fatal(err)
	}
}

// Nor does a job that is suspended with the lock of the cache stop others for ever.
func TestWaitForTheCacheItself(t *testing.T) {
	c, path := testCache(t.TempDir(), 0), image(t, "i", 100<<10)
	get(t, c, path, "1")
	held, err := c.lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c.look = 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if _, err := c.Get(ctx, source(t, path), "2", nil); !errors.Is(err, errStalled) {
		t.Errorf("error = %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	get(t, c, path, "2")
}
