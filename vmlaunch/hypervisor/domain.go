package hypervisor

import (
	"fmt"
	"slices"
	"strconv"

	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// A describer describes the VMs of a plan to libvirt.
type describer struct{ plan.Plan }

// Describe describes vm of p, which has the virtual functions vfs, to libvirt. The
// description is built from values, never from text, so users' texts cannot become XML.
func Describe(p plan.Plan, vm plan.VM, vfs []vfpool.Grant) *libvirtxml.Domain {
	return describer{p}.domain(vm, vfs)
}

func (p describer) domain(vm plan.VM, vfs []vfpool.Grant) *libvirtxml.Domain {
	d := &libvirtxml.Domain{
		Type:   domainType(p.Hardware.Accel),
		Name:   vm.Domain,
		UUID:   vm.UUID,
		Memory: &libvirtxml.DomainMemory{Value: uint(p.Job.Spec.MemoryMiB), Unit: "MiB"},
		VCPU:   &libvirtxml.DomainVCPU{Value: uint(p.PossibleVCPUs()), Current: uint(p.Job.Spec.VCPUs)},
		OS: &libvirtxml.DomainOS{
			Type:        &libvirtxml.DomainOSType{Arch: "x86_64", Machine: p.QEMU.Machine, Type: "hvm"},
			BootDevices: []libvirtxml.DomainBootDevice{{Dev: "hd"}},
		},
		Features:   p.features(vm),
		CPU:        p.cpuOf(vm),
		Clock:      &libvirtxml.DomainClock{Offset: "utc"},
		OnPoweroff: "destroy",
		OnReboot:   "restart",
		OnCrash:    "destroy",
		Devices:    &libvirtxml.DomainDeviceList{Emulator: p.QEMU.Emulator, MemBalloon: &libvirtxml.DomainMemBalloon{Model: "none"}},
		SecLabel:   []libvirtxml.DomainSecLabel{p.label()},
	}
	p.addFirmware(d, vm)
	p.addMemory(d, vfs)
	p.addPinning(d, vm)
	p.addRemapping(d, vm)
	p.addControllers(d)
	p.addSharedMemory(d)
	p.addDisks(d, vm)
	p.addNIC(d, vm)
	addVFs(d, vfs)
	p.addPorts(d, vm)
	p.addMounts(d)
	p.addEntropy(d)
	d.QEMUCommandline = p.commandLine()
	return d
}

// addFirmware makes the VM boot by UEFI, if its image wants that: QEMU's own firmware is a
// BIOS. The VM has variables of its own, whose file exists before libvirt sees its name.
func (p describer) addFirmware(d *libvirtxml.Domain, vm plan.VM) {
	if p.UEFI.Code == "" {
		return
	}
	d.OS.Loader = &libvirtxml.DomainLoader{Path: p.UEFI.Code, Readonly: "yes", Type: "pflash"}
	d.OS.NVRam = &libvirtxml.DomainNVRam{NVRam: vm.Vars}
}

// commandLine holds QEMU's options that libvirt has no words for: slots of NVDIMMs, what
// emulation needs, and extra. It is nil if there are none.
func (p describer) commandLine(extra ...string) *libvirtxml.DomainQEMUCommandline {
	line := &libvirtxml.DomainQEMUCommandline{Args: arguments(append(extra, p.nvdimmSlots()...)...)}
	if p.Hardware.Accel == config.AccelTCG {
		line.Args = append(line.Args, arguments(inlineQueues...)...)
		line.Envs = oneArena
	}
	if len(line.Args) == 0 {
		return nil
	}
	return line
}

func domainType(accel config.Accel) string {
	if accel == config.AccelKVM {
		return "kvm"
	}
	return "qemu"
}

// features tells a guest with KVM whether its vCPUs have CPUs to themselves: its kernel then
// spins for locks instead of giving up the CPU. An idle vCPU also waits a little in the guest
// before it halts, if its kernel has the driver cpuidle-haltpoll, which then stops the node's
// own waiting (poll-control).
func (p describer) features(vm plan.VM) *libvirtxml.DomainFeatureList {
	f := &libvirtxml.DomainFeatureList{ACPI: &libvirtxml.DomainFeature{}}
	if p.Dedicated(vm) {
		on := &libvirtxml.DomainFeatureState{State: "on"}
		f.KVM = &libvirtxml.DomainFeatureKVM{HintDedicated: on, PollControl: on}
	}
	if p.Hardware.Accel == config.AccelTCG {
		f.TCG = &libvirtxml.DomainFeatureTCG{TBCache: &libvirtxml.DomainFeatureTCGTBCache{Size: translatedCode, Unit: "MiB"}}
	}
	return f
}

// cpuOf is the CPU model with the VM's topology.
//
// With the host's CPU, QEMU passes its features on, but by itself not AMD's topology extensions
// (no_autoenable_flags in target/i386/cpu.c). Without them many guests take an AMD's
// hyper-threads for cores. With KVM, QEMU always lets them be turned on
// (kvm_arch_get_supported_cpuid), and libvirt does not check what it passes through, so
// "require" does not keep the VM from starting. libvirt ignores "optional" here
// (qemuBuildCpuModelArgStr).
func (p describer) cpuOf(vm plan.VM) *libvirtxml.DomainCPU {
	cpu, lies := p.cpu(), p.Topology(vm)
	cpu.Topology = &libvirtxml.DomainCPUTopology{Sockets: lies.Sockets, Cores: lies.Cores, Threads: lies.Threads}
	if cpu.Mode == passThrough && p.Hardware.TopoExt && lies.Threads > 1 {
		cpu.Features = append(cpu.Features, libvirtxml.DomainCPUFeature{Policy: "require", Name: topologyExtensions})
	}
	return cpu
}

// passThrough is the mode of a VM that has the host's CPU.
const passThrough = "host-passthrough"

// cpu is the site's CPU model, if it sets one. Else KVM passes the host's CPU through, and
// TCG, which has no host CPU to pass, offers all that it can emulate.
func (p describer) cpu() *libvirtxml.DomainCPU {
	switch {
	case p.QEMU.CPU != "":
		return &libvirtxml.DomainCPU{Mode: "custom", Match: "exact", Model: &libvirtxml.DomainCPUModel{Value: p.QEMU.CPU, Fallback: "forbid"}}
	case p.Hardware.Accel == config.AccelKVM:
		return &libvirtxml.DomainCPU{Mode: passThrough}
	}
	cpu := &libvirtxml.DomainCPU{Mode: "maximum"}
	for _, name := range slow {
		cpu.Features = append(cpu.Features, libvirtxml.DomainCPUFeature{Policy: "disable", Name: name})
	}
	return cpu
}

// label makes QEMU run as the job's owner, so that the kernel itself checks each
// image, overlay and mount against the owner's rights.
func (p describer) label() libvirtxml.DomainSecLabel {
	return libvirtxml.DomainSecLabel{
		Type: "static", Model: "dac", Relabel: "no",
		Label: fmt.Sprintf("+%d:+%d", p.Owner.UID, p.Owner.GID),
	}
}

// addMemory makes the guest's memory of huge pages, if the plan says so. A memfd needs no
// directory that QEMU, which runs as the owner, could write to. Huge pages, and memory that a
// card's VF is to reach, are there from the start.
func (p describer) addMemory(d *libvirtxml.Domain, vfs []vfpool.Grant) {
	if p.PageKiB == 0 && !haveCards(vfs) {
		return
	}
	d.MemoryBacking = &libvirtxml.DomainMemoryBacking{
		MemoryAllocation: &libvirtxml.DomainMemoryAllocation{Mode: "immediate", Threads: p.allocators()},
	}
	if p.PageKiB != 0 {
		d.MemoryBacking.MemoryHugePages = &libvirtxml.DomainMemoryHugepages{Hugepages: []libvirtxml.DomainMemoryHugepage{{Size: p.PageKiB, Unit: "KiB"}}}
		d.MemoryBacking.MemorySource = &libvirtxml.DomainMemorySource{Type: "memfd"}
	}
}

// allocators is how many threads allocate a VM's memory. Without them the kernel allocates
// and clears it page after page, while it pins the memory for a VF: that takes seconds for
// each 10 GiB. libvirt passes the number on from release 8.2 on, and older ones ignore it.
func (p describer) allocators() uint { return uint(min(p.Job.Spec.VCPUs, 16)) }

// addRemapping adds an IOMMU that remaps interrupts, if the VM has so many CPUs that
// interrupts cannot reach all of them otherwise. KVM leaves the I/O APIC to QEMU then. The
// IOMMU also remaps DMA, if the guest wants that; QEMU gives such a VM devices of the host
// only in caching mode.
func (p describer) addRemapping(d *libvirtxml.Domain, vm plan.VM) {
	if p.Topology(vm).APICIDs() <= plan.MostAPICIDs {
		return
	}
	d.Features.IOAPIC = &libvirtxml.DomainFeatureIOAPIC{Driver: "qemu"}
	d.Devices.IOMMU = &libvirtxml.DomainIOMMU{
		Model:  "intel",
		Driver: &libvirtxml.DomainIOMMUDriver{IntRemap: "on", CachingMode: "on", EIM: "on"},
	}
}

func (p describer) addControllers(d *libvirtxml.Domain) {
	d.Devices.Controllers = append(d.Devices.Controllers,
		libvirtxml.DomainController{Type: "usb", Model: "none"},
		libvirtxml.DomainController{Type: "virtio-serial"})
}

// addDisks adds the overlay and the seed. The overlay dies with the job, so the
// guest's flushes need not reach the medium.
func (p describer) addDisks(d *libvirtxml.Domain, vm plan.VM) {
	overlay := disk("vda", vm.Overlay, &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "qcow2", Cache: "unsafe", Discard: "unmap"}, false)
	overlay.BackingStore = chain(vm.Base)
	seed := disk("vdb", vm.Seed, &libvirtxml.DomainDiskDriver{Name: "qemu", Type: "raw"}, true)
	d.Devices.Disks = append(d.Devices.Disks, overlay, seed)
}

