package sriov

import "github.com/slurm-v/slurm-v/vfpool/device"

// ethernet is what nearly all drivers of Ethernet cards can. It has no rates.
var ethernet = device.Caps{MAC: true, VLAN: true, SpoofCheck: true, Trust: true, LinkState: true}

// driverCaps is what the drivers of PFs do for a VF when told by rtnetlink, read
// from Linux 6.12, cxi's from its own sources. The key is the driver, and the link
// layer where that makes a difference.
var driverCaps = map[string]device.Caps{
	// The minima are weights: a VF's share is its part of all minima in use.
	"mlx5_core":            with(ethernet, device.Caps{MinRate: true, MinIsWeight: true, MaxRate: true}),
	"mlx5_core infiniband": {LinkState: true},

	// A maximum is stored, but works only for VLANs with certain priorities.
	"mlx4_core":            {MAC: true, VLAN: true, SpoofCheck: true, LinkState: true},
	"mlx4_core infiniband": {}, // P_Keys and GUIDs by sysfs only

	"ice":     with(ethernet, device.Caps{MinRate: true, MaxRate: true}),
	"bnxt_en": with(ethernet, device.Caps{MinRate: true, MaxRate: true}),

	"i40e":  with(ethernet, device.Caps{MaxRate: true, MaxRateFrom: 50}), // less is raised to 50 silently
	"ixgbe": with(ethernet, device.Caps{MaxRate: true, MaxNeedsLink: true, MaxRateFrom: 11, MaxRateTo: 10000}),
	"igb":   {MAC: true, VLAN: true, SpoofCheck: true, Trust: true, MaxRate: true, MaxNeedsLink: true},

	// HPE Slingshot: what isolates there are CXI services, not VLANs.
	"cxi_core": {MAC: true, SpoofCheck: true, Trust: true, LinkState: true},
	"cxi_ss1":  {MAC: true, SpoofCheck: true, Trust: true, LinkState: true},

	"netdevsim": with(ethernet, device.Caps{MinRate: true, MaxRate: true, MaxRateTo: 65535}),
}

// unknown is a driver that is not in the table: a job that asks for more than a VF
// with an address is refused.
var unknown = device.Caps{MAC: true}

func known(driver string) bool {
	_, ok := driverCaps[driver]
	return ok
}

func with(caps, rates device.Caps) device.Caps {
	caps.MinRate, caps.MinIsWeight = rates.MinRate, rates.MinIsWeight
	caps.MaxRate, caps.MaxNeedsLink = rates.MaxRate, rates.MaxNeedsLink
	caps.MaxRateFrom, caps.MaxRateTo = rates.MaxRateFrom, rates.MaxRateTo
	return caps
}

// capsOf returns what pf can, as it is now.
func capsOf(pf device.PF) device.Caps {
	caps := unknown
	if known(pf.Driver) {
		caps = driverCaps[pf.Driver]
	}
	if pf.LinkLayer == infiniband {
		caps = driverCaps[pf.Driver+" "+infiniband] // none of an unknown driver: addresses are not MACs there
	}
	if pf.Driver == "ixgbe" && pf.Speed != 10000 {
		// The driver refuses rates, even none, at any other speed.
		caps.MaxRate = false
	}
	return caps
}
