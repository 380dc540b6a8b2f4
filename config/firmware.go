package config

import (
	"fmt"
	"slices"
)

// Firmware is what a VM boots with.
type Firmware string

// The values of Firmware.
const (
	FirmwareAuto Firmware = "auto" // the one that the image's partition table calls for
	FirmwareBIOS Firmware = "bios"
	FirmwareUEFI Firmware = "uefi"
)

// firmwares lists all values.
var firmwares = []Firmware{FirmwareAuto, FirmwareBIOS, FirmwareUEFI}

// Check refuses a text that is not a Firmware.
func (f Firmware) Check() error {
	if slices.Contains(firmwares, f) {
		return nil
	}
	return fmt.Errorf("%s is not allowed; use auto, bios or uefi", Quote(string(f)))
}

func (i Image) validate(key string) error {
	return firstOf(absolute(key+".path", i.Path), oneOf(key+".firmware", i.Firmware, firmwares...))
}

// defaultImage has what an entry of the catalogue does not say.
func defaultImage() Image { return Image{Firmware: FirmwareAuto} }
