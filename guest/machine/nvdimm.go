package machine

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/guest"
)

// nvdimms finds the NVDIMMs through which VMs share memory. The kernel makes each a device to map, /dev/daxN.0.
type nvdimms struct{ *system }

// nvdimmDrivers are the kernel's modules for them, and where the kernel shows what they drive.
var nvdimmDrivers = []struct{ module, shown string }{
	{"nfit", "sys/bus/nd"}, {"nd_pmem", "sys/bus/nd/drivers/nd_pmem"}, {"dax_pmem", "sys/bus/nd/drivers/dax_pmem"}, {"device_dax", "sys/bus/dax/drivers/device_dax"},
}

// ExpectNVDIMMs implements [guest.Machine].
func (m *Machine) ExpectNVDIMMs(ctx context.Context) error { return nvdimms{&m.system}.drive(ctx) }

// prepare loads the drivers in a template whose restored VMs may get NVDIMMs: the firmware shows their root device then.
func (s nvdimms) prepare(ctx context.Context) {
	if _, err := os.Stat(s.path("sys/bus/acpi/devices/ACPI0012:00")); err != nil {
		return
	}
	if err := s.drive(ctx); err != nil {
		s.log().Info("restored VMs can have no shared memory", "err", err)
	}
}

// drive loads the drivers.
func (s nvdimms) drive(ctx context.Context) error {
	for _, d := range nvdimmDrivers {
		s.modules(ctx, d.module)
		if _, err := os.Stat(s.path(d.shown)); err != nil {
			return fmt.Errorf("shared memory (--ivshmem) is an NVDIMM on this node, for which the image's kernel has no driver: it lacks %s", d.module)
		}
	}
	return nil
}

// nvdimmUUID begins the UUIDs of Slurm-V's NVDIMMs: "slurmv-ivshmem", 0. The last byte is the device's number. They are in
// the headers that [github.com/slurm-v/slurm-v/ivshmem.Region] writes.
const nvdimmUUID = "736c7572-6d76-2d69-7673-686d656d00"

// offer gives the job's owner the devices by their names in /dev/slurmv.
func (s nvdimms) offer(ctx context.Context, want guest.IVShmem, u guest.User) error {
	devices, err := s.await(ctx, want)
	if err != nil {
		return err
	}
	for k := range want.Devices {
		err := s.handOver(devices[k], u)
		if err == nil {
			err = s.link(nameOfDevice(k), devices[k])
		}
		if err != nil {
			return fmt.Errorf("shared-memory device %d (%s): %w", k, devices[k], err)
		}
	}
	return nil
}

// await returns the paths of the devices by their numbers, once all are there. They are plugged into a running VM.
func (s nvdimms) await(ctx context.Context, want guest.IVShmem) (found map[int]string, err error) {
	look := func() (bool, error) {
		found = s.find(want.Size)
		if len(found) == want.Devices {
			return true, nil
		}
		s.log().Info("waiting for shared-memory devices", "found", len(found), "want", want)
		return false, nil
	}
	err = awaitDevices(ctx, look, func() error {
		return fmt.Errorf("the VM has %d shared-memory devices (NVDIMM) instead of %d", len(found), want.Devices)
	})
	return found, err
}

// find returns those that can be mapped now.
func (s nvdimms) find(size int64) map[int]string {
	found := map[int]string{}
	entries, _ := os.ReadDir(s.path("sys/bus/dax/devices"))
	for _, e := range entries {
		dir, err := filepath.EvalSymlinks(s.path("sys/bus/dax/devices", e.Name()))
		if err != nil {
			continue
		}
		number, ours := strings.CutPrefix(sysfsText(filepath.Dir(dir), "uuid"), nvdimmUUID)
		index, err := strconv.ParseUint(number, 16, 8)
		bytes, _ := strconv.ParseInt(sysfsText(dir, "size"), 10, 64)
		device := filepath.Join("/dev", e.Name())
		if _, missing := os.Stat(s.path(device)); ours && err == nil && bytes >= size && missing == nil {
			found[int(index)] = device
		}
	}
	return found
}
