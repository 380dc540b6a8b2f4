package vmlaunch

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// findFirmware returns the UEFI firmware of this node if the image boots with it, and nothing
// if it boots by BIOS, which is always there.
func findFirmware(p plan.Plan, log *slog.Logger, image images.Info) (uefi emulator.UEFI, err error) {
	if firmwareFor(p, log, image) != config.FirmwareUEFI {
		return emulator.UEFI{}, nil
	}
	uefi, err = emulator.FindUEFI("/", p.QEMU)
	if errors.Is(err, emulator.ErrNoUEFI) {
		err = fmt.Errorf("image %s boots by UEFI, and %w; ask the administrator to install it (Debian: ovmf; RHEL: edk2-ovmf)",
			config.Quote(p.Image), err)
	}
	return uefi, err
}

// firmwareFor returns BIOS or UEFI: what is wanted for the image, or what its partition table
// calls for.
func firmwareFor(p plan.Plan, log *slog.Logger, image images.Info) config.Firmware {
	firmware := p.Firmware
	if firmware == config.FirmwareAuto {
		firmware = image.Firmware
	}
	log.Info("firmware", "wanted", p.Firmware, "is", firmware)
	return firmware
}

// makeVars gives a VM its own UEFI variables, those of a new machine. A restored VM's
// variables are in its saved state: QEMU writes them over the new ones.
func makeVars(p plan.Plan, vm plan.VM) error {
	if p.UEFI.Vars == "" {
		return nil
	}
	return images.CopyFor(p.UEFI.Vars, vm.Vars, p.Owner)
}

// identifyFirmware returns the identity of the UEFI firmware; zero for BIOS.
func identifyFirmware(uefi emulator.UEFI) (images.FileIdentity, error) {
	if uefi.Code == "" {
		return images.FileIdentity{}, nil
	}
	return images.Identify(uefi.Code)
}
