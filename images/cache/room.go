package cache

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// errNoRoom matches every roomError.
var errNoRoom = errors.New("no room in the image cache")

// A roomError says why a copy does not fit, in bytes.
type roomError struct{ Need, Limit, Free, Idle int64 }

func (e *roomError) Error() string {
	return fmt.Sprintf("%v: %d MiB are needed; it may have %d MiB, its disk has %d MiB free, and copies that no job uses have %d MiB",
		errNoRoom, mib(e.Need), e.Limit>>20, e.Free>>20, e.Idle>>20)
}

// Is reports whether target is errNoRoom.
func (e *roomError) Is(target error) bool { return target == errNoRoom }

func mib(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 }

// A space is the available room, in bytes.
type space struct {
	limit int64 // bound on all copies together
	free  int64 // on the disk, less what is kept back
}

// victims returns the entries to remove so that need more bytes fit: entries without
// holders, the longest unused first. entries are in the order of [Cache.List].
func victims(entries []Entry, need int64, has space) (chosen []Entry, err error) {
	over := need - has.limit // how much must go to stay within the limit
	full := need - has.free  // how much must go to fit on the disk
	for _, e := range entries {
		over += e.Bytes
		full += e.Missing
	}
	var idle int64
	for _, e := range slices.Backward(entries) {
		if len(e.Holders) > 0 {
			continue
		}
		if max(over, full) > idle {
			chosen = append(chosen, e)
		}
		idle += e.Bytes
	}
	if max(over, full) > idle {
		return nil, &roomError{need, has.limit, has.free, idle}
	}
	return chosen, nil
}

// space returns the available room. A twentieth of the disk is kept free, for the disks of
// VMs.
func (c *Cache) space() (space, error) {
	var s unix.Statfs_t
	if err := unix.Statfs(c.dir, &s); err != nil {
		return space{}, &fs.PathError{Op: "statfs", Path: c.dir, Err: err}
	}
	disk, free := int64(s.Blocks)*s.Bsize, int64(s.Bavail)*s.Bsize
	has := space{limit: c.limit, free: max(0, free-disk/20)}
	if has.limit == 0 {
		has.limit = disk / 2
	}
	return has, nil
}

// reserve makes room for the copy that r describes, and writes r down, so that no other
// process counts on the same room.
func (c *Cache) reserve(ctx context.Context, e entry, r record) error {
	lock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	all, err := c.List()
	if err != nil {
		return err
	}
	has, err := c.space()
	if err != nil {
		return err
	}
	chosen, err := victims(all, r.Bytes, has)
	if err != nil {
		return err
	}
	for _, v := range chosen {
		if err := os.RemoveAll(c.entry(v.Key).dir); err != nil {
			return err
		}
	}
	return e.write(r)
}

// maxEntries bounds the number of entries, however small they are, because making room
// looks at all of them.
const maxEntries = 4096

// admit makes room for one more entry, if there are too many. The caller has the cache's
// lock.
func (c *Cache) admit(e entry) error {
	if _, err := os.Stat(e.dir); err == nil {
		return nil
	}
	entries, err := c.entries()
	if err != nil || len(entries) < c.most {
		return err
	}
	all, err := c.List()
	for _, v := range slices.Backward(all) {
		if len(v.Holders) == 0 {
			return os.RemoveAll(c.entry(v.Key).dir)
		}
	}
	return errors.Join(err, fmt.Errorf("%w: it has %d copies, all of which jobs use", errNoRoom, len(all)))
}

// drop removes e unless it has a holder.
func (c *Cache) drop(ctx context.Context, e entry) error {
	lock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	seen, err := e.describe()
	if err != nil || len(seen.Holders) > 0 {
		return err
	}
	return os.RemoveAll(e.dir)
}

// Beside reports whether file lies on the cache's own file system. A copy would then bring
// nothing.
func (c *Cache) Beside(file *os.File) (bool, error) {
	if err := makeDir(c.dir); err != nil {
		return false, err
	}
	var here, there unix.Stat_t
	err := errors.Join(unix.Stat(c.dir, &here), unix.Fstat(int(file.Fd()), &there))
	return here.Dev == there.Dev, err
}

// Forget removes the copies that chosen picks and that have no holder, and returns them.
func (c *Cache) Forget(ctx context.Context, chosen func(Entry) bool) (gone []Entry, err error) {
	if _, err := os.Stat(c.dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	lock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	all, err := c.List()
	for _, e := range all {
		if len(e.Holders) > 0 || !chosen(e) {
			continue
		}
		if e := os.RemoveAll(c.entry(e.Key).dir); e != nil {
			err = errors.Join(err, e)
			continue
		}
		gone = append(gone, e)
	}
	return gone, err
}

// Clean gives back the entries of holders for which live is false, and removes unfinished
// copies.
func (c *Cache) Clean(ctx context.Context, live func(holder string) bool) error {
	all, err := c.List()
	for _, e := range all {
		for _, holder := range e.Holders {
			if !live(holder) {
				err = errors.Join(err, c.entry(e.Key).release(holder))
			}
		}
	}
	_, forget := c.Forget(ctx, func(e Entry) bool { return !e.Whole })
	return errors.Join(err, forget)
}
