package machine

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/slurm-v/slurm-v/guest"
)

// A pciBus is a kernel with some shared-memory devices behind a bridge, as much of
// it as sysfs shows.
type pciBus struct {
	*double
	t       *testing.T
	plugged []string // addresses on the bridge
	size    int64
	room    bool // behind the bridge, as it is laid out
	growing bool // the kernel makes room for what it finds when it lays the bridge out anew
	known   bool // the kernel has the bridge in its tree
	early   bool // the kernel shows memory that has no address yet
	orders  []string
}

const bridge = "sys/devices/pci0000:00/0000:00:02.0/0000:01:00.0"

func newPCIBus(t *testing.T, plugged ...string) *pciBus {
	t.Helper()
	b := &pciBus{double: newDouble(t, map[string]string{"sys/bus/pci/rescan": ""}), t: t, plugged: plugged, size: 1 << 20, growing: true}
	b.Machine.sysfs = b.order
	b.put("sys/devices/pci0000:00/0000:00:01.0", "0x1af4", "0x1041", "0x020000")
	b.putBridge()
	return b
}

func (b *pciBus) putBridge() {
	b.put(filepath.Dir(bridge), "0x1b36", "0x000c", "0x060400")
	b.put(bridge, "0x1b36", "0x000e", "0x060400")
	b.known = true
}

// put makes a device, with its link on the bus.
func (b *pciBus) put(dir, vendor, device, class string) {
	b.t.Helper()
	path := b.path(dir)
	if err := os.MkdirAll(path, 0o755); err != nil {
		b.t.Fatal(err)
	}
	for file, text := range map[string]string{"vendor": vendor, "device": device, "class": class, "enable": "0"} {
		b.write(dir, file, []byte(text+"\n"))
	}
	bus := b.path("sys/bus/pci/devices")
	if err := os.MkdirAll(bus, 0o755); err != nil {
		b.t.Fatal(err)
	}
	_ = os.Symlink(path, filepath.Join(bus, filepath.Base(path)))
}

// order is what a machine wants of the kernel.
func (b *pciBus) order(file, value string) error {
	b.orders = append(b.orders, strings.TrimPrefix(file, "/sys/")+"="+value)
	switch filepath.Base(file) {
	case "enable":
		return os.WriteFile(b.path(file), []byte(value), 0o644)
	case "remove":
		b.known, b.room = false, b.growing
		for _, link := range append([]string{filepath.Base(filepath.Dir(bridge)), filepath.Base(bridge)}, b.plugged...) {
			_ = os.Remove(b.path("sys/bus/pci/devices", link))
		}
		return os.RemoveAll(b.path(filepath.Dir(bridge)))
	case "rescan":
		if !b.known {
			b.putBridge()
		}
		for _, address := range b.plugged {
			b.putIVShmem(address)
		}
		return nil
	}
	return fmt.Errorf("no file %s", file)
}

func (b *pciBus) putIVShmem(address string) {
	dir := filepath.Join(bridge, address)
	if _, err := os.Stat(b.path(dir)); err == nil {
		return
	}
	b.put(dir, "0x1af4", "0x1110", "0x050000")
	first, last := 0, 0
	if b.room {
		first, last = 0xf800000000, 0xf800000000+int(b.size)-1
	}
	b.write(dir, "resource", fmt.Appendf(nil, "0x%016x 0x%016x 0x40200\n0x%016x 0x%016x 0x0\n0x%016x 0x%016x 0x14220c\n", 0xfcc00000, 0xfcc000ff, 0, 0, first, last))
	if b.room || b.early {
		b.write(dir, "resource2", make([]byte, b.size))
		b.write(dir, "resource2_wc", make([]byte, b.size))
	}
}

