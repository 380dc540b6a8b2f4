package software

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// attach makes the VF. The filter and the class exist before the first frame can arrive.
func (p port) attach(ctx context.Context) error {
	var at seat
	var ifb, plug netlink.Link
	return inTurn(ctx,
		p.refuseTaken,
		func() (err error) { at, err = p.seat(); return err },
		func() (err error) { ifb, err = p.pf.makeIFB(); return err },
		func() error { return p.addClass(ifb) },
		func() error { return removeFilterOf(p.plug) }, // what a crash left may jump elsewhere
		func() error { return p.filter(at) },
		func() (err error) { plug, err = p.layWire(at); return err },
		func() error { return p.redirect(plug, ifb) },
		func() error { return putOn(plug, at) },
		func() error { return p.check(at) },
	)
}

func (p port) refuseTaken() error {
	for _, name := range []string{p.tap, p.plug} {
		link, err := find(name)
		if err != nil {
			return err
		}
		if link != nil {
			return fmt.Errorf("a %s %s exists; what an earlier job left goes with 'slurmv clean'", link.Type(), name)
		}
	}
	return nil
}

func (p port) layWire(at seat) (netlink.Link, error) {
	return bridgeport.Wire{
		Tap: p.tap, End: wireEndName(p.vf.PF, p.vf.Index), Port: p.plug,
		Alias: p.alias(), MAC: p.mac, MTU: bridgeport.MTU(at.bridge),
	}.Lay()
}

// putOn puts the wire's port on its bridge, in its VLAN.
func putOn(plug netlink.Link, at seat) error {
	if err := enslave(plug, at.bridge); err != nil {
		return err
	}
	if err := setPVID(plug, at.pvid); err != nil {
		return err
	}
	return setUp(plug)
}

// setPVID makes tag the port's only VLAN. The VM's untagged frames belong to it.
func setPVID(plug netlink.Link, tag uint16) error {
	if tag == 0 {
		return nil
	}
	tags, err := vlansOf(plug)
	if err != nil {
		return err
	}
	for _, vid := range tags {
		if err := netlink.BridgeVlanDel(plug, vid, false, false, false, true); err != nil {
			return fmt.Errorf("take %s out of VLAN %d: %w", plug.Attrs().Name, vid, err)
		}
	}
	if err := netlink.BridgeVlanAdd(plug, tag, true, true, false, true); err != nil {
		return fmt.Errorf("put %s into VLAN %d: %w", plug.Attrs().Name, tag, err)
	}
	return nil
}

// vlansOf returns the VLANs of a bridge's port.
func vlansOf(plug netlink.Link) (tags []uint16, err error) {
	list, err := netlink.BridgeVlanList()
	if err != nil {
		return nil, fmt.Errorf("list the VLANs of ports: %w", err)
	}
	for _, info := range list[int32(plug.Attrs().Index)] {
		tags = append(tags, info.Vid)
	}
	return tags, nil
}

// restore removes what exists of a VF, in the reverse order of attach.
func restore(ctx context.Context, vf device.VF) error {
	tap, plug := tapName(vf.PF, vf.Index), plugName(vf.PF, vf.Index)
	var errs []error
	for _, step := range []func() error{
		func() error { return remove(tap, "tuntap") },
		func() error { return remove(plug, "veth") }, // this removes the wire's other end, too
		func() error { return sweepFilter(plug) },
		func() error { return removeClass(vf.PF, vf.Index) },
		func() error { return sweepIFB(vf.PF) },
		func() error { return checkGone(vf) },
	} {
		errs = append(errs, again(ctx, step))
	}
	return errors.Join(errs...)
}

// sweepFilter removes the filter of a port that is gone, and the bridges of tags that have no VF
// any more. Only that filter keeps off the host what comes by such a bridge, so the bridge goes first.
func sweepFilter(plug string) error {
	if err := sweepBridges(); err != nil {
		return err
	}
	return removeFilterOf(plug)
}

func checkGone(vf device.VF) error {
	seen, err := read(vf)
	if err == nil && seen != (facts{}) {
		return fmt.Errorf("it is not gone: there still is %+v", seen)
	}
	return err
}
