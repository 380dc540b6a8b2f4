package vmlaunch

import (
	"context"
	"errors"
	"fmt"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/vmlaunch/hostdir"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
)

// serveDirectories starts a server for each directory of the node that the VMs see.
func (v *VMs) serveDirectories(ctx context.Context) error {
	for _, m := range v.Plan.Job.Spec.Mounts {
		server, err := hostdir.Start(ctx, v.Plan.Owner, hostdir.Directory{Job: v.Plan.Job.ID.String(), Path: m.Host, ReadOnly: m.ReadOnly})
		if err != nil {
			return err
		}
		v.directories = append(v.directories, server)
	}
	return nil
}

// mountDirectories mounts the directories in a VM in their order, in which none covers an
// earlier one, and takes the tags from mounts, by which the guest would mount them by 9p. If the guest's kernel has no FUSE,
// it leaves them as they are.
func (v *VMs) mountDirectories(ctx context.Context, m *machine.Machine, mounts []guest.Mount) error {
	for i := range mounts {
		stream, err := m.Session().Mount(ctx, mounts[i])
		if errors.Is(err, guest.ErrNoFUSE) && v.Plan.Hardware.Missing.NineP {
			return fmt.Errorf("%w; by 9p it cannot be mounted either, because QEMU on this node does not know it", err)
		}
		if errors.Is(err, guest.ErrNoFUSE) {
			v.Log.Info("directories are mounted by 9p", "vm", m.Plan.Name, "reason", err)
			return nil
		}
		if err != nil {
			return err
		}
		server, err := v.directories[i].Connect()
		if err != nil {
			return err
		}
		go func() {
			err := stream.Serve(server)
			v.Log.Debug("a directory is no longer served", "vm", m.Plan.Name, "path", mounts[i].Path, "reason", err)
		}()
		mounts[i].Tag = ""
	}
	return nil
}

// closeDirectories ends the servers.
func (v *VMs) closeDirectories() {
	for _, d := range v.directories {
		_ = d.Close()
	}
}
