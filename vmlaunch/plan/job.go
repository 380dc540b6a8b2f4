package plan

import (
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
)

// A Job is one job as one of its nodes sees it. All but Spec comes from Slurm
// and is trusted; Spec is the user's.
type Job struct {
	ID     journal.ID
	Step   uint32 // the VM step
	Node   string // this node's name in Slurm
	Rank   int    // this node's position in the job, from 0
	Nodes  int    // how many nodes the job has
	UID    uint32
	GID    uint32
	CPUs   int    // that the job owns on this node
	Memory int64  // MiB that the job owns on this node; 0 where Slurm does not manage memory
	VFs    int    // that the job owns on this node, where Slurm counts them
	VFMbps uint32 // of their bandwidth that it owns
	Spec   jobspec.Spec

	Reservation fabric.Reservation // of tags on the fabric; the zero value if it has none

	// Requested is when the user asked for the VM step, as the user's keeper says; zero if
	// it does not say.
	Requested time.Time
}

// ErrBeyondAllocation matches the refusal of a request above what Slurm says
// that the job owns.
var ErrBeyondAllocation = errors.New("request is beyond the allocation")

// An allocationError names the resource that a job has too little of on a node.
type allocationError struct {
	VMs        int
	Each, Have int64
	Shared     int64  // what the VMs need once beside
	Unit       string // "CPUs" or "MiB of memory"
	Node       string
}

func (e *allocationError) Error() string {
	shared := ""
	if e.Shared > 0 {
		shared = fmt.Sprintf(", and %d that they share,", e.Shared)
	}
	return fmt.Sprintf("%d VMs × %d %s%s need %d; the job has %d on node %s",
		e.VMs, e.Each, e.Unit, shared, int64(e.VMs)*e.Each+e.Shared, e.Have, e.Node)
}

// Is reports whether target is [ErrBeyondAllocation].
func (e *allocationError) Is(target error) bool { return target == ErrBeyondAllocation }

// Admit validates the request again, because nothing from a user is trusted, and compares
// it with what the job owns on this node.
func (j Job) Admit(cfg config.Config) error {
	if err := j.Spec.Validate(cfg); err != nil {
		return err
	}
	if need := j.Spec.VMsPerNode * j.Spec.VCPUs; need > j.CPUs {
		return &allocationError{VMs: j.Spec.VMsPerNode, Each: int64(j.Spec.VCPUs), Have: int64(j.CPUs), Unit: "CPUs", Node: j.Node}
	}
	each := j.Spec.MemoryMiB + cfg.Slurm.QEMUOverhead.MiB()
	shared := j.Spec.IVShmem.AllMiB()
	if need := int64(j.Spec.VMsPerNode)*each + shared; j.Memory > 0 && need > j.Memory {
		return &allocationError{VMs: j.Spec.VMsPerNode, Each: each, Shared: shared, Have: j.Memory, Unit: "MiB of memory", Node: j.Node}
	}
	if cfg.Slurm.GRES {
		return j.admitVFs()
	}
	return nil
}

// admitVFs compares the VFs of the request with those that Slurm has counted for the job.
func (j Job) admitVFs() error {
	if need := j.Spec.VMsPerNode * len(j.Spec.SRIOV.VFs); need > j.VFs {
		return &allocationError{VMs: j.Spec.VMsPerNode, Each: int64(len(j.Spec.SRIOV.VFs)), Have: int64(j.VFs), Unit: "VFs (gres/vf)", Node: j.Node}
	}
	each := j.Spec.SRIOV.MinMbps()
	if need := int64(j.Spec.VMsPerNode) * each; need > int64(j.VFMbps) {
		return &allocationError{VMs: j.Spec.VMsPerNode, Each: each, Have: int64(j.VFMbps), Unit: "Mb/s of VF bandwidth (gres/vfbw)", Node: j.Node}
	}
	return nil
}
