// Package emulator finds QEMU on a node and says which of the devices that VMs may have it
// does not know. RHEL's QEMU, for one, has neither 9p nor IVShmem.
package emulator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/owner"
)

// places are where QEMU is if the configuration names no emulator.
var places = []string{"/usr/bin/qemu-system-x86_64", "/usr/libexec/qemu-kvm"}

// Find returns the path of QEMU: configured, if it is not "", or the first of places that
// exists. The machine's files are below root.
func Find(root, configured string) (string, error) {
	candidates := places
	if configured != "" {
		candidates = []string{configured}
	}
	for _, path := range candidates {
		if _, err := os.Stat(filepath.Join(root, path)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("no %s", strings.Join(candidates, " or "))
}

// Missing are the devices that an emulator does not know.
type Missing struct {
	NineP   bool `json:"9p"`      // host directories by 9p
	IVShmem bool `json:"ivshmem"` // memory that VMs share, as a PCI device
	NVDIMM  bool `json:"nvdimm"`  // the same as persistent memory
}

// SharedMemory chooses the device by which VMs share memory. By itself it takes NVDIMMs only where there is nothing else, or
// where KVM lets guests map the memory of PCI devices uncached, as their kernels do: uncached. The error names
// what the emulator would need.
func (m Missing) SharedMemory(wish config.IVShmemDevice, uncached bool) (config.IVShmemDevice, error) {
	switch {
	case wish == config.IVShmemNVDIMM && m.NVDIMM:
		return wish, errors.New("no NVDIMMs, which this site wants ([ivshmem] device)")
	case wish == config.IVShmemPCI && m.IVShmem:
		return wish, errors.New("no IVShmem devices, which this site wants ([ivshmem] device)")
	case wish != config.IVShmemAuto:
		return wish, nil
	case m.IVShmem && m.NVDIMM:
		return config.IVShmemPCI, errors.New("no IVShmem devices and no NVDIMMs")
	case !m.NVDIMM && (m.IVShmem || uncached):
		return config.IVShmemNVDIMM, nil
	}
	return config.IVShmemPCI, nil
}

// ListDevices are the arguments with which QEMU lists its devices.
var ListDevices = []string{"-machine", "none", "-device", "help"}

// patience bounds how long QEMU may take to list its devices.
const patience = time.Minute

// ask asks the emulator at path.
func ask(ctx context.Context, path string) (Missing, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	out, err := owner.Nobody.Command(ctx, path, ListDevices...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return Missing{}, fmt.Errorf("ask %s for its devices: %w", path, err)
	}
	return MissingIn(string(out)), nil
}

var deviceName = regexp.MustCompile(`(?m)^name "([^"]+)"`)

// MissingIn reads QEMU's list of devices.
func MissingIn(list string) Missing {
	known := map[string]bool{}
	for _, found := range deviceName.FindAllStringSubmatch(list, -1) {
		known[found[1]] = true
	}
	return Missing{NineP: !known["virtio-9p-pci"], IVShmem: !known["ivshmem-plain"], NVDIMM: !known["nvdimm"]}
}

// A Cache is a file with the answer of the emulator that was asked last.
type Cache string

// answer is what is in the file: whose answer it is, and the answer.
type answer struct {
	QEMU    images.FileIdentity `json:"qemu"`
	Missing Missing             `json:"missing"`
}

// Ask asks the emulator at path, unless it has not changed since it was asked last.
func (c Cache) Ask(ctx context.Context, path string) (Missing, error) {
	is, err := images.Identify(path)
	if err != nil {
		return Missing{}, fmt.Errorf("find QEMU: %w", err)
	}
	now := answer{QEMU: is}
	if last, err := c.read(); err == nil {
		now.Missing = last.Missing
		if last == now {
			return last.Missing, nil
		}
	}
	if now.Missing, err = ask(ctx, path); err != nil {
		return Missing{}, err
	}
	return now.Missing, c.write(now)
}

func (c Cache) read() (a answer, err error) {
	text, err := os.ReadFile(string(c))
	if err == nil {
		err = json.Unmarshal(text, &a)
	}
	return a, err
}

// write replaces the file at once: other agents read and write it, too.
func (c Cache) write(a answer) (err error) {
	text, err := json.Marshal(a)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(string(c)), 0o711)
	}
	if err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(string(c)), filepath.Base(string(c))+".*.new")
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	err = errors.Join(err, file.Close())
	if err == nil {
		err = os.Rename(file.Name(), string(c))
	}
	if err != nil {
		_ = os.Remove(file.Name())
	}
	return err
}
