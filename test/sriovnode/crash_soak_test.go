//go:build sriov && soak

package sriovnode

import "github.com/slurm-v/slurm-v/jobspec"

// Several VFs are set at once, so that a process dies in any mixture of their steps.
var vfsOfTheDying = []jobspec.VF{{PF: "eth0", MaxMbps: 300}, {PF: "eth0"}, {PF: "eth1", MaxMbps: 300}, {PF: "eth1"}}
