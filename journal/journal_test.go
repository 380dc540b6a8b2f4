package journal

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/durable"
)

var job = ID{Job: 4217, Restart: 1}

func create(t *testing.T, state string) *Journal {
	t.Helper()
	j, err := Create(state, job, Header{Step: 3, UID: 1000, GID: 100, Node: "n1", WorkDir: "/home/u"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func reopen(t *testing.T, j *Journal, state string) *Journal {
	t.Helper()
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(state, j.ID())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = again.Close() })
	return again
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func TestPrepare(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state")
	for range 2 {
		must(t, Prepare(state))
	}
	info, err := os.Stat(filepath.Join(state, jobsDir))
	must(t, err)
	if ids, err := List(state); info.Mode().Perm() != 0o711 || len(ids) != 0 || err != nil {
		t.Errorf("%v, journals %v, %v", info.Mode(), ids, err)
	}
}

func TestHeldSurvivesTheProcess(t *testing.T) {
	state := t.TempDir()
	j := create(t, state)
	must(t,
		j.Intend("overlay", "vm0", map[string]string{"path": "/x <&> y"}),
		j.Intend("tap", "svt1-0", nil),
		j.Done("overlay", "vm0"),
		j.Intend("domain", "vm0", 7),
		j.Undone("tap", "svt1-0"),
	)
	want := []Record{
		{Kind: "overlay", Name: "vm0", Data: json.RawMessage(`{"path":"/x \u003c\u0026\u003e y"}`), Done: true},
		{Kind: "domain", Name: "vm0", Data: json.RawMessage(`7`)},
	}
	again := reopen(t, j, state)
	for name, held := range map[string][]Record{"before": j.Held(), "after": again.Held()} {
		if diff := cmp.Diff(want, held); diff != "" {
			t.Errorf("Held %s the file was opened again (-want +got):\n%s", name, diff)
		}
	}
	if diff := cmp.Diff(j.Header(), again.Header()); diff != "" {
		t.Errorf("headers differ (-written +read):\n%s", diff)
	}
	header := again.Header()
	boot, err := BootID()
	must(t, err)
	if header.ID() != job || header.Step != 3 || header.Node != "n1" || header.WorkDir != "/home/u" || header.BootID != boot || header.Created.IsZero() {
		t.Errorf("header = %+v", header)
	}
	var path struct{ Path string }
	if must(t, again.Held()[0].Decode(&path)); path.Path != "/x <&> y" {
		t.Errorf("data = %+v", path)
	}
}

func TestChangesThatMakeNoSense(t *testing.T) {
	tests := map[string]struct {
		change func(*Journal) error
		want   string
	}{
		"intended twice":         {func(j *Journal) error { return j.Intend("tap", "a", nil) }, "held already"},
		"done without intend":    {func(j *Journal) error { return j.Done("tap", "b") }, "not held"},
		"undone without intend":  {func(j *Journal) error { return j.Undone("vf", "a") }, "not held"},
		"no kind":                {func(j *Journal) error { return j.Intend("", "a", nil) }, "kind is empty"},
		"a name that JSON bends": {func(j *Journal) error { return j.Intend("tap", "\xff", nil) }, "UTF-8"},
		"data that is too long":  {func(j *Journal) error { return j.Intend("x", "y", strings.Repeat("z", maxLine)) }, "longer than"},
		"data that is not JSON":  {func(j *Journal) error { return j.Intend("x", "y", make(chan int)) }, "unsupported type"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			state := t.TempDir()
			j := create(t, state)
			must(t, j.Intend("tap", "a", nil))
			if err := tt.change(j); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
			if diff := cmp.Diff([]Record{{Kind: "tap", Name: "a"}}, reopen(t, j, state).Held()); diff != "" {
				t.Errorf("Held changed (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCreateLeavesAJournalAlone(t *testing.T) {
	state := t.TempDir()
	j := create(t, state)
	must(t, j.Intend("tap", "a", nil))
	if _, err := Create(state, job, Header{}); !errors.Is(err, ErrLocked) {
		t.Errorf("while its holder lives: error = %v, want ErrLocked", err)
	}
	must(t, j.Close())
	if _, err := Create(state, job, Header{}); !errors.Is(err, fs.ErrExist) {
		t.Errorf("after its holder has gone: error = %v, want fs.ErrExist", err)
	}
	if again, err := Open(state, job); err != nil || len(again.Held()) != 1 {
		t.Errorf("opened again: %v", err)
	}
}

func TestOpenOfAJobThatIsNotThere(t *testing.T) {
	if _, err := Open(t.TempDir(), job); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error = %v, want fs.ErrNotExist", err)
	}
}

// A crash between the steps of Create or of Remove leaves a directory.
func TestADirectoryWithoutAJournalCanBeRemoved(t *testing.T) {
	state := t.TempDir()
	must(t, durable.MakeDirs(Dir(state, job), 0o711))
	j, err := Open(state, job)
	must(t, err)
	if j.Header().Version != 0 || len(j.Held()) != 0 {
		t.Errorf("header %+v, held %v; want neither", j.Header(), j.Held())
	}
	if err := j.Intend("tap", "a", nil); err == nil {
		t.Error("a journal without a header took a record")
	}
	must(t, j.Remove())
	if ids, err := List(state); err != nil || len(ids) != 0 {
		t.Errorf("List = %v, %v; want none", ids, err)
	}
}

func TestRemoveIsLast(t *testing.T) {
	state := t.TempDir()
	j := create(t, state)
	must(t, j.Intend("tap", "a", nil))
	if err := j.Remove(); err == nil || !strings.Contains(err.Error(), "still held, the last is tap a") {
		t.Errorf("with a resource: error = %v", err)
	}
	must(t, j.Undone("tap", "a"))
	stray := filepath.Join(j.Dir(), "vm0")
	must(t, os.Mkdir(stray, 0o700))
	if err := j.Remove(); err == nil || !strings.Contains(err.Error(), stray+" is still there") {
		t.Errorf("with a directory: error = %v", err)
	}
	must(t, os.Remove(stray), j.Remove())
	if entries, err := os.ReadDir(filepath.Join(state, jobsDir)); err != nil || len(entries) != 0 {
		t.Errorf("left below %s: %v, %v", jobsDir, entries, err)
	}
}

func TestListReadsNamesOfJobs(t *testing.T) {
	state := t.TempDir()
	for _, name := range []string{"12.0", "9.10", "9.2", "9", "x.0", "09.1", "9.-1", "99999999999.0", ".9.2"} {
		must(t, os.MkdirAll(filepath.Join(state, jobsDir, name), 0o700))
	}
	must(t, os.WriteFile(filepath.Join(state, jobsDir, "7.0"), nil, 0o600))
	got, err := List(state)
	if diff := cmp.Diff([]ID{{9, 2}, {9, 10}, {12, 0}}, got); err != nil || diff != "" {
		t.Errorf("error %v, IDs differ (-want +got):\n%s", err, diff)
	}
	if got, err := List(filepath.Join(state, "none")); err != nil || got != nil {
		t.Errorf("of a directory that is not there: %v, %v", got, err)
	}
}

func TestModesLetTheOwnerThroughButNotIn(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	state := filepath.Join(t.TempDir(), "lib", "state")
	j := create(t, state)
	for path, want := range map[string]fs.FileMode{
		filepath.Dir(state): 0o711, state: 0o711, filepath.Dir(j.Dir()): 0o711, j.Dir(): 0o711, filepath.Join(j.Dir(), fileName): 0o600,
	} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v, error %v; want %v", path, info.Mode(), err, want)
		}
	}
}

func TestManyGoroutinesWriteOneJournal(t *testing.T) {
	state := t.TempDir()
	j := create(t, state)
	var group sync.WaitGroup
	for vm := range 8 {
		group.Go(func() {
			name := fmt.Sprint("vm", vm)
			if err := errors.Join(j.Intend("domain", name, nil), j.Done("domain", name)); err != nil {
				t.Error(err)
			}
			_, _ = j.Held(), j.Header()
		})
	}
	group.Wait()
	held := reopen(t, j, state).Held()
	for _, r := range held {
		if !r.Done {
			t.Errorf("%s is not done", r.Name)
		}
	}
	if len(held) != 8 {
		t.Errorf("%d records, want 8", len(held))
	}
}

func TestTheLockNamesItsHolder(t *testing.T) {
	state := t.TempDir()
	j := create(t, state)
	_, err := Open(state, job)
	var locked *LockedError
	if !errors.As(err, &locked) || !errors.Is(err, ErrLocked) {
		t.Fatalf("error = %v, want a LockedError", err)
	}
	if locked.Holder.PID != os.Getpid() || !locked.Holder.Alive() {
		t.Errorf("holder = %+v, want the living process %d", locked.Holder, os.Getpid())
	}
	if other := (Holder{PID: locked.Holder.PID, Start: locked.Holder.Start + 1}); other.Alive() {
		t.Error("a process with the same number, but another start, counts as alive")
	}
	state2, err := Read(state, job)
	if err != nil || state2.Holder != locked.Holder || state2.Header.Node != "n1" {
		t.Errorf("Read = %+v, %v", state2, err)
	}
	must(t, j.Close())
	if _, err := Open(state, job); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

func TestOpenWait(t *testing.T) {
	state := t.TempDir()
	j := create(t, state)
	cause := errors.New("deadline of the hook")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	if _, err := OpenWait(ctx, state, job); !errors.Is(err, cause) || !errors.Is(err, ErrLocked) {
		t.Errorf("error = %v, want the context's cause and ErrLocked", err)
	}

	opened := make(chan error)
	go func() {
		_, err := OpenWait(context.Background(), state, job)
		opened <- err
	}()
	time.Sleep(retry)
	must(t, j.Remove())
	if err := <-opened; !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its holder removed it: error = %v, want fs.ErrNotExist", err)
	}
}

// A child that outlives the agent must not keep the lock.
func TestTheLockIsNotInherited(t *testing.T) {
	state := t.TempDir()
	j := create(t, state)
	child := exec.Command("sleep", "60")
	must(t, child.Start())
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	reopen(t, j, state)
}
