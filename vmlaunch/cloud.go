package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/openstack"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// A cloud makes the VMs with OpenStack. The job's first node asks nova for all VMs of the
// job. Each node waits until its own VMs are among the domains of its libvirtd, which nova
// uses, and plugs in the guest agent's port there. So the guest's side is the same as
// without OpenStack, no node listens on a network, and the image needs nothing more.
type cloud struct {
	*VMs

	names   openstack.Names
	lookout *lookout
	asked   chan struct{} // closed when this node, the job's first, has asked nova for all servers

	mu   sync.Mutex
	ours map[string]string // the plan's UUID of a VM by nova's
}

// inCloud is what a node offers to VMs of nova's: QEMU has no directories of the node, and
// nova places the VMs on CPUs.
func inCloud(hw plan.Hardware) plan.Hardware {
	hw.CPUs, hw.Unpinned = nil, "nova places the VMs"
	hw.Foreign, hw.Missing = true, emulator.Missing{NineP: true, NVDIMM: true}
	return hw
}

// open connects to nova's libvirtd on this node.
func (c *cloud) open(context.Context) (err error) {
	if c.names, err = openstack.OpenNames(settings(c.Plan.Backend)); err != nil {
		return err
	}
	if c.driver, err = hypervisor.Connect(c.Plan.Backend.Libvirt); err != nil {
		return fmt.Errorf("%w; backend.libvirt must be the libvirtd that nova-compute uses on node %s", err, c.Plan.Job.Node)
	}
	c.lookout, c.ours = newLookout(c.driver.Instances, c.servers()), map[string]string{}
	if err := c.driver.OnStop(c.ended); err != nil || c.Plan.Job.Rank == 0 {
		return err // the first node expects its VMs when it asks for them
	}
	return c.expect()
}

// servers are the names of this node's VMs in nova.
func (c *cloud) servers() (names []string) {
	for _, m := range c.Machines {
		names = append(names, c.names.Server(m.Plan.Domain))
	}
	return names
}

func settings(b config.Backend) openstack.Settings {
	return openstack.Settings{CloudsFile: b.CloudsFile, Cloud: b.Cloud, Label: b.Label}
}

// ended notes the end of one of nova's domains, if it is of this job.
func (c *cloud) ended(uuid, reason string) {
	c.mu.Lock()
	own, ours := c.ours[uuid]
	c.mu.Unlock()
	if ours {
		c.Stopped(own, reason)
	}
}

// image looks at the user's image, on the job's first node. [cloud.request] uploads it, unless
// the cloud has it.
func (c *cloud) image(ctx context.Context) (images.Info, emulator.UEFI, error) {
	if c.Plan.Job.Rank != 0 {
		return images.Info{}, emulator.UEFI{}, nil
	}
	image, err := images.Inspect(ctx, c.Plan.Images, c.Plan.Image, c.Plan.Owner)
	return image, emulator.UEFI{}, err
}

// network does nothing: the VMs have ports of neutron.
func (c *cloud) network(context.Context) error { return nil }

// vfs refuses what neutron's ports cannot have. The ports themselves come with the servers.
func (c *cloud) vfs(context.Context) error {
	wanted := c.Plan.Job.Spec.SRIOV
	if len(wanted.VFs) == 0 {
		return nil
	}
	if c.Plan.Backend.VFNetwork == "" {
		return errors.New("--sriov: this site's OpenStack has no network of virtual functions (backend.vf_network)")
	}
	if slices.ContainsFunc(wanted.VFs, func(vf jobspec.VF) bool { return vf.PF != "" || vf.NUMA == jobspec.NUMARequire || vf.Spread }) {
		return errors.New("--sriov: nova chooses the cards of virtual functions here; leave out pf, numa=require and spread")
	}
	return c.refuseTags()
}

// refuseTags refuses VFs of jobs whose VFs have a tag: neutron's ports have the tag of their
// network, and the job would believe that no other job hears it.
func (c *cloud) refuseTags() error {
	const bare = "--sriov: OpenStack does not give virtual functions the job's %s; leave --sriov out, or use nodes without OpenStack"
	switch {
	case c.Plan.VLAN != 0:
		return fmt.Errorf(bare, fmt.Sprintf("%s %d", fabric.VLAN.Word(), c.Plan.VLAN))
	case c.Plan.PKey != 0:
		return fmt.Errorf(bare, fmt.Sprintf("%s %#x", fabric.PKey.Word(), c.Plan.PKey))
	}
	return nil
}

// vfNICs have the MAC addresses of the plan: their ports were made with them.
func (c *cloud) vfNICs(m *machine.Machine) (nics []guest.NIC) {
	for _, vf := range m.Plan.VFs {
		if vf.Address.IsValid() {
			nics = append(nics, guest.NIC{MAC: vf.MAC, Address: vf.Address.String()})
		}
	}
	return nics
}