// write makes a file of a device.
func (b *pciBus) write(dir, file string, content []byte) {
	b.t.Helper()
	if err := os.WriteFile(b.path(dir, file), content, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

func (b *pciBus) links() (links []string) {
	entries, _ := os.ReadDir(b.path("dev/slurmv"))
	for _, e := range entries {
		target, err := os.Readlink(b.path("dev/slurmv", e.Name()))
		if err != nil {
			b.t.Error(err)
		}
		links = append(links, e.Name()+" "+target)
	}
	return links
}

func TestSharedMemoryIsTheOwnersAndHasNames(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away: run as root")
	}
	// Listed in another order than they are plugged in.
	b := newPCIBus(t, "0000:02:0a.0", "0000:02:02.0", "0000:02:01.0")
	for range 2 { // a setup may be repeated
		if err := (ivshmemDevices{&b.system}).offer(t.Context(), guest.IVShmem{Devices: 3, Size: 1 << 20}, alice); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"ivshmem0 /sys/bus/pci/devices/0000:02:01.0/resource2",
		"ivshmem1 /sys/bus/pci/devices/0000:02:02.0/resource2",
		"ivshmem2 /sys/bus/pci/devices/0000:02:0a.0/resource2",
	}
	if got := b.links(); !slices.Equal(got, want) {
		t.Errorf("links = %q, want %q", got, want)
	}
	for _, file := range []string{"resource2", "resource2_wc"} {
		info, err := os.Stat(b.path(bridge, "0000:02:02.0", file))
		if err != nil {
			t.Fatal(err)
		}
		if owner := info.Sys().(*syscall.Stat_t); owner.Uid != alice.UID || owner.Gid != alice.GID || info.Mode().Perm() != 0o600 {
			t.Errorf("%s is %d:%d's, %v", file, owner.Uid, owner.Gid, info.Mode())
		}
	}
	orders := []string{
		"bus/pci/rescan=1",                                             // finds them
		"devices/pci0000:00/0000:00:02.0/remove=1", "bus/pci/rescan=1", // makes room, once for all
		"bus/pci/devices/0000:02:01.0/enable=1", "bus/pci/devices/0000:02:02.0/enable=1", "bus/pci/devices/0000:02:0a.0/enable=1",
	}
	if !slices.Equal(b.orders, orders) {
		t.Errorf("the kernel was told %q, want %q", b.orders, orders)
	}
}

func TestNoSharedMemoryAsksTheKernelNothing(t *testing.T) {
	b := newPCIBus(t)
	if err := (ivshmemDevices{&b.system}).offer(t.Context(), guest.IVShmem{}, alice); err != nil || b.orders != nil || b.links() != nil {
		t.Errorf("%v, the kernel was told %q, links %q", err, b.orders, b.links())
	}
}

func TestSharedMemoryThatDoesNotCome(t *testing.T) {
	tests := map[string]struct {
		change func(*pciBus)
		want   string
		spared bool // the port is left as it is
	}{
		"a device is missing":            {change: func(b *pciBus) { b.plugged = b.plugged[:1] }, want: "1 shared-memory devices (IVShmem) instead of 2, and room for 1"},
		"a device too many":              {change: func(b *pciBus) { b.plugged = append(b.plugged, "0000:02:03.0") }, want: "3 shared-memory devices (IVShmem) instead of 2"},
		"no room in the address space":   {change: func(b *pciBus) { b.growing = false }, want: "instead of 2, and room for 0"},
		"no room, but the memory's file": {change: func(b *pciBus) { b.growing, b.early = false, true }, want: "instead of 2, and room for 0"},
		"devices of another size":        {change: func(b *pciBus) { b.size = 1 << 16 }, want: "and room for 0"},
		"something else behind the port": {change: func(b *pciBus) { b.put(bridge+"/0000:02:1f.0", "0x1af4", "0x1042", "0x010000") }, want: "and room for 0", spared: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newPCIBus(t, "0000:02:01.0", "0000:02:02.0")
			tt.change(b)
			synctest.Test(t, func(t *testing.T) {
				err := (ivshmemDevices{&b.system}).offer(t.Context(), guest.IVShmem{Devices: 2, Size: 1 << 20}, alice)
				if err == nil || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("error = %v, want %q", err, tt.want)
				}
			})
			if b.links() != nil {
				t.Errorf("links %q", b.links())
			}
			if removed := slices.ContainsFunc(b.orders, func(o string) bool { return strings.HasSuffix(o, "/remove=1") }); removed == tt.spared {
				t.Errorf("the kernel was told %q", b.orders)
			}
		})
	}
}
