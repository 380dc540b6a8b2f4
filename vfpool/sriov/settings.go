package sriov

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

const (
	// zeroMAC lets the VF's driver choose an address.
	zeroMAC = "00:00:00:00:00:00"
	// noMAC replaces zeroMAC for drivers that refuse it.
	noMAC = "02:00:00:00:00:00"
)

// A setter reads and sets a VF through its PF.
type setter struct{ *operation }

func (o setter) can(a Attribute) bool {
	c := o.pf.Caps
	switch a {
	case MAC:
		return c.MAC
	case VLAN:
		return c.VLAN
	case SpoofCheck:
		return c.SpoofCheck
	case Trust:
		return c.Trust
	case Rates:
		return c.MinRate || c.MaxRate
	case NodeGUID:
		return c.GUID
	case PortGUID:
		return c.GUID || c.PKeyIndex
	case PKeyMap:
		return c.PKeyIndex
	default:
		return c.LinkState
	}
}

// refuse says which part of want the card cannot do, before anything is changed.
func (o setter) refuse(want device.Settings) error {
	c := o.pf.Caps
	switch {
	case want.VLAN != 0 && !c.VLAN:
		return o.unsupported("vlan")
	case want.PKey != 0 && !c.GUID && !c.PKeyIndex:
		return o.unsupported("pkey")
	case want.MinRate != 0 && !c.MinRate:
		return o.unsupported("min_tx_rate")
	case want.MaxRate != 0 && !c.MaxRate:
		return o.unsupported("max_tx_rate")
	case want.VLAN > 4094:
		return o.fail("vlan", fmt.Sprint(want.VLAN), errors.New("no such VLAN"), "give one from 1 to 4094, or 0 for none")
	case want.MaxRate != 0 && want.MinRate > want.MaxRate:
		return o.fail("rate", value(Rates, want), errors.New("the minimum is above the maximum"), "give a smaller minimum or a larger maximum")
	}
	return o.refuseRate(want)
}

func (o setter) refuseRate(want device.Settings) error {
	from, to := o.pf.Caps.MaxRateFrom, o.pf.Caps.MaxRateTo
	if to == 0 {
		to = o.pf.Speed // 0 if the link does not report it
	}
	if m := want.MaxRate; m == 0 || m >= from && (to == 0 || m <= to) {
		return nil
	}
	return o.fail("max_tx_rate", fmt.Sprint(want.MaxRate), fmt.Errorf("the driver %s takes %d to %d Mb/s here", o.pf.Driver, from, to), "give a maximum in that range, or none")
}

func (o setter) unsupported(attribute string) error {
	return &UnsupportedError{PF: o.vf.PF, Driver: o.pf.Driver, Attribute: attribute}
}

// setting sets one attribute if the driver supports it.
func (o setter) setting(a Attribute, s device.Settings) func(context.Context) error {
	return func(ctx context.Context) error {
		if !o.can(a) || isLeft(a, s) {
			return nil
		}
		if a == Rates {
			// While the link is down, some drivers refuse even the rate that the VF
			// already has.
			if now, err := o.read(ctx); err == nil && o.same(Rates, s, now) {
				return nil
			}
		}
		return o.tell(ctx, a, s)
	}
}

// isLeft reports whether s leaves an attribute as it is.
func isLeft(a Attribute, s device.Settings) bool {
	switch a {
	case MAC, NodeGUID, PortGUID, PKeyMap:
		return value(a, s) == ""
	}
	return false
}

func (o setter) tell(ctx context.Context, a Attribute, s device.Settings) error {
	if o.pf.Caps.PKeyIndex {
		return o.tellTables(ctx, a, s)
	}
	set := func() error { return o.links.Set(o.pf.Name, o.vf.Index, a, s) }
	err := o.retry(ctx, set)
	if a == MAC && isZero(s.MAC) && err != nil && !busy(err) && !o.gone() {
		s.MAC = noMAC
		err = o.retry(ctx, set)
	}
	return o.fail(string(a), value(a, s), err, "")
}

