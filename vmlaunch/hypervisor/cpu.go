package hypervisor

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// CPUModel names the processors of a plan's VMs. If the VMs have the host's own processor,
// the name contains a hash of the kernel's description of it (proc/cpuinfo below root).
func CPUModel(p plan.Plan, root string) string {
	cpu := describer{p}.cpu()
	if cpu.Model != nil {
		return cpu.Model.Value
	}
	info, _ := os.ReadFile(filepath.Join(root, "proc/cpuinfo"))
	sum := sha256.New()
	for _, key := range []string{"model name", "stepping", "microcode", "flags"} {
		fmt.Fprintln(sum, cpuField(string(info), key))
	}
	return cpu.Mode + " " + hex.EncodeToString(sum.Sum(nil)[:8])
}

// cpuField returns the first value of key in the text of /proc/cpuinfo.
func cpuField(info, key string) string {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(line, ":")
		if strings.TrimSpace(name) == key {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
