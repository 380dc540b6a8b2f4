package ivshmem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const hugePage = 2 << 20

func TestHugePagesAreThoseThatUsersReach(t *testing.T) {
	open, closed := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Chmod(open, 0o755), os.Chmod(closed, 0o700)); err != nil {
		t.Fatal(err)
	}
	mount := func(dir, options string) string {
		return "none " + dir + " hugetlbfs rw,relatime," + options + " 0 0\n"
	}
	const others = "tmpfs /dev/shm tmpfs rw,pagesize=2M 0 0\nhalf a line\n"
	tests := map[string]struct {
		mounts    string
		page      int64
		want, err string
	}{
		"the right size":    {others + mount("/1g", "pagesize=1024M") + mount(open, "pagesize=2M"), 2 << 20, open, ""},
		"as 1024M":          {mount(open, "pagesize=1024M"), 1 << 30, open, ""},
		"none":              {others, 2 << 20, "", "no hugetlbfs with pages of 2M is mounted"},
		"of another size":   {mount(open, "pagesize=2M"), 1 << 30, "", "no hugetlbfs with pages of 1G is mounted"},
		"closed":            {mount(closed, "pagesize=2M"), 2 << 20, "", closed + " is not open to users"},
		"closed and open":   {mount(closed, "pagesize=2M") + mount(open, "pagesize=2M,size=1G"), 2 << 20, open, ""},
		"somewhere without": {mount("/nowhere", "pagesize=2M"), 2 << 20, "", "/nowhere is not open"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := HugePages("/", tt.mounts, tt.page)
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%q, %v; want %q, %q", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestRegionIsNotSmallerThanItsPages(t *testing.T) {
	r, err := Region{Size: 1 << 20}.OnHugePages(hugePage)
	if r.Huge != "" || err == nil || err.Error() != "1M is less than a huge page of 2M" {
		t.Errorf("%+v, %v", r, err)
	}
}

// hugeRegion is to be in a directory that is not /dev/shm.
func hugeRegion(t *testing.T, n Regions) Region {
	t.Helper()
	r := n.New(job, 0, size)
	r.Huge = someNode(t).dir
	return r
}

// left lists the files that exist of a region.
func left(n Regions, r Region) (files []string) {
	for _, path := range []string{n.path(r), r.hugeFile()} {
		if _, err := os.Lstat(path); err == nil {
			files = append(files, path)
		}
	}
	return files
}

func TestRemoveFindsWhateverWasMade(t *testing.T) {
	put := func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) }
	tests := map[string]func(n Regions, r Region) error{
		"nothing":     func(Regions, Region) error { return nil },
		"no link yet": func(_ Regions, r Region) error { return put(r.hugeFile()) },
		"the link, too": func(n Regions, r Region) error {
			return errors.Join(put(r.hugeFile()), os.Symlink(r.hugeFile(), n.path(r)))
		},
		"ordinary in its stead": func(n Regions, r Region) error { return put(n.path(r)) },
		"all of it": func(n Regions, r Region) error {
			m, err := n.Create(context.Background(), r, me, anyNode)
			return errors.Join(err, m.Close())
		},
	}
	for name, make := range tests {
		t.Run(name, func(t *testing.T) {
			n := someNode(t)
			r := hugeRegion(t, n)
			if err := make(n, r); err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time it is gone
				if err := n.Remove(t.Context(), r, me.UID); err != nil {
					t.Error(err)
				}
			}
			if files := left(n, r); files != nil {
				t.Errorf("left: %v", files)
			}
		})
	}
}

// A link that leads elsewhere is not a region.
func TestRemoveFollowsNoOtherLink(t *testing.T) {
	n := someNode(t)
	r := hugeRegion(t, n)
	other := filepath.Join(n.dir, "other")
	if err := errors.Join(os.WriteFile(other, []byte("secret"), 0o600), os.Symlink(other, n.path(r)), os.WriteFile(r.hugeFile(), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := n.Remove(t.Context(), r, me.UID); !errors.Is(err, ErrForeign) {
		t.Errorf("error = %v, want %v", err, ErrForeign)
	}
	if text, _ := os.ReadFile(other); string(text) != "secret" {
		t.Errorf("the other file is now %q", text)
	}
	if _, err := os.Lstat(r.hugeFile()); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the memory itself is still there")
	}
}

// onHugePages makes a region on a new hugetlbfs of at most pages pages, and calls run
// with it. If run cannot test anything, it returns the reason.
func onHugePages(t *testing.T, pages int, run func(n Regions, r Region, m *RegionFile) (skip string)) {
	t.Helper()
	n := someNode(t)
	r := hugeRegion(t, n)
	skip := ""
	inOwnMounts(t, func() {
		if err := unix.Mount("none", r.Huge, "hugetlbfs", 0, fmt.Sprintf("pagesize=2M,size=%d", pages*hugePage)); err != nil {
			skip = "no hugetlbfs: " + err.Error()
			return
		}
		m, err := n.Create(context.Background(), r, me, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer m.Close()
		skip = run(n, r, m)
	})
	if skip != "" {
		t.Skip(skip)
	}
}

func TestTooFewHugePages(t *testing.T) {
	onHugePages(t, 1, func(n Regions, r Region, m *RegionFile) string {
		if m.Ordinary == nil || !strings.Contains(m.Ordinary.Error(), "too few free pages for 4M") {
			t.Errorf("reason: %v", m.Ordinary)
		}
		if files := left(n, r); len(files) != 1 || files[0] != n.path(r) || stat(t, n.path(r)).Mode != unix.S_IFREG|0o600 {
			t.Errorf("made: %v", files)
		}
		return ""
	})
}

func TestRegionOfHugePages(t *testing.T) {
	onHugePages(t, 2, func(n Regions, r Region, m *RegionFile) string {
		if m.Ordinary != nil {
			return "the machine has no huge pages free: sysctl vm.nr_hugepages=2"
		}
		checkHugeRegion(t, n, r, m)
		return ""
	})
}

func checkHugeRegion(t *testing.T, n Regions, r Region, m *RegionFile) {
	t.Helper()
	got := stat(t, r.hugeFile())
	if got.Mode != unix.S_IFREG|0o600 || got.Uid != me.UID || got.Size != size || got.Blksize != hugePage {
		t.Errorf("mode %o, owner %d, %d bytes in blocks of %d", got.Mode, got.Uid, got.Size, got.Blksize)
	}
	memory := mapped(t, n, r) // through the link, as QEMU maps it
	if !allZero(memory) {
		t.Error("not zero")
	}
	memory[0], memory[size-1] = 1, 1
	if err := m.Wipe(t.Context()); err != nil || !allZero(memory) {
		t.Errorf("wiped, and not zero; error %v", err)
	}
	memory[0] = 1
	if err := m.file.Truncate(hugePage); err != nil {
		t.Error(err)
	}
	if err := m.zero(t.Context(), 0, size); err != nil || memory[0] != 0 {
		t.Errorf("what the owner has cut off: error %v, first byte %d", err, memory[0])
	}
	if found, err := n.List(); err != nil || len(found) != 1 || found[0].Region.Huge != r.Huge {
		t.Errorf("found %+v, %v", found, err)
	}
	if err := n.Remove(t.Context(), r, me.UID); err != nil || left(n, r) != nil {
		t.Errorf("error %v, left: %v", err, left(n, r))
	}
}
