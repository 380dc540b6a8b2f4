package hypervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// clone turns the description of a saved template into that of one VM of the job. The
// guest's view of its hardware is part of the saved state and stays. Everything behind it
// on the host is replaced by the VM's own.
func (p describer) clone(saved *libvirtxml.Domain, vm plan.VM, from template.Template, vfs []vfpool.Grant) error {
	own := p.domain(vm, nil)
	saved.Name, saved.UUID = own.Name, own.UUID
	saved.GenID = &libvirtxml.DomainGenID{Value: uuid.NewString()}
	saved.CPUTune, saved.NUMATune, saved.SecLabel = own.CPUTune, own.NUMATune, own.SecLabel
	d, line := saved.Devices, saved.QEMUCommandline
	if d == nil || saved.OS == nil || line == nil || len(d.Disks) != 2 || len(d.Interfaces) != 1 || len(d.Channels) != 1 || len(d.Serials) != 1 || len(d.Shmems) != 0 || len(d.Filesystems) < len(own.Devices.Filesystems) {
		return errors.New("the template is not of this version's making")
	}
	saved.OS.Loader, saved.OS.NVRam = own.OS.Loader, own.OS.NVRam
	line.Args = append(line.Args, p.mapMemory(vm, from, vfs)...)
	for i, path := range []string{vm.Overlay, from.Seed()} {
		d.Disks[i].Source = &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: path}}
		d.Disks[i].BackingStore = own.Devices.Disks[i].BackingStore
	}
	d.Interfaces[0].MAC, d.Interfaces[0].Target = own.Devices.Interfaces[0].MAC, own.Devices.Interfaces[0].Target
	d.Serials[0].Source, d.Channels[0].Source = bound(vm.Console), bound(vm.Channel)
	for i := range d.Consoles { // libvirt's second name for the serial port
		d.Consoles[i].Source = bound(vm.Console)
	}
	for i := range d.Filesystems {
		fs := &d.Filesystems[i]
		fs.Source = &libvirtxml.DomainFilesystemSource{Mount: &libvirtxml.DomainFilesystemSourceMount{Dir: from.Nothing()}}
		fs.ReadOnly = &libvirtxml.DomainFilesystemReadOnly{}
		if i < len(own.Devices.Filesystems) {
			fs.Source, fs.ReadOnly = own.Devices.Filesystems[i].Source, own.Devices.Filesystems[i].ReadOnly
		}
	}
	return nil
}

// mapMemory makes QEMU use the template's memory file as the VM's memory, through a private
// mapping: the VM gets its own copy of each page that it writes to. libvirt cannot describe
// this, so it is QEMU's command line.
//
// A VF of a card would have the kernel copy all pages when it is plugged in, one after the
// other. So the VM gets its copies at once then, by several threads.
func (p describer) mapMemory(vm plan.VM, from template.Template, vfs []vfpool.Grant) []libvirtxml.DomainQEMUCommandlineArg {
	memory := map[string]any{
		"qom-type": "memory-backend-file", "id": TemplateMemory, "mem-path": from.Memory(), "share": false,
		"size": p.Job.Spec.MemoryMiB << 20, "x-use-canonical-path-for-ramblock-id": false,
	}
	if haveCards(vfs) {
		memory["prealloc"], memory["prealloc-threads"] = true, p.allocators()
	}
	if node := p.NUMA(vm); slices.Contains(p.Hardware.Memory, node) {
		memory["host-nodes"], memory["policy"] = []int{node}, near
	}
	text, err := json.Marshal(memory)
	if err != nil {
		panic(err) // strings, numbers and booleans always marshal
	}
	return arguments("-object", string(text), "-machine", "memory-backend="+TemplateMemory)
}

// arguments makes command-line arguments for QEMU, for settings that libvirt cannot
// describe.
func arguments(values ...string) (args []libvirtxml.DomainQEMUCommandlineArg) {
	for _, value := range values {
		args = append(args, libvirtxml.DomainQEMUCommandlineArg{Value: value})
	}
	return args
}

// Restore restores vm of p from a template. The caller then plugs in vfs.
func (d *Driver) Restore(p plan.Plan, vm plan.VM, from template.Template, vfs []vfpool.Grant) (*Domain, error) {
	err := d.restore(from.Saved(), func(saved *libvirtxml.Domain) error {
		return describer{p}.clone(saved, vm, from, vfs)
	})
	if err != nil {
		return nil, fmt.Errorf("restore domain %s: %w", vm.Domain, err)
	}
	domain, err := d.conn.LookupDomainByUUIDString(vm.UUID)
	if err != nil {
		return nil, fmt.Errorf("find domain %s: %w", vm.Domain, plain(err))
	}
	return &Domain{vm: domain, name: vm.Domain, uuid: vm.UUID, pids: d.pids}, nil
}

// restore makes libvirt restore the VM that is saved in a file, with another description.
func (d *Driver) restore(path string, describe func(*libvirtxml.Domain) error) error {
	saved, err := os.Open(path)
	if err != nil {
		return err
	}
	defer saved.Close()
	head, err := template.ReadSaveFile(saved)
	if err != nil {
		return err
	}
	if head.XML, err = rewrite(head.XML, describe); err != nil {
		return err
	}
	file, err := saveFile(head, saved)
	if err != nil {
		return err
	}
	defer file.Close()
	return plain(d.conn.DomainRestoreFlags(fmt.Sprintf("/proc/self/fd/%d", file.Fd()), "", libvirt.DOMAIN_SAVE_RUNNING))
}

func rewrite(xml []byte, change func(*libvirtxml.Domain) error) ([]byte, error) {
	var d libvirtxml.Domain
	if err := d.Unmarshal(string(xml)); err != nil {
		return nil, fmt.Errorf("read the template's description: %w", err)
	}
	if err := change(&d); err != nil {
		return nil, err
	}
	text, err := d.Marshal()
	return []byte(text), err
}

// saveFile returns a file in memory with head and the rest of saved from its current
// offset. It is small, because the guest's memory is not in it. libvirt opens a save file
// more than once, so it cannot be a pipe.
func saveFile(head template.SaveFile, saved *os.File) (*os.File, error) {
	fd, err := unix.MemfdCreate("slurmv-restore", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("make a file in memory: %w", err)
	}
	file := os.NewFile(uintptr(fd), "slurmv-restore")
	_, err = head.WriteTo(file)
	if err == nil {
		_, err = io.Copy(file, saved)
	}
	if err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("copy %s into memory: %w", filepath.Base(saved.Name()), err)
	}
	return file, nil
}
