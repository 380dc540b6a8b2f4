package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/vfpool"
)

// A Domain is one VM as libvirt knows it.
type Domain struct {
	vm         *libvirt.Domain
	name, uuid string
	pids       string // see Driver
}

// Start starts a VM that is defined.
func (d *Domain) Start() error {
	if err := d.vm.Create(); err != nil {
		return fmt.Errorf("start domain %s: %w", d.name, plain(err))
	}
	return nil
}

// Save saves the running VM to a file, which ends it.
func (d *Domain) Save(path string) error {
	if err := d.vm.SaveFlags(path, "", libvirt.DOMAIN_SAVE_RUNNING); err != nil {
		return fmt.Errorf("save domain %s: %w", d.name, plain(err))
	}
	return nil
}

// End ends the VM, if it runs, and makes libvirt forget it, but not remove its files. QEMU
// may live a little longer: [Kill] makes sure that it ends.
func (d *Domain) End() { _, _ = d.vm.Destroy(), d.vm.UndefineFlags(libvirt.DOMAIN_UNDEFINE_KEEP_NVRAM) }

// Demand is how long the threads of the VM's QEMU have had a CPU or waited for one.
func (d *Domain) Demand() (time.Duration, error) {
	dir, err := d.Process()
	if err != nil {
		return 0, err
	}
	return demand(dir)
}

// Threads returns what the threads of the VM's QEMU do: see [threads].
func (d *Domain) Threads() (string, error) {
	dir, err := d.Process()
	if err != nil {
		return "", err
	}
	return threads(dir)
}

// PlugVFs gives the running VM virtual functions.
func (d *Domain) PlugVFs(vfs []vfpool.Grant) error {
	described := &libvirtxml.Domain{Devices: &libvirtxml.DomainDeviceList{}}
	addVFs(described, vfs)
	var devices []libvirtxml.Document
	if described.Devices.VSock != nil {
		devices = append(devices, described.Devices.VSock)
	}
	for i := range described.Devices.Interfaces {
		devices = append(devices, &described.Devices.Interfaces[i])
	}
	for i := range described.Devices.Hostdevs {
		devices = append(devices, &described.Devices.Hostdevs[i])
	}
	for _, device := range devices {
		if err := d.plug(device); err != nil {
			return fmt.Errorf("plug a virtual function into domain %s: %w", d.name, err)
		}
	}
	return nil
}

// PlugRegion gives the running VM a region of shared memory as a device.
func (d *Domain) PlugRegion(r ivshmem.Region) error {
	err := d.mayLock(r.FileSize())
	switch {
	case err != nil:
	case r.Header != 0:
		err = d.plugNVDIMM(r)
	default:
		err = d.plug(shmemDevice(r))
	}
	if err != nil {
		return fmt.Errorf("plug shared memory into domain %s: %w", d.name, err)
	}
	return nil
}

// unplugPatience is how long a guest may take to let go of a device.
const unplugPatience = 30 * time.Second

// UnplugRegion takes a region of shared memory, the VM's only one, from the running VM. It
// returns when the guest has let go of it.
func (d *Domain) UnplugRegion(ctx context.Context, r ivshmem.Region) error {
	if err := d.unplug(shmemDevice(r)); err != nil {
		return fmt.Errorf("unplug the shared memory of domain %s: %w", d.name, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, unplugPatience, errors.New("its guest keeps the shared memory that is unplugged"))
	defer cancel()
	for {
		now, err := d.definition()
		if err != nil || len(now.Devices.Shmems) == 0 {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (d *Domain) plug(device libvirtxml.Document) error {
	text, err := device.Marshal()
	if err != nil {
		return err
	}
	return plain(d.vm.AttachDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE))
}

// unplug asks the guest to let go of a device. The device disappears some time later.
func (d *Domain) unplug(device libvirtxml.Document) error {
	text, err := device.Marshal()
	if err != nil {
		return err
	}
	return plain(d.vm.DetachDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE))
}

// definition returns what libvirt knows of the running VM.
func (d *Domain) definition() (now libvirtxml.Domain, err error) {
	text, err := d.vm.GetXMLDesc(0)
	if err != nil {
		return now, plain(err)
	}
	return now, now.Unmarshal(text)
}
