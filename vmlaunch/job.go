package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"os/user"
	"strconv"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
)

// A Job is one job as one of its nodes sees it. All but Spec comes from Slurm
// and is trusted; Spec is the user's.
type Job struct {
	ID      journal.ID
	Step    uint32 // the VM step
	Cluster string
	Name    string
	Node    string // this node's name in Slurm
	Rank    int    // this node's position in the job, from 0
	Nodes   int    // how many nodes the job has
	UID     uint32
	GID     uint32
	CPUs    int    // that the job owns on this node
	Memory  int64  // MiB that the job owns on this node; 0 where Slurm does not manage memory
	VFs     int    // that the job owns on this node, where Slurm counts them
	VFMbps  uint32 // of their bandwidth that it owns
	Spec    jobspec.Spec

	// Hosts asks Slurm which nodes the job has, and returns the host name of each by the
	// node's name: what the network says of peers.
	Hosts func(context.Context, config.Network) (map[string]string, error)
	// NodeAddrs asks Slurm for the host names or addresses by which it knows nodes.
	NodeAddrs func(ctx context.Context, nodes []string) (map[string]string, error)

	// Requested is when the VM step was, as its user's keeper says; zero if it does not.
	Requested time.Time
}

// ErrBeyondAllocation matches the refusal of a request above what Slurm says
// that the job owns.
var ErrBeyondAllocation = errors.New("request is beyond the allocation")

// An AllocationError names the resource that a job has too little of on a node.
type AllocationError struct {
	VMs        int
	Each, Have int64
	Shared     int64  // what the VMs need once beside
	Unit       string // "CPUs" or "MiB of memory"
	Node       string
}

func (e *AllocationError) Error() string {
	shared := ""
	if e.Shared > 0 {
		shared = fmt.Sprintf(", and %d that they share,", e.Shared)
	}
	return fmt.Sprintf("%d VMs × %d %s%s need %d; the job has %d on node %s",
		e.VMs, e.Each, e.Unit, shared, int64(e.VMs)*e.Each+e.Shared, e.Have, e.Node)
}

// Is reports whether target is [ErrBeyondAllocation].
func (e *AllocationError) Is(target error) bool { return target == ErrBeyondAllocation }

// Admit checks the request again, as nothing a user sends is trusted, and holds
// it against what the job owns on this node.
func (j Job) Admit(cfg config.Config) error {
	if err := j.Spec.Validate(cfg); err != nil {
		return err
	}
	if need := j.Spec.VMsPerNode * j.Spec.VCPUs; need > j.CPUs {
		return &AllocationError{VMs: j.Spec.VMsPerNode, Each: int64(j.Spec.VCPUs), Have: int64(j.CPUs), Unit: "CPUs", Node: j.Node}
	}
	each := j.Spec.MemoryMiB + cfg.Slurm.QEMUOverhead.MiB()
	shared := int64(j.Spec.IVShmem.Devices) * j.Spec.IVShmem.SizeMiB
	if need := int64(j.Spec.VMsPerNode)*each + shared; j.Memory > 0 && need > j.Memory {
		return &AllocationError{VMs: j.Spec.VMsPerNode, Each: each, Shared: shared, Have: j.Memory, Unit: "MiB of memory", Node: j.Node}
	}
	if cfg.Slurm.GRES {
		return j.admitVFs()
	}
	return nil
}

// admitVFs holds the VFs against those that Slurm has counted for the job.
func (j Job) admitVFs() error {
	if need := j.Spec.VMsPerNode * len(j.Spec.SRIOV.VFs); need > j.VFs {
		return &AllocationError{VMs: j.Spec.VMsPerNode, Each: int64(len(j.Spec.SRIOV.VFs)), Have: int64(j.VFs), Unit: "VFs (gres/vf)", Node: j.Node}
	}
	each := j.Spec.SRIOV.MinMbps()
	if need := int64(j.Spec.VMsPerNode) * each; need > int64(j.VFMbps) {
		return &AllocationError{VMs: j.Spec.VMsPerNode, Each: each, Have: int64(j.VFMbps), Unit: "Mb/s of VF bandwidth (gres/vfbw)", Node: j.Node}
	}
	return nil
}

// An Owner is the account that a job's VMs, files and programs belong to.
type Owner struct {
	Name   string
	UID    uint32
	GID    uint32
	Groups []Group // all of them, the primary one first
	Home   string
	Shell  string
}

// A Group is one that an Owner is in.
type Group struct {
	Name string
	GID  uint32
}

// GroupIDs returns the ids of the owner's groups.
func (o Owner) GroupIDs() []uint32 {
	ids := make([]uint32, len(o.Groups))
	for i, g := range o.Groups {
		ids[i] = g.GID
	}
	return ids
}

// rights are those with which root acts for the owner.
func (o Owner) rights() owner.Owner {
	return owner.Owner{Name: o.Name, UID: o.UID, GID: o.GID, Groups: o.GroupIDs()}
}

// LookupOwner finds the account of a job's owner in this node's user database.
func LookupOwner(uid, gid uint32) (Owner, error) {
	account, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
	if err != nil {
		return Owner{}, fmt.Errorf("look up the job's owner: %w", err)
	}
	ids, err := account.GroupIds()
	if err != nil {
		return Owner{}, fmt.Errorf("look up the groups of %s: %w", account.Username, err)
	}
	primary := strconv.FormatUint(uint64(gid), 10)
	o := Owner{Name: account.Username, UID: uid, GID: gid, Home: account.HomeDir, Shell: "/bin/sh"}
	for _, id := range append([]string{primary}, ids...) {
		if id == primary && len(o.Groups) > 0 {
			continue
		}
		o.Groups = append(o.Groups, lookupGroup(id))
	}
	return o, nil
}

// lookupGroup names a group after its number where the database does not know it.
func lookupGroup(id string) Group {
	gid, _ := strconv.ParseUint(id, 10, 32)
	g := Group{Name: "group" + id, GID: uint32(gid)}
	if entry, err := user.LookupGroupId(id); err == nil {
		g.Name = entry.Name
	}
	return g
}
