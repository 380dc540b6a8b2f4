package sriov

import (
	"errors"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// An Attribute is one setting of a VF that its PF takes, named as in ip-link(8).
type Attribute string

// The values of Attribute.
const (
	MAC        Attribute = "mac"
	VLAN       Attribute = "vlan" // with its QoS
	SpoofCheck Attribute = "spoofchk"
	Trust      Attribute = "trust"
	Rates      Attribute = "rate"  // the kernel takes both at once
	LinkState  Attribute = "state" // of the VF's link

	NodeGUID Attribute = "node_guid"
	PortGUID Attribute = "port_guid"
	PKeyMap  Attribute = "pkey_idx" // a directory of sysfs, not of ip-link(8)
)

// attributes are in the order in which they are set. The link is last: until then the VF
// is cut off, if the driver can do that.
var attributes = []Attribute{MAC, VLAN, SpoofCheck, Trust, NodeGUID, PortGUID, PKeyMap, Rates, LinkState}

// Links is the kernel's rtnetlink and devlink. Its errors are errnos.
type Links interface {
	// Settings returns the settings of the VF with that index, as the interface pf
	// reports them. The error is ErrUnreadable if pf has more VFs than the kernel can
	// list.
	Settings(pf string, vf int) (device.Settings, error)

	// Set sets one attribute of a VF to its value in s.
	Set(pf string, vf int, attribute Attribute, s device.Settings) error

	// Switchdev reports whether the card's switch is in switchdev mode. Its VFs are then
	// set through separate interfaces.
	Switchdev(pci string) bool
}

// ErrUnreadable is for a PF whose VFs can be set, but not be read back.
var ErrUnreadable = errors.New("the kernel's answer has no room for so many VFs")
