package sriov

import (
	"errors"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// An Attribute is one thing that a PF is told about a VF, named as ip-link(8) does.
type Attribute string

// The values of Attribute.
const (
	MAC        Attribute = "mac"
	VLAN       Attribute = "vlan" // with its QoS
	SpoofCheck Attribute = "spoofchk"
	Trust      Attribute = "trust"
	Rates      Attribute = "rate"  // the kernel takes both at once
	LinkState  Attribute = "state" // of the VF's link
)

// attributes in the order in which they are set. The link is last: until then the
// VF is cut off where the driver can do that.
var attributes = []Attribute{MAC, VLAN, SpoofCheck, Trust, Rates, LinkState}

// Links is the kernel's rtnetlink, and what devlink adds. The errors are errnos.
type Links interface {
	// Settings returns what the interface pf says of its VF with that index. It is
	// ErrUnreadable for a PF with so many VFs that the kernel cannot.
	Settings(pf string, vf int) (device.Settings, error)

	// Set tells a VF one attribute of s.
	Set(pf string, vf int, attribute Attribute, s device.Settings) error

	// Switchdev reports whether the card's switch is in switchdev mode: its VFs
	// are then set through interfaces of their own.
	Switchdev(pci string) bool
}

// ErrUnreadable is of a PF whose VFs can be set, but not be read back.
var ErrUnreadable = errors.New("the kernel's answer has no room for so many VFs")
