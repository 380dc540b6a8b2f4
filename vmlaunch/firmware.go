package vmlaunch

import (
	"context"
	"errors"
	"fmt"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
)

// findFirmware returns the UEFI firmware of this node if the image boots with it, and nothing
// if it boots by BIOS, which is always there.
func (v *VMs) findFirmware(ctx context.Context, image images.Info) (uefi emulator.UEFI, err error) {
	firmware := v.Plan.Firmware
	if firmware == config.FirmwareAuto {
		firmware, err = images.DetectFirmware(ctx, image, v.Plan.Owner)
	}
	v.Log.Info("firmware", "wanted", v.Plan.Firmware, "is", firmware)
	if err != nil || firmware != config.FirmwareUEFI {
		return emulator.UEFI{}, err
	}
	uefi, err = emulator.FindUEFI("/", v.Plan.QEMU)
	if errors.Is(err, emulator.ErrNoUEFI) {
		err = fmt.Errorf("image %s boots by UEFI, and %w; ask the administrator to install it (Debian: ovmf; RHEL: edk2-ovmf)",
			config.Quote(v.Plan.Image), err)
	}
	return uefi, err
}

// makeVars gives a VM its own UEFI variables, those of a new machine. A restored VM's
// variables are in its saved state: QEMU writes them over the new ones.
func (v *VMs) makeVars(m *machine.Machine) error {
	if v.Plan.UEFI.Vars == "" {
		return nil
	}
	return images.CopyFor(v.Plan.UEFI.Vars, m.Plan.Vars, v.Plan.Owner)
}

// identifyFirmware returns the identity of the UEFI firmware; zero for BIOS.
func (v *VMs) identifyFirmware() (images.FileIdentity, error) {
	if v.Plan.UEFI.Code == "" {
		return images.FileIdentity{}, nil
	}
	return images.Identify(v.Plan.UEFI.Code)
}
