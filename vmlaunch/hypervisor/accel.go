package hypervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slurm-v/slurm-v/config"
)

// errNoKVM matches the reasons of [KVMUsable].
var errNoKVM = errors.New("KVM is not usable")

// KVMUsable returns nil if the machine below root can run guests with KVM, else the reason
// why not. It is not enough that /dev/kvm opens: some hosts offer it without hardware
// virtualisation, and any ordinary guest kernel hangs there.
func KVMUsable(root string) error {
	device, err := os.OpenFile(filepath.Join(root, "dev/kvm"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", errNoKVM, err)
	}
	device.Close()
	cpuinfo, err := os.ReadFile(filepath.Join(root, "proc/cpuinfo"))
	if err != nil {
		return fmt.Errorf("%w: %w", errNoKVM, err)
	}
	if !hasFlag(cpuinfo, "vmx") && !hasFlag(cpuinfo, "svm") {
		return fmt.Errorf("%w: /dev/kvm is there but the CPU has neither vmx nor svm (virtualisation is off in the firmware, or this is a guest)", errNoKVM)
	}
	return nil
}

// MapsUncached reports whether an accelerator on the machine below root lets guests map the memory of PCI devices uncached, as Linux
// does. That is so on AMD's processors (svm). On Intel's, KVM ignores how guests map memory.
func MapsUncached(accel config.Accel, root string) bool {
	return accel == config.AccelKVM && cpuHas(root, "svm")
}

// TellsThreads reports whether the CPU of the machine below root tells by AMD's topology
// extensions which hyper-threads share a core. Intel's CPUs tell it otherwise.
func TellsThreads(root string) bool { return cpuHas(root, topologyExtensions) }

const topologyExtensions = "topoext"

// cpuHas reports whether the CPU of the machine below root has the flag.
func cpuHas(root, flag string) bool {
	cpuinfo, err := os.ReadFile(filepath.Join(root, "proc/cpuinfo"))
	return err == nil && hasFlag(cpuinfo, flag)
}

// hasFlag looks at the first processor only: all have the same flags.
func hasFlag(cpuinfo []byte, flag string) bool {
	_, rest, _ := bytes.Cut(cpuinfo, []byte("\nflags"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	for _, f := range bytes.Fields(line) {
		if string(f) == flag {
			return true
		}
	}
	return false
}

// ChooseAccel chooses the accelerator for the machine below root: KVM where it is usable,
// unless the site wishes for TCG. It returns an error if the site insists on KVM and KVM is
// not usable.
func ChooseAccel(wish config.Accel, root string) (config.Accel, error) {
	err := KVMUsable(root)
	switch {
	case wish == config.AccelTCG:
		return config.AccelTCG, nil
	case err == nil:
		return config.AccelKVM, nil
	case wish == config.AccelKVM:
		return "", err
	}
	return config.AccelTCG, nil
}
