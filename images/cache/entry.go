package cache

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// An entry is a directory with these files:
//
//	record    describes the entry, and says whether the copy is whole
//	2         the copy, if it has two files below it; 1 and 0 link to these
//	2.partial the unfinished copy
//	lock      held while the copy is made
//	holders/  an empty file for each holder
type entry struct {
	key Key
	dir string
}

func (c *Cache) entry(key Key) entry { return entry{key, filepath.Join(c.dir, string(key))} }

func (e entry) file(below int) string       { return filepath.Join(e.dir, Name(below)) }
func (e entry) holders() string             { return filepath.Join(e.dir, "holders") }
func (e entry) heldBy(holder string) string { return filepath.Join(e.holders(), filepath.Base(holder)) }
func (e entry) recordFile() string          { return filepath.Join(e.dir, "record") }

// entries lists all entries. A cache that was never used has none.
func (c *Cache) entries() ([]entry, error) {
	files, err := os.ReadDir(c.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var all []entry
	for _, f := range files {
		if f.IsDir() && len(f.Name()) == 32 {
			all = append(all, c.entry(Key(f.Name())))
		}
	}
	return all, nil
}

// A record is what an entry says of itself. Its time is when the copy was last used.
type record struct {
	Source string   `json:"source"` // path
	Owner  Whose    `json:"owner"`
	Below  int      `json:"below"` // files that the copy is based on
	Bytes  int64    `json:"bytes"` // size of the source on disk
	Copy   Identity `json:"copy"`  // of the whole copy; zero while it is made
}

func (e entry) record() (r record, err error) {
	text, err := os.ReadFile(e.recordFile())
	if err == nil {
		err = json.Unmarshal(text, &r)
	}
	return r, err
}

// write replaces the record, and returns when it is on disk.
func (e entry) write(r record) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return durable.WriteFile(e.recordFile(), text)
}

// intact reports whether the copy is whole and unchanged. Its owner can write to it. That
// would harm only the owner, but the owner would not notice.
func (r record) intact(e entry) bool {
	is, err := stateAt(e.file(r.Below))
	return err == nil && is.Identity == r.Copy
}

// errStalled matches the error of a wait for another process that makes no progress.
var errStalled = errors.New("another job is copying, and gets no further: it may be suspended")

// stalledLooks is after how many looks without a change a copy counts as stalled. Looks are
// counted instead of time, because the waiting process may have been suspended, too.
const stalledLooks = 6

// lock waits until no other process copies into e, or until that process makes no progress.
func (e entry) lock(ctx context.Context, look time.Duration, progress func(Progress)) (lock *durable.Held, waited time.Duration, err error) {
	path, began := filepath.Join(e.dir, lockName), time.Now()
	lock, err = durable.TryLock(path, os.O_CREATE)
	if !errors.Is(err, durable.ErrLocked) {
		return lock, 0, err
	}
	ctx, stop := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { stop(e.watch(ctx, look, progress)) })
	lock, err = durable.Lock(ctx, path, os.O_CREATE)
	stop(nil)
	watching.Wait() // progress is called by one goroutine at a time
	return lock, time.Since(began), err
}

// watch calls progress at each look until ctx is done, and returns errStalled if the
// copy stops growing. The process that copies may have been killed, so watch asks the
// disk.
func (e entry) watch(ctx context.Context, look time.Duration, progress func(Progress)) error {
	var last Progress
	for same := 0; same < stalledLooks; same++ {
		now := e.progress()
		if now != last {
			last, same = now, 0
		}
		progress(now)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(look):
		}
	}
	return errStalled
}

// reportEvery is how often a wait and a copy report their progress. Each report is a line
// in the user's output.
const reportEvery = 10 * time.Second

func (e entry) progress() Progress {
	r, _ := e.record()
	return Progress{Done: e.size(r), Total: r.Bytes, Waiting: true}
}

// size is the size of the entry's files on disk, in bytes.
func (e entry) size(r record) (sum int64) {
	for _, path := range []string{e.file(r.Below), e.file(r.Below) + partial} {
		if is, err := stateAt(path); err == nil {
			sum += is.allocated
		}
	}
	return sum
}

// touch records that the copy is used now.
func (e entry) touch() error { return os.Chtimes(e.recordFile(), time.Time{}, time.Now()) }

// release gives the entry back, if holder has it. The entry counts as used until now.
func (e entry) release(holder string) error {
	err := os.Remove(e.heldBy(holder))
	if err == nil {
		err = e.touch()
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// An Entry describes an entry for people.
type Entry struct {
	Key     Key       `json:"key"`
	Source  string    `json:"source"`            // path of the file
	Owner   string    `json:"owner"`             // uid, or "everybody"
	Bytes   int64     `json:"bytes"`             // on disk; of an unfinished copy, its final size
	Missing int64     `json:"missing,omitempty"` // how many of Bytes are not copied yet
	Whole   bool      `json:"whole"`
	Used    time.Time `json:"used"`
	Holders []string  `json:"holders,omitempty"` // jobs as JOB.RESTART
}

// List returns the entries, the last used first.
func (c *Cache) List() ([]Entry, error) {
	entries, err := c.entries()
	var all []Entry
	for _, e := range entries {
		seen, e := e.describe()
		if e == nil {
			all = append(all, seen)
		} else if !errors.Is(e, fs.ErrNotExist) { // ErrNotExist: it was removed meanwhile
			err = errors.Join(err, e)
		}
	}
	slices.SortFunc(all, func(a, b Entry) int { return b.Used.Compare(a.Used) })
	return all, err
}

func (e entry) describe() (Entry, error) {
	info, err := os.Stat(e.dir)
	if err != nil {
		return Entry{}, err
	}
	r, _ := e.record() // an error means that the copy is not whole
	seen := Entry{
		Key: e.key, Source: r.Source, Owner: r.Owner.String(), Bytes: e.size(r),
		Whole: r.Copy != Identity{} && r.intact(e), Used: info.ModTime(),
	}
	if !seen.Whole {
		seen.Missing = max(0, r.Bytes-seen.Bytes)
		seen.Bytes += seen.Missing
	}
	if info, err := os.Stat(e.recordFile()); err == nil {
		seen.Used = info.ModTime()
	}
	holders, err := os.ReadDir(e.holders())
	for _, h := range holders {
		seen.Holders = append(seen.Holders, h.Name())
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil // half made, or half removed
	}
	return seen, err
}
