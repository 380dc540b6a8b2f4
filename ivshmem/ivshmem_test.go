package ivshmem

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/journal"
)

var (
	job   = journal.ID{Job: 42, Restart: 1}
	other = journal.ID{Job: 43}
)

const (
	size    = 4 << 20
	nobody  = 65534
	anyNode = -1
)

// me owns the regions of the tests, since only root can give files away.
var me = owner.IDs{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}

// someNode returns a node whose regions are in a new directory of /dev/shm.
func someNode(t *testing.T) Regions {
	t.Helper()
	dir, err := os.MkdirTemp(Dir, "slurmv-test-")
	if err != nil {
		t.Skip("no /dev/shm to write to: ", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return Regions{dir, nodeHash("/state", "n1")}
}

func (rs Regions) path(r Region) string { return filepath.Join(rs.dir, r.Name) }

func make1(t *testing.T, n Regions, index int) (Region, *RegionFile) {
	t.Helper()
	r := n.New(job, index, size)
	m, err := n.Create(t.Context(), r, me, anyNode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return r, m
}

// mapped maps the region, as a VM sees it.
func mapped(t *testing.T, n Regions, r Region) []byte {
	t.Helper()
	file, err := os.OpenFile(n.path(r), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	memory, err := unix.Mmap(int(file.Fd()), 0, int(r.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(memory) })
	return memory
}

func allZero(memory []byte) bool { return len(bytes.Trim(memory, "\x00")) == 0 }

func stat(t *testing.T, path string) *syscall.Stat_t {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t)
}

// A reserved region has a size, an owner and no memory, and is removed like all others.
func TestReserve(t *testing.T) {
	n := someNode(t)
	r := n.New(job, 0, 1<<40)
	if err := n.Reserve(r, me); err != nil {
		t.Fatal(err)
	}
	if got := stat(t, n.path(r)); got.Size != r.Size || got.Blocks != 0 || got.Mode != unix.S_IFREG|0o600 || got.Uid != me.UID {
		t.Errorf("%d bytes in %d blocks, mode %o, owner %d", got.Size, got.Blocks, got.Mode, got.Uid)
	}
	if err := n.Reserve(r, me); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a second time: %v", err)
	}
	if err := n.Remove(t.Context(), r, me.UID); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(n.path(r)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("removed: %v", err)
	}
}

func TestNamesTellApart(t *testing.T) {
	here := Open("/var/lib/slurmv/n1", "n1")
	first := here.New(job, 0, size).Name
	tests := map[string]string{
		"the same region once more":         here.New(job, 0, size).Name,
		"another device":                    here.New(job, 1, size).Name,
		"another job":                       here.New(other, 0, size).Name,
		"another restart":                   here.New(journal.ID{Job: 42}, 0, size).Name,
		"another node of the host":          Open("/var/lib/slurmv/n1", "n2").New(job, 0, size).Name,
		"a node of another cluster":         Open("/srv/other/n1", "n1").New(job, 0, size).Name,
		"a node and a directory that blend": Open("/var/lib/slurmv/n", "1n1").New(job, 0, size).Name,
	}
	for name, got := range tests {
		if got == first {
			t.Errorf("%s has the same name: %s", name, got)
		}
	}
	// Leftovers are found by the name without its random part.
	said, ok := parseName(first)
	if want := (parts{here.node, job, 0}); !ok || said != want {
		t.Errorf("%s is read as %+v, want %+v", first, said, want)
	}
	for _, name := range []string{"", "slurmv-", strings.ToUpper(first), first + "x", "x" + first, first[:len(first)-1], strings.Replace(first, "42.1", "042.1", 1)} {
		if _, ok := parseName(name); ok {
			t.Errorf("%q is taken for a region", name)
		}
	}
}

func TestRegionIsTheOwnersAloneAndAllThere(t *testing.T) {
	n := someNode(t)
	as := me
	if as.UID == 0 {
		as = owner.IDs{UID: nobody, GID: nobody}
	}
	r := n.New(job, 3, size)
	m, err := n.Create(t.Context(), r, as, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	got := stat(t, n.path(r))
	if got.Mode != unix.S_IFREG|0o600 || got.Uid != as.UID || got.Gid != as.GID || got.Size != size {
		t.Errorf("mode %o, owner %d:%d, %d bytes", got.Mode, got.Uid, got.Gid, got.Size)
	}
	if got.Blocks*512 < size {
		t.Errorf("only %d bytes of memory are taken", got.Blocks*512)
	}
	if !allZero(mapped(t, n, r)) {
		t.Error("not zero")
	}
}

// A file that is in the place of a region is foreign and must stay.
func TestCreateTakesNothingThatIsThere(t *testing.T) {
	tests := map[string]func(path string) error{
		"a file":            func(path string) error { return os.WriteFile(path, []byte("x"), 0o666) },
		"a link to nowhere": func(path string) error { return os.Symlink(path+"-target", path) },
		"a link to a file":  func(path string) error { return os.Symlink("/etc/hostname", path) },
		"a directory":       func(path string) error { return os.Mkdir(path, 0o777) },
		"a second name of a file": func(path string) error {
			return errors.Join(os.WriteFile(path+"-1", nil, 0o666), os.Link(path+"-1", path))
		},
	}
	for name, put := range tests {
		t.Run(name, func(t *testing.T) {
			n := someNode(t)
			r := n.New(job, 0, size)
			if err := put(n.path(r)); err != nil {
				t.Fatal(err)
			}
			before := *stat(t, n.path(r))
			if _, err := n.Create(t.Context(), r, me, anyNode); !errors.Is(err, fs.ErrExist) {
				t.Errorf("error = %v, want %v", err, fs.ErrExist)
			}
			if after := *stat(t, n.path(r)); after.Ino != before.Ino || after.Size != before.Size || after.Uid != before.Uid {
				t.Error("it was changed")
			}
			if _, err := os.Lstat(n.path(r) + "-target"); err == nil {
				t.Error("the link was followed")
			}
		})
	}
}

func TestWipeLeavesZerosAndTheMemory(t *testing.T) {
	n := someNode(t)
	r, m := make1(t, n, 0)
	memory := mapped(t, n, r)
	for _, at := range []int{0, 4095, 4096, size/2 + 1, size - 1} {
		memory[at] = 0xa5
	}
	before := stat(t, n.path(r)).Blocks
	if err := m.Wipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !allZero(memory) {
		t.Error("what a VM wrote is still there")
	}
	if after := stat(t, n.path(r)).Blocks; after != before {
		t.Errorf("%d blocks instead of %d", after, before)
	}
	if err := m.Wipe(t.Context()); err != nil {
		t.Errorf("wiped once more: %v", err)
	}
}

func TestWipeIsOfTheFileWhateverItsName(t *testing.T) {
	n := someNode(t)
	r, m := make1(t, n, 0)
	memory := mapped(t, n, r)
	memory[0] = 1
	if err := os.Remove(n.path(r)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.path(r), []byte("another"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.Wipe(t.Context()); err != nil || memory[0] != 0 {
		t.Errorf("error %v, first byte %d", err, memory[0])
	}
	if text, _ := os.ReadFile(n.path(r)); string(text) != "another" {
		t.Errorf("the other file is now %q", text)
	}
}

func TestRemoveLeavesNothingToSomebodyWhoHasItOpen(t *testing.T) {
	n := someNode(t)
	r, m := make1(t, n, 0)
	as := me
	if me.UID == 0 { // a file of root may have only one name
		as = owner.IDs{UID: nobody, GID: nobody}
	}
	mapped(t, n, r)[0] = 1
	if err := errors.Join(m.giveTo(as), os.Link(n.path(r), n.path(r)+"-kept")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time it is gone
		if err := n.Remove(t.Context(), r, as.UID); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(n.path(r)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the region is still there: %v", err)
	}
	if kept := stat(t, n.path(r)+"-kept"); kept.Size != 0 || kept.Blocks != 0 {
		t.Errorf("%d bytes are kept under another name", kept.Size)
	}
}

func TestRemoveRefusesForeignFiles(t *testing.T) {
	n := someNode(t)
	secret := filepath.Join(n.dir, "secret")
	tests := map[string]struct {
		put  func(path string) error
		uid  uint32
		root bool
	}{
		"a link":          {put: func(path string) error { return os.Symlink(secret, path) }},
		"a directory":     {put: func(path string) error { return os.Mkdir(path, 0o700) }},
		"a pipe":          {put: func(path string) error { return unix.Mkfifo(path, 0o600) }},
		"a socket":        {put: func(path string) error { _, err := net.Listen("unix", path); return err }},
		"another owner's": {put: func(path string) error { return os.Link(secret, path) }, uid: 12345, root: true},
		"a second name of root's": {put: func(path string) error {
			return errors.Join(os.Chown(secret, 0, 0), os.Link(secret, path))
		}, uid: 12345, root: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.root && me.UID != 0 {
				t.Skip("needs root")
			}
			_ = os.Remove(secret)
			if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
				t.Fatal(err)
			}
			if tt.root {
				if err := os.Chown(secret, nobody, nobody); err != nil {
					t.Fatal(err)
				}
			}
			r := n.New(job, 0, size)
			if err := tt.put(n.path(r)); err != nil {
				t.Fatal(err)
			}
			if err := n.Remove(t.Context(), r, tt.uid); !errors.Is(err, ErrForeign) {
				t.Errorf("error = %v, want %v", err, ErrForeign)
			}
			if _, err := os.Lstat(n.path(r)); err != nil {
				t.Errorf("it was removed: %v", err)
			}
			if text, _ := os.ReadFile(secret); string(text) != "secret" {
				t.Errorf("the file behind it is now %q", text)
			}
		})
	}
	_ = os.Remove(secret)
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil { // the user owns this file, so only its name is wrong
		t.Fatal(err)
	}
	if err := n.Remove(t.Context(), Region{Name: "secret"}, me.UID); !errors.Is(err, ErrForeign) {
		t.Errorf("by another name: error = %v, want %v", err, ErrForeign)
	}
}

// A crash can come before a region has got its owner, or its memory.
func TestRemoveOfHalfMadeRegion(t *testing.T) {
	n := someNode(t)
	r := n.New(job, 0, size)
	if err := os.WriteFile(n.path(r), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	uid := uint32(nobody)
	if me.UID != 0 {
		uid = me.UID
	}
	if err := n.Remove(t.Context(), r, uid); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(n.dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

func TestListFindsLeftoversOfThisNodeOnly(t *testing.T) {
	n := someNode(t)
	first, _ := make1(t, n, 0)
	second, _ := make1(t, n, 1)
	elsewhere := Regions{n.dir, nodeHash("/state", "n2")}
	make1(t, elsewhere, 0)
	for name, put := range map[string]func(path string) error{
		"a link": func(path string) error { return os.Symlink(n.path(first), path) },
		"a second name": func(path string) error {
			return errors.Join(os.WriteFile(path+"-1", nil, 0o600), os.Link(path+"-1", path))
		},
		"open to all": func(path string) error { return errors.Join(os.WriteFile(path, nil, 0o600), os.Chmod(path, 0o666)) },
		"a directory": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		if err := put(n.path(n.New(other, 0, size))); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	got, err := n.List()
	want := []Found{{Region{Name: first.Name, Index: first.Index}, job, me.UID}, {Region{Name: second.Name, Index: second.Index}, job, me.UID}}
	slices.SortFunc(want, func(a, b Found) int { return strings.Compare(a.Region.Name, b.Region.Name) })
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, list differs (-want +got):\n%s", err, diff)
	}
	if got, err := (Regions{n.dir + "/none", n.node}).List(); got != nil || err != nil {
		t.Errorf("without a directory: %v, %v", got, err)
	}
}

func TestCreateSaysThatThereIsNoRoom(t *testing.T) {
	n := someNode(t)
	inOwnMounts(t, func() {
		if err := unix.Mount("shm", n.dir, "tmpfs", 0, "size=2m"); err != nil {
			t.Error(err)
			return
		}
		_, err := n.Create(context.Background(), n.New(job, 0, size), me, anyNode)
		if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "too small for another 4M; it holds 2M in all") {
			t.Errorf("error = %v", err)
		}
	})
}

// inOwnMounts calls run in a mount namespace of its own.
func inOwnMounts(t *testing.T, run func()) {
	t.Helper()
	done := make(chan string)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		defer close(done)
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			done <- "no mount namespace of its own; run as root: " + err.Error()
			return
		}
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			done <- err.Error()
			return
		}
		run()
	}()
	if why, failed := <-done; failed {
		t.Skip(why)
	}
}

func TestWhoeverCancelsIsHeard(t *testing.T) {
	n := someNode(t)
	r, m := make1(t, n, 0)
	mapped(t, n, r)[0] = 1
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := n.Create(ctx, n.New(job, 1, size), me, anyNode); !errors.Is(err, context.Canceled) {
		t.Errorf("create: error = %v", err)
	}
	if err := m.Wipe(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("wipe: error = %v", err)
	}
	if err := n.Remove(ctx, r, me.UID); !errors.Is(err, context.Canceled) {
		t.Errorf("remove: error = %v", err)
	}
	if _, err := os.Lstat(n.path(r)); err != nil {
		t.Errorf("a region that is not wiped was removed: %v", err)
	}
}

// The test asks for the last node: without a policy, the kernel takes memory there last.
func TestMemoryIsOfTheNUMANode(t *testing.T) {
	text, err := os.ReadFile("/sys/devices/system/node/has_memory")
	if err != nil {
		t.Skip("the kernel has no NUMA nodes: ", err)
	}
	last := strings.TrimSpace(string(text))
	numa, err := strconv.Atoi(last[strings.LastIndexAny(last, ",-")+1:])
	if err != nil {
		t.Fatal(err)
	}
	n := someNode(t)
	r := n.New(job, 0, size)
	m, err := n.Create(t.Context(), r, me, numa)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	memory := mapped(t, n, r)
	const nodeOfAddress = 1 | 2
	if got, _ := memoryPolicy(t, unsafe.Pointer(&memory[size-1]), nodeOfAddress); got != numa {
		t.Errorf("the memory is of node %d, want %d", got, numa)
	}
	_ = onNode(numa, func() error {
		const preferred = 1
		if mode, nodes := memoryPolicy(t, nil, 0); mode != preferred || nodes != 1<<numa {
			t.Errorf("it is made with mode %d, nodes %b; want mode %d (preferred) and node %d", mode, nodes, preferred, numa)
		}
		return nil
	})
	if mode, _ := memoryPolicy(t, nil, 0); mode != 0 {
		t.Errorf("the policy of others is now %d", mode)
	}
}

// memoryPolicy is get_mempolicy.
func memoryPolicy(t *testing.T, address unsafe.Pointer, flags uintptr) (mode int, nodes uint64) {
	t.Helper()
	var is int32
	var all [16]uint64
	_, _, errno := unix.Syscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&is)), uintptr(unsafe.Pointer(&all[0])),
		uintptr(len(all)*64), uintptr(address), flags, 0)
	if errno == unix.ENOSYS || errno == unix.EPERM {
		t.Skip("the kernel has no NUMA policies: ", errno)
	}
	if errno != 0 {
		t.Errorf("get_mempolicy: %v", errno)
	}
	return int(is), all[0]
}

// The owner can shorten a region at any time. Wipe skips the part that is gone, and the
// agent does not die of SIGBUS.
func TestWipeOfWhatTheOwnerHasCutOff(t *testing.T) {
	n := someNode(t)
	r, m := make1(t, n, 0)
	memory := mapped(t, n, r)
	memory[0] = 1
	if err := m.file.Truncate(size / 2); err != nil {
		t.Fatal(err)
	}
	if err := m.zero(t.Context(), 0, size); err != nil || memory[0] != 0 {
		t.Errorf("error %v, first byte %d", err, memory[0])
	}
}
