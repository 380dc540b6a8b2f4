package ledger

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/internal/durable"
)

// file makes a ledger with some jobs, and returns its path and content.
func file(t testing.TB, jobs int) (path string, text []byte) {
	path = filepath.Join(t.TempDir(), "ledger")
	l, err := Open(t.Context(), path)
	noError(t, err)
	l.db.NoSync = true
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for i := range jobs {
		_, err := l.Reserve(request(id(uint32(i)), Want{Pool: vnis(1024, 65535), Count: 2}), Options{}, now)
		noError(t, err)
		if i%3 == 0 {
			noError(t, l.End(id(uint32(i)), now), l.Confirm([]Confirmation{{id(uint32(i)), "n1"}, {id(uint32(i)), "n2"}}, now))
		}
	}
	noError(t, l.Check(), l.Close())
	text, err = os.ReadFile(path)
	noError(t, err)
	return path, text
}

// readAll opens a ledger and does everything with it that does not change it, and then one
// reservation.
func readAll(ctx context.Context, path string) error {
	l, err := Open(ctx, path)
	if err != nil {
		return err
	}
	_, err1 := l.Entries()
	_, err2 := l.Pools([]fabric.Pool{vnis(1024, 1100)}, 0, time.Now())
	_, err3 := l.Reserve(request(id(99999), Want{Pool: vnis(1024, 65535), Count: 1}), Options{}, time.Now())
	return errors.Join(l.Check(), err1, err2, err3, l.Close())
}

func TestADamagedOrForeignFile(t *testing.T) {
	foreign := func(t *testing.T, path string) {
		noError(t, os.Remove(path))
		db, err := bbolt.Open(path, 0o600, nil)
		noError(t, err)
		noError(t, db.Update(func(tx *bbolt.Tx) error {
			_, err := tx.CreateBucket([]byte("keys of another program"))
			return err
		}), db.Close())
	}
	rewrite := func(text func([]byte) []byte) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			old, err := os.ReadFile(path)
			noError(t, err, os.WriteFile(path, text(old), 0o600))
		}
	}
	change := func(b bucket, key, value string) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			db, err := bbolt.Open(path, 0o600, nil)
			noError(t, err)
			noError(t, db.Update(func(tx *bbolt.Tx) error { return bolt{tx}.put(b, key, []byte(value)) }), db.Close())
		}
	}
	tests := map[string]struct {
		damage func(t *testing.T, path string)
		says   string
	}{
		"an empty file":                  {rewrite(func([]byte) []byte { return nil }), "it is empty"},
		"a text":                         {rewrite(func([]byte) []byte { return []byte("hello, world\n") }), "it is not a ledger of Slurm-V"},
		"zeros":                          {rewrite(func(b []byte) []byte { return make([]byte, len(b)) }), "it is not a ledger of Slurm-V"},
		"a file that was cut":            {rewrite(func(b []byte) []byte { return b[:3*4096] }), "it is damaged"},
		"another program's bbolt file":   {foreign, "it is not a ledger of Slurm-V"},
		"a format of the future":         {change(meta, "format", "f8e1f1fa \"slurm-v fabric ledger 2\"\n"), `"format" is damaged`},
		"a job's record without its sum": {change(jobs, jobKey(id(1)), "{}"), "is damaged"},
		"a record under another job":     {change(jobs, jobKey(id(7777)), "x"), "is damaged"},
		"a time that is none":            {change(cooling, "yesterday vni 00007", "x"), `cooling "yesterday vni 00007" is damaged`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path, _ := file(t, 60)
			noError(t, readAll(t.Context(), path))
			tt.damage(t, path)
			err := readAll(t.Context(), path)
			var damaged *damagedError
			if !errors.As(err, &damaged) || damaged.Path != path || !strings.Contains(err.Error(), tt.says) ||
				!strings.Contains(err.Error(), "restore it from a copy, or move it away") {
				t.Fatalf("error = %v", err)
			}
			ctx, stop := context.WithTimeout(t.Context(), 5*time.Second)
			defer stop()
			if err := readAll(ctx, path); errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("the damaged file stays locked: %v", err)
			}
		})
	}
}

// Bytes that change anywhere make an error or nothing, but end no process.
func TestBytesThatChange(t *testing.T) {
	path, text := file(t, 60)
	random := rand.New(rand.NewPCG(1, 1))
	damages := 0
	for range 100 {
		broken := append([]byte(nil), text...)
		for range 1 + random.IntN(20) {
			broken[random.IntN(len(broken))] = byte(random.Uint32())
		}
		noError(t, os.WriteFile(path, broken, 0o600))
		if err := readAll(t.Context(), path); err != nil {
			damages++
		}
	}
	t.Logf("%d of 100 are noticed", damages)
	if damages < 30 {
		t.Error("so few cannot be")
	}
}

func TestOpenWaitsForTheOtherProcess(t *testing.T) {
	path, _ := file(t, 1)
	first, err := Open(t.Context(), path)
	noError(t, err)
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer stop()
	_, err = Open(ctx, path)
	comm, _ := os.ReadFile("/proc/self/comm")
	want := fmt.Sprintf("which process %d (%s) has open: context deadline exceeded", os.Getpid(), bytes.TrimSpace(comm))
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v; want %q", err, want)
	}
	time.AfterFunc(50*time.Millisecond, func() { noError(t, first.Close()) })
	second, err := Open(t.Context(), path)
	noError(t, err)
	noError(t, second.Close())
}

