package place

import (
	"fmt"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
)

// A fit says how well a request fits a PF.
type fit byte

const (
	near  fit = iota // the PF is near to the VM's CPUs, or distance does not matter
	far              // the PF is far from the VM's CPUs
	never            // the request must not go there, or could not even if it were alone
)

func fitOf(f Free, r VFRequest, soft bool) fit {
	switch {
	case refusal(f, r, soft) != "" || shortage(capacityOf(f), r) != "":
		return never
	case r.VF.NUMA != jobspec.NUMAAny && f.NUMA >= 0 && r.NUMA >= 0 && f.NUMA != r.NUMA:
		return far
	}
	return near
}

// refusal says why a request must not go to a PF, whatever the PF has left.
func refusal(f Free, r VFRequest, soft bool) string {
	switch {
	case r.VF.PF != "" && r.VF.PF != f.PF:
		return fmt.Sprintf("is not %s", r.VF.PF)
	case r.VF.NUMA == jobspec.NUMARequire && f.NUMA != r.NUMA:
		return fmt.Sprintf("is not on the VM's NUMA node but on %s", node(f.NUMA))
	case !soft && r.VF.MinMbps > 0 && !f.MinRate:
		return "has a driver that cannot reserve bandwidth"
	case !soft && r.VF.MaxMbps > 0 && !f.MaxRate:
		return "has a driver that cannot limit bandwidth"
	}
	return ""
}

func node(numa int) string {
	if numa < 0 {
		return "one that is not known"
	}
	return fmt.Sprint(numa)
}

// shortage says what a PF with this capacity lacks for a request.
func shortage(c capacity, r VFRequest) string {
	switch {
	case c.vfs < 1:
		return "has no VF left"
	case c.mbps < int64(r.VF.MinMbps):
		return fmt.Sprintf("has %s left", config.Rate(c.mbps))
	}
	return ""
}

// A capacity is what a PF has left.
type capacity struct {
	mbps int64
	vfs  int
}

func capacityOf(f Free) capacity {
	return capacity{mbps: int64(min(f.Mbps, uint32(config.MaxRate))), vfs: max(f.VFs, 0)}
}

func (c capacity) square() int64 { return c.mbps * c.mbps }

// fits returns how many requests of a size fit.
func (c capacity) fits(mbps int64) int {
	if mbps == 0 {
		return c.vfs
	}
	return int(min(int64(c.vfs), c.mbps/mbps))
}
