package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/emulator"
)

// libraryDirs are the directories in which distributions put libraries.
var libraryDirs = []string{"usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/lib64", "usr/local/lib"}

const installLibvirt = "install libvirt's library and QEMU driver (Debian: libvirt-daemon; RHEL: libvirt-daemon-driver-qemu); its daemon need not run"

// libvirt checks the library that the agent loads, and the driver that the library loads.
func libvirt(_ context.Context, i *inspection) []Result {
	return []Result{
		findLibrary("libvirt", i.Root, "libvirt.so.0"),
		findLibrary("libvirt QEMU driver", i.Root, "libvirt/connection-driver/libvirt_driver_qemu.so"),
	}
}

func findLibrary(name, root, file string) Result {
	for _, dir := range libraryDirs {
		full := filepath.Join(root, dir, file)
		target, err := os.Readlink(full)
		if err != nil {
			if _, err := os.Stat(full); err != nil {
				continue
			}
		}
		seen := "/" + filepath.Join(dir, file)
		if v := libraryVersion(target); v != "" {
			seen += ", version " + v
		}
		return ok(name, seen)
	}
	return wrong(name, "no "+file+" in "+strings.Join(libraryDirs, ", "), installLibvirt)
}

var libvirtFile = regexp.MustCompile(`^libvirt\.so\.0\.([0-9]+)\.([0-9]+)$`)

// libraryVersion reads libvirt.so.0.9000.2, which is version 9.0.2.
func libraryVersion(file string) string {
	found := libvirtFile.FindStringSubmatch(filepath.Base(file))
	if found == nil {
		return ""
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d.%d.%s", n/1000, n%1000, found[2])
}

// account checks the account with which libvirt was built to run QEMU. Without it
// libvirt's QEMU driver does not open, although every VM here runs as its job's owner.
func account(ctx context.Context, i *inspection) []Result {
	const name = "libvirt's account"
	user := qemuAccount(i.Root)
	for _, database := range []string{"passwd", "group"} {
		if _, err := i.Run(ctx, "getent", database, user); err != nil {
			return []Result{wrong(name, fmt.Sprintf("%s is not in %s", user, database),
				"reinstall libvirt's packages, or useradd --system "+user+": libvirt's QEMU driver does not start without it")}
		}
	}
	return []Result{ok(name, "user and group "+user)}
}

// qemuAccount returns that account, which depends on the distribution.
func qemuAccount(root string) string {
	text, _ := os.ReadFile(filepath.Join(root, "etc/os-release"))
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		words := strings.Fields(strings.Trim(value, `"'`))
		if (key == "ID" || key == "ID_LIKE") && (slices.Contains(words, "debian") || slices.Contains(words, "ubuntu")) {
			return "libvirt-qemu"
		}
	}
	return "qemu"
}

func qemu(ctx context.Context, i *inspection) []Result {
	const name = "QEMU"
	path, err := emulator.Find(i.Root, i.cfg.QEMU.Emulator)
	if err == nil {
		return []Result{i.version(ctx, name, path), i.devices(ctx, path)}
	}
	return []Result{wrong(name, err.Error(), "install QEMU (Debian: qemu-system-x86; RHEL: qemu-kvm), or name it in the configuration: [qemu] emulator")}
}

func (i *inspection) version(ctx context.Context, name, path string) Result {
	text, err := i.Run(ctx, path, "--version")
	if err != nil {
		return wrong(name, err.Error(), "run "+path+" --version and repair what it says")
	}
	return ok(name, path+": "+firstLine(text))
}

// devicesName is the check of [inspection.devices].
const devicesName = "QEMU's devices"

// noIVShmem ends what it says of a QEMU without the devices for shared memory.
const noIVShmem = ": jobs with --ivshmem fail here"

// WithoutIVShmem returns why jobs with --ivshmem fail on a node with these results, or "".
func WithoutIVShmem(results []Result) string {
	for _, r := range results {
		if r.Name == devicesName && r.Status != OK && strings.HasSuffix(r.Seen, noIVShmem) {
			return r.Seen
		}
	}
	return ""
}