func TestLockHolder(t *testing.T) {
	const locks = `1: POSIX  ADVISORY  WRITE 700 08:01:5 0 EOF
2: FLOCK  ADVISORY  WRITE 701 08:01:6 0 EOF
2: -> FLOCK  ADVISORY  WRITE 702 08:01:7 0 EOF
3: FLOCK  ADVISORY  WRITE -1 08:01:8 0 EOF
`
	for inode, want := range map[string]string{"08:01:5": "", "08:01:6": "701", "08:01:7": "", "08:01:8": "", "08:01:9": ""} {
		if got := lockHolder(strings.NewReader(locks), inode); got != want {
			t.Errorf("%s: %q, want %q", inode, got, want)
		}
	}
}

// Who waits while an administrator puts another file in place gets that one.
func TestOpenGetsTheFileThatHasTheName(t *testing.T) {
	path, _ := file(t, 1)
	first, err := Open(t.Context(), path)
	noError(t, err)
	opened := make(chan *Ledger)
	go func() {
		l, err := Open(context.Background(), path)
		if err != nil {
			t.Error(err)
		}
		opened <- l
	}()
	awaitWaiter(t, first)
	other, _ := file(t, 2)
	noError(t, os.Rename(other, path), first.Close())
	second := <-opened
	defer second.Close()
	if all, err := second.Entries(); err != nil || len(all) != 1 || all[0].Reservation.Job != id(1) {
		t.Errorf("entries %+v, error %v", all, err)
	}
}

// awaitWaiter waits until somebody waits for the lock on a ledger.
func awaitWaiter(t *testing.T, l *Ledger) {
	t.Helper()
	waits := regexp.MustCompile(`-> FLOCK .* ` + inodeOf(l.file) + ` `)
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if locks, err := os.ReadFile("/proc/locks"); err != nil || waits.Match(locks) {
			noError(t, err)
			return
		}
	}
	t.Fatal("nobody waits")
}

// Many that find no ledger agree on one.
func TestManyMakeOneLedger(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			l, err := Open(context.Background(), path)
			if err != nil {
				t.Error(err)
				return
			}
			_, err = l.Reserve(request(id(uint32(i)), Want{Pool: vnis(1, 16), Count: 1}), Options{}, time.Now())
			if err := errors.Join(err, l.Close()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	noError(t, create(path)) // so does the slowest that has found none
	l, err := Open(t.Context(), path)
	noError(t, err)
	defer l.Close()
	if entries, err := l.Entries(); err != nil || len(entries) != 16 {
		t.Errorf("%d entries, error %v", len(entries), err)
	}
	if names, err := filepath.Glob(path + "*"); err != nil || len(names) != 2 { // the ledger and its mark
		t.Errorf("files %v, error %v", names, err)
	}
}

func TestALinkIsNoLedger(t *testing.T) {
	path, _ := file(t, 1)
	link := path + ".link"
	noError(t, os.Symlink(path, link))
	if l, err := Open(t.Context(), link); err == nil {
		t.Errorf("opened: %v", l.Close())
	}
}

func TestADirectoryThatIsMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "none", "ledger")
	if _, err := Open(t.Context(), path); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("error = %v", err)
	}
}

// Whatever a value is: no panic, and no error but one of the file.
func FuzzDecode(f *testing.F) {
	for _, value := range []string{
		`{"reservation":{"job":{"Job":1},"grants":[{"kind":"vni","tags":[1024]}]},"nodes":["n2","n1"],"began":"2026-01-02T03:04:05Z"}`,
		`{"reservation":{"job":{"Job":1},"grants":[{"kind":"pkey","tags":[1,1]}]},"ended":"2026-01-02T03:04:05Z"}`,
		`{"jobs":[{"Job":1}]}`, `{"since":"2026-01-02T03:04:05Z"}`, `{}`, `null`, `7`,
	} {
		f.Add(jobKey(id(1)), []byte(value), []byte(value))
		f.Add("vni 01024", []byte(value), []byte(value))
	}
	f.Fuzz(func(t *testing.T, key string, record, holding []byte) {
		s := newMemory()
		s[jobs][key], s[tags]["vni 01024"] = durable.Line(record), durable.Line(holding)
		m, now := machineOf(s), time.Now()
		_, err1 := m.entries()
		_, err2 := m.pools([]fabric.Pool{vnis(1024, 1025)}, 0, now)
		for _, err := range []error{
			m.check(), err1, err2, m.end(id(1), now), m.confirm([]Confirmation{{id(1), "n1"}}, now),
			m.confirmManager(id(1), now), m.rebooted([]Boot{{Job: id(1), Node: "n1", ID: "b"}}, now),
			m.adopt(reservation(id(2), 1024), []string{"n1"}, now, now),
		} {
			var d *damage
			var conflict *ConflictError
			if err != nil && !errors.As(err, &d) && !errors.As(err, &conflict) {
				t.Errorf("error = %v", err)
			}
		}
	})
}

// A process was killed while it made the ledger, or before it could remove the file that it made it of.
func TestWhatWasToBecomeTheLedgerDoesNotStay(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	noError(t, os.WriteFile(path+".123.new", []byte("half"), 0o600))
	noError(t, readAll(t.Context(), path))
	if left, err := filepath.Glob(path + "*"); err != nil || len(left) != 2 { // the ledger and its mark
		t.Errorf("%v, %v", left, err)
	}
}
