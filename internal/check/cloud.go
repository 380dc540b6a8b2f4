package check

import (
	"context"
	"fmt"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// A Cloud is what OpenStack says about this node.
type Cloud struct {
	CPUs      int    `json:"cpus"` // that VMs may have, all together
	MemoryMiB int64  `json:"memory_mib"`
	Password  bool   `json:"password"` // the site's credentials are a user's password
	Error     string `json:"error"`
}

// onCloud reports whether OpenStack makes the node's VMs.
func (i *inspection) onCloud() bool {
	return i.cfgErr == nil && i.cfg.Backend.Type == config.BackendOpenStack
}

// openStack is the name of the results about the cloud.
const openStack = "OpenStack"

// cloud judges what nova gives to VMs on this node, and what the agent logs in with.
func cloud(ctx context.Context, i *inspection) []Result {
	switch {
	case !i.onCloud():
		return nil
	case i.probeErr != nil:
		return unprobed(openStack, i.probeErr)
	case i.probe.Cloud == nil:
		return []Result{skipped(openStack, "slurmv-agent has not asked it", "install Slurm-V's programs on this node anew")}
	}
	return append(i.cloudRoom(ctx), credentials(*i.probe.Cloud)...)
}

// cloudRoom compares what nova gives to VMs on this node with what Slurm gives to jobs: QEMU runs
// outside of the jobs' cgroups, so only nova keeps VMs within what Slurm has counted.
func (i *inspection) cloudRoom(ctx context.Context) []Result {
	if i.probe.Cloud.Error != "" {
		return []Result{wrong(openStack, i.probe.Cloud.Error, "correct [backend] or its clouds_file, or look at nova on this node: openstack compute service list")}
	}
	counts, err := i.counted(ctx)
	if err != nil {
		return []Result{skipped(openStack, "Slurm does not say what this node has: "+err.Error(), "")}
	}
	return []Result{judgeCloud(*i.probe.Cloud, counts)}
}

// credentials warns of a password: whoever reads it has all rights of the user, in all projects, until the user changes it.
func credentials(c Cloud) []Result {
	if !c.Password {
		return nil
	}
	return []Result{warning("OpenStack credentials", "clouds.yaml has a user's password",
		"make an application credential, which can be revoked by itself, and write it into clouds.yaml of all nodes while no job starts: openstack application credential create slurm-v")}
}

// counted asks slurmctld how many CPUs and MiB of memory it gives to jobs on this node.
func (i *inspection) counted(ctx context.Context) (has Cloud, err error) {
	text, err := i.Run(ctx, "sinfo", "--noheader", "--nodes="+i.Name, "--format=%c %m")
	if err == nil {
		_, err = fmt.Sscan(text, &has.CPUs, &has.MemoryMiB)
	}
	return has, err
}

func judgeCloud(nova, slurm Cloud) Result {
	seen := fmt.Sprintf("nova gives VMs %d CPUs and %d MiB, Slurm gives jobs %d CPUs and %d MiB", nova.CPUs, nova.MemoryMiB, slurm.CPUs, slurm.MemoryMiB)
	var advice []string
	if nova.CPUs > slurm.CPUs {
		advice = append(advice, "set cpu_allocation_ratio=1.0 and reserved_host_cpus in nova.conf")
	}
	if nova.MemoryMiB > slurm.MemoryMiB {
		advice = append(advice, "set ram_allocation_ratio=1.0 and reserved_host_memory_mb in nova.conf")
	}
	switch {
	case advice != nil:
		return warning(openStack, seen, strings.Join(advice, ", and ")+": servers of other projects would take what Slurm has given to jobs")
	case nova.CPUs < slurm.CPUs || nova.MemoryMiB < slurm.MemoryMiB:
		return warning(openStack, seen, "VMs that need more than nova has there fail with \"No valid host was found\": lower CPUs or RealMemory of this node in slurm.conf, or what nova keeps for the host")
	}
	return ok(openStack, seen)
}