// request asks the cloud for all VMs of the job, if this is the job's first node: one login
// and one place that knows how far the cloud is, however many nodes the job has.
//
// It tells the user at once why the cloud refuses. This node's error comes when everything is
// given back, and VMs of other nodes end before that: their nodes complain first.
func (c *cloud) request(ctx context.Context, image images.Info) error {
	if c.Plan.Job.Rank != 0 {
		return nil
	}
	err := c.ask(ctx, image)
	if err != nil && ctx.Err() == nil {
		c.tell(err.Error())
	}
	return err
}

// ask asks for the VMs, and returns when all of them run.
func (c *cloud) ask(ctx context.Context, image images.Info) error {
	if err := errors.Join(c.journal.Intend(recordServers, c.Plan.Job.ID.String(), nil), c.expect()); err != nil {
		return err
	}
	var there *openstack.Cloud
	var r openstack.Request
	err := c.soonEnough(ctx, func(ctx context.Context) (err error) {
		there, r, err = c.askNova(ctx, image)
		return err
	})
	if err != nil {
		return err
	}
	close(c.asked)
	all := func(ctx context.Context) error { return there.Await(ctx, r.Job, len(r.Servers)) }
	if err := c.awaitAll(ctx, all); err != nil {
		return err
	}
	return c.journal.Done(recordServers, c.Plan.Job.ID.String())
}

// soonEnough ends what comes before nova is asked for the servers within the site's limit. The other nodes wait as long for
// it, and do not see what takes the time.
func (c *cloud) soonEnough(ctx context.Context, ask func(context.Context) error) error {
	ctx, cancel := withPatience(ctx, c.Plan.ReadyLimit)
	defer cancel()
	err := ask(ctx)
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("OpenStack was not ready to make the VMs within %v (limits.ready_timeout): %w", c.Plan.ReadyLimit, err)
	}
	return err
}

// askNova asks nova for the servers of all nodes.
func (c *cloud) askNova(ctx context.Context, image images.Info) (*openstack.Cloud, openstack.Request, error) {
	r, err := c.wanted(ctx, image)
	if err != nil {
		return nil, r, err
	}
	there, err := openstack.Open(ctx, settings(c.Plan.Backend))
	if err != nil {
		return nil, r, err
	}
	if err := c.checkRates(ctx, there.HasRates, &r); err != nil {
		return nil, r, err
	}
	if err := removeEarlier(ctx, there, c.Plan.Job.ID.Job); err != nil {
		return nil, r, fmt.Errorf("remove what earlier runs of the job left in OpenStack: %w", err)
	}
	return there, r, c.create(ctx, there, r, image)
}

// awaitAll waits until all servers of the job run, also those of other nodes, which do not see when they were asked for.
func (c *cloud) awaitAll(ctx context.Context, await func(context.Context) error) error {
	ctx, cancel := withPatience(ctx, c.Plan.Job.Spec.ReadyTimeout)
	defer cancel()
	err := await(ctx)
	if err != nil && errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return fmt.Errorf("nova did not start all VMs within %v after it was asked (--vm-ready-timeout): %w", c.Plan.Job.Spec.ReadyTimeout, err)
	}
	return err
}

// checkRates refuses rates of virtual functions that the cloud cannot have, or leaves them out if the site says so.
func (c *cloud) checkRates(ctx context.Context, hasRates func(context.Context) (bool, error), r *openstack.Request) error {
	if !slices.ContainsFunc(c.Plan.Job.Spec.SRIOV.VFs, func(vf jobspec.VF) bool { return ratesOf(vf) != openstack.Rates{} }) {
		return nil
	}
	has, err := hasRates(ctx)
	if err != nil || has {
		return err
	}
	const missing = "virtual functions have no rates in this site's OpenStack (neutron's service plugin qos)"
	if c.Plan.VFMode == config.VFStrict {
		return errors.New("--sriov: " + missing + "; leave min and max out")
	}
	c.tell("warning: --sriov: " + missing + ": min and max do nothing")
	for i := range r.Servers {
		for k := range r.Servers[i].VFs {
			r.Servers[i].VFs[k].Rates = openstack.Rates{}
		}
	}
	return nil
}

// create makes the servers, of the cloud's image or of an upload.
func (c *cloud) create(ctx context.Context, there *openstack.Cloud, r openstack.Request, image images.Info) error {
	if name := c.Plan.Job.Spec.Image; c.Plan.Catalogue {
		has, err := there.HasImage(ctx, name)
		if err != nil {
			return err
		}
		if has {
			r.Image = openstack.Image{Name: name}
			return there.Create(ctx, r)
		}
	}
	file, err := images.OpenWhole(ctx, c.Plan.Images, c.Plan.Image, c.Plan.Owner)
	if err != nil {
		return err
	}
	defer file.Close()
	c.sayImage("OpenStack gets it by an upload, unless another job has the same one there; the administrator can upload it once for all")
	r.Image = openstack.Image{Path: c.Plan.Image, File: file, Size: file.Size, Format: file.Format, Options: c.imageOptions(image)}
	return there.Create(ctx, r)
}

