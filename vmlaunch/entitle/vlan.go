package entitle

import (
	"context"
	"fmt"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// A job's VLAN is computed from its number, so two jobs can have the same VLAN. The job
// that started first keeps it; Slurm knows which one that is. Only the job's first node
// asks, because all nodes wait for the first one before a program runs.

// RefuseSharedVLAN returns an error if another job has the VLAN of the job's VFs.
func RefuseSharedVLAN(ctx context.Context, c slurm.Client, cfg config.Config, job plan.Job) error {
	vlan := cfg.VF.VLAN(job.ID.Job)
	if !countsVFs(cfg, job) || vlan == 0 || job.Rank != 0 {
		return nil
	}
	jobs, err := c.ActiveJobs(ctx)
	if err != nil {
		return err
	}
	other, found := earlierOn(jobs, job.ID.Job, cfg.VF.VLAN)
	if found {
		return fmt.Errorf("VLAN %d of this job belongs to job %d, too, which began earlier; "+
			"submit the job again: with its new number it gets another VLAN", vlan, other)
	}
	return nil
}

// earlierOn finds a job that has VFs on the same VLAN as job and started earlier.
func earlierOn(jobs []slurm.ActiveJob, job uint32, vlan func(uint32) uint16) (other uint32, found bool) {
	starts := map[uint32]string{}
	for _, j := range jobs {
		if slurm.AsksForGRES(j.GRES, jobspec.GRESVF) {
			starts[j.Job] = j.Start
		}
	}
	mine, known := starts[job]
	for id, start := range starts {
		if id == job || vlan(id) != vlan(job) {
			continue
		}
		if !known || start < mine || start == mine && id < job {
			return id, true
		}
	}
	return 0, false
}
