package hypervisor

import (
	"context"
	"errors"
	"fmt"
	"net"

	"golang.org/x/sync/errgroup"

	"github.com/slurm-v/slurm-v/internal/process"
)

// Admit returns the connection that the VM's QEMU makes to door while plug makes it do so. Others may connect, too, before
// QEMU and meanwhile. They are turned away at once: if they filled the door's queue, QEMU would wait at its end, and plug
// for QEMU.
func (d *Domain) Admit(ctx context.Context, door *net.UnixListener, plug func() error) (net.Conn, error) {
	if _, err := d.Process(); err != nil {
		return nil, fmt.Errorf("ask libvirt's pid file which process is the QEMU of domain %s: %w", d.name, err)
	}
	var conn net.Conn
	both, ctx := errgroup.WithContext(ctx)
	both.Go(plug)
	both.Go(func() (err error) {
		conn, err = acceptFrom(ctx, door, d.IsProcess)
		return err
	})
	if err := both.Wait(); err != nil {
		if conn != nil {
			_ = conn.Close()
		}
		return nil, err
	}
	return conn, nil
}

// acceptFrom returns the connection of the domain's QEMU, and closes those of others.
func acceptFrom(ctx context.Context, door *net.UnixListener, isQEMU func(pid int) bool) (net.Conn, error) {
	stop := context.AfterFunc(ctx, func() { _ = door.Close() })
	defer stop()
	for {
		conn, err := door.AcceptUnix()
		if err != nil {
			return nil, errors.Join(context.Cause(ctx), err)
		}
		if peer, err := process.Peer(conn); err == nil && isQEMU(int(peer.Pid)) {
			return conn, nil
		}
		_ = conn.Close()
	}
}
