package ivshmem

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/owner"
)

// aRegionOf makes, as root, a region that belongs to a user.
func aRegionOf(t *testing.T, n Regions, as owner.IDs) Region {
	t.Helper()
	if me.UID != 0 {
		t.Skip("run as root: the region is somebody else's")
	}
	r, m := make1(t, n, 0)
	if err := errors.Join(m.giveTo(as), m.Close()); err != nil {
		t.Fatal(err)
	}
	return r
}

// A process that has a lease on a file, or runs it, keeps others from opening the file. A
// reclaim must neither wait for that process nor fail because of it.
func TestRemoveOfWhatAProcessKeeps(t *testing.T) {
	tests := map[string]func(t *testing.T, path string){
		"by nothing": func(*testing.T, string) {},
		"by a lease": func(t *testing.T, path string) {
			file, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { file.Close() })
			if _, err := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); err != nil {
				t.Fatal(err)
			}
		},
		"by running it": func(t *testing.T, path string) {
			copied, err := os.ReadFile("/bin/sleep")
			if err := errors.Join(err, os.WriteFile(path, copied, 0o700), os.Chmod(path, 0o700)); err != nil {
				t.Fatal(err)
			}
			c := exec.Command(path, "60")
			if err := c.Start(); err != nil {
				t.Skip("/dev/shm is mounted noexec: ", err)
			}
			t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
			if _, err := os.OpenFile(path, os.O_RDWR, 0); !errors.Is(err, unix.ETXTBSY) {
				t.Errorf("opened: %v, want %v", err, unix.ETXTBSY)
			}
		},
	}
	for name, keep := range tests {
		t.Run(name, func(t *testing.T) {
			n := someNode(t)
			r := aRegionOf(t, n, owner.IDs{UID: nobody, GID: nobody})
			keep(t, n.path(r))
			if err := n.Remove(t.Context(), r, nobody); err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(n.path(r)); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it is still there: %v", err)
			}
		})
	}
}

// A file with a lease on it is removed by its name alone, so it must be the name of a
// region.
func TestRemoveOfAKeptFileOfSomebodyElse(t *testing.T) {
	n := someNode(t)
	r := aRegionOf(t, n, owner.IDs{UID: nobody, GID: nobody})
	if err := removeKept(n.path(r), 12345); !errors.Is(err, ErrForeign) {
		t.Errorf("error = %v, want %v", err, ErrForeign)
	}
	if err := removeKept(n.path(r), nobody); err != nil {
		t.Errorf("its owner's: %v", err)
	}
}

// A file can be as large as the file system allows, and every hole in a file of huge
// pages counts as data. Wiping is limited to the region's size, or to what has memory.
func TestWipeIsBounded(t *testing.T) {
	const end = 1 << 40
	for name, size := range map[string]int64{"the size is known": size, "it is not": 0} {
		t.Run(name, func(t *testing.T) {
			n := someNode(t)
			r := n.New(job, 0, size)
			file, err := os.Create(n.path(r))
			if err == nil {
				_, err = file.WriteAt([]byte{1}, 0)
			}
			if err == nil {
				_, err = file.WriteAt([]byte{1}, end)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			m, err := openRegion(n.path(r), me.UID, size)
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if m.size >= end {
				t.Errorf("%d bytes count", m.size)
			}
			if err := m.Wipe(t.Context()); err != nil {
				t.Fatal(err)
			}
			first, last := make([]byte, 1), make([]byte, 1)
			_, err1 := file.ReadAt(first, 0)
			_, err2 := file.ReadAt(last, end)
			if err1 != nil || err2 != nil || first[0] != 0 || last[0] != 1 {
				t.Errorf("wiped: the first byte is %d, the one far behind the end %d; errors %v, %v", first[0], last[0], err1, err2)
			}
		})
	}
}

func TestListOfVeryMany(t *testing.T) {
	n := someNode(t)
	for range maxFound + 2000 {
		path := filepath.Join(n.dir, n.New(job, 0, size).Name)
		fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		syscall.Close(fd)
	}
	found, err := n.List()
	if err != nil || len(found) < maxFound || len(found) > maxFound+1024 {
		t.Errorf("%d are listed, error %v", len(found), err)
	}
}

// fusermount lets users mount on their own files. The wipe must reach the region, not what is mounted on it, and the
// name must go.
func TestRemoveOfWhatTheOwnerHasMountedOn(t *testing.T) {
	n := someNode(t)
	r := aRegionOf(t, n, owner.IDs{UID: nobody, GID: nobody})
	other := fileOfTheOwner(t)
	mustMountOn(t, n, r, other)
	mustMountOn(t, n, r, other)
	checkRemovalBeside(t, n, r, other)
}

// The owner goes on mounting while root removes the region.
func TestRemoveOfWhatTheOwnerMountsAgainAndAgain(t *testing.T) {
	n := someNode(t)
	other := fileOfTheOwner(t)
	for range 20 {
		r := aRegionOf(t, n, owner.IDs{UID: nobody, GID: nobody})
		mustMountOn(t, n, r, other)
		var stop atomic.Bool
		var mounts sync.WaitGroup
		mounts.Go(func() {
			for !stop.Load() && mountOn(n, r, other) == nil {
			}
		})
		checkRemovalBeside(t, n, r, other)
		stop.Store(true)
		mounts.Wait()
	}
}

func fileOfTheOwner(t *testing.T) string {
	t.Helper()
	other := filepath.Join(t.TempDir(), "other")
	if err := os.WriteFile(other, []byte("other"), 0o600); err != nil {
		t.Fatal(err)
	}
	return other
}

func mountOn(n Regions, r Region, other string) error {
	return unix.Mount(other, n.path(r), "", unix.MS_BIND, "")
}

func mustMountOn(t *testing.T, n Regions, r Region, other string) {
	t.Helper()
	if err := mountOn(n, r, other); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for unix.Unmount(n.path(r), unix.MNT_DETACH) == nil { // as often as the owner has mounted
		}
	})
}

// checkRemovalBeside removes a region, on which the other file is mounted.
func checkRemovalBeside(t *testing.T, n Regions, r Region, other string) {
	t.Helper()
	if err := n.Remove(t.Context(), r, nobody); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(n.path(r)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the region is still there: %v", err)
	}
	if text, _ := os.ReadFile(other); string(text) != "other" {
		t.Errorf("what was mounted is now %q", text)
	}
}
