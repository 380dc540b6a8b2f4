package hypervisor

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/ivshmem"
)

// Connect connects to a libvirtd of the node's. Its VMs are another program's, such as
// nova's.
func Connect(uri string) (*Driver, error) {
	conn, err := connect(uri)
	if err != nil {
		return nil, err
	}
	return &Driver{conn: conn, pids: "/run/libvirt/qemu"}, nil
}

// An Instance is a domain of nova's, and what nova has written into its description.
type Instance struct {
	Name      string   // of the server
	Addresses []string // fixed IPv4 addresses, in the order of its ports
	Domain    *Domain
}

// novaMetadata are the name spaces in which nova describes its domains, the newest first
// (nova/virt/libvirt/config.py).
var novaMetadata = []string{"http://openstack.org/xmlns/libvirt/nova/1.1", "http://openstack.org/xmlns/libvirt/nova/1.0"}

// Instances returns the running domains of those servers, by the servers' names. A server that does not run yet has none.
func (d *Driver) Instances(servers ...string) (map[string]Instance, error) {
	all, err := d.conn.ListAllDomains(libvirt.CONNECT_LIST_DOMAINS_RUNNING)
	if err != nil {
		return nil, fmt.Errorf("list libvirt's domains: %w", plain(err))
	}
	found := map[string]Instance{}
	for i := range all {
		vm := &all[i]
		is := instanceOf(vm)
		if is.Domain, err = d.adopt(vm); err != nil || !slices.Contains(servers, is.Name) {
			_ = vm.Free()
			continue
		}
		found[is.Name] = is
	}
	return found, nil
}

// InstanceUUIDs is [Driver.Instances] for who only needs the domains' UUIDs.
func (d *Driver) InstanceUUIDs(servers ...string) (map[string]string, error) {
	found, err := d.Instances(servers...)
	uuids := map[string]string{}
	for name, is := range found {
		uuids[name] = is.Domain.uuid
		_ = is.Domain.vm.Free()
	}
	return uuids, err
}

// adopt asks libvirtd nothing: it knows name and UUID from the list.
func (d *Driver) adopt(vm *libvirt.Domain) (*Domain, error) {
	name, err := vm.GetName()
	if err != nil {
		return nil, plain(err)
	}
	uuid, err := vm.GetUUIDString()
	return &Domain{vm: vm, name: name, uuid: uuid, pids: d.pids}, plain(err)
}

// instanceOf is the zero value for a domain that is not nova's, or that has just ended.
func instanceOf(vm *libvirt.Domain) Instance {
	for _, uri := range novaMetadata {
		if text, err := vm.GetMetadata(libvirt.DOMAIN_METADATA_ELEMENT, uri, 0); err == nil {
			return parseInstance(text)
		}
	}
	return Instance{}
}

func parseInstance(text string) (is Instance) {
	var nova struct {
		Name  string `xml:"name"`
		Ports []struct {
			IPs []struct {
				Type    string `xml:"type,attr"`
				Address string `xml:"address,attr"`
				Version string `xml:"ipVersion,attr"`
			} `xml:"ip"`
		} `xml:"ports>port"`
	}
	if xml.NewDecoder(strings.NewReader(text)).Decode(&nova) != nil {
		return Instance{}
	}
	is.Name = nova.Name
	for _, port := range nova.Ports {
		for _, ip := range port.IPs {
			if ip.Type == "fixed" && ip.Version == "4" {
				is.Addresses = append(is.Addresses, ip.Address)
			}
		}
	}
	return is
}

// UUID is the domain's UUID, which for nova is the server's id.
func (d *Domain) UUID() string { return d.uuid }

// ErrNoRoom matches the refusal of a device for which the VM's hardware has no place.
var ErrNoRoom = errors.New("the VM's hardware has no place for it")

// ErrNoAccess matches the refusal of a device whose file QEMU's user may not open.
var ErrNoAccess = errors.New("QEMU may not open its file")

// PlugChannel gives the running VM the guest agent's port. QEMU connects it to the socket at
// path, on which the caller listens.
func (d *Domain) PlugChannel(path string) error {
	err := d.plug(&libvirtxml.DomainChannel{
		Source: &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "connect", Path: path}},
		Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: guest.PortName}},
	})
	if err != nil {
		return fmt.Errorf("plug the guest agent's port into domain %s: %w", d.name, err)
	}
	return nil
}

// seedTarget is the disk's name in the domain's description: one that nova does not give.
const seedTarget = "vdz"

// PlugSeed gives the running VM its seed disk. libvirt lets QEMU's user read the file.
func (d *Domain) PlugSeed(path string) error {
	seed := disk(seedTarget, path, &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"}, true)
	if err := d.plug(&seed); err != nil {
		return fmt.Errorf("plug the seed disk into domain %s: %w", d.name, err)
	}
	return nil
}

// PlugRegionAnywhere is [Domain.PlugRegion] for a VM that was made without a place for
// regions: libvirt looks for one. Regions that are plugged in one after the other have
// rising addresses.
func (d *Domain) PlugRegionAnywhere(r ivshmem.Region) error {
	device := shmemDevice(r)
	device.Address = nil
	if err := d.mayLock(r.FileSize()); err != nil {
		return err
	}
	if err := d.plug(device); err != nil {
		return fmt.Errorf("plug shared memory into domain %s: %w", d.name, reasonOf(err))
	}
	return nil
}

// reasonOf adds what a refusal to plug a device in means, by the words of libvirt
// (virDomainPCIAddressGetNextAddr) and of QEMU, which have no codes for it.
func reasonOf(err error) error {
	switch {
	case strings.Contains(err.Error(), "No more available PCI"):
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	case strings.Contains(err.Error(), "Permission denied"):
		return fmt.Errorf("%w: %w", ErrNoAccess, err)
	}
	return err
}

// OpenConsole opens the VM's serial console, which has one reader.
func (d *Domain) OpenConsole(conn *Driver) (io.ReadWriteCloser, error) {
	stream, err := conn.conn.NewStream(0)
	if err != nil {
		return nil, plain(err)
	}
	if err := d.vm.OpenConsole("", stream, libvirt.DOMAIN_CONSOLE_FORCE); err != nil {
		_ = stream.Free()
		return nil, fmt.Errorf("open the console of domain %s: %w", d.name, plain(err))
	}
	return consoleStream{stream}, nil
}

type consoleStream struct{ stream *libvirt.Stream }

func (c consoleStream) Read(p []byte) (int, error) {
	n, err := c.stream.Recv(p)
	if err == nil && n == 0 {
		err = io.EOF
	}
	return max(n, 0), err
}

func (c consoleStream) Write(p []byte) (int, error) {
	n, err := c.stream.Send(p)
	return max(n, 0), err
}

func (c consoleStream) Close() error { return c.stream.Abort() }
