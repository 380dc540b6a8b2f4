package vmlaunch

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"path/filepath"
	"strconv"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/journal"
)

// A Plan is all that one node will do for a job.
type Plan struct {
	Job       Job
	Owner     Owner
	Image     string // absolute path of the base image
	Catalogue bool   // it is one of the site's catalogue
	Site      bool   // no job, but root who makes a template for all
	Network   config.Network
	NetName   string // the --vm-network it is
	Hardware  Hardware
	Programs  int // that may run at once in one VM
	QEMU      config.QEMU
	VLAN      uint16 // of the job's VFs; 0 is none
	VFSubnet  string // in which VFs have addresses; "" is none
	Unpinned  string // why the VMs have no CPUs to themselves; "" if they have

	State string // directory of the job's files on this node, until reclaim
	Run   string // directory of its sockets and libvirt's own state
	VMs   []VMPlan
}

// A VMPlan is one virtual machine, decided.
type VMPlan struct {
	Number  int    // in the job
	Index   int    // on the node
	Name    string // in the job, and the guest's host name
	Domain  string // in libvirt
	UUID    string
	MAC     string
	Address netip.Prefix // invalid where the site's DHCP server decides
	Tap     string
	VFs     []VFPlan
	Pinning Pinning

	Dir     string // of the files below
	Overlay string
	Seed    string
	Console string // socket of the serial console
	Channel string // socket of the guest agent's port
}

// A VFPlan is the guest's end of a VF.
type VFPlan struct {
	MAC     string
	Address netip.Prefix // invalid where the site gives VFs none
}

// NewPlan decides what node will do for job; it touches nothing.
func NewPlan(cfg config.Config, job Job, owner Owner, hw Hardware) (Plan, error) {
	image, err := images.Resolve(cfg, job.Spec.Image)
	if err != nil {
		return Plan{}, err
	}
	network, found := cfg.Network[job.Spec.Network]
	if !found {
		return Plan{}, fmt.Errorf("--vm-network: %q is not a network of this site; it has %s",
			job.Spec.Network, config.Names(cfg.Network))
	}
	p := Plan{
		Job: job, Owner: owner, Image: image, Catalogue: images.InCatalogue(cfg.Images, image), Network: network, NetName: job.Spec.Network,
		Hardware: hw, Programs: cfg.Limits.ProgramsPerVM, QEMU: cfg.QEMU,
		VLAN: cfg.VF.VLAN(job.ID.Job), VFSubnet: cfg.VF.Subnet,
		State: journal.Dir(cfg.StateDir(job.Node), job.ID),
		Run:   filepath.Join(cfg.RunDir(job.Node), "jobs", job.ID.String()),
	}
	pinnings, unpinned := pin(hw, job.Spec.VMsPerNode, job.Spec.VCPUs)
	p.Unpinned = unpinned
	for i := range job.Spec.VMsPerNode {
		vm, err := p.vm(i)
		if err != nil {
			return Plan{}, err
		}
		vm.Pinning = pinnings[i]
		p.VMs = append(p.VMs, vm)
	}
	return p, nil
}

func (p Plan) vm(index int) (VMPlan, error) {
	number := p.Job.Rank*p.Job.Spec.VMsPerNode + index
	name := "vm" + strconv.Itoa(number)
	dir := filepath.Join(p.State, "vm"+strconv.Itoa(index))
	vm := VMPlan{
		Number: number, Index: index, Name: name,
		Domain: "slurmv-" + p.Job.ID.String() + "-" + name,
		UUID:   p.uuid(number),
		MAC:    vmnet.MAC(p.Job.ID.Job, number).String(),
		Tap:    vmnet.TapName(p.Job.ID.Job, index),
		Dir:    dir,

		Overlay: filepath.Join(dir, "overlay.qcow2"),
		Seed:    filepath.Join(dir, "seed.iso"),
		Console: filepath.Join(p.ports(), name+".console"),
		Channel: filepath.Join(p.ports(), name+".channel"),
	}
	vfs, err := p.vfs(number)
	if err != nil {
		return VMPlan{}, err
	}
	vm.VFs = vfs
	if p.Network.Type != config.NetworkJob {
		return vm, nil
	}
	subnet, err := netip.ParsePrefix(p.Network.Subnet)
	if err != nil {
		return VMPlan{}, fmt.Errorf("network %s: %w", p.NetName, err)
	}
	addr, err := vmnet.Address(subnet, number)
	vm.Address = netip.PrefixFrom(addr, subnet.Bits())
	return vm, err
}

// ports is the directory of the VMs' sockets, which root alone enters.
func (p Plan) ports() string { return filepath.Join(p.Run, "ports") }

// emulatorLogs is the directory of what QEMU prints.
func (p Plan) emulatorLogs() string { return filepath.Join(p.State, "qemu") }

// uuid is the same whenever the same VM is planned, so that a process can be
// matched to its job without having been written down. RFC 9562, version 8.
func (p Plan) uuid(number int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "slurm-v %s %s %s %d", p.Job.Cluster, p.Job.ID, p.Job.Node, number))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return formatUUID(u)
}

func formatUUID(u []byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}
