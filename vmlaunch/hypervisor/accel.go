package hypervisor

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slurm-v/slurm-v/config"
)

// ErrNoKVM matches the reasons of [KVMUsable].
var ErrNoKVM = errors.New("KVM is not usable")

// KVMUsable returns nil if the machine below root can run guests by KVM, else
// why not. A device that opens is not enough: some hosts offer /dev/kvm without
// hardware virtualisation and hang any ordinary guest kernel.
func KVMUsable(root string) error {
	device, err := os.OpenFile(filepath.Join(root, "dev/kvm"), os.O_RDWR, 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoKVM, err)
	}
	device.Close()
	cpuinfo, err := os.ReadFile(filepath.Join(root, "proc/cpuinfo"))
	if err != nil {
		return fmt.Errorf("%w: %w", ErrNoKVM, err)
	}
	if !hasFlag(cpuinfo, "vmx") && !hasFlag(cpuinfo, "svm") {
		return fmt.Errorf("%w: /dev/kvm is there but the CPU has neither vmx nor svm (virtualisation is off in the firmware, or this is a guest)", ErrNoKVM)
	}
	return nil
}

// hasFlag looks at the first processor: all are alike.
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

// ChooseAccel turns the site's wish into what the machine below root
// will do.
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