// chain describes what a disk is based on, nearest first, and that there is no more. libvirt
// would otherwise read that in the disk and open, as root, whatever file the disk names, and
// the disk's owner can write to it at any time.
func chain(layers []images.Layer) *libvirtxml.DomainDiskBackingStore {
	below := &libvirtxml.DomainDiskBackingStore{}
	for _, layer := range slices.Backward(layers) {
		below = &libvirtxml.DomainDiskBackingStore{
			Format:       &libvirtxml.DomainDiskFormat{Type: layer.Format},
			Source:       &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: layer.Path}},
			BackingStore: below,
		}
	}
	return below
}

func disk(target, file string, driver *libvirtxml.DomainDiskDriver, readOnly bool) libvirtxml.DomainDisk {
	d := libvirtxml.DomainDisk{
		Device: "disk",
		Driver: driver,
		Source: &libvirtxml.DomainDiskSource{File: &libvirtxml.DomainDiskSourceFile{File: file}},
		Target: &libvirtxml.DomainDiskTarget{Dev: target, Bus: "virtio"},
	}
	if readOnly {
		d.ReadOnly = &libvirtxml.DomainDiskReadOnly{}
	}
	return d
}

// addNIC adds the NIC through which the job's VMs reach each other.
func (p describer) addNIC(d *libvirtxml.Domain, vm plan.VM) {
	nic := onTap(vm.Tap, vm.MAC)
	if queues := p.Queues(); queues > 1 {
		nic.Driver = &libvirtxml.DomainInterfaceDriver{Queues: uint(queues)}
	}
	d.Devices.Interfaces = append(d.Devices.Interfaces, nic)
}

