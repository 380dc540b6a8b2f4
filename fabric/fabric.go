package fabric

import (
	"fmt"
	"slices"

	"github.com/slurm-v/slurm-v/journal"
)

// Kind is the kind of a tag.
type Kind string

// The values of Kind.
const (
	VLAN Kind = "vlan" // 1 to 4094, on the frames of Ethernet VFs
	PKey Kind = "pkey" // InfiniBand partition, 15 bits: 0x0001 to 0x7ffe
	VNI  Kind = "vni"  // Slingshot virtual network identifier, 16 bits
)

// Kinds lists all kinds.
var Kinds = []Kind{VLAN, PKey, VNI}

// A Tag is one tag of some kind.
type Tag uint16

// Text returns the tag as users and tools write it: a P_Key in hexadecimal, as a full
// member has it.
func (t Tag) Text(kind Kind) string {
	if kind == PKey {
		return fmt.Sprintf("%#04x", uint16(t)|FullMember)
	}
	return fmt.Sprint(uint16(t))
}

// FullMember is the bit of a P_Key that marks a full member of the partition
// (InfiniBand Architecture Specification, volume 1, 10.9.1.1).
const FullMember = 0x8000

// A Range is the tags First to Last, both included.
type Range struct{ First, Last Tag }

// A Pool is the tags of one kind that jobs can have.
type Pool struct {
	Name       string // "vlan", "pkey", "vni", or the name that the site gave to another one
	Kind       Kind
	Tags       []Range  // in ascending order, apart from each other
	PerJob     int      // how many tags a job has that does not say
	Partitions []string // Slurm's partitions whose jobs use it; empty for all
}

// Has reports whether tag is in the pool.
func (p Pool) Has(tag Tag) bool {
	return slices.ContainsFunc(p.Tags, func(r Range) bool { return r.First <= tag && tag <= r.Last })
}

// Size returns the number of tags.
func (p Pool) Size() (n int) {
	for _, r := range p.Tags {
		n += int(r.Last) - int(r.First) + 1
	}
	return n
}

// A Grant is the tags that a job has of one pool.
type Grant struct {
	Pool string `json:"pool"`
	Kind Kind   `json:"kind"`
	Tags []Tag  `json:"tags,omitempty"` // empty if Empty says why
	Why  string `json:"why,omitempty"`  // why the job has no tags of this pool: "disabled by user request"
}

// A Reservation is what the controller has given to one run of a job.
type Reservation struct {
	Cluster string     `json:"cluster"`
	Job     journal.ID `json:"job"`
	UID     uint32     `json:"uid"` // of the job's owner
	Grants  []Grant    `json:"grants,omitempty"`
	Classes []Class    `json:"classes,omitempty"` // traffic classes that the job may use; empty for the site's
	VMs     int        `json:"vms,omitempty"`     // that have VFs, on all nodes together
	VFs     int        `json:"vfs,omitempty"`     // of each of these VMs

	Collectives *Collectives `json:"collectives,omitempty"` // nil without
}

// Tags returns the job's tags of a kind, of all pools.
func (r Reservation) Tags(kind Kind) (tags []Tag) {
	for _, g := range r.Grants {
		if g.Kind == kind {
			tags = append(tags, g.Tags...)
		}
	}
	return tags
}

// Ports returns the ports that are members of the job's P_Keys: the VFs of all its VMs.
func (r Reservation) Ports() (ports []GUID) {
	for vm := range r.VMs {
		for vf := range r.VFs {
			ports = append(ports, PortGUID(r.Job.Job, vm, vf))
		}
	}
	return ports
}

// Collectives is a reservation of multicast addresses with a Slingshot fabric manager.
type Collectives struct {
	Session  string `json:"session"` // the job's name at the fabric manager: CLUSTER-JOB
	Token    string `json:"token"`   // lets its bearer make and remove multicast trees; secret
	URL      string `json:"url"`     // of the fabric manager
	Addrs    int    `json:"addrs"`   // multicast addresses of the job
	MinNodes int    `json:"min_nodes"`
}

// Class is a Slingshot traffic class.
type Class string

// The values of Class.
const (
	Dedicated  Class = "dedicated"
	LowLatency Class = "low-latency"
	Bulk       Class = "bulk"
	BestEffort Class = "best-effort"
)

// Classes lists all traffic classes, by their bits.
var Classes = []Class{Dedicated, LowLatency, Bulk, BestEffort}

// Bit returns the class's bit in SLINGSHOT_TCS (Cray MPICH): dedicated is 1, best effort 8.
func (c Class) Bit() uint { return 1 << uint(slices.Index(Classes, c)) }
