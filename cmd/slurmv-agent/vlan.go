package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// A job's VLAN comes from its number, so two jobs can be given the same one. Slurm
// knows all jobs that run: the one that started first has it. The first node of the
// job asks; all others wait for that node before a program runs.

// The fields of squeue about jobs that may have VFs. No user can write anything of
// his own into them.
const vlanFields = "jobid:.20,starttime:.30,tres-per-node:.4096"

// refuseSharedVLAN returns an error if another job has the job's VLAN.
func refuseSharedVLAN(ctx context.Context, cfg config.Config, job plan.Job) error {
	vlan := cfg.VF.VLAN(job.ID.Job)
	if vlan == 0 || job.Rank != 0 {
		return nil
	}
	text, err := askSlurm(ctx, "squeue", "--noheader", "--states="+holdingStates, "--Format="+vlanFields)
	if err != nil {
		return err
	}
	other, found := earlierOn(text, job.ID.Job, cfg.VF.VLAN)
	if found {
		return fmt.Errorf("the VLAN of this job, %d, is that of job %d as well, which began earlier; "+
			"submit the job again: its number gives it another one", vlan, other)
	}
	return nil
}

// earlierOn finds in the lines of vlanFields a job with VFs on the same VLAN as
// job that started before it. Times are written so that their order is that of the
// texts.
func earlierOn(text string, job uint32, vlan func(uint32) uint16) (other uint32, found bool) {
	starts := map[uint32]string{}
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 3 || !asksForVFs(f[2]) {
			continue
		}
		if id, err := strconv.ParseUint(f[0], 10, 32); err == nil {
			starts[uint32(id)] = f[1]
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

// asksForVFs reads a list such as "gres:gpu:1,gres:vf:2".
func asksForVFs(gres string) bool {
	for item := range strings.SplitSeq(gres, ",") {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(item, "gres:"), "gres/"), ":")
		if name == "vf" {
			return true
		}
	}
	return false
}
