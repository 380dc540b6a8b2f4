package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
)

const (
	mostNames = 24      // in a worker's directory and in its subdirectory
	mostBytes = 1 << 18 // in a file
	mostWrite = 1 << 16 // in an operation
)

// A file is what a worker remembers of one. Hard links are several names of one file.
type file struct {
	data  []byte
	mode  fs.FileMode
	names int
	to    string // of a symbolic link
}

// A worker does operations in its directory, and knows what is there.
type worker struct {
	dir, also string
	random    *rand.Rand
	files     map[string]*file // by their names below dir
	done      map[string]int   // operations, by their kinds
}

func newWorker(dir, also string, seed uint64) *worker {
	return &worker{dir: dir, also: also, random: rand.New(rand.NewPCG(seed, 0)), files: map[string]*file{}, done: map[string]int{}}
}

type operation struct {
	kind string
	do   func(*worker) error
}

// Writing and reading come several times, as they are the most frequent.
var operations = []operation{
	{"write", (*worker).write},
	{"write", (*worker).write},
	{"append", (*worker).appendTo},
	{"read", (*worker).read},
	{"read", (*worker).read},
	{"read", (*worker).read},
	{"stat", (*worker).stat},
	{"stat", (*worker).stat},
	{"truncate", (*worker).truncate},
	{"chmod", (*worker).chmod},
	{"rename", (*worker).rename},
	{"link", (*worker).link},
	{"symlink", (*worker).symlink},
	{"remove", (*worker).remove},
	{"list", (*worker).list},
	{"map", (*worker).writeMapped},
}

// errNothing is returned by an operation that found no file for it. It does not count.
var errNothing = errors.New("nothing was done")

// run does operations until none is left, checks everything, and removes it.
func (w *worker) run(left *atomic.Int64) error {
	if err := os.MkdirAll(filepath.Join(w.dir, "sub"), 0o755); err != nil {
		return err
	}
	for left.Add(-1) >= 0 {
		op := operations[w.random.IntN(len(operations))]
		err := op.do(w)
		if errors.Is(err, errNothing) {
			left.Add(1)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s: operation %d: %s: %w", w.dir, w.count(), op.kind, err)
		}
		w.done[op.kind]++
	}
	if err := w.checkAll(w.dir); err != nil {
		return err
	}
	if w.also != "" {
		if err := w.checkAll(w.also); err != nil {
			return err
		}
	}
	return os.RemoveAll(w.dir)
}

func (w *worker) count() (n int) {
	for _, of := range w.done {
		n += of
	}
	return n
}

// anyName chooses a name, of a file that may be there or not.
func (w *worker) anyName() string {
	return []string{"", "sub/"}[w.random.IntN(2)] + fmt.Sprintf("f%d", w.random.IntN(mostNames))
}

// existing chooses a file that is there, and no symbolic link; "" if the name it tried is none.
func (w *worker) existing() (string, *file) {
	name := w.anyName()
	if f := w.files[name]; f != nil && f.to == "" {
		return name, f
	}
	return "", nil
}

func (w *worker) path(name string) string { return filepath.Join(w.dir, name) }

// bytes returns some that are new.
func (w *worker) bytes() []byte {
	data := make([]byte, 1+w.random.IntN(mostWrite))
	for i := 0; i+8 <= len(data); i += 8 {
		v := w.random.Uint64()
		for j := range 8 {
			data[i+j] = byte(v >> (8 * j))
		}
	}
	return data
}

