package vmlaunch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/internal/sshkey"
	"github.com/slurm-v/slurm-v/journal"
)

// restoreMachine takes one VM from a template to ready. If it fails, nothing of it is left
// and it can be booted.
func (n *Node) restoreMachine(ctx context.Context, m *machine) error {
	err := n.restore(ctx, m)
	if err == nil {
		return m.restored()
	}
	m.endSession()
	if m.console != nil {
		_ = m.console.Close()
	}
	return errors.Join(err, n.endDomain(m), removeIfThere(m.plan.Overlay), m.restored())
}

func (n *Node) restore(ctx context.Context, m *machine) error {
	m.setRestoring()
	m.enter("disk")
	if err := images.CopyFor(n.from.Blank(), m.plan.Overlay, n.owner()); err != nil {
		return err
	}
	m.enter("restore")
	if err := n.restoreDomain(m); err != nil {
		return errors.Join(err, n.templates.Spoil(ctx, *n.from))
	}
	if err := n.plugVFs(m); err != nil {
		return err
	}
	wait, cancel := withPatience(ctx, n.plan.Job.Spec.ReadyTimeout)
	defer cancel()
	if err := n.meetGuest(wait, m); err != nil {
		return n.explainBoot(wait, m, err)
	}
	return nil
}

// restoreDomain writes down the domain and only then has libvirt restore it.
func (n *Node) restoreDomain(m *machine) (err error) {
	if err := n.journal.Intend(recordDomain, m.plan.UUID, m.plan.Domain); err != nil {
		return err
	}
	err = n.hypervisor.restore(n.from.Saved(), func(saved *libvirtxml.Domain) error {
		return n.plan.clone(saved, m.plan, *n.from)
	})
	if err != nil {
		return fmt.Errorf("restore domain %s: %w", m.plan.Domain, err)
	}
	if m.domain, err = n.hypervisor.conn.LookupDomainByUUIDString(m.plan.UUID); err != nil {
		return fmt.Errorf("find domain %s: %w", m.plan.Domain, plain(err))
	}
	return n.domainStarted(m)
}

// endDomain ends what there may be of a domain that will not be used, and forgets it.
func (n *Node) endDomain(m *machine) error {
	if m.domain != nil {
		_, _ = m.domain.Destroy(), m.domain.Undefine()
		m.domain = nil
	}
	begun := func(r journal.Record) bool { return r.Kind == recordDomain && r.Name == m.plan.UUID }
	if !slices.ContainsFunc(n.journal.Held(), begun) {
		return nil
	}
	return killDomains(context.Background(), []string{m.plan.UUID}, func(uuid string) error {
		return n.journal.Undone(recordDomain, uuid)
	})
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// setRestoring and restored enclose the time in which the end of the VM is not the job's:
// it can still be booted.
func (m *machine) setRestoring() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.restoring = true
}

func (m *machine) restored() (err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stop != "" {
		err = fmt.Errorf("the restored VM %s", m.stop)
	}
	m.restoring, m.stop = false, ""
	return err
}

