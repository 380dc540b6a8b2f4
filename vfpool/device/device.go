// Package device describes the virtual functions of a node as plain values: the physical
// functions (PFs), their virtual functions (VFs) and the settings of a VF.
//
// A PF belongs to an SR-IOV network card, or is a bridge that the site has declared to be
// a PF. The packages sriov and software read, set and restore PFs.
package device

import "github.com/slurm-v/slurm-v/internal/owner"

// Kind tells real functions from those made of software.
type Kind string

// The values of Kind.
const (
	SRIOV    Kind = "sriov"
	Software Kind = "software"
)

// A PF is one physical function. Rates are in Mb/s.
type PF struct {
	Name      string // of its network interface, or of the software PF in the configuration
	Kind      Kind
	PCI       string // "0000:01:00.0"; "" for software
	Driver    string
	LinkLayer string // "ether" or "infiniband"
	Speed     uint32 // of the link; 0 where the link is down or does not report it
	Up        bool
	NUMA      int // -1 where there are no NUMA nodes
	TotalVFs  int // that the card could have
	Caps      Caps
	VFs       []VF     // that exist, by their Index
	Unusable  Reason   // why none of its VFs can be used; zero if some can
	Notes     []Reason // what its VFs lack, though they can be used
}

// A VF is one virtual function.
type VF struct {
	PF       string // name of its PF
	Index    int    // on the PF, from 0
	Kind     Kind
	PCI      string // "0000:01:10.0"; "" for software
	NUMA     int
	Group    int    // IOMMU group; -1 if it has none
	Device   string // what the VM gets: the PCI address, or the tap's name
	Unusable Reason `json:"-"` // why it cannot be given to a VM; zero if it can. A leased VF can
}

// A Reason says what is wrong with a function and what to do about it. The zero Reason
// means that nothing is wrong.
type Reason struct {
	Seen   string // what is there
	Advice string // what to do; "" where Seen tells it
}

// String returns "it has no VFs: make them at boot", or "" for the zero Reason.
func (r Reason) String() string {
	if r.Advice == "" {
		return r.Seen
	}
	return r.Seen + ": " + r.Advice
}

// Caps lists what a driver lets the PF set for a VF (Linux 6.12).
type Caps struct {
	MAC, VLAN, SpoofCheck, Trust, LinkState bool

	GUID      bool // node GUID and port GUID, by netlink (mlx5 on InfiniBand)
	PKeyIndex bool // which P_Keys of the port the VF has, and its port GUID, by sysfs (mlx4 on InfiniBand)

	MinRate, MaxRate bool
	MinIsWeight      bool   // minima are weights for sharing, not guaranteed rates (mlx5)
	MaxNeedsLink     bool   // set only while the link is up
	MaxRateFrom      uint32 // the smallest maximum that it takes
	MaxRateTo        uint32 // the largest maximum that it takes; 0 is the speed of the link

	// Services says that CXI services keep the VFs of jobs apart, so that no VLAN is asked
	// of them, and that a VF reaches its PF by vsock: its VM needs a vhost-vsock device
	// (cass_sriov.c of shs-cxi-driver).
	Services bool
}

// LinkState is the state of the link that a VF reports to its VM.
type LinkState string

// The values of LinkState.
const (
	LinkAuto    LinkState = "auto" // as the PF's own link
	LinkEnable  LinkState = "enable"
	LinkDisable LinkState = "disable"
)

// Settings is what a VF is told through its PF. Rates are in Mb/s, 0 for none.
type Settings struct {
	MAC        string    `json:"mac,omitempty"`  // "" leaves it
	VLAN       uint16    `json:"vlan,omitempty"` // 0 is untagged
	QoS        uint8     `json:"qos,omitempty"`  // priority of the VLAN's frames
	MinRate    uint32    `json:"min_rate,omitempty"`
	MaxRate    uint32    `json:"max_rate,omitempty"`
	SpoofCheck bool      `json:"spoof_check"`
	Trust      bool      `json:"trust"`
	Link       LinkState `json:"link,omitempty"`

	// For VFs of InfiniBand PFs. GUIDs are in the form of ip-link(8), "02:50:00:01:07:90:00:81";
	// "" leaves them.
	NodeGUID string `json:"node_guid,omitempty"`
	PortGUID string `json:"port_guid,omitempty"`
	PKey     uint16 `json:"pkey,omitempty"` // the job's partition, as full members write it, 0x8001 …; 0 is none

	// PKeyMap says which P_Keys of a port a VF has, if its PF decides that: "1/0=3 1/1=0" means
	// that the first in the VF's table for port 1 is the fourth of the port's, and the second
	// is the port's first. "none" is no P_Key, and "" leaves the table. Those who want a PKey
	// leave it.
	PKeyMap string `json:"pkey_map,omitempty"`
}

// A State is everything that a VF is restored to.
type State struct {
	Settings Settings `json:"settings"`
	Driver   string   `json:"driver,omitempty"`   // that the VF is bound to; "" without a driver
	Override string   `json:"override,omitempty"` // driver_override

	// Owner and Mode are of /dev/vfio/GROUP. Mode is 0 if the file did not exist.
	Owner owner.IDs `json:"owner"`
	Mode  uint32    `json:"mode,omitempty"`
}
