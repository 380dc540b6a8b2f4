package software

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/slurm-v/slurm-v/bridgeport"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// tapMTU is the most a tap takes.
const tapMTU = 65521

// attach makes the VF. The filter and the class are there before a frame can be.
func (p port) attach(ctx context.Context, owner device.Owner) error {
	var at seat
	var ifb, tap netlink.Link
	return inTurn(ctx,
		p.refuseTaken,
		func() (err error) { at, err = p.seat(); return err },
		func() (err error) { ifb, err = p.pf.makeIFB(); return err },
		func() error { return p.addClass(ifb) },
		func() error { return removeFilterOf(p.tap) }, // of a crash: it might lead elsewhere
		func() error { return p.filter(at) },
		func() (err error) { tap, err = p.makeTap(owner); return err },
		func() error { return p.redirect(tap, ifb) },
		func() error { return p.plug(tap, at) },
		func() error { return p.check(owner, at) },
	)
}

func (p port) refuseTaken() error {
	link, err := find(p.tap)
	if err == nil && link != nil {
		return fmt.Errorf("a %s of that name exists; what an earlier job left goes with 'slurmv clean'", link.Type())
	}
	return err
}

func (p port) makeTap(owner device.Owner) (netlink.Link, error) {
	tap, err := bridgeport.MakeTap(p.tap, int(owner.UID), int(owner.GID))
	if err != nil {
		return nil, fmt.Errorf("make the tap: %w", lacking(err, "tun"))
	}
	return tap, bridgeport.Mark(tap, p.alias())
}

// plug puts the tap where its frames may go.
func (p port) plug(tap netlink.Link, at seat) error {
	// The host's end has the VM's address but for the first byte, which is a high
	// one: a bridge takes the lowest address of its ports for its own.
	host := slices.Concat(net.HardwareAddr{0xfe}, p.mac[1:])
	if err := netlink.LinkSetHardwareAddr(tap, host); err != nil {
		return fmt.Errorf("set the tap's own address to %s: %w", host, err)
	}
	if mtu := min(at.bridge.Attrs().MTU, tapMTU); mtu != tap.Attrs().MTU {
		if err := netlink.LinkSetMTU(tap, mtu); err != nil {
			return fmt.Errorf("set MTU %d: %w", mtu, err)
		}
	}
	if err := enslave(tap, at.bridge); err != nil {
		return err
	}
	if err := setPVID(tap, at.pvid); err != nil {
		return err
	}
	return setUp(tap)
}

// setPVID makes tag the port's only VLAN, in which what the VM sends untagged is.
func setPVID(tap netlink.Link, tag uint16) error {
	if tag == 0 {
		return nil
	}
	tags, err := vlansOf(tap)
	if err != nil {
		return err
	}
	for _, vid := range tags {
		if err := netlink.BridgeVlanDel(tap, vid, false, false, false, true); err != nil {
			return fmt.Errorf("take %s out of VLAN %d: %w", tap.Attrs().Name, vid, err)
		}
	}
	if err := netlink.BridgeVlanAdd(tap, tag, true, true, false, true); err != nil {
		return fmt.Errorf("put %s into VLAN %d: %w", tap.Attrs().Name, tag, err)
	}
	return nil
}

// vlansOf returns the VLANs of a bridge's port.
func vlansOf(tap netlink.Link) (tags []uint16, err error) {
	list, err := netlink.BridgeVlanList()
	if err != nil {
		return nil, fmt.Errorf("list the VLANs of ports: %w", err)
	}
	for _, info := range list[int32(tap.Attrs().Index)] {
		tags = append(tags, info.Vid)
	}
	return tags, nil
}

// restore undoes attach backwards, whatever there is of it.
func restore(ctx context.Context, vf device.VF) error {
	tap := tapName(vf.PF, vf.Index)
	var errs []error
	for _, step := range []func() error{
		func() error { return remove(tap, "tuntap") },
		func() error { return removeFilterOf(tap) },
		func() error { return removeClass(vf.PF, vf.Index) },
		func() error { return sweepIFB(vf.PF) },
		sweepBridges,
		func() error { return checkGone(vf) },
	} {
		errs = append(errs, again(ctx, step))
	}
	return errors.Join(errs...)
}

func checkGone(vf device.VF) error {
	seen, err := read(vf)
	if err == nil && seen != (facts{}) {
		return fmt.Errorf("it is not gone: there still is %+v", seen)
	}
	return err
}
