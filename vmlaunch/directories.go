package vmlaunch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

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

// mountDirectories mounts the directories in a VM, outer ones first, and takes the tags
// from mounts, by which the guest would mount them by 9p. If the guest's kernel has no FUSE,
// it leaves them as they are.
func (v *VMs) mountDirectories(ctx context.Context, m *machine.Machine, mounts []guest.Mount) error {
	for _, i := range outerFirst(mounts) {
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

// outerFirst returns the numbers of mounts in an order in which none covers another.
func outerFirst(mounts []guest.Mount) []int {
	numbers := make([]int, len(mounts))
	for i := range numbers {
		numbers[i] = i
	}
	slices.SortStableFunc(numbers, func(a, b int) int { return cmp.Compare(len(mounts[a].Path), len(mounts[b].Path)) })
	return numbers
}

// closeDirectories ends the servers.
func (v *VMs) closeDirectories() {
	for _, d := range v.directories {
		if err := d.Close(); err != nil {
			v.Log.Warn("a directory's server is not told to end", "error", fmt.Sprint(err))
		}
	}
}
