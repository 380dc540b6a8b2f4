package plan

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/journal"
)

// A Plan is everything that one node will do for a job. It contains all of the site's
// configuration that is needed to carry it out.
type Plan struct {
	Job       Job
	Owner     owner.Owner
	Image     string          // absolute path of the base image
	Catalogue bool            // the image is one of the site's catalogue
	Firmware  config.Firmware // wanted for the image; auto is the one that its partition table calls for
	UEFI      emulator.UEFI   // what the VMs boot with; zero for BIOS, and as long as nobody has looked at the image
	Site      bool            // root makes a template for all users; there is no job
	Network   config.Network
	NetName   string // what --vm-network calls Network
	Hardware  Hardware
	Backend   config.Backend
	QEMU      config.QEMU
	VLAN      uint16 // of the job's VFs on Ethernet; 0 is none
	PKey      uint16 // of the job's VFs on InfiniBand, as full members write it; 0 is none
	VFSubnet  string // in which VFs have addresses; "" is none
	VFMode    config.VFMode
	Unpinned  string // why the VMs have no CPUs to themselves; "" if they have
	Cold      string // why the VMs can only be booted; "" if they can be restored from a template
	PageSizes []uint // KiB of the huge pages that the VMs' memory may have, the best first
	PageKiB   uint   // KiB of the pages that it has; 0 is ordinary ones
	Ordinary  error  // why it has ordinary ones in spite of PageSizes; nil if it has not

	Programs    int           // how many programs may run at once in one VM
	ReadyLimit  time.Duration // the longest --vm-ready-timeout that the site allows
	Images      config.Images // where images may lie
	Launch      config.Launch
	Measure     config.Measure
	Warm        config.Warm
	RegionPage  config.Size // size of the pages of shared memory; 0 is ordinary ones
	RegionLimit config.Size // bound on the shared memory of all jobs on the node
	NVDIMM      bool        // VMs have shared memory as NVDIMMs, not as PCI devices

	State string // directory of the job's files on this node, until reclaim
	Run   string // directory of its sockets and libvirt's own state
	VMs   []VM
}

// A VM is one virtual machine, decided.
type VM struct {
	Number  int    // in the job
	Index   int    // on the node
	Name    string // in the job, and the guest's host name
	Domain  string // in libvirt
	UUID    string
	MAC     string
	Address netip.Prefix // invalid where the site's DHCP server decides
	Tap     string
	VFs     []VF
	Pinning Pinning

	Dir     string // of the files below
	Overlay string
	Base    []images.Layer // what the overlay is based on, nearest first; known when the overlay is made
	Seed    string
	Vars    string // UEFI variables; in a directory of root's, see [Plan.vm]
	Console string // socket of the serial console
	Channel string // socket of the guest agent's port
}

// A VF is the guest's end of a virtual function. It has the MAC on Ethernet, and the GUIDs on
// InfiniBand.
type VF struct {
	MAC     string
	GUIDs   GUIDs
	Address netip.Prefix // invalid where the site gives VFs none
}

// GUIDs are the names of a VF on InfiniBand, in the form of ip-link(8).
type GUIDs struct{ Node, Port string }

// New decides what node will do for job. It touches nothing.
func New(cfg config.Config, job Job, who owner.Owner, hw Hardware) (Plan, error) {
	image, err := images.Resolve(cfg, job.Spec.Image)
	if err != nil {
		return Plan{}, err
	}
	device, lack := hw.sharedMemory(cfg.IVShmem.Device)
	if err := hw.check(job.Spec, lack); err != nil {
		return Plan{}, err
	}
	network, found := cfg.Network[job.Spec.Network]
	if !found {
		return Plan{}, fmt.Errorf("--vm-network: %q is not a network of this site; it has %s",
			job.Spec.Network, config.Names(cfg.Network))
	}
	p := Plan{
		Job: job, Owner: who, Image: image, Catalogue: images.InCatalogue(cfg.Images, image), Network: network, NetName: job.Spec.Network,
		Firmware: images.WantedFirmware(cfg.Images, image, job.Spec.Firmware),
		Hardware: hw, Backend: cfg.Backend, QEMU: cfg.QEMU, VLAN: tagOf(job.Reservation, fabric.VLAN), PKey: pkeyOf(job.Reservation), VFSubnet: cfg.VF.Subnet, VFMode: cfg.VF.Mode,
		PageSizes: pageSizes(cfg.Limits.HugePages, hw, job.Spec),
		Programs:  cfg.Limits.ProgramsPerVM, ReadyLimit: time.Duration(cfg.Limits.ReadyTimeout) * time.Second, Images: cfg.Images, Launch: cfg.Launch, Measure: cfg.Measure, Warm: cfg.Warm,
		RegionPage: cfg.IVShmem.HugePage, RegionLimit: cfg.Limits.IVShmemPerNode, NVDIMM: device == config.IVShmemNVDIMM,
		State: journal.Dir(cfg.StateDir(job.Node), job.ID),
		Run:   filepath.Join(cfg.RunDir(job.Node), "jobs", job.ID.String()),
	}
	if err := p.addVMs(); err != nil {
		return Plan{}, err
	}
	p.Cold = cmp.Or(p.coldHere(), job.Spec.ColdBecause(cfg))
	return p, nil
}

