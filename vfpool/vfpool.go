// Package vfpool says whether a node can give virtual functions (VFs) of its
// SR-IOV network cards to VMs.
//
// This release cannot lease them: [Check] refuses every job that asks for VFs,
// and tells apart what the node has not from what the software has not.
package vfpool

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Check returns nil if vfs virtual functions per VM can be had on node, and else
// why not. sysfs is where that file system is mounted, /sys.
func Check(sysfs, node string, vfs int) error {
	if vfs == 0 {
		return nil
	}
	functions, err := physicalFunctions(sysfs)
	switch {
	case err != nil:
		return fmt.Errorf("not available on node %s: VFs (--sriov): %w", node, err)
	case len(functions) == 0:
		return fmt.Errorf("not available on node %s: no SR-IOV physical function (no device under %s has sriov_totalvfs above 0)",
			node, devices(sysfs))
	}
	return fmt.Errorf("not available on node %s: VFs (--sriov): this release of Slurm-V does not lease VFs yet, though the node has SR-IOV physical functions: %s",
		node, strings.Join(functions, ", "))
}

func devices(sysfs string) string { return filepath.Join(sysfs, "bus/pci/devices") }

// physicalFunctions returns the PCI addresses of the devices that can have VFs.
func physicalFunctions(sysfs string) ([]string, error) {
	files, err := filepath.Glob(filepath.Join(devices(sysfs), "*", "sriov_totalvfs"))
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		total, err := strconv.Atoi(strings.TrimSpace(string(text)))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if total > 0 {
			addresses = append(addresses, filepath.Base(filepath.Dir(file)))
		}
	}
	return addresses, nil
}
