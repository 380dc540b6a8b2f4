// Package powercut shows tests what a power cut can leave of files that [durable.Disk]
// has written.
//
// After a power cut, a name is as it was when its directory was last synced, or as it is
// now. A file has the content that it had when it was last synced, mixed with any of the
// sectors that were written later.
package powercut

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// A Computer is a computer whose power can fail.
type Computer struct {
	// Before is called before each sync. Tests cut the power there.
	Before func()
	// Fail, if it returns an error, makes the sync of the file fail with it; nil is a
	// disk that works.
	Fail func(*os.File) error

	random *rand.Rand
	synced map[uint64][]byte             // content of files at their last sync, by inode
	names  map[string]map[string]content // names in each directory at its last sync
}

// content is what a file certainly has on disk, and what it reads as.
type content struct{ synced, written []byte }

// New returns a computer. Its random choices depend on seed alone.
func New(seed uint64) *Computer {
	return &Computer{
		Before: func() {}, Fail: func(*os.File) error { return nil },
		random: rand.New(rand.NewPCG(seed, 0)),
		synced: map[uint64][]byte{}, names: map[string]map[string]content{},
	}
}

// Disk returns the computer's disk.
func (c *Computer) Disk() durable.Disk { return durable.Disk{Sync: c.sync} }

func (c *Computer) sync(file *os.File) error {
	c.Before()
	if err := c.Fail(file); err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		c.names[file.Name()], err = c.read(file.Name())
		return err
	}
	c.synced[inode(info)], err = os.ReadFile(file.Name())
	return err
}

func inode(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// read returns the regular files in dir.
func (c *Computer) read(dir string) (map[string]content, error) {
	entries, err := os.ReadDir(dir)
	files := map[string]content{}
	for _, e := range entries {
		info, infoErr := e.Info()
		text, readErr := os.ReadFile(filepath.Join(dir, e.Name()))
		err = errors.Join(err, infoErr, readErr)
		if err == nil && info.Mode().IsRegular() {
			files[e.Name()] = content{c.synced[inode(info)], text}
		}
	}
	return files, err
}

// Cut fills the directory after with what a power cut at this moment may leave of dir.
func (c *Computer) Cut(dir, after string) error {
	now, err := c.read(dir)
	if err != nil {
		return err
	}
	before := c.names[dir]
	all := maps.Clone(now)
	maps.Copy(all, before)
	for name := range all {
		state := []map[string]content{before, now}[c.random.IntN(2)]
		file, exists := state[name]
		if !exists {
			continue
		}
		if err := os.WriteFile(filepath.Join(after, name), c.mix(file), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// mix returns what the disk may have of a file.
func (c *Computer) mix(file content) []byte {
	const sector = 512
	sizes := []int{len(file.synced), len(file.written)}
	mixed := make([]byte, sizes[c.random.IntN(2)])
	copy(mixed, file.synced)
	for at := 0; at < min(len(mixed), len(file.written)); at += sector {
		if c.random.IntN(2) == 0 {
			copy(mixed[at:min(at+sector, len(mixed))], file.written[at:])
		}
	}
	return mixed
}
