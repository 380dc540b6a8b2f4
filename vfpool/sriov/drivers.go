package sriov

import "github.com/slurm-v/slurm-v/vfpool/device"

// ethernet is what nearly all drivers of Ethernet cards can set. Rates are not among it.
var ethernet = device.Caps{MAC: true, VLAN: true, SpoofCheck: true, Trust: true, LinkState: true}

// driverCaps lists what the drivers of PFs set for a VF, by rtnetlink or, mlx4, by sysfs. It was read from
// the sources of Linux 6.12, cxi's from HPE's. The key is the driver, with the link layer
// where that makes a difference.
var driverCaps = map[string]device.Caps{
	// The minima are weights: a VF's share is its minimum over the sum of all minima in
	// use.
	"mlx5_core":            with(ethernet, device.Caps{MinRate: true, MinIsWeight: true, MaxRate: true}),
	"mlx5_core infiniband": {LinkState: true, GUID: true},

	// The driver stores a maximum, but applies it only to VLANs with certain priorities.
	"mlx4_core":            {MAC: true, VLAN: true, SpoofCheck: true, LinkState: true},
	"mlx4_core infiniband": {PKeyIndex: true},

	"ice":     with(ethernet, device.Caps{MinRate: true, MaxRate: true}),
	"bnxt_en": with(ethernet, device.Caps{MinRate: true, MaxRate: true}),

	"i40e":  with(ethernet, device.Caps{MaxRate: true, MaxRateFrom: 50}), // it silently raises less to 50
	"ixgbe": with(ethernet, device.Caps{MaxRate: true, MaxNeedsLink: true, MaxRateFrom: 11, MaxRateTo: 10000}),
	"igb":   {MAC: true, VLAN: true, SpoofCheck: true, Trust: true, MaxRate: true, MaxNeedsLink: true},

	// HPE Slingshot. Without a MAC that its PF has set, an untrusted VF gets no address at
	// all.
	"cxi_core": {MAC: true, SpoofCheck: true, Trust: true, LinkState: true, Services: true},
	"cxi_ss1":  {MAC: true, SpoofCheck: true, Trust: true, LinkState: true, Services: true},

	"netdevsim": with(ethernet, device.Caps{MinRate: true, MaxRate: true, MaxRateTo: 65535}),
}

// unknown is for drivers that are not in the table. A job that asks for more than a VF
// with a MAC address is refused.
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

// capsOf returns what pf can set in its present state.
func capsOf(pf device.PF) device.Caps {
	caps := capsOfDriver(pf)
	if pf.Driver == "ixgbe" && pf.Speed != 10000 {
		// At any other speed the driver refuses to set rates, even to 0.
		caps.MaxRate = false
	}
	return caps
}

// capsOfDriver returns what pf can set in some state.
func capsOfDriver(pf device.PF) device.Caps {
	if pf.LinkLayer == infiniband {
		return driverCaps[pf.Driver+" "+infiniband] // nothing for an unknown driver: its addresses are not MACs
	}
	if known(pf.Driver) {
		return driverCaps[pf.Driver]
	}
	return unknown
}