// devices says which options of jobs the emulator's devices allow. A default job needs none
// of them.
func (i *inspection) devices(ctx context.Context, path string) Result {
	const name = devicesName
	list, err := i.Run(ctx, path, emulator.ListDevices...)
	if err != nil {
		return wrong(name, err.Error(), "run "+path+" "+strings.Join(emulator.ListDevices, " ")+" and repair what it says")
	}
	missing := emulator.MissingIn(list)
	shared, err := missing.SharedMemory(i.cfg.IVShmem.Device, i.probe.Uncached)
	devices := map[config.IVShmemDevice]string{config.IVShmemPCI: "IVShmem", config.IVShmemNVDIMM: "NVDIMMs"}[shared] + " for --ivshmem"
	switch {
	case err != nil:
		return warning(name, path+" has "+err.Error()+noIVShmem, "name another QEMU in [qemu] emulator if users want the option")
	case missing.NineP:
		return warning(name, path+" has "+devices+", and no 9p: an image whose kernel has no FUSE cannot see directories of the node",
			"nothing, if all images have FUSE")
	}
	return ok(name, devices+", 9p for images without FUSE")
}

// uefi looks for the firmware of images that do not boot by BIOS. Other images need none.
func uefi(_ context.Context, i *inspection) []Result {
	const name = "UEFI firmware"
	found, err := emulator.FindUEFI(i.Root, i.cfg.QEMU)
	if err != nil {
		return []Result{warning(name, err.Error()+": images that boot by UEFI only fail here",
			"install it (Debian: ovmf; RHEL: edk2-ovmf), or name it in the configuration: [qemu] uefi_code and uefi_vars")}
	}
	return []Result{ok(name, found.Code)}
}

// A Probe contains what slurmv-agent probe has tried on this node. An empty error means
// success.
type Probe struct {
	Libvirt          string `json:"libvirt"` // version of the library that was loaded
	LibvirtError     string `json:"libvirt_error"`
	SlurmError       string `json:"slurm_error"` // why the agent does not reach slurmctld
	KVMError         string `json:"kvm_error"`
	Uncached         bool   `json:"uncached"`           // see [emulator.Missing.SharedMemory]
	NodeNetworkError string `json:"node_network_error"` // of a job with one node
	JobNetworkError  string `json:"job_network_error"`  // of a job with several
	SiteNetworkError string `json:"site_network_error"` // of a job on a bridge of the site, if jobs can ask for one
	Underlay         string `json:"underlay"`           // this node's address in networks between nodes; "" if no network needs it
	UnderlayError    string `json:"underlay_error"`
	PeersError       string `json:"peers_error"` // why other nodes would not accept that address as this node's

	PortHolders map[string]string `json:"port_holders"` // program that has a network's VXLAN port, by the network's name

	Cloud *Cloud `json:"cloud"` // nil if the node makes its VMs itself
}

var errNotRoot = errors.New("only root can try it")

func readProbe(ctx context.Context, p Preflight) (Probe, error) {
	var probe Probe
	if !p.AsRoot {
		return probe, errNotRoot
	}
	text, err := p.Run(ctx, p.Agent, "probe", "--config", p.Config, "--node-name", p.Name)
	if err != nil {
		return probe, err
	}
	if err := json.Unmarshal([]byte(text), &probe); err != nil {
		return probe, fmt.Errorf("%s probe said something else than its findings: %w", p.Agent, err)
	}
	return probe, nil
}

// unprobed returns the result of a check for which there is no probe.
func unprobed(name string, err error) []Result {
	if errors.Is(err, errNotRoot) {
		return []Result{skipped(name, err.Error(), "run slurmv check as root")}
	}
	return []Result{wrong(name, err.Error(), "install Slurm-V's programs on this node")}
}

// driver checks that libvirt's QEMU driver opens inside a program.
func driver(_ context.Context, i *inspection) []Result {
	const name = "libvirt opens"
	switch {
	case i.probeErr != nil:
		return unprobed(name, i.probeErr)
	case i.probe.LibvirtError != "":
		return []Result{wrong(name, i.probe.LibvirtError, "correct the error that libvirt reports; libvirtd need not run")}
	}
	return []Result{ok(name, "qemu:///embed, libvirt "+i.probe.Libvirt)}
}