// onTap is a NIC on an existing tap: libvirt only opens it. The NIC needs no option ROM,
// because the guest boots from its disk.
func onTap(tap, mac string) libvirtxml.DomainInterface {
	return libvirtxml.DomainInterface{
		MAC:    &libvirtxml.DomainInterfaceMAC{Address: mac},
		Source: &libvirtxml.DomainInterfaceSource{Ethernet: &libvirtxml.DomainInterfaceSourceEthernet{}},
		Target: &libvirtxml.DomainInterfaceTarget{Dev: tap, Managed: "no"},
		Model:  &libvirtxml.DomainInterfaceModel{Type: "virtio"},
		ROM:    &libvirtxml.DomainROM{Enabled: "no"},
	}
}

// addPorts adds the console and the guest agent's channel. libvirt binds their sockets and
// hands QEMU the listening descriptors, because QEMU cannot enter their directory: only
// root can. QEMU serves one connection per socket, which is slurmv-agent's.
func (p describer) addPorts(d *libvirtxml.Domain, vm plan.VM) {
	d.Devices.Serials = append(d.Devices.Serials, libvirtxml.DomainSerial{
		Source: bound(vm.Console),
		Target: &libvirtxml.DomainSerialTarget{Type: "isa-serial", Port: new(uint)},
	})
	d.Devices.Channels = append(d.Devices.Channels, libvirtxml.DomainChannel{
		Source: bound(vm.Channel),
		Target: &libvirtxml.DomainChannelTarget{VirtIO: &libvirtxml.DomainChannelTargetVirtIO{Name: guest.PortName}},
	})
}

func bound(path string) *libvirtxml.DomainChardevSource {
	return &libvirtxml.DomainChardevSource{UNIX: &libvirtxml.DomainChardevSourceUNIX{Mode: "bind", Path: path}}
}

// MountTag is the 9p tag of the job's mount i.
func MountTag(i int) string { return "slurmv" + strconv.Itoa(i) }

// addMounts exports host directories over 9p. With accessmode squash, QEMU, which runs as
// the owner, can do only what the owner may do.
// Without 9p in QEMU, guests have them by FUSE only.
func (p describer) addMounts(d *libvirtxml.Domain) {
	if p.Hardware.Missing.NineP {
		return
	}
	for i, m := range p.Job.Spec.Mounts {
		fs := libvirtxml.DomainFilesystem{
			AccessMode: "squash",
			MultiDevs:  "remap",
			Source:     &libvirtxml.DomainFilesystemSource{Mount: &libvirtxml.DomainFilesystemSourceMount{Dir: m.Host}},
			Target:     &libvirtxml.DomainFilesystemTarget{Dir: MountTag(i)},
		}
		if m.ReadOnly {
			fs.ReadOnly = &libvirtxml.DomainFilesystemReadOnly{}
		}
		d.Devices.Filesystems = append(d.Devices.Filesystems, fs)
	}
}

func (p describer) addEntropy(d *libvirtxml.Domain) {
	d.Devices.RNGs = append(d.Devices.RNGs, libvirtxml.DomainRNG{
		Model:   "virtio",
		Backend: &libvirtxml.DomainRNGBackend{Random: &libvirtxml.DomainRNGBackendRandom{Device: "/dev/urandom"}},
	})
}
