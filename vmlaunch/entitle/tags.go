package entitle

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// SetUpTags sets up the job's tags on the fabric on this node, before its VMs start, and
// writes its reservation into job. A job without a reservation has no tags. It cannot have
// VFs at a site whose VFs have tags.
func SetUpTags(ctx context.Context, c slurm.Client, cfg config.Config, job *plan.Job) (node.Tags, error) {
	tags, err := node.Open(cfg, job.Node, c).UpIfReserved(ctx, node.Job{
		ID: job.ID, Step: job.Step, UID: job.UID, GID: job.GID, Cores: job.CPUs,
	})
	if err != nil {
		return node.Tags{}, err
	}
	job.Reservation = tags.Reservation
	return tags, refuseBare(cfg.Fabric, *job)
}

// errNoPrologue says what the administrator has to do.
var errNoPrologue = errors.New("it has no reservation: it was submitted without the plugin, or the administrator has not set PrologSlurmctld and EpilogSlurmctld in slurm.conf, as docs/fabric.md says")

// refuseBare refuses VFs without tags where jobs' VFs have some. A VF without a VLAN could
// send into the VLANs of other jobs.
func refuseBare(cfg config.Fabric, job plan.Job) error {
	if len(job.Spec.SRIOV.VFs) == 0 {
		return nil
	}
	for _, kind := range []fabric.Kind{fabric.VLAN, fabric.PKey} {
		if err := lacks(cfg, job.Reservation, kind); err != nil {
			return fmt.Errorf("job %d has no %s for its virtual functions: %w", job.ID.Job, kind.Word(), err)
		}
	}
	return refuseUncounted(job)
}

// refuseUncounted refuses VFs that the job's reservation does not count: they would not be members of its
// P_Keys. A subnet manager lets such a port into its default partition, where it reaches the ports of others.
func refuseUncounted(job plan.Job) error {
	r, vms, vfs := job.Reservation, job.Nodes*job.Spec.VMsPerNode, len(job.Spec.SRIOV.VFs)
	if len(r.Tags(fabric.PKey)) == 0 || vms <= r.VMs && vfs <= r.VFs {
		return nil
	}
	return fmt.Errorf("job %d has a P_Key for %d VMs with %d virtual functions each, and asks for %d VMs with %d: its options have changed since it was submitted; submit it again",
		job.ID.Job, r.VMs, r.VFs, vms, vfs)
}

// lacks says why the job has no tag of a kind; nil if it has one, or needs none. Jobs of a
// partition may need none though others do.
func lacks(cfg config.Fabric, r fabric.Reservation, kind fabric.Kind) error {
	if !cfg.HasPool(config.TagKind(kind)) || len(r.Tags(kind)) > 0 {
		return nil
	}
	if r.Job.Job == 0 {
		return errNoPrologue
	}
	var why []string
	for _, g := range r.Grants {
		if g.Kind == kind {
			why = append(why, g.Why)
		}
	}
	if why == nil {
		return nil
	}
	return errors.New(strings.Join(why, ", "))
}
