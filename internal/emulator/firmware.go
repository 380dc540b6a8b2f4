package emulator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// UEFI is UEFI firmware in two files: its program, and its variables as they are in a new
// machine. Each VM has a copy of the variables.
type UEFI struct{ Code, Vars string }

// ErrNoUEFI matches the error of [FindUEFI] if the node has no firmware.
var ErrNoUEFI = errors.New("this node has no UEFI firmware")

// firmwareDirs have descriptions of firmware, one in each file. A file in the first
// directory replaces one of the same name in the second. See QEMU's
// docs/interop/firmware.json.
var firmwareDirs = []string{"/etc/qemu/firmware", "/usr/share/qemu/firmware"}

// FindUEFI returns the UEFI firmware for VMs: the configured one or, if the configuration
// names none, the first that QEMU's packages describe and that fits. The machine's files are
// below root.
func FindUEFI(root string, configured config.QEMU) (UEFI, error) {
	if configured.UEFICode != "" {
		return UEFI{configured.UEFICode, configured.UEFIVars}.in(root)
	}
	for _, path := range descriptions(root) {
		text, err := os.ReadFile(path)
		if err != nil {
			return UEFI{}, err
		}
		if found, fits := readDescription(text); fits {
			return found.in(root)
		}
	}
	return UEFI{}, fmt.Errorf("%w: no description in %s fits", ErrNoUEFI, strings.Join(firmwareDirs, " or "))
}

// in returns the firmware if its files exist below root.
func (u UEFI) in(root string) (UEFI, error) {
	for _, path := range []string{u.Code, u.Vars} {
		if _, err := os.Stat(filepath.Join(root, path)); errors.Is(err, fs.ErrNotExist) {
			return UEFI{}, fmt.Errorf("%w: there is no %s", ErrNoUEFI, path)
		}
	}
	return u, nil
}

// descriptions lists the files that describe firmware, in the order of their names, which is
// the order of preference.
func descriptions(root string) []string {
	byName := map[string]string{}
	for _, dir := range slices.Backward(firmwareDirs) {
		files, _ := filepath.Glob(filepath.Join(root, dir, "*.json"))
		for _, file := range files {
			byName[filepath.Base(file)] = file
		}
	}
	var sorted []string
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		sorted = append(sorted, byName[name])
	}
	return sorted
}

// A description is what we need of a description of firmware.
type description struct {
	Interfaces []string `json:"interface-types"`
	Mapping    struct {
		Device     string    `json:"device"`
		Executable flashFile `json:"executable"`
		Template   flashFile `json:"nvram-template"`
	} `json:"mapping"`
	Targets []struct {
		Architecture string   `json:"architecture"`
		Machines     []string `json:"machines"`
	} `json:"targets"`
	Features []string `json:"features"`
}

type flashFile struct {
	Path   string `json:"filename"`
	Format string `json:"format"`
}

// readDescription reads a file that describes firmware, and reports whether our VMs can boot
// with it. An administrator may empty a file to hide the firmware.
func readDescription(text []byte) (UEFI, bool) {
	var d description
	if json.Unmarshal(text, &d) != nil {
		return UEFI{}, false
	}
	return UEFI{d.Mapping.Executable.Path, d.Mapping.Template.Path}, d.fits()
}

// fits reports whether this is UEFI for q35 in two raw files, which a VM without SMM and
// without keys for Secure Boot can run.
func (d description) fits() bool {
	m := d.Mapping
	return slices.Contains(d.Interfaces, "uefi") && m.Device == "flash" && d.forQ35() &&
		m.Executable.raw() && m.Template.raw() &&
		!slices.ContainsFunc(d.Features, func(f string) bool { return f == "requires-smm" || f == "enrolled-keys" })
}

func (f flashFile) raw() bool { return f.Path != "" && f.Format == "raw" }

func (d description) forQ35() bool {
	for _, target := range d.Targets {
		q35 := func(machine string) bool { return strings.HasPrefix(machine, "pc-q35-") }
		if target.Architecture == "x86_64" && slices.ContainsFunc(target.Machines, q35) {
			return true
		}
	}
	return false
}