// clone turns the description of a saved template into that of one VM of the job. What
// the guest sees is in the saved state and stays; what stands behind it on the host is the
// VM's own.
func (p Plan) clone(saved *libvirtxml.Domain, vm VMPlan, from template.Template) error {
	own := p.domain(vm, nil)
	saved.Name, saved.UUID = own.Name, own.UUID
	saved.GenID = &libvirtxml.DomainGenID{Value: newUUID()}
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
func (p Plan) mapMemory(vm VMPlan, from template.Template) []libvirtxml.DomainQEMUCommandlineArg {
	memory := map[string]any{
		"qom-type": "memory-backend-file", "id": templateMemory, "mem-path": from.Memory(), "share": false,
		"size": p.Job.Spec.MemoryMiB << 20, "x-use-canonical-path-for-ramblock-id": false,
	}
	if node := p.numa(vm); slices.Contains(p.Hardware.Memory, node) {
		memory["host-nodes"], memory["policy"] = []int{node}, near
	}
	text, err := json.Marshal(memory)
	if err != nil {
		panic(err) // it is texts and numbers
	}
	return arguments("-object", string(text), "-machine", "memory-backend="+templateMemory)
}

// arguments are some that libvirt has no words for.
func arguments(values ...string) (args []libvirtxml.DomainQEMUCommandlineArg) {
	for _, value := range values {
		args = append(args, libvirtxml.DomainQEMUCommandlineArg{Value: value})
	}
	return args
}

// plugVFs gives a running VM its virtual functions.
func (n *Node) plugVFs(m *machine) error {
	d := &libvirtxml.Domain{Devices: &libvirtxml.DomainDeviceList{}}
	addVFs(d, m.vfs)
	var devices []libvirtxml.Document
	for i := range d.Devices.Interfaces {
		devices = append(devices, &d.Devices.Interfaces[i])
	}
	for i := range d.Devices.Hostdevs {
		devices = append(devices, &d.Devices.Hostdevs[i])
	}
	for _, device := range devices {
		if err := m.plug(device); err != nil {
			return fmt.Errorf("plug a virtual function into domain %s: %w", m.plan.Domain, err)
		}
	}
	return nil
}

// plug plugs a device into a running VM.
func (m *machine) plug(device libvirtxml.Document) error {
	text, err := device.Marshal()
	if err != nil {
		return err
	}
	return plain(m.domain.AttachDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE))
}

// unplug asks the guest of a running VM to let go of a device, which is then gone at some
// time.
func (m *machine) unplug(device libvirtxml.Document) error {
	text, err := device.Marshal()
	if err != nil {
		return err
	}
	return plain(m.domain.DetachDeviceFlags(text, libvirt.DOMAIN_DEVICE_MODIFY_LIVE))
}

// definition returns what libvirt knows of a VM.
func (m *machine) definition() (d libvirtxml.Domain, err error) {
	text, err := m.domain.GetXMLDesc(0)
	if err != nil {
		return d, plain(err)
	}
	return d, d.Unmarshal(text)
}

// restore has libvirt restore what is saved in a file, with another description. libvirt
// reads it from a pipe, so that many VMs are restored from one file without a copy for each.
func (h *hypervisor) restore(path string, describe func(*libvirtxml.Domain) error) error {
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
	err = plain(h.conn.DomainRestoreFlags(fmt.Sprintf("/proc/self/fd/%d", r.Fd()), "", libvirt.DOMAIN_SAVE_RUNNING))
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

// renew makes what a restored guest is told that of a machine of its own, and sets its
// clock, which stood still since the template was saved.
func (n *Node) renew(ctx context.Context, m *machine, s *guest.Setup) (err error) {
	trip, err := m.session.SetClock(ctx)
	if err != nil {
		return err
	}
	n.log.Info("clock set", "vm", m.plan.Name, "trip", trip)
	s.GrowRoot = false // the template has done it
	s.NICs[0].Before = templateMAC
	s.Fresh, err = newIdentity(m.plan.Name)
	return err
}

// newIdentity is what a restored VM needs to be a machine of its own.
func newIdentity(name string) (*guest.Identity, error) {
	key, err := sshkey.New(name)
	if err != nil {
		return nil, err
	}
	id := &guest.Identity{Seed: make([]byte, 64), BootID: newUUID(), HostKey: key.Private, HostKeyPublic: key.Public}
	machine := make([]byte, 16)
	_, _ = io.ReadFull(rand.Reader, machine) // never fails
	_, _ = io.ReadFull(rand.Reader, id.Seed)
	id.MachineID = hex.EncodeToString(machine)
	return id, nil
}

// newUUID is a random one, RFC 9562, version 4.
func newUUID() string {
	var u [16]byte
	_, _ = io.ReadFull(rand.Reader, u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return formatUUID(u[:])
}
