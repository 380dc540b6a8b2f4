package vmlaunch

import (
	"context"
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
func findFirmware(ctx context.Context, p plan.Plan, log *slog.Logger, image images.Info) (uefi emulator.UEFI, err error) {
	firmware, err := firmwareFor(ctx, p, log, image)
	if err != nil || firmware != config.FirmwareUEFI {
		return emulator.UEFI{}, err
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
func firmwareFor(ctx context.Context, p plan.Plan, log *slog.Logger, image images.Info) (firmware config.Firmware, err error) {
	firmware = p.Firmware
	if firmware == config.FirmwareAuto {
		firmware, err = images.DetectFirmware(ctx, image, p.Owner)
	}
	log.Info("firmware", "wanted", p.Firmware, "is", firmware)
	return firmware, err
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
