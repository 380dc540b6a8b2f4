package sparse

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// random makes a file of size random bytes, without long runs of zeros.
func random(t *testing.T, size int) (path string) {
	t.Helper()
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	path = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = file.Close() })
	return file
}

// sizes returns a file's length and its size on disk, both in bytes.
func sizes(t *testing.T, file *os.File) (size, onDisk int64) {
	t.Helper()
	var s unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &s); err != nil {
		t.Fatal(err)
	}
	return s.Size, 512 * s.Blocks
}

func TestHolesStayHoles(t *testing.T) {
	const size, data = 1 << 30, 300 << 20
	path := random(t, 0)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err == nil {
		_, err = file.WriteAt([]byte("data"), data)
	}
	if err = errors.Join(err, file.Truncate(size)); err != nil {
		t.Fatal(err)
	}
	for name, move := range map[string]func(dst, src *os.File, at, n int64) (int64, error){"in the kernel": inKernel, "by hand": byHand} {
		t.Run(name, func(t *testing.T) {
			dst, err := os.Create(filepath.Join(t.TempDir(), "copy"))
			if err != nil {
				t.Fatal(err)
			}
			d := copying{ctx: t.Context(), dst: dst, src: file, report: func(int64) {}, move: move}
			if err := errors.Join(d.run(), dst.Truncate(size)); err != nil {
				t.Fatal(err)
			}
			if n, onDisk := sizes(t, dst); n != size || onDisk > 1<<20 || d.done > 1<<20 {
				t.Errorf("the copy has %d bytes, %d on disk, %d were copied", n, onDisk, d.done)
			}
			word := make([]byte, 4)
			if _, err := dst.ReadAt(word, data); err != nil || string(word) != "data" {
				t.Errorf("the copy has %q, error %v", word, err)
			}
		})
	}
}

// A file server that does not tell where holes are returns zeros for them.
func TestZerosBecomeHoles(t *testing.T) {
	path := random(t, 0)
	if err := os.WriteFile(path, make([]byte, 10<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	dst, err := os.Create(path + ".copy")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := byHand(dst, open(t, path), 0, 10<<20); n != 10<<20 || err != nil {
		t.Fatalf("%d bytes, error %v", n, err)
	}
	if _, onDisk := sizes(t, dst); onDisk > 0 {
		t.Errorf("%d bytes on disk", onDisk)
	}
}

func TestASourceThatShrinksIsNoticed(t *testing.T) {
	path := random(t, 1<<20)
	for name, move := range map[string]func(dst, src *os.File, at, n int64) (int64, error){"in the kernel": inKernel, "by hand": byHand} {
		dst, err := os.Create(path + ".copy")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := move(dst, open(t, path), 1<<20, 4096); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}

// Only some file systems share blocks: run this with TMPDIR on such a file system.
func TestBlocksAreShared(t *testing.T) {
	path := random(t, 1<<20)
	dst, err := os.Create(path + ".copy")
	if err != nil {
		t.Fatal(err)
	}
	if unix.IoctlFileClone(int(dst.Fd()), int(open(t, path).Fd())) != nil {
		t.Skip("the file system cannot share blocks: set TMPDIR to a directory on XFS or btrfs")
	}
	n, err := Copy(t.Context(), dst, open(t, path), func(int64) {})
	if n != 0 || err != nil {
		t.Errorf("%d bytes were copied, error %v", n, err)
	}
	want, err := os.ReadFile(path)
	got, gotErr := os.ReadFile(dst.Name())
	if err := errors.Join(err, gotErr); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the copy is another file, error %v", err)
	}
}
