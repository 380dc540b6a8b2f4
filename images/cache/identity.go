package cache

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// A Key names an entry: 32 hexadecimal digits.
type Key string

// An Identity identifies a file's content by what the file system says of the file, without
// reading it.
//
// The kernel sets the time of the last change (ctime) with every write, and lets no program
// set it. So the same file with the same ctime has the same content. An Identity does not
// contain the number of the file system: NFS gets another number with every mount. If two
// file systems under one path have a file with the same inode, size and times, they are the
// same one.
type Identity struct {
	Inode    uint64 `json:"inode"`
	Size     int64  `json:"size"`
	Modified int64  `json:"modified"` // ns since 1970
	Changed  int64  `json:"changed"`  // ns since 1970
}

// A fileState is an identity and the file's size on disk.
type fileState struct {
	Identity
	allocated int64 // bytes on disk
}

// Identify returns the identity of an open file; O_PATH will do.
func Identify(file *os.File) (Identity, error) {
	is, err := stateOf(file)
	return is.Identity, err
}

// stateOf asks the file server itself. Without this, an NFS client would answer from its
// cache for up to a minute.
func stateOf(file *os.File) (fileState, error) {
	var s unix.Statx_t
	err := unix.Statx(int(file.Fd()), "", unix.AT_EMPTY_PATH|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &s)
	if err != nil {
		return fileState{}, &fs.PathError{Op: "statx", Path: file.Name(), Err: err}
	}
	return fileState{Identity{s.Ino, int64(s.Size), nanoseconds(s.Mtime), nanoseconds(s.Ctime)}, int64(s.Blocks) * 512}, nil
}

func nanoseconds(t unix.StatxTimestamp) int64 { return t.Sec*1e9 + int64(t.Nsec) }

// stateAt is stateOf for a path. It does not follow a symbolic link.
func stateAt(path string) (fileState, error) {
	file, err := os.OpenFile(path, unix.O_PATH|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fileState{}, err
	}
	defer file.Close()
	return stateOf(file)
}

// fresh reports whether the file may still change without a change of its times. If the
// server's clock is ahead, a file stays fresh for longer.
func (c *Cache) fresh(i Identity) bool { return time.Since(time.Unix(0, i.Changed)) < c.Granule }

// key returns the key of the source in its present state. A copy names the files below it,
// so their keys count too.
func (s Source) key(is Identity) Key {
	text := fmt.Appendf(nil, "%v %+v %q", s.Owner, is, s.Path)
	if len(s.Below) > 0 {
		text = append(text, s.Below[0].Key...)
	}
	sum := sha256.Sum256(text)
	return Key(hex.EncodeToString(sum[:16]))
}
