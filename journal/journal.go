// Package journal records what a job holds on a node, so that nothing is lost if the
// process that works on the job dies at any instant.
//
// A [Journal] is one file per job and restart, <state>/jobs/<id>/journal. Every call that
// changes it appends one checksummed line and returns once the line is on disk. The order
// for a resource is [Journal.Intend], acquire, [Journal.Done]; to give it back: undo,
// [Journal.Undone]. A later process, even after a power cut, finds in [Journal.Held]
// everything that may exist, in the order in which it was begun, and undoes it backwards.
//
// A Journal holds the exclusive lock on its file. The lock says that a process is working
// on the job, and vanishes with the process. The records say what the job owns, and stay.
// [Read] needs no lock.
//
// The package does not interpret the records.
package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// A Journal is the open, locked journal of a job. Its methods may be called from
// several goroutines.
type Journal struct {
	id   ID
	dir  string // <state>/jobs/<id>
	file *os.File
	lock *durable.Held // on file

	mu     sync.Mutex
	c      contents
	synced int64 // bytes of the file that are on disk
	broken error // if set, the disk may not have what c says, and every later change fails with it

	syncMu sync.Mutex // held during an fsync; taken before mu
}

// Create starts the journal of a job that has none, and fills in the header's Version,
// Restart, Job, BootID and Created. If a journal exists, Create leaves it alone and
// returns [ErrLocked] if its holder is alive. Otherwise it returns [fs.ErrExist], which
// means that the old journal must be reclaimed first.
func Create(state string, id ID, header Header) (*Journal, error) {
	// QEMU, which runs as the job's owner, needs to pass through these directories.
	if err := durable.MakeDirs(Dir(state, id), 0o711); err != nil {
		return nil, fmt.Errorf("create journal of job %s: %w", id, err)
	}
	j, err := Open(state, id)
	if err != nil {
		return nil, err
	}
	if j.c.header.Version != 0 {
		return nil, errors.Join(
			fmt.Errorf("create journal of job %s: %w: an earlier launch left %s; reclaim it first", id, fs.ErrExist, j.file.Name()),
			j.Close())
	}
	if err := j.begin(header); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// Prepare makes the directory of the journals, in which the plugin looks whether a job has
// one. As long as it is missing, the plugin starts the agent at the end of every job.
func Prepare(state string) error {
	if err := durable.MakeDirs(filepath.Join(state, jobsDir), 0o711); err != nil {
		return fmt.Errorf("make the directory of the journals: %w", err)
	}
	return nil
}

// Open opens and locks an existing journal; if there is none it returns [fs.ErrNotExist].
// It does not wait for the lock; see [OpenWait]. If the error is [ErrLocked], it is a
// [*LockedError] and names the holder.
//
// After a crash, a job's directory may lack the header or even the file. The job held
// nothing then: such a journal opens with a zero Header, and can be removed.
func Open(state string, id ID) (*Journal, error) {
	j, err := open(state, id)
	if err != nil {
		return nil, fmt.Errorf("open journal of job %s: %w", id, err)
	}
	return j, nil
}

func open(state string, id ID) (*Journal, error) {
	dir := Dir(state, id)
	path := filepath.Join(dir, fileName)
	lock, err := takeLock(path)
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	j := &Journal{id: id, dir: dir, file: file, lock: lock}
	if err := j.load(); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// load reads the file, cuts off a line that a crash left half written, and signs as the
// new holder.
func (j *Journal) load() error {
	data, err := os.ReadFile(j.file.Name())
	if err != nil {
		return err
	}
	if j.c, err = parse(data); err != nil {
		return named(err, j.file.Name())
	}
	if h := j.c.header; h.Version != 0 && h.ID() != j.id {
		return fmt.Errorf("%s belongs to job %s", j.file.Name(), h.ID())
	}
	if err := j.prepare(int64(len(data))); err != nil {
		return err
	}
	holder, err := self()
	if err != nil {
		return err
	}
	return j.append(entry{Op: opHolder, Holder: &holder})
}

// reserve is the space that a journal reserves beyond its end, in bytes, enough for the
// lines of some hundred resources. Overlays can fill the disk; reclaim, which frees
// space, must still be able to write.
const reserve = 256 << 10

// prepare makes the file, of which length bytes were valid, ready for more lines.
func (j *Journal) prepare(length int64) error {
	if length == 0 {
		if err := durable.SyncDir(j.dir); err != nil {
			return err
		}
	}
	if length > j.c.size {
		if err := j.file.Truncate(j.c.size); err != nil {
			return err
		}
	}
	err := unix.Fallocate(int(j.file.Fd()), unix.FALLOC_FL_KEEP_SIZE, j.c.size, reserve)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSPC) {
		return nil // the file system reserves no space, or has none
	}
	return err
}

func (j *Journal) begin(h Header) error {
	boot, err := BootID()
	if err != nil {
		return err
	}
	h.Version, h.Job, h.Restart, h.BootID = version, j.id.Job, j.id.Restart, boot
	h.Created = time.Now().UTC()
	return j.append(entry{Op: opHeader, Header: &h})
}

// ID returns the job and restart of the journal.
func (j *Journal) ID() ID { return j.id }

// Dir returns the job's directory, with the journal and the job's other files.
func (j *Journal) Dir() string { return j.dir }

// Header returns the header that Create wrote.
func (j *Journal) Header() Header {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.c.header
}

// Held returns what the job holds, or may hold, in the order of its Intends.
func (j *Journal) Held() []Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.Clone(j.c.held)
}