func isZero(mac string) bool { return mac == zeroMAC }

// value returns an attribute of s in the form that ip-link(8) takes.
func value(a Attribute, s device.Settings) string {
	switch a {
	case MAC:
		return s.MAC
	case VLAN:
		return fmt.Sprint(s.VLAN)
	case SpoofCheck:
		return onOff(s.SpoofCheck)
	case Trust:
		return onOff(s.Trust)
	case Rates:
		return fmt.Sprintf("min_tx_rate %d max_tx_rate %d", s.MinRate, s.MaxRate)
	case NodeGUID:
		return s.NodeGUID
	case PortGUID:
		return s.PortGUID
	case PKeyMap:
		return s.PKeyMap
	default:
		return string(s.Link)
	}
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

// read returns the VF's settings as the PF reports them, or ErrUnreadable.
func (o setter) read(ctx context.Context) (s device.Settings, err error) {
	if o.pf.Caps == (device.Caps{}) {
		return device.Settings{}, nil // such a PF may not even have a network interface
	}
	if o.pf.Caps.PKeyIndex {
		return o.readTables()
	}
	err = o.retry(ctx, func() error {
		s, err = o.links.Settings(o.pf.Name, o.vf.Index)
		return err
	})
	return s, err
}

// untouched returns the settings of a new VF. They are restored if the kernel cannot
// report the original ones.
func (o setter) untouched() device.Settings {
	return device.Settings{MAC: zeroMAC, SpoofCheck: o.pf.Caps.SpoofCheck, Link: device.LinkAuto}
}

// forNobody returns the settings of a VF that had those of a job: without P_Keys and GUIDs, too.
func (o setter) forNobody() device.Settings {
	s := o.untouched()
	if o.pf.Caps.GUID || o.pf.Caps.PKeyIndex {
		s.NodeGUID, s.PortGUID, s.PKeyMap = noGUID, noGUID, noKeys
	}
	return s
}

func (o setter) readBack(want device.Settings) func(context.Context) error {
	return func(ctx context.Context) error {
		err := o.retry(ctx, func() error { return o.compare(ctx, want) })
		if errors.Is(err, ErrUnreadable) {
			return nil
		}
		return o.fail("settings", "", err, "")
	}
}

// compare returns errNotYet if the settings differ: some drivers apply them only after
// the VF's reset.
func (o setter) compare(ctx context.Context, want device.Settings) error {
	got, err := o.read(ctx)
	if err != nil {
		return err
	}
	d := o.differences(want, got)
	if len(d) == 0 {
		return nil
	}
	err = fmt.Errorf("reads back %s: %w", value(d[0], got), errNotYet)
	return o.fail(string(d[0]), value(d[0], want), err, "the driver took it, but did something else: leave it out of the request, or quarantine the VF")
}

// differences returns the attributes that the driver supports and that differ.
func (o setter) differences(want, got device.Settings) (d []Attribute) {
	for _, a := range attributes {
		if o.can(a) && !o.same(a, want, got) {
			d = append(d, a)
		}
	}
	return d
}

func (o setter) same(a Attribute, want, got device.Settings) bool {
	switch a {
	case MAC:
		return want.MAC == "" || strings.EqualFold(want.MAC, got.MAC) || isZero(want.MAC) && got.MAC == noMAC
	case VLAN:
		return want.VLAN == got.VLAN && want.QoS == got.QoS
	case Rates:
		c := o.pf.Caps
		return (!c.MinRate || want.MinRate == got.MinRate) && (!c.MaxRate || want.MaxRate == got.MaxRate)
	case NodeGUID, PortGUID:
		return sameGUID(value(a, want), value(a, got))
	case PKeyMap:
		return isLeft(a, want) || want.PKeyMap == got.PKeyMap
	default:
		return value(a, want) == value(a, got)
	}
}
