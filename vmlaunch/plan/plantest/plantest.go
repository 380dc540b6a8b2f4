// Package plantest has jobs and plans for tests.
package plantest

import (
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// Account is the owner of the jobs.
var Account = owner.Owner{Name: "a", UID: 6001, GID: 6001}

// Job is a job with two VMs on this node, the second of two. Each VM has two vCPUs and two
// mounts.
func Job() plan.Job {
	return plan.Job{
		ID: journal.ID{Job: 42, Restart: 1}, Node: "n2", Rank: 1, Nodes: 2,
		UID: 6001, GID: 6001, CPUs: 4, Memory: 2048,
		Spec: jobspec.Spec{
			VMsPerNode: 2, VCPUs: 2, MemoryMiB: 512, Image: "/images/x.qcow2", ImageMode: config.ImageDirect, Network: "default",
			Mounts:       []jobspec.Mount{{Host: "/home/a", Guest: "/home/a"}, {Host: "/data", Guest: "/mnt/data", ReadOnly: true}},
			ReadyTimeout: time.Minute, WorkDir: "/home/a",
		},
	}
}

// Plan is the plan of [Job] on a node without KVM.
func Plan(t testing.TB) plan.Plan {
	t.Helper()
	return New(t, config.Default(), Job(), plan.Hardware{Accel: config.AccelTCG, NUMA: -1})
}

// On is the plan of a job with so many VMs, each with one virtual function, on the hardware
// hw.
func On(t testing.TB, hw plan.Hardware, vms int) plan.Plan {
	t.Helper()
	job := Job()
	job.Spec.VMsPerNode, job.Spec.SRIOV.VFs = vms, []jobspec.VF{{}}
	return New(t, config.Default(), job, hw)
}

// WithVFs is [Plan] with two virtual functions for each VM, a VLAN and addresses.
func WithVFs(t testing.TB) plan.Plan {
	t.Helper()
	cfg := config.Default()
	cfg.VF.Subnet = "172.29.0.0/16"
	job := Job()
	job.Reservation = fabric.Reservation{Job: job.ID, Grants: []fabric.Grant{{Pool: "vlan", Kind: fabric.VLAN, Tags: []fabric.Tag{2042}}}}
	job.Spec.SRIOV.VFs = []jobspec.VF{{MinMbps: 100}, {}}
	return New(t, cfg, job, plan.Hardware{Accel: config.AccelTCG, NUMA: 1})
}

// New is the plan of a job of [Account]. It ends the test if the job cannot be planned.
func New(t testing.TB, cfg config.Config, job plan.Job, hw plan.Hardware) plan.Plan {
	t.Helper()
	p, err := plan.New(cfg, job, Account, hw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// CPUs makes nodes[i] cores on NUMA node i, each with threads hyper-threads. The second
// hyper-threads are numbered after all first ones, as on many machines.
func CPUs(threads int, nodes ...int) (all []plan.CPU) {
	cores := 0
	for _, n := range nodes {
		cores += n
	}
	core := 0
	for node, n := range nodes {
		if len(nodes) == 1 {
			node = -1
		}
		for ; n > 0; n-- {
			for t := range threads {
				all = append(all, plan.CPU{Number: core + t*cores, Core: core, NUMA: node})
			}
			core++
		}
	}
	return all
}