// imageOptions are the properties of an uploaded image: a controller for the guest agent's
// port, a machine with slots for shared memory, a bus for the configuration drive that
// small kernels know, and the firmware that boots the image.
func (c *cloud) imageOptions(image images.Info) map[string]string {
	options := map[string]string{
		"hw_qemu_guest_agent": "yes", "hw_machine_type": "pc", "hw_rng_model": "virtio",
		"hw_cdrom_bus": "scsi", "hw_scsi_model": "virtio-scsi",
	}
	if firmwareFor(c.Plan, c.Log, image) == config.FirmwareUEFI {
		options["hw_firmware_type"] = "uefi"
	}
	return options
}

// wanted is the request for the VMs of all nodes.
func (c *cloud) wanted(ctx context.Context, image images.Info) (openstack.Request, error) {
	spec := c.Plan.Job.Spec
	r := openstack.Request{
		Job: c.Plan.Job.ID.String(), Flavor: c.Plan.Backend.Flavor, VCPUs: spec.VCPUs, MemoryMiB: spec.MemoryMiB,
		DiskMiB: max(spec.DiskMiB, image.VirtualMiB()), Network: c.Plan.Network.Neutron, Zone: c.Plan.Backend.Zone,
	}
	if len(spec.SRIOV.VFs) > 0 {
		r.VFNetwork = c.Plan.Backend.VFNetwork
	}
	nodes, err := c.links.slurm.Nodes(ctx)
	if err != nil {
		return r, fmt.Errorf("ask Slurm which nodes the job has: %w", err)
	}
	if len(nodes) != c.Plan.Job.Nodes {
		return r, fmt.Errorf("Slurm says that the job has %d nodes, and the VM step has %d", len(nodes), c.Plan.Job.Nodes)
	}
	for rank, node := range nodes {
		vms, err := c.Plan.VMsOf(rank)
		if err != nil {
			return r, err
		}
		for _, vm := range vms {
			r.Servers = append(r.Servers, c.server(node, vm))
		}
	}
	return r, nil
}

func (c *cloud) server(node string, vm plan.VM) openstack.Server {
	s := openstack.Server{Name: c.names.Server(vm.Domain), Host: node, MAC: vm.MAC}
	for k, vf := range vm.VFs {
		s.VFs = append(s.VFs, openstack.VF{MAC: vf.MAC, Rates: ratesOf(c.Plan.Job.Spec.SRIOV.VFs[k])})
	}
	return s
}

func ratesOf(vf jobspec.VF) openstack.Rates {
	return openstack.Rates{MinMbps: vf.MinMbps, MaxMbps: vf.MaxMbps}
}

// start waits until nova has started the VM.
func (c *cloud) start(ctx context.Context, m *machine.Machine, _ images.Info) error {
	m.Enter(nodeagent.StageStart)
	ctx, cancel := c.untilStarted(ctx)
	defer cancel()
	for {
		is, runs, err := c.lookout.see(c.names.Server(m.Plan.Domain))
		if err != nil {
			return err
		}
		if runs {
			return c.adopt(m, is)
		}
		select {
		case <-ctx.Done():
			return c.explainAbsence(ctx)
		case <-time.After(lookEvery):
		}
	}
}

// untilStarted ends when nova should have started a VM of this node. The first node counts from when it has asked for the
// servers: before, it has logged in, removed what earlier runs left, and uploaded the image. Other nodes do not see when that
// is. If a server does not run in time, the first node ends the job, and they end with it. So they only have to end if they
// do not see a server that runs, and allow the site's limit for what comes before.
func (c *cloud) untilStarted(ctx context.Context) (context.Context, context.CancelFunc) {
	if c.Plan.Job.Rank == 0 {
		return withPatienceFrom(ctx, c.asked, c.Plan.Job.Spec.ReadyTimeout)
	}
	return withPatience(ctx, c.Plan.ReadyLimit+c.Plan.Job.Spec.ReadyTimeout)
}

func (c *cloud) explainAbsence(ctx context.Context) error {
	if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return context.Cause(ctx)
	}
	const not = "node %s has not seen nova start the VM within %v %s; if nova did, backend.libvirt is not its libvirtd there"
	if c.Plan.Job.Rank == 0 {
		return fmt.Errorf(not, c.Plan.Job.Node, c.Plan.Job.Spec.ReadyTimeout, "after it was asked (--vm-ready-timeout)")
	}
	return fmt.Errorf(not+", or backend.clouds_file has other credentials than on the job's first node",
		c.Plan.Job.Node, c.Plan.ReadyLimit+c.Plan.Job.Spec.ReadyTimeout, "(limits.ready_timeout and --vm-ready-timeout)")
}

