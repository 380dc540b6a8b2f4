package vmlaunch

import (
	"context"

	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// leaseVFs leases the VFs of all the job's VMs on the node, all at once.
func (v *VMs) leaseVFs(ctx context.Context) error {
	if len(v.Plan.Job.Spec.SRIOV.VFs) == 0 {
		return nil
	}
	pool, err := v.store.vfs()
	if err != nil {
		return err
	}
	if err := v.journal.Intend(recordVFs, v.Plan.Job.ID.String(), nil); err != nil {
		return err
	}
	grants, err := pool.Acquire(ctx, vfDemand(v.Plan))
	if err != nil {
		return err
	}
	for _, g := range grants {
		m := v.Machines[g.Request.VM]
		m.VFs = append(m.VFs, g)
		v.Log.Info("VF", "vm", m.Plan.Name, "pf", g.VF.PF, "vf", g.VF.Index, "device", g.VF.Device, "mac", g.Settings.MAC, "guid", g.Settings.PortGUID, "note", g.Note)
	}
	return v.journal.Done(recordVFs, v.Plan.Job.ID.String())
}

// vfDemand is what the job wants of the node's pool.
func vfDemand(p plan.Plan) vfpool.Demand {
	d := vfpool.Demand{Job: p.Job.ID, VLAN: p.VLAN, PKey: p.PKey, Owner: p.Owner.IDs()}
	for _, vm := range p.VMs {
		for i, vf := range p.Job.Spec.SRIOV.VFs {
			own := vm.VFs[i]
			d.Requests = append(d.Requests, vfpool.VFRequest{
				VM: vm.Index, Index: i, NUMA: p.NUMA(vm), VF: vf,
				MAC: own.MAC, NodeGUID: own.GUIDs.Node, PortGUID: own.GUIDs.Port,
			})
		}
	}
	return d
}

func (s store) releaseVFs(ctx context.Context, id journal.ID) error {
	pool, err := s.vfs()
	if err != nil {
		return err
	}
	return pool.Release(ctx, id)
}

// releaseOrphanVFs gives back the VFs of jobs that have no journal, because somebody
// removed it by hand. It does not touch starting jobs: a launch begins its journal before
// it leases VFs.
func (s store) releaseOrphanVFs(ctx context.Context) error {
	pool, err := s.vfs()
	if err != nil {
		return err
	}
	_, err = pool.ReleaseOrphans(ctx, s.hasJournal)
	return err
}