// Intend records that the resource is about to be acquired. data is what undoing it will
// need; it is stored as JSON and may be nil. If the resource is held already, that is an
// error.
func (j *Journal) Intend(kind, name string, data any) error {
	raw, err := marshalData(data)
	if err != nil {
		return fmt.Errorf("journal %s: intend %s %s: %w", j.id, kind, name, err)
	}
	return j.change(entry{Op: opIntend, Kind: kind, Name: name, Data: raw})
}

// Done records that the resource is acquired.
func (j *Journal) Done(kind, name string) error {
	return j.change(entry{Op: opDone, Kind: kind, Name: name})
}

// Undone records that the resource is given back and no longer held.
func (j *Journal) Undone(kind, name string) error {
	return j.change(entry{Op: opUndone, Kind: kind, Name: name})
}

// errBadName: JSON would store a different text, and Done would not find it again.
var errBadName = errors.New("kind is empty, or kind or name is not valid UTF-8")

func (j *Journal) change(e entry) error {
	err := errBadName
	if e.Kind != "" && utf8.ValidString(e.Kind) && utf8.ValidString(e.Name) {
		err = j.append(e)
	}
	if err != nil {
		return fmt.Errorf("journal %s: %s %s %q: %w", j.id, e.Op, e.Kind, e.Name, err)
	}
	return nil
}

// append writes e and waits until it is on disk.
func (j *Journal) append(e entry) error {
	end, err := j.write(e)
	if err != nil {
		return err
	}
	return j.sync(end)
}

// write adds e to the file and returns where its line ends.
func (j *Journal) write(e entry) (end int64, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.broken != nil {
		return 0, j.broken
	}
	next, err := j.c.apply(e)
	if err != nil {
		return 0, err
	}
	synced := j.synced
	e.Synced = &synced
	line, err := encode(e)
	if err != nil {
		return 0, err
	}
	if _, err := j.file.WriteAt(line, j.c.size); err != nil {
		return 0, errors.Join(err, j.file.Truncate(j.c.size))
	}
	next.size = j.c.size + int64(len(line))
	j.c = next
	return next.size, nil
}

// sync returns when the file is on disk up to end. Goroutines that arrive during another
// one's fsync share the next one.
func (j *Journal) sync(end int64) error {
	j.syncMu.Lock()
	defer j.syncMu.Unlock()
	j.mu.Lock()
	size, synced, err := j.c.size, j.synced, j.broken
	j.mu.Unlock()
	if synced >= end {
		return nil
	}
	if err != nil {
		return err
	}
	err = j.file.Sync()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		// After a failed fsync the kernel may call the pages clean although they are not
		// on disk. Nobody can tell what the disk has, so nothing more is written.
		j.broken = fmt.Errorf("write %s to disk: %w", j.file.Name(), err)
		return j.broken
	}
	j.synced = size
	return nil
}

// Close gives up the lock. The records stay.
func (j *Journal) Close() error { return errors.Join(j.file.Close(), j.lock.Close()) }

// Remove deletes the journal and the job's directory, and closes the Journal on success.
// It refuses while anything is held, and while the directory has files other than the
// journal: the journal must be the last to go.
func (j *Journal) Remove() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.remove(); err != nil {
		return fmt.Errorf("remove journal of job %s: %w", j.id, err)
	}
	return j.Close()
}

func (j *Journal) remove() error {
	if n := len(j.c.held); n > 0 {
		return fmt.Errorf("%d resources are still held, the last is %s %s", n, j.c.held[n-1].Kind, j.c.held[n-1].Name)
	}
	entries, err := os.ReadDir(j.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != fileName {
			return fmt.Errorf("%s is still there", filepath.Join(j.dir, e.Name()))
		}
	}
	if err := os.Remove(j.file.Name()); err != nil {
		return err
	}
	// Another process may open the job between the two removals and then owns the
	// directory.
	if err := os.Remove(j.dir); err != nil && !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	return durable.SyncDir(filepath.Dir(j.dir))
}
