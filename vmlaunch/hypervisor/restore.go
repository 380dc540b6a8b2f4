package hypervisor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/uuid"
	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// clone turns the description of a saved template into that of one VM of the job. What
// the guest sees is in the saved state and stays; what stands behind it on the host is the
// VM's own.
func (p describer) clone(saved *libvirtxml.Domain, vm plan.VM, from template.Template) error {
	own := p.domain(vm, nil)
	saved.Name, saved.UUID = own.Name, own.UUID
	saved.GenID = &libvirtxml.DomainGenID{Value: uuid.NewString()}
	saved.CPUTune, saved.NUMATune, saved.SecLabel = own.CPUTune, own.NUMATune, own.SecLabel
	d, line := saved.Devices, saved.QEMUCommandline
	if d == nil || line == nil || len(d.Disks) != 2 || len(d.Interfaces) != 1 || len(d.Channels) != 1 || len(d.Serials) != 1 || len(d.Shmems) != 0 || len(d.Filesystems) < len(p.Job.Spec.Mounts) {
		return errors.New("the template is not of this version's making")
	}
	line.Args = append(line.Args, p.mapMemory(vm, from)...)
	for i, path := range []string{vm.Overlay, from.Seed()} {
		d.Disks[i].Source = &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: path}}
		d.Disks[i].BackingStore = nil
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
		if i < len(p.Job.Spec.Mounts) {
			fs.Source, fs.ReadOnly = own.Devices.Filesystems[i].Source, own.Devices.Filesystems[i].ReadOnly
		}
	}
	return nil
}

// mapMemory has QEMU take the template's memory for the VM's, by a private mapping: what
// the VM writes to, it gets a page of its own for. libvirt has no words for that.
func (p describer) mapMemory(vm plan.VM, from template.Template) []libvirtxml.DomainQEMUCommandlineArg {
	memory := map[string]any{
		"qom-type": "memory-backend-file", "id": TemplateMemory, "mem-path": from.Memory(), "share": false,
		"size": p.Job.Spec.MemoryMiB << 20, "x-use-canonical-path-for-ramblock-id": false,
	}
	if node := p.NUMA(vm); slices.Contains(p.Hardware.Memory, node) {
		memory["host-nodes"], memory["policy"] = []int{node}, near
	}
	text, err := json.Marshal(memory)
	if err != nil {
		panic(err) // it is texts and numbers
	}
	return arguments("-object", string(text), "-machine", "memory-backend="+TemplateMemory)
}

// arguments are some that libvirt has no words for.
func arguments(values ...string) (args []libvirtxml.DomainQEMUCommandlineArg) {
	for _, value := range values {
		args = append(args, libvirtxml.DomainQEMUCommandlineArg{Value: value})
	}
	return args
}

// Restore restores vm of p from a template.
func (d *Driver) Restore(p plan.Plan, vm plan.VM, from template.Template) (*Domain, error) {
	err := d.restore(from.Saved(), func(saved *libvirtxml.Domain) error {
		return describer{p}.clone(saved, vm, from)
	})
	if err != nil {
		return nil, fmt.Errorf("restore domain %s: %w", vm.Domain, err)
	}
	domain, err := d.conn.LookupDomainByUUIDString(vm.UUID)
	if err != nil {
		return nil, fmt.Errorf("find domain %s: %w", vm.Domain, plain(err))
	}
	return &Domain{vm: domain, name: vm.Domain, uuid: vm.UUID, root: d.root}, nil
}

// restore has libvirt restore what is saved in a file, with another description. libvirt
// reads it from a pipe, so that many VMs are restored from one file without a copy for each.
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
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	fed := make(chan error, 1)
	go func() { fed <- feed(w, head, saved) }()
	err = plain(d.conn.DomainRestoreFlags(fmt.Sprintf("/proc/self/fd/%d", r.Fd()), "", libvirt.DOMAIN_SAVE_RUNNING))
	_ = r.Close() // nobody reads any more, whatever has become of it
	if feedErr := <-fed; err == nil {
		err = feedErr
	}
	return err
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

// feed writes a save file into a pipe and closes it: the head, and the stream from where
// saved stands. The kernel moves the stream's pages from the file's cache.
func feed(w *os.File, head template.SaveFile, saved *os.File) (err error) {
	defer func() { err = errors.Join(err, w.Close()) }()
	_, _ = unix.FcntlInt(w.Fd(), unix.F_SETPIPE_SZ, 1<<20)
	if _, err := head.WriteTo(w); err != nil {
		return err
	}
	for {
		n, err := unix.Splice(int(saved.Fd()), nil, int(w.Fd()), nil, 1<<20, 0)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return fmt.Errorf("read %s: %w", filepath.Base(saved.Name()), err)
		case n == 0:
			return nil
		}
	}
}
