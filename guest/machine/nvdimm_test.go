package machine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/guest"
)

// putDAX makes a device to map in a double's kernel, as the kernel shows it.
func putDAX(t *testing.T, d *double, name, uuid, size string) {
	t.Helper()
	dir := d.path("sys/devices/ndbus0/region" + name + "/dax/" + name)
	for path, text := range map[string]string{filepath.Join(dir, "size"): size, filepath.Join(filepath.Dir(dir), "uuid"): uuid, d.path("dev", name): ""} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	bus := d.path("sys/bus/dax/devices")
	if err := os.MkdirAll(bus, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, filepath.Join(bus, name)); err != nil {
		t.Fatal(err)
	}
}

const uuidOfNVDIMM = "736c7572-6d76-2d69-7673-686d656d000"

// The header says which device it is, not the order in which the kernel finds them. Foreign ones are left alone.
func TestNVDIMMsHaveTheNumbersOfTheirHeaders(t *testing.T) {
	d := newDouble(t, map[string]string{})
	putDAX(t, d, "dax0.0", uuidOfNVDIMM+"1", "4194304")
	putDAX(t, d, "dax1.0", uuidOfNVDIMM+"0", "4194304")
	putDAX(t, d, "dax2.0", "00112233-4455-6677-8899-aabbccddeeff", "4194304")
	want := guest.IVShmem{Devices: 2, Size: 4 << 20, NVDIMM: true}
	if err := (ivshmemDevices{&d.Machine.system}).offer(t.Context(), want, guest.User{UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}); err != nil {
		t.Fatal(err)
	}
	for name, device := range map[string]string{"ivshmem0": "/dev/dax1.0", "ivshmem1": "/dev/dax0.0"} {
		if got, err := os.Readlink(d.path("dev/slurmv", name)); got != device {
			t.Errorf("%s is %s (%v), want %s", name, got, err, device)
		}
		if info, err := os.Stat(d.path(device)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", device, info, err)
		}
	}
	if info, err := os.Stat(d.path("dev/dax2.0")); err != nil || info.Mode().Perm() != 0o644 {
		t.Errorf("the foreign one: %v, %v", info, err)
	}
}

func TestExpectNVDIMMsNamesTheMissingDriver(t *testing.T) {
	d := newDouble(t, map[string]string{"sys/bus/nd/drivers/nd_pmem/bind": "", "sys/bus/nd/drivers/dax_pmem/bind": ""})
	err := d.Machine.ExpectNVDIMMs(t.Context())
	if err == nil || !strings.HasSuffix(err.Error(), "the image's kernel has no driver: it lacks device_dax") {
		t.Errorf("error = %v", err)
	}
}
