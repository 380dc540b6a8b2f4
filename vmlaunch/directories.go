package vmlaunch

import (
	"context"
	"errors"
	"fmt"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/vmlaunch/hostdir"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
)

// directories are the node's directories that the VMs of a job see.
type directories struct {
	vms     *machine.Set
	servers []*hostdir.Server // in the order of the request's mounts
}

// serve starts a server for each directory.
func (d *directories) serve(ctx context.Context) error {
	p := d.vms.Plan
	for _, m := range p.Job.Spec.Mounts {
		server, err := hostdir.Start(ctx, p.Owner, hostdir.Directory{Job: p.Job.ID.String(), Path: m.Host, ReadOnly: m.ReadOnly})
		if err != nil {
			return err
		}
		d.servers = append(d.servers, server)
	}
	return nil
}

// mount mounts the directories in a VM in their order, in which none covers an earlier one,
// and takes the tags from mounts, by which the guest would mount them by 9p. If the guest's
// kernel has no FUSE, it leaves them as they are.
func (d *directories) mount(ctx context.Context, m *machine.Machine, mounts []guest.Mount) error {
	for i := range d.servers { // what follows in mounts has no server
		stream, err := m.Session().Mount(ctx, mounts[i])
		if errors.Is(err, guest.ErrNoFUSE) && d.vms.Plan.Hardware.Missing.NineP {
			return fmt.Errorf("%w; by 9p it cannot be mounted either, because QEMU on this node does not know it", err)
		}
		if errors.Is(err, guest.ErrNoFUSE) {
			d.vms.Log.Info("directories are mounted by 9p", "vm", m.Plan.Name, "reason", err)
			return nil
		}
		if err != nil {
			return err
		}
		server, err := d.servers[i].Connect()
		if err != nil {
			return err
		}
		go func() {
			err := stream.Serve(server)
			d.vms.Log.Debug("a directory is no longer served", "vm", m.Plan.Name, "path", mounts[i].Path, "reason", err)
		}()
		mounts[i].Tag = ""
	}
	return nil
}

// close ends the servers.
func (d *directories) close() {
	for _, server := range d.servers {
		_ = server.Close()
	}
}