func (p *Plan) addVMs() error {
	pinnings, unpinned := pin(p.Hardware, p.Job.Spec.VMsPerNode, p.Job.Spec.VCPUs)
	p.Unpinned = unpinned
	for i := range p.Job.Spec.VMsPerNode {
		vm, err := p.vm(i)
		if err != nil {
			return err
		}
		vm.Pinning = pinnings[i]
		p.VMs = append(p.VMs, vm)
	}
	return nil
}

func (p Plan) vm(index int) (VM, error) {
	number := p.Job.Rank*p.Job.Spec.VMsPerNode + index
	name := "vm" + strconv.Itoa(number)
	dir := filepath.Join(p.State, "vm"+strconv.Itoa(index))
	vm := VM{
		Number: number, Index: index, Name: name,
		Domain: "slurmv-" + p.Job.ID.String() + "-" + name,
		UUID:   p.UUID(number),
		MAC:    p.mac(number).String(),
		Tap:    vmnet.TapName(p.Job.ID.Job, index),
		Dir:    dir,

		Overlay: filepath.Join(dir, "overlay.qcow2"),
		Seed:    filepath.Join(dir, "seed.iso"),
		// If the owner could remove the file, libvirt would make it again, as root and
		// through links of the owner's.
		Vars:    filepath.Join(p.State, "vm"+strconv.Itoa(index)+".vars"),
		Console: filepath.Join(p.Ports(), name+".console"),
		Channel: filepath.Join(p.Ports(), name+".channel"),
	}
	vfs, err := p.vfs(number)
	if err != nil {
		return VM{}, err
	}
	vm.VFs = vfs
	if p.Network.Type != config.NetworkJob {
		return vm, nil
	}
	subnet, err := netip.ParsePrefix(p.Network.Subnet)
	if err != nil {
		return VM{}, fmt.Errorf("network %s: %w", p.NetName, err)
	}
	addr, err := vmnet.Address(subnet, number)
	vm.Address = netip.PrefixFrom(addr, subnet.Bits())
	return vm, err
}

// mac is the hardware address of the NIC of the job's VM with that number.
func (p Plan) mac(number int) net.HardwareAddr {
	if p.Hardware.Cluster != "" {
		return vmnet.SharedMAC(p.Hardware.Cluster, p.Job.ID.Job, number)
	}
	return vmnet.MAC(p.Job.ID.Job, number)
}

// Ports is the directory of the VMs' sockets. Only root can enter it.
func (p Plan) Ports() string { return filepath.Join(p.Run, "ports") }

// EmulatorLogs is the directory of QEMU's output.
func (p Plan) EmulatorLogs() string { return filepath.Join(p.State, "qemu") }

// UUID returns the UUID of the job's VM with that number, the same each time. Reclaim finds
// the job's QEMU processes by it, on their command lines. The UUID depends on the job's
// state directory: two clusters on one machine can have nodes and jobs of the same names,
// but not the same directory. It is of version 8 of RFC 9562.
func (p Plan) UUID(number int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "slurm-v %s %d", p.State, number))
	u := uuid.UUID(sum[:16])
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return u.String()
}

// BootsBy is the firmware that the VMs boot with.
func (p Plan) BootsBy() config.Firmware {
	if p.UEFI == (emulator.UEFI{}) {
		return config.FirmwareBIOS
	}
	return config.FirmwareUEFI
}
