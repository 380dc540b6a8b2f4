package vmlaunch

import (
	"context"
	"net"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// A backend makes the VMs of a job on this node. What it makes is in the job's journal.
type backend interface {
	// open connects to what makes VMs.
	open(ctx context.Context) error

	// image brings the job's image to where the VMs read it, and finds the firmware that
	// boots it.
	image(ctx context.Context) (images.Info, emulator.UEFI, error)

	// network makes what connects the VMs with each other.
	network(ctx context.Context) error

	// vfs gets the VMs' virtual functions.
	vfs(ctx context.Context) error

	// request begins what only one node of the job does for all. The image is staged.
	request(ctx context.Context, image images.Info) error

	// start starts one VM. Its Domain runs then, and its console is recorded.
	start(ctx context.Context, m *machine.Machine, image images.Info) error

	// dial connects to the guest agent's port, whether or not the guest has booted.
	dial(ctx context.Context, m *machine.Machine) (net.Conn, error)

	// vfNICs are the VM's virtual functions to which the guest agent gives an address.
	vfNICs(m *machine.Machine) []guest.NIC

	// plug gives a running VM a region of shared memory.
	plug(m *machine.Machine, r ivshmem.Region) error

	// forget makes libvirt forget a VM that has ended, if nobody else does.
	forget(m *machine.Machine)

	close()
}

// backendOf is the site's choice.
func backendOf(v *VMs) backend {
	if v.Plan.Backend.Type == config.BackendOpenStack {
		return &cloud{VMs: v, asked: make(chan struct{})}
	}
	return &local{v}
}

// offered is what this machine offers to the job, as far as the back-end uses it.
func offered(ctx context.Context, cfg config.Config, job plan.Job) (plan.Hardware, error) {
	hw, err := inspectHardware("/", cfg.QEMU.Accel)
	if err != nil {
		return hw, err
	}
	if cfg.Backend.Type == config.BackendOpenStack {
		hw = inCloud(hw)
		hw.Cluster, err = settings(cfg.Backend).Cluster()
		return hw, err
	}
	hw.Missing, err = missingDevices(ctx, cfg.QEMU.Emulator, cfg.StateDir(job.Node))
	return hw, err
}
