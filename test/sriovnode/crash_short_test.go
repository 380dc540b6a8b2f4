//go:build sriov && !soak

package sriovnode

import "github.com/slurm-v/slurm-v/jobspec"

// One VF takes a process through all steps there are; see crash_soak_test.go.
var vfsOfTheDying = []jobspec.VF{{PF: "eth0", MaxMbps: 300}}
