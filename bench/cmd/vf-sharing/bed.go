package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/netlab"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/software"
)

const (
	bridge = "br0"
	pf     = "soft0"
	vfs    = 16 // of each PF, as many as the configuration has without saying so
)

// A host is a node whose bridge is declared to be a PF.
type host struct {
	*netlab.Node
	number byte
	vfs    *software.Bridges
}

func newHost(number byte, link config.Rate) (h host, err error) {
	node, err := netlab.NewNode()
	if err != nil {
		return h, fmt.Errorf("%w; run as root", err)
	}
	h = host{Node: node, number: number, vfs: software.Open(config.VF{Software: map[string]config.SoftwarePF{
		pf: {Bridge: bridge, Rate: link, VFs: vfs, NUMA: -1},
	}}, false)}
	return h, h.Bridge(bridge)
}

// boot gives a VM a VF with a minimum in Mb/s, and opens it.
func (h host) boot(index int, minimum uint32) (*netlab.Guest, error) {
	mac := net.HardwareAddr{2, 0, 0, 0, h.number, byte(index)}
	tap, err := h.attach(index, device.Settings{MAC: mac.String(), SpoofCheck: true, MinRate: minimum})
	if err != nil {
		return nil, err
	}
	return h.Plug(tap, mac, netip.AddrFrom4([4]byte{10, 1, h.number, byte(1 + index)}))
}

func (h host) attach(index int, set device.Settings) (tap string, err error) {
	return tap, h.Do(func() error {
		pfs, err := h.vfs.PFs()
		if err != nil {
			return err
		}
		vf := pfs[0].VFs[index]
		tap = vf.Device
		if err := h.vfs.Apply(context.Background(), vf, set); err != nil {
			return err
		}
		return h.vfs.Attach(context.Background(), vf, owner.IDs{})
	})
}

// A bed is two hosts with a cable between their bridges.
type bed struct{ near, far host }

func lay(link config.Rate) (b bed, err error) {
	if b.near, err = newHost(1, link); err != nil {
		return b, err
	}
	if b.far, err = newHost(2, link); err != nil {
		return b, err
	}
	return b, b.near.Join(bridge, b.far.Node)
}

func (b bed) close() error { return errors.Join(b.near.Close(), b.far.Close()) }

// A pair is a VM on the near host and its partner on the far host.
type pair struct{ guest, partner *netlab.Guest }

// boot boots both VMs of a pair, with the same minimum in Mb/s.
func (b bed) boot(index int, minimum uint32) (p pair, err error) {
	if p.partner, err = b.far.boot(index, minimum); err != nil {
		return p, err
	}
	if p.guest, err = b.near.boot(index, minimum); err != nil {
		return p, err
	}
	return p, errors.Join(meet(p.there(), p.guest, p.partner), meet(p.back(), p.partner, p.guest))
}

// meet sends frames until one arrives: the kernel takes some time to set the ports up. After
// that, the bridges know where the sender is, and do not send its frames to all VMs.
func meet(flow netlab.Flow, from, to *netlab.Guest) error {
	const patience = 10 * time.Second
	frame := make([]byte, 1<<16)
	for begin := time.Now(); time.Since(begin) < patience; {
		if err := from.Send(flow.UDP(nil)); err != nil {
			return err
		}
		n, err := to.Receive(frame, time.Now().Add(10*time.Millisecond))
		if err == nil && isFor(to, frame[:n]) {
			return nil
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return err
		}
	}
	return fmt.Errorf("no frame from %s arrived at %s in %v", from.MAC, to.MAC, patience)
}

func (p pair) close() error { return errors.Join(p.guest.Close(), p.partner.Close()) }

// there returns the flow of UDP packets from the guest to its partner, back the other one.
func (p pair) there() netlab.Flow { return flowOf(p.guest, p.partner) }
func (p pair) back() netlab.Flow  { return flowOf(p.partner, p.guest) }

func flowOf(from, to *netlab.Guest) netlab.Flow {
	const port = 9
	return netlab.Flow{
		FromMAC: from.MAC, ToMAC: to.MAC,
		From: netip.AddrPortFrom(from.Addr, port), To: netip.AddrPortFrom(to.Addr, port),
	}
}
