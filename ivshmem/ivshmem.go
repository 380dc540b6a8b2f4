// Package ivshmem says whether the VMs of a node can share memory (IVShmem).
//
// This release cannot provide it: [Check] refuses every job that asks for
// devices.
package ivshmem

import "fmt"

// Check returns nil if a VM can have that many IVShmem devices on node, and else
// why not.
func Check(node string, devices int) error {
	if devices == 0 {
		return nil
	}
	return fmt.Errorf("not available on node %s: shared memory between VMs (--ivshmem): this release of Slurm-V does not provide it yet", node)
}
