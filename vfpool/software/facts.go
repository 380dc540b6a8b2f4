package software

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// facts are what the kernel reports of a VF.
type facts struct {
	tap, plug end
	owner     uint32 // of the tap
	wired     bool   // the tap and the wire pass frames to each other
	bridge    string // whose port the plug is
	pvid      uint16 // the plug's VLAN on that bridge

	admitted string // MAC address whose frames pass the filter
	shaped   string // MAC address whose frames are redirected to ifb
	ifb      string
	classed  string // MAC address whose frames go to class
	class    htbClass
}

// An end is one end of the VF: its tap, or its plug on the bridge.
type end struct {
	up    bool
	alias string
	kind  string // "" if it does not exist
}

// read returns the facts of a VF, or their zero value if nothing of it exists.
func read(vf device.VF) (facts, error) {
	var seen facts
	tap, err := seen.tap.find(tapName(vf.PF, vf.Index), "tuntap")
	if err != nil {
		return seen, err
	}
	plug, err := seen.plug.find(plugName(vf.PF, vf.Index), "veth")
	if err != nil {
		return seen, err
	}
	if err := errors.Join(seen.readWire(vf, tap), seen.readPlug(plug)); err != nil {
		return seen, err
	}
	if seen.admitted, err = admitted(plugName(vf.PF, vf.Index)); err != nil {
		return seen, err
	}
	return seen, seen.readClass(vf)
}

// find returns the link of that name, nil if there is none.
func (e *end) find(name, kind string) (netlink.Link, error) {
	link, err := find(name)
	if err != nil || link == nil {
		return nil, err
	}
	if link.Type() != kind {
		return nil, fmt.Errorf("%s is a %s and not ours; rename it", name, link.Type())
	}
	a := link.Attrs()
	*e = end{up: a.RawFlags&1 != 0, alias: a.Alias, kind: kind}
	return link, nil
}

func (f *facts) readWire(vf device.VF, tap netlink.Link) error {
	far, err := find(wireEndName(vf.PF, vf.Index))
	if err != nil || far == nil || tap == nil {
		return err
	}
	out, err := redirection(tap)
	if err != nil {
		return err
	}
	in, err := redirection(far)
	if err != nil {
		return err
	}
	f.owner = tap.(*netlink.Tuntap).Owner
	f.wired = far.Attrs().RawFlags&1 != 0 &&
		out != nil && out.RedirIndex == far.Attrs().Index && in != nil && in.RedirIndex == tap.Attrs().Index
	return nil
}

func (f *facts) readPlug(plug netlink.Link) error {
	if plug == nil {
		return nil
	}
	return errors.Join(f.readSeat(plug), f.readShaping(plug))
}

func (f *facts) readSeat(plug netlink.Link) error {
	master := plug.Attrs().MasterIndex
	if master == 0 {
		return nil
	}
	link, err := netlink.LinkByIndex(master)
	if err != nil {
		return fmt.Errorf("look for the bridge of %s: %w", plug.Attrs().Name, err)
	}
	f.bridge = link.Attrs().Name
	if bridge, ok := link.(*netlink.Bridge); ok && filtersVLANs(bridge) {
		tags, err := vlansOf(plug)
		if err != nil {
			return err
		}
		if len(tags) == 1 {
			f.pvid = tags[0]
		}
	}
	return nil
}

func (f *facts) readShaping(plug netlink.Link) error {
	found, err := redirection(plug)
	if err != nil || found == nil {
		return err
	}
	ifb, err := netlink.LinkByIndex(found.RedirIndex)
	if err != nil {
		return fmt.Errorf("look for the device that shapes %s: %w", plug.Attrs().Name, err)
	}
	f.shaped, f.ifb = macOf(found), ifb.Attrs().Name
	return nil
}

// redirection returns the filter that redirects the frames from link, or nil.
func redirection(link netlink.Link) (*netlink.U32, error) {
	found, err := filters(link, bridgeport.Ingress, 1)
	if err != nil || len(found) != 1 || found[0].RedirIndex == 0 {
		return nil, err
	}
	return found[0], nil
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

// check compares the VF with what was asked for.
func (p port) check(at seat) error {
	seen, err := read(p.vf)
	if err != nil {
		return err
	}
	mac := p.mac.String()
	want := facts{
		tap: end{true, p.alias(), "tuntap"}, plug: end{true, p.alias(), "veth"}, wired: true,
		bridge: at.bridge.Attrs().Name, pvid: seen.pvid,
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

// settings returns the facts as the pool's settings.
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
