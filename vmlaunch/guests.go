package vmlaunch

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// readUserData reads the user's file for cloud-init, if the job names one.
func (v *VMs) readUserData(ctx context.Context) (err error) {
	if path := v.Plan.Job.Spec.UserData; path != "" {
		v.userData, err = images.ReadUserData(ctx, path, v.Plan.Owner)
	}
	return err
}

// prepareDisks makes the VM's overlay, its seed disk and its UEFI variables.
func (v *VMs) prepareDisks(ctx context.Context, m *machine.Machine, image images.Info) error {
	image, err := imageOf(ctx, v.Plan, m.Plan, image)
	if err != nil {
		return err
	}
	if err := images.CreateOverlay(ctx, image, m.Plan.Overlay, v.Plan.Job.Spec.DiskMiB, v.Plan.Owner); err != nil {
		return err
	}
	m.Plan.Base = image.Layers()
	if err := makeVars(v.Plan, m.Plan); err != nil {
		return err
	}
	return images.WriteSeed(m.Plan.Seed, seedOf(m.Plan, v.userData), v.Plan.Owner)
}

// seedOf is what cloud-init finds in the VM, and the guest agent.
func seedOf(vm plan.VM, userData []byte) images.Seed {
	return images.Seed{InstanceID: vm.Domain, Hostname: vm.Name, GuestBinary: guestBinary(), UserData: userData}
}

// guestBinary is the path of the guest agent's program on the node.
func guestBinary() string { return filepath.Join(config.Libexec, "slurmv-guest") }

// mpiFiles are the files that MPI programs need in the VMs. Without them the VMs start all the
// same, and what needs them says so.
func mpiFiles(log *slog.Logger, s guest.IVShmem) (files []guest.MPIFile) {
	names := []string{guest.PMIxServer}
	if s.Devices > 0 {
		names = append(names, guest.MPILibrary)
	}
	for _, name := range names {
		content, err := os.ReadFile(filepath.Join(config.Libexec, name))
		if err != nil {
			log.Warn("MPI programs may not start: Slurm-V is not installed whole", "err", err)
			continue
		}
		files = append(files, guest.MPIFile{Name: name, Content: content})
	}
	return files
}

// reach waits until the guest agent answers, and connects to it.
func (v *VMs) reach(ctx context.Context, m *machine.Machine) error {
	conn, err := v.backend.dial(ctx, m)
	if err != nil {
		return err
	}
	session, err := guest.Connect(ctx, conn)
	if err != nil {
		_ = conn.Close()
		return err
	}
	m.SetSession(session)
	return nil
}

// meetGuest connects to the guest agent, plugs in the shared memory, sets up the VM through
// the agent and takes its report.
func (v *VMs) meetGuest(ctx context.Context, m *machine.Machine) error {
	if err := v.reach(ctx, m); err != nil {
		return err
	}
	m.Pass(nodeagent.StageAgent)
	clockChecked := m.BeginClockCheck(ctx)
	if err := v.plugSharedMemory(ctx, m); err != nil {
		return err
	}
	setup := guestSetup(v.Plan, m.Plan, m.Address(), v.links.mtu)
	setup.NICs = append(setup.NICs, v.backend.vfNICs(m)...)
	setup.MPI = mpiFiles(v.Log, setup.IVShmem)
	if m.IsRestoring() {
		if err := renew(ctx, m, &setup, v.Log); err != nil {
			return err
		}
	}
	if err := v.directories.mount(ctx, m, setup.Mounts); err != nil {
		return fmt.Errorf("set up the guest: %w", err)
	}
	report, err := m.Session().Setup(ctx, setup)
	if err != nil {
		return fmt.Errorf("set up the guest: %w", err)
	}
	if err := v.wayOut.connect(ctx, m); err != nil {
		v.Log.Warn("a VM reaches nothing outside of the job's network", "vm", m.Plan.Name, "reason", err)
		report.Warnings = append(report.Warnings, err.Error())
	}
	if err := clockChecked(); err != nil {
		return err
	}
	return m.Adopt(report, v.Plan.NetName)
}

// plugSharedMemory gives the running VM its devices.
func (v *VMs) plugSharedMemory(ctx context.Context, m *machine.Machine) error {
	if v.Plan.NVDIMM && v.Plan.Job.Spec.IVShmem.Devices > 0 {
		if err := m.Session().ExpectNVDIMMs(ctx); err != nil {
			return fmt.Errorf("set up the guest: %w", err)
		}
	}
	return v.shared.plug(ctx, func(r ivshmem.Region) error { return v.backend.plug(m, r) })
}

// guestSetup returns the guest agent's instructions. address and mtu are those of the VM's
// first NIC; without an address, the guest asks for one.
func guestSetup(p plan.Plan, vm plan.VM, address netip.Prefix, mtu int) guest.Setup {
	o := p.Owner
	s := guest.Setup{
		HostName: vm.Name,
		GrowRoot: true,
		User:     guest.User{Name: o.Name, UID: o.UID, GID: o.GID, Home: o.Home, Shell: o.Shell},
		NICs:     []guest.NIC{{MAC: vm.MAC, MTU: mtu, Address: "dhcp"}},
		IVShmem:  guest.IVShmem{Devices: p.Job.Spec.IVShmem.Devices, Size: p.RegionSize(), NVDIMM: p.NVDIMM},
	}
	if address.IsValid() { // the job's own network: see vmnet.Tap
		s.NICs[0].Address, s.NICs[0].IPv4Only = address.String(), true
	}
	for _, g := range o.Groups {
		s.User.Groups = append(s.User.Groups, guest.Group{Name: g.Name, GID: g.GID})
	}
	for i, m := range p.Job.Spec.Mounts {
		s.Mounts = append(s.Mounts, guest.Mount{Tag: hypervisor.MountTag(i), Path: m.Guest, ReadOnly: m.ReadOnly})
	}
	if alias := p.Job.Spec.WorkDirAlias; alias != "" {
		s.Mounts = append(s.Mounts, guest.Mount{Of: p.Job.Spec.WorkDir, Path: alias})
	}
	return s
}

// vfNICs are the VFs with an address, which the guest agent has to set. It finds them by their
// MAC address or, on InfiniBand, by the GUID of their port. It cannot find those that have
// neither, of a card whose driver is not known.
func vfNICs(vm plan.VM, grants []vfpool.Grant) []guest.NIC {
	var nics []guest.NIC
	for _, g := range grants {
		vf := vm.VFs[g.Request.Index]
		if vf.Address.IsValid() && g.Settings.MAC+g.Settings.PortGUID != "" {
			nics = append(nics, guest.NIC{MAC: g.Settings.MAC, GUID: g.Settings.PortGUID, Address: vf.Address.String()})
		}
	}
	return nics
}