// adopt takes over a VM that nova has started. With its UUID in the journal, the job's end on
// this node ends the VM even if the cloud does not answer.
func (c *cloud) adopt(m *machine.Machine, is hypervisor.Instance) error {
	domain := is.Domain
	if err := c.journal.Intend(recordInstance, domain.UUID(), m.Plan.Domain); err != nil {
		return err
	}
	m.Domain = domain
	c.mu.Lock()
	c.ours[domain.UUID()] = m.Plan.UUID
	c.mu.Unlock()
	if err := errors.Join(c.journal.Done(recordInstance, domain.UUID()), c.journal.Undone(recordAwaited, is.Name)); err != nil {
		return err
	}
	if err := c.address(m, is); err != nil {
		return err
	}
	if err := c.plugSeed(m); err != nil {
		return err
	}
	console, err := domain.OpenConsole(c.driver)
	if err != nil {
		return err
	}
	return c.Record(m, console, c.Plan.State)
}

// plugSeed gives the VM the same seed disk as without OpenStack. nova has started the VM less than a second ago, so the
// disk is there when cloud-init looks for it, and cloud-init takes it rather than nova's drive. An image that contains
// the guest agent needs no seed disk, so a VM without room for one may go on. The file is root's until libvirt gives it
// to QEMU.
func (c *cloud) plugSeed(m *machine.Machine) error {
	dir, err := c.channels()
	if err != nil {
		return err
	}
	path := filepath.Join(dir, m.Plan.Name+".iso")
	if err := images.WriteSeed(path, seedOf(m.Plan, c.userData), owner.Owner{}); err != nil {
		return err
	}
	if err := m.Domain.PlugSeed(path); err != nil {
		c.Log.Warn("the VM has no seed disk: it is up only if its image has the guest agent", "vm", m.Plan.Name, "err", err)
	}
	return nil
}

// channels is the directory of what nova's QEMU, which has a user of its own, opens on this node.
func (c *cloud) channels() (string, error) {
	dir := filepath.Join(c.Plan.Run, "channels")
	return dir, os.MkdirAll(dir, 0o711)
}

// address gives the VM the address of its port, unless neutron's DHCP does.
func (c *cloud) address(m *machine.Machine, is hypervisor.Instance) error {
	if c.Plan.Network.Subnet == "" {
		return nil
	}
	subnet, err := netip.ParsePrefix(c.Plan.Network.Subnet)
	if err != nil {
		return err
	}
	if len(is.Addresses) == 0 {
		return errors.New("nova gave the VM no address; the log of nova-compute on this node tells what neutron has answered")
	}
	for _, text := range is.Addresses {
		if addr, err := netip.ParseAddr(text); err == nil && subnet.Contains(addr) {
			m.SetAddress(netip.PrefixFrom(addr, subnet.Bits()))
			return nil
		}
	}
	return fmt.Errorf("nova gave the VM the addresses %v, and none is in %s: is network.%s.subnet the subnet of neutron?", is.Addresses, subnet, c.Plan.NetName)
}

// dial plugs the guest agent's port into the VM, and waits until QEMU has connected it.
func (c *cloud) dial(ctx context.Context, m *machine.Machine) (net.Conn, error) {
	dir, err := c.channels()
	if err != nil {
		return nil, err
	}
	door, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(dir, m.Plan.Name), Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer door.Close()                                            // and with it the socket's name: QEMU connects once
	if err := os.Chmod(door.Addr().String(), 0o666); err != nil { // nova's QEMU has a user of its own
		return nil, err
	}
	return m.Domain.Admit(ctx, door, func() error {
		if err := m.Domain.PlugChannel(door.Addr().String()); err != nil {
			return fmt.Errorf("%w; an image for VMs of Slurm-V needs the property hw_qemu_guest_agent=yes in OpenStack", err)
		}
		return nil
	})
}

func (c *cloud) plug(m *machine.Machine, r ivshmem.Region) error {
	err := m.Domain.PlugRegionAnywhere(r)
	switch {
	case errors.Is(err, hypervisor.ErrNoRoom):
		return fmt.Errorf("--ivshmem: %w; an image needs the property hw_machine_type=pc in OpenStack", err)
	case errors.Is(err, hypervisor.ErrNoAccess):
		return fmt.Errorf("--ivshmem: %w; the administrator has to let nova's QEMU run as root on node %s (user and security_driver in libvirt's qemu.conf)", err, c.Plan.Job.Node)
	}
	return err
}

func (c *cloud) forget(*machine.Machine) {} // nova does, when the server is deleted

func (c *cloud) close() {
	if c.driver != nil {
		c.driver.Close()
	}
}
