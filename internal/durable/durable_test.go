package durable_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/internal/durable/powercut"
)

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A power cut while a file is written leaves the old text or the new. After WriteFile has
// returned, the file has the new text.
func TestPowerCutsWhileAFileIsWritten(t *testing.T) {
	dir, machine := t.TempDir(), powercut.New(1)
	path := filepath.Join(dir, "record")
	var last []byte
	seen := map[bool]int{}
	for i := range 60 {
		next := bytes.Repeat([]byte{byte('a' + i%26)}, 100+37*i)
		machine.Before = func() {
			got := afterCut(t, machine, dir)
			if !bytes.Equal(got, last) && !bytes.Equal(got, next) {
				t.Fatalf("write %d: %d bytes are neither what was there nor what was to be", i, len(got))
			}
			seen[bytes.Equal(got, next)]++
		}
		noError(t, machine.Disk().WriteFile(path, next))
		for range 4 {
			if got := afterCut(t, machine, dir); !bytes.Equal(got, next) {
				t.Fatalf("write %d was not on disk: %d bytes", i, len(got))
			}
		}
		last = next
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("the power was cut after the rename %d times and before it %d times", seen[true], seen[false])
	}
}

// afterCut returns what a power cut leaves of the file; nil if the file is gone.
func afterCut(t *testing.T, machine *powercut.Computer, dir string) []byte {
	t.Helper()
	after := t.TempDir()
	noError(t, machine.Cut(dir, after))
	text, err := os.ReadFile(filepath.Join(after, "record"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return text
}

func TestAFileThatIsNotOnDiskIsNotThere(t *testing.T) {
	dir, broken := t.TempDir(), errors.New("input/output error")
	path := filepath.Join(dir, "record")
	noError(t, durable.WriteFile(path, []byte("old")))
	disk := durable.Disk{Sync: func(*os.File) error { return broken }}
	if err := disk.WriteFile(path, []byte("new")); !errors.Is(err, broken) {
		t.Errorf("error = %v", err)
	}
	wantFiles(t, dir, "record")
	if text, err := os.ReadFile(path); err != nil || string(text) != "old" {
		t.Errorf("the file says %q, error %v", text, err)
	}
}

func TestWhatACrashHasLeftIsReplaced(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "record")
	noError(t, os.WriteFile(path+".new", []byte("half of what a process wrote before it was killed"), 0o600))
	noError(t, durable.WriteFile(path, []byte("whole")))
	wantFiles(t, dir, "record")
	if text, err := os.ReadFile(path); err != nil || string(text) != "whole" {
		t.Errorf("the file says %q, error %v", text, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}
}

func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	noError(t, err)
	var got []string
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
}

func TestRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	unfinished := path + ".new"
	for name, files := range map[string][]string{"nothing": nil, "a file": {path}, "an unfinished one": {unfinished}, "both": {path, unfinished}} {
		for _, f := range files {
			noError(t, os.WriteFile(f, nil, 0o600))
		}
		noError(t, durable.Remove(path))
		if left, _ := filepath.Glob(path + "*"); len(left) != 0 {
			t.Errorf("%s: %v is left", name, left)
		}
	}
}

func TestMakeDirs(t *testing.T) {
	top := t.TempDir()
	noError(t, os.Mkdir(filepath.Join(top, "a"), 0o750))
	for range 2 {
		noError(t, durable.MakeDirs(filepath.Join(top, "a", "b", "c"), 0o777)) // a umask would remove bits of this mode
	}
	for path, want := range map[string]fs.FileMode{"a": 0o750, "a/b": 0o777, "a/b/c": 0o777} {
		if info, err := os.Stat(filepath.Join(top, path)); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v, error %v, want mode %o", path, info, err, want)
		}
	}
}

func TestSyncTree(t *testing.T) {
	dir := t.TempDir()
	noError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	noError(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
	noError(t, os.Mkdir(filepath.Join(dir, "dir"), 0o700))
	noError(t, durable.SyncTree(dir))
	if err := durable.SyncTree(filepath.Join(dir, "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("error = %v", err)
	}
}

func TestEverySpoiltBitOfALineIsNoticed(t *testing.T) {
	text := []byte(`{"vf":"0000:01:10.3"}`)
	line := durable.Line(text)
	if got, err := durable.ParseLine(line); err != nil || !bytes.Equal(got, text) {
		t.Fatalf("%q, error %v", got, err)
	}
	for bit := range 8 * len(line) {
		spoilt := bytes.Clone(line)
		spoilt[bit/8] ^= 1 << (bit % 8)
		if got, err := durable.ParseLine(spoilt); err == nil {
			t.Errorf("%q reads as %q", spoilt, got)
		}
	}
	for n := range line {
		if got, err := durable.ParseLine(line[:n]); err == nil {
			t.Errorf("%q reads as %q", line[:n], got)
		}
	}
	if got, err := durable.ParseLine(append(line, line...)); err == nil {
		t.Errorf("two lines read as %q", got)
	}
}
