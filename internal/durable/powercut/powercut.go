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

// A Machine is a computer whose power can fail.
type Machine struct {
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

// New returns a machine. Its random choices depend on seed alone.
func New(seed uint64) *Machine {
	return &Machine{
		Before: func() {}, Fail: func(*os.File) error { return nil },
		random: rand.New(rand.NewPCG(seed, 0)),
		synced: map[uint64][]byte{}, names: map[string]map[string]content{},
	}
}

// Disk returns the machine's disk.
func (m *Machine) Disk() durable.Disk { return durable.Disk{Sync: m.sync} }

func (m *Machine) sync(file *os.File) error {
	m.Before()
	if err := m.Fail(file); err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if info.IsDir() {
		m.names[file.Name()], err = m.read(file.Name())
		return err
	}
	m.synced[inode(info)], err = os.ReadFile(file.Name())
	return err
}

func inode(info fs.FileInfo) uint64 { return info.Sys().(*syscall.Stat_t).Ino }

// read returns the regular files in dir.
func (m *Machine) read(dir string) (map[string]content, error) {
	entries, err := os.ReadDir(dir)
	files := map[string]content{}
	for _, e := range entries {
		info, infoErr := e.Info()
		text, readErr := os.ReadFile(filepath.Join(dir, e.Name()))
		err = errors.Join(err, infoErr, readErr)
		if err == nil && info.Mode().IsRegular() {
			files[e.Name()] = content{m.synced[inode(info)], text}
		}
	}
	return files, err
}

// Cut fills the directory after with what a power cut at this moment may leave of dir.
func (m *Machine) Cut(dir, after string) error {
	now, err := m.read(dir)
	if err != nil {
		return err
	}
	before := m.names[dir]
	all := maps.Clone(now)
	maps.Copy(all, before)
	for name := range all {
		state := []map[string]content{before, now}[m.random.IntN(2)]
		file, exists := state[name]
		if !exists {
			continue
		}
		if err := os.WriteFile(filepath.Join(after, name), m.mix(file), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// mix returns what the disk may have of a file.
func (m *Machine) mix(c content) []byte {
	const sector = 512
	sizes := []int{len(c.synced), len(c.written)}
	mixed := make([]byte, sizes[m.random.IntN(2)])
	copy(mixed, c.synced)
	for at := 0; at < min(len(mixed), len(c.written)); at += sector {
		if m.random.IntN(2) == 0 {
			copy(mixed[at:min(at+sector, len(mixed))], c.written[at:])
		}
	}
	return mixed
}