// write writes at a random place of a file, which it makes if it is not there.
func (w *worker) write() error {
	name := w.anyName()
	f := w.files[name]
	if f != nil && f.to != "" {
		return errNothing
	}
	if f == nil {
		f = &file{mode: 0o644, names: 1}
	}
	data := w.bytes()
	at := w.random.IntN(mostBytes - len(data))
	opened, err := os.OpenFile(w.path(name), os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = opened.WriteAt(data, int64(at))
	if w.random.IntN(16) == 0 {
		err = errors.Join(err, opened.Sync())
	}
	if err := errors.Join(err, opened.Close()); err != nil {
		return err
	}
	f.put(data, at)
	w.files[name] = f
	return nil
}

// put is what writing data at a place does to a file.
func (f *file) put(data []byte, at int) {
	if need := at + len(data); need > len(f.data) {
		f.data = append(f.data, make([]byte, need-len(f.data))...)
	}
	copy(f.data[at:], data)
}

func (w *worker) appendTo() error {
	name, f := w.existing()
	data := w.bytes()
	if f == nil || len(f.data)+len(data) > mostBytes {
		return errNothing
	}
	opened, err := os.OpenFile(w.path(name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = opened.Write(data)
	f.put(data, len(f.data))
	return errors.Join(err, opened.Close())
}

// writeMapped writes a byte through a shared mapping of the file.
func (w *worker) writeMapped() error {
	name, f := w.existing()
	if f == nil || len(f.data) == 0 {
		return errNothing
	}
	opened, err := os.OpenFile(w.path(name), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer opened.Close()
	memory, err := syscall.Mmap(int(opened.Fd()), 0, len(f.data), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if errors.Is(err, syscall.ENODEV) {
		return errNothing // 9p without a cache
	}
	if err != nil {
		return err
	}
	at := w.random.IntN(len(f.data))
	memory[at]++
	f.data[at]++
	return syscall.Munmap(memory)
}

// read reads a part of a file.
func (w *worker) read() error {
	name, f := w.existing()
	if f == nil {
		return w.absent(w.anyName())
	}
	opened, err := os.Open(w.path(name))
	if err != nil {
		return err
	}
	defer opened.Close()
	at := w.random.IntN(len(f.data) + 1)
	got := make([]byte, min(mostWrite, len(f.data)-at))
	if _, err := opened.ReadAt(got, int64(at)); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return compare(name, got, f.data[at:at+len(got)], at)
}

func compare(name string, got, want []byte, from int) error {
	if bytes.Equal(got, want) {
		return nil
	}
	if len(got) != len(want) {
		return fmt.Errorf("%s has %d bytes from %d on, not %d", name, len(got), from, len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			return fmt.Errorf("byte %d of %s is %#x, not %#x", from+i, name, got[i], want[i])
		}
	}
	return nil
}

// absent checks that a name that should not be there is not.
func (w *worker) absent(name string) error {
	if w.files[name] != nil {
		return errNothing
	}
	if _, err := os.Lstat(w.path(name)); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(fmt.Errorf("%s should not be there", name), err)
	}
	return nil
}

func (w *worker) stat() error {
	name, f := w.existing()
	if f == nil {
		return w.absent(w.anyName())
	}
	return check(w.path(name), f)
}

// check compares a file's attributes with what they should be.
func check(path string, f *file) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	links := int(info.Sys().(*syscall.Stat_t).Nlink)
	if info.Size() != int64(len(f.data)) || info.Mode() != f.mode || links != f.names {
		return fmt.Errorf("%s has %d bytes, mode %v and %d names, not %d, %v and %d", path, info.Size(), info.Mode(), links, len(f.data), f.mode, f.names)
	}
	return nil
}

func (w *worker) truncate() error {
	name, f := w.existing()
	if f == nil {
		return errNothing
	}
	size := w.random.IntN(mostBytes)
	f.data = append(f.data, make([]byte, max(0, size-len(f.data)))...)[:size]
	return os.Truncate(w.path(name), int64(size))
}

func (w *worker) chmod() error {
	name, f := w.existing()
	if f == nil {
		return errNothing
	}
	f.mode = 0o600 | fs.FileMode(w.random.IntN(0o100))
	return os.Chmod(w.path(name), f.mode)
}

func (w *worker) rename() error {
	from, to := w.anyName(), w.anyName()
	f := w.files[from]
	if f == nil || f == w.files[to] {
		return errNothing // renaming a file to another name of its own does nothing
	}
	w.forget(to)
	w.files[to] = f
	delete(w.files, from)
	return os.Rename(w.path(from), w.path(to))
}

func (w *worker) forget(name string) {
	if f := w.files[name]; f != nil {
		f.names--
		delete(w.files, name)
	}
}

func (w *worker) link() error {
	from, f := w.existing()
	to := w.anyName()
	if f == nil || w.files[to] != nil {
		return errNothing
	}
	f.names++
	w.files[to] = f
	return os.Link(w.path(from), w.path(to))
}

func (w *worker) symlink() error {
	name := w.anyName()
	if w.files[name] != nil {
		return errNothing
	}
	w.files[name] = &file{to: w.anyName(), names: 1}
	return os.Symlink(w.files[name].to, w.path(name))
}

func (w *worker) remove() error {
	name := w.anyName()
	if w.files[name] == nil {
		return w.absent(name)
	}
	w.forget(name)
	return os.Remove(w.path(name))
}

// list compares the names in a directory.
func (w *worker) list() error {
	_, err := w.listIn(w.dir, []string{"", "sub"}[w.random.IntN(2)])
	return err
}

func (w *worker) listIn(dir, sub string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, sub))
	if err != nil {
		return nil, err
	}
	var got, want []string
	for _, e := range entries {
		if e.Name() != "sub" {
			got = append(got, filepath.Join(sub, e.Name()))
		}
	}
	for name := range w.files {
		if in := filepath.Dir(name); in == sub || in == "." && sub == "" {
			want = append(want, name)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		return nil, fmt.Errorf("%s has the names %v, not %v", filepath.Join(dir, sub), got, want)
	}
	return got, nil
}

// checkAll reads everything below a directory that is the worker's.
func (w *worker) checkAll(dir string) error {
	for _, sub := range []string{"", "sub"} {
		names, err := w.listIn(dir, sub)
		if err != nil {
			return err
		}
		for _, name := range names {
			if err := checkWhole(filepath.Join(dir, name), w.files[name]); err != nil {
				return err
			}
		}
	}
	return nil
}

func checkWhole(path string, f *file) error {
	if f.to != "" {
		to, err := os.Readlink(path)
		if err == nil && to != f.to {
			err = fmt.Errorf("%s points to %q, not %q", path, to, f.to)
		}
		return err
	}
	got, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return errors.Join(check(path, f), compare(path, got, f.data, 0))
}
