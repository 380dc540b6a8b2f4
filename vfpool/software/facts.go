package software

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// facts is what the kernel says of a VF.
type facts struct {
	exists bool // the tap does
	up     bool
	alias  string
	bridge string // that it is a port of
	pvid   uint16 // by which that bridge keeps it apart
	owner  device.Owner

	admitted string // MAC address whose frames pass the filter,
	shaped   string // are redirected to ifb
	ifb      string
	classed  string // and come to the class there
	class    shape
}

// read returns what there is of a VF; that is the zero value if there is nothing.
func read(vf device.VF) (facts, error) {
	var seen facts
	tap, err := find(tapName(vf.PF, vf.Index))
	if err != nil {
		return seen, err
	}
	if tap != nil {
		if err := seen.readTap(tap); err != nil {
			return seen, err
		}
	}
	if seen.admitted, err = admitted(tapName(vf.PF, vf.Index)); err != nil {
		return seen, err
	}
	return seen, seen.readClass(vf)
}

func (f *facts) readTap(link netlink.Link) error {
	tap, ok := link.(*netlink.Tuntap)
	if !ok {
		return fmt.Errorf("%s is a %s and not ours; rename it", link.Attrs().Name, link.Type())
	}
	a := tap.Attrs()
	f.exists, f.alias, f.owner = true, a.Alias, device.Owner{UID: tap.Owner, GID: tap.Group}
	f.up = a.RawFlags&1 != 0
	return errors.Join(f.readSeat(tap), f.readRedirection(tap))
}

func (f *facts) readSeat(tap netlink.Link) error {
	master := tap.Attrs().MasterIndex
	if master == 0 {
		return nil
	}
	link, err := netlink.LinkByIndex(master)
	if err != nil {
		return fmt.Errorf("look for the bridge of %s: %w", tap.Attrs().Name, err)
	}
	f.bridge = link.Attrs().Name
	if bridge, ok := link.(*netlink.Bridge); ok && filtersVLANs(bridge) {
		tags, err := vlansOf(tap)
		if err != nil {
			return err
		}
		if len(tags) == 1 {
			f.pvid = tags[0]
		}
	}
	return nil
}

func (f *facts) readRedirection(tap netlink.Link) error {
	found, err := filters(tap, ingress, 1)
	if err != nil || len(found) != 1 || found[0].RedirIndex == 0 {
		return err
	}
	ifb, err := netlink.LinkByIndex(found[0].RedirIndex)
	if err != nil {
		return fmt.Errorf("look for the device that shapes %s: %w", tap.Attrs().Name, err)
	}
	f.shaped, f.ifb = macOf(found[0]), ifb.Attrs().Name
	return nil
}

func (f *facts) readClass(vf device.VF) error {
	ifb, err := find(ifbName(vf.PF))
	if err != nil || ifb == nil {
		return err
	}
	if f.class, _, err = class(ifb, vf.Index); err != nil {
		return err
	}
	found, err := filters(ifb, htbRoot, priority(vf.Index))
	if err != nil || len(found) != 1 || found[0].ClassId != leaf(vf.Index) {
		return err
	}
	f.classed = macOf(found[0])
	return nil
}

// check compares the VF with what was wanted.
func (p port) check(owner device.Owner, at seat) error {
	seen, err := read(p.vf)
	if err != nil {
		return err
	}
	mac := p.mac.String()
	want := facts{
		exists: true, up: true, alias: p.alias(), bridge: at.bridge.Attrs().Name, pvid: seen.pvid, owner: owner,
		admitted: mac, shaped: mac, classed: mac, ifb: ifbName(p.vf.PF), class: p.pf.shape(p.want.MinRate, p.want.MaxRate),
	}
	if at.pvid != 0 {
		want.pvid = at.pvid
	}
	if seen != want {
		return fmt.Errorf("the kernel has %+v where it was told %+v; does something else change the node's network?", seen, want)
	}
	return nil
}

// settings says in the pool's words what there is.
func (p pf) settings(seen facts) device.Settings {
	s := device.Settings{
		MAC: seen.admitted, VLAN: seen.pvid, SpoofCheck: seen.admitted != "", Link: device.LinkAuto,
		MinRate: p.minimum(seen.class), MaxRate: p.maximum(seen.class),
	}
	if _, tag, ok := split(bridgePrefix, seen.bridge); ok {
		s.VLAN = uint16(tag)
	}
	return s
}
