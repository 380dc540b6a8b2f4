package jobspec

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/config"
)

// An Option is one --vm-… option of sbatch, salloc and srun. Every option needs a value.
// Lists are inside the value, because Slurm keeps only the last of a repeated option.
type Option struct {
	Name  string // without dashes
	Arg   string // placeholder for the value in the help
	Usage string // one line of help
	Env   string // variable with a default for the option; "" if it has none

	parse func(spec *Spec, value string, cfg config.Config) error // text to Spec
	check func(spec Spec, cfg config.Config) error                // checks the Spec, also on the node
}

// perNode is the option that makes a job a VM job. It has no variable, so that an
// environment alone makes no VM job.
const perNode = "vm-per-node"

// OptionNames returns the names of all options, in the order of the help.
func OptionNames() []string {
	var names []string
	for _, option := range Options {
		names = append(names, option.Name)
	}
	return names
}

// Options are all options, in the order of the help.
var Options = []Option{
	{
		Name: perNode, Arg: "N",
		Usage: "[slurm-v] run the job in N virtual machines per node",
		parse: parseVMs, check: checkVMs,
	}, {
		Name: "vcpu-per-vm", Arg: "N", Env: "SLURMV_VCPU_PER_VM",
		Usage: "[slurm-v] CPUs of each VM",
		parse: parseVCPUs, check: checkVCPUs,
	}, {
		Name: "memory-per-vm", Arg: "SIZE", Env: "SLURMV_MEMORY_PER_VM",
		Usage: "[slurm-v] memory of each VM, such as 8G",
		parse: parseMemory, check: checkMemory,
	}, {
		Name: "vm-hugepages", Arg: "no|2M|1G|auto", Env: "SLURMV_VM_HUGEPAGES",
		Usage: "[slurm-v] huge pages of this size for the VMs' memory; auto: for VMs with VFs, if the node has enough",
		parse: parseHugePages, check: checkHugePages,
	}, {
		Name: "disk-size", Arg: "SIZE", Env: "SLURMV_DISK_SIZE",
		Usage: "[slurm-v] disk of each VM, such as 20G; 0 for the size of the image",
		parse: parseDisk, check: checkDisk,
	}, {
		Name: "vm-image", Arg: "PATH|NAME", Env: "SLURMV_VM_IMAGE",
		Usage: "[slurm-v] disk image to start from: a file, or a name of the site's catalogue",
		parse: parseImage, check: checkImage,
	}, {
		Name: "vm-image-mode", Arg: "MODE", Env: "SLURMV_VM_IMAGE_MODE",
		Usage: "[slurm-v] cache: jobs share a copy on the node; direct: read the image where it lies; copy: each VM has a copy",
		parse: parseImageMode, check: checkImageMode,
	}, {
		Name: "vm-firmware", Arg: "auto|bios|uefi", Env: "SLURMV_VM_FIRMWARE",
		Usage: "[slurm-v] firmware that boots the image; auto: the one that the image calls for",
		parse: parseFirmware, check: checkFirmware,
	}, {
		Name: "sriov", Arg: "N[:SETTINGS][+...]", Env: "SLURMV_SRIOV",
		Usage: "[slurm-v] SR-IOV virtual functions of each VM: 2, or 1:min=10g+2:max=5g for different VFs",
		parse: parseSRIOV, check: checkSRIOV,
	}, {
		Name: "ivshmem", Arg: "N[:SIZE]", Env: "SLURMV_IVSHMEM",
		Usage: "[slurm-v] shared-memory devices of each VM; N slurm-v-run can run at once, each with its own device",
		parse: parseIVShmem, check: checkIVShmem,
	}, {
		Name: "vm-network", Arg: "NAME", Env: "SLURMV_VM_NETWORK",
		Usage: "[slurm-v] network of the VMs, by its name at the site",
		parse: parseNetwork, check: checkNetwork,
	}, {
		Name: "vm-mount", Arg: "HOST[:GUEST][:ro][,...]", Env: "SLURMV_VM_MOUNT",
		Usage: "[slurm-v] directories to see in the VMs, beside the working directory; none leaves out the latter",
		parse: parseMountOption, check: checkMounts,
	}, {
		Name: "vm-user-data", Arg: "FILE", Env: "SLURMV_VM_USER_DATA",
		Usage: "[slurm-v] cloud-init user data for the VMs",
		parse: parseUserData, check: checkUserData,
	}, {
		Name: "vm-ready-timeout", Arg: "SECONDS", Env: "SLURMV_VM_READY_TIMEOUT",
		Usage: "[slurm-v] how long all VMs may take to be up",
		parse: parseReadyTimeout, check: checkReadyTimeout,
	}, {
		Name: "vm-start", Arg: "auto|warm|cold", Env: "SLURMV_VM_START",
		Usage: "[slurm-v] start VMs from a template (warm), by booting (cold), or from a template if one fits (auto)",
		parse: parseStart, check: checkStart,
	}, {
		Name: FabricOption, Arg: "off|vni:N|CLASS[,...]", Env: "SLURMV_VM_FABRIC",
		Usage: "[slurm-v] the job's own tags on the fabric: off, a number of VNIs, traffic classes; also without VMs",
		parse: parseFabric, check: checkFabric,
	},
}

func parseVMs(s *Spec, value string, cfg config.Config) (err error) {
	s.VMsPerNode, err = parseNumber(value, 1, cfg.Limits.VMPerNode)
	return err
}

func checkVMs(s Spec, cfg config.Config) error {
	return checkNumber(s.VMsPerNode, 1, cfg.Limits.VMPerNode)
}

func parseVCPUs(s *Spec, value string, cfg config.Config) (err error) {
	s.VCPUs, err = parseNumber(value, 1, cfg.Limits.VCPUPerVM)
	return err
}

func checkVCPUs(s Spec, cfg config.Config) error {
	return checkNumber(s.VCPUs, 1, cfg.Limits.VCPUPerVM)
}

func parseMemory(s *Spec, value string, _ config.Config) error {
	size, err := config.ParseSize(value)
	s.MemoryMiB = size.MiB()
	return err
}

func checkMemory(s Spec, cfg config.Config) error {
	return checkSize(s.MemoryMiB, config.MinMemory, cfg.Limits.MemoryPerVM)
}

func parseHugePages(s *Spec, value string, _ config.Config) error {
	s.HugePages = unlessAuto(config.HugePages(value))
	return nil
}

func unlessAuto(h config.HugePages) config.HugePages {
	if h == config.HugePagesAuto {
		return ""
	}
	return h
}

// checkHugePages runs after the check of the memory, because it reads its size.
func checkHugePages(s Spec, cfg config.Config) error {
	if s.HugePages == "" {
		return nil
	}
	if err := cfg.Limits.CheckHugePages(s.HugePages); err != nil {
		return err
	}
	page, memory := s.HugePages.Size(), config.Size(s.MemoryMiB)
	if page != 0 && memory%page != 0 {
		return fmt.Errorf("%s of memory is no whole number of pages of %s; use --memory-per-vm=%s or --vm-hugepages=no", memory, page, (memory/page+1)*page)
	}
	return nil
}

func parseDisk(s *Spec, value string, _ config.Config) error {
	size, err := config.ParseSize(value)
	s.DiskMiB = size.MiB()
	return err
}

func checkDisk(s Spec, cfg config.Config) error {
	return checkSize(s.DiskMiB, 0, cfg.Limits.DiskSize)
}

// parseImage takes a text without slash for a name, even if such a file exists: the
// meaning of a job must not depend on the files in its directory.
func parseImage(s *Spec, value string, _ config.Config) error {
	if strings.HasPrefix(value, "~/") {
		return fmt.Errorf("%s begins with ~, which no shell has replaced; write $HOME/%s on the command line, or the whole path", config.Quote(value), value[2:])
	}
	s.Image = value
	if strings.Contains(value, "/") {
		s.Image = absolute(value, s.WorkDir)
	}
	return nil
}

func checkImage(s Spec, cfg config.Config) error {
	if s.Image == "" {
		return errNoImage
	}
	if strings.Contains(s.Image, "/") {
		return checkPath(s.Image)
	}
	if _, ok := cfg.Images.Catalogue[s.Image]; !ok {
		return fmt.Errorf("%s is not in the site's catalogue (%s); for a file write its path, such as %s",
			config.Quote(s.Image), config.Names(cfg.Images.Catalogue), config.Quote("./"+s.Image))
	}
	return nil
}

func parseImageMode(s *Spec, value string, _ config.Config) error {
	s.ImageMode = config.ImageMode(value)
	return nil
}

func checkImageMode(s Spec, _ config.Config) error {
	if !slices.Contains(config.ImageModes, s.ImageMode) {
		return fmt.Errorf("%s is not a mode; use cache, direct or copy", config.Quote(string(s.ImageMode)))
	}
	return nil
}

func parseFirmware(s *Spec, value string, _ config.Config) error {
	s.Firmware = config.Firmware(value)
	return nil
}

func checkFirmware(s Spec, _ config.Config) error {
	if s.Firmware == "" {
		return nil
	}
	return s.Firmware.Check()
}

func parseNetwork(s *Spec, value string, _ config.Config) error {
	s.Network = value
	return nil
}

func checkNetwork(s Spec, cfg config.Config) error {
	if _, ok := cfg.Network[s.Network]; !ok {
		return fmt.Errorf("%s is not a network of this site; use one of %s", config.Quote(s.Network), config.Names(cfg.Network))
	}
	return nil
}

func parseUserData(s *Spec, value string, _ config.Config) error {
	s.UserData = absolute(value, s.WorkDir)
	return nil
}

func checkUserData(s Spec, _ config.Config) error {
	if s.UserData == "" {
		return nil
	}
	return checkPath(s.UserData)
}

func parseReadyTimeout(s *Spec, value string, cfg config.Config) error {
	seconds, err := parseNumber(value, 1, cfg.Limits.ReadyTimeout)
	s.ReadyTimeout = time.Duration(seconds) * time.Second
	return err
}

func checkReadyTimeout(s Spec, cfg config.Config) error {
	if s.ReadyTimeout%time.Second != 0 {
		return fmt.Errorf("%s is not a whole number of seconds", s.ReadyTimeout)
	}
	return checkNumber(int(s.ReadyTimeout/time.Second), 1, cfg.Limits.ReadyTimeout)
}

func parseStart(s *Spec, value string, _ config.Config) error {
	s.Start = config.Start(value)
	return nil
}

// checkStart runs after the other options, because it reads their results.
func checkStart(s Spec, cfg config.Config) error {
	if s.Start == "" {
		return nil
	}
	if err := s.Start.Check(); err != nil {
		return err
	}
	if why := s.ColdBecause(cfg); s.Start == config.StartWarm && why != "" {
		return fmt.Errorf("warm is not possible: %s; use auto or cold, or ask for less", why)
	}
	return nil
}

// ColdBecause says why VMs of this request must be booted; "" if they can be restored
// from a template, too.
func (s Spec) ColdBecause(cfg config.Config) string {
	switch slots := cfg.Warm; {
	case s.ImageMode == config.ImageCopy:
		return "each VM is to have a copy of the image (--vm-image-mode=copy), and those from a template share one"
	case s.UserData != "":
		return "cloud-init user data (--vm-user-data) takes effect only when a VM boots"
	case s.HugePages.Size() != 0:
		return "the VMs' memory has huge pages (--vm-hugepages), and that of a VM from a template has ordinary ones"
	case len(s.Mounts) > slots.MountSlots:
		return fmt.Sprintf("%d mounts (--vm-mount and the working directory), and a VM from a template has %d at most (warm.mount_slots)", len(s.Mounts), slots.MountSlots)
	case len(s.SRIOV.VFs) > slots.DeviceSlots:
		return fmt.Sprintf("%d virtual functions (--sriov), and a VM from a template has %d at most (warm.device_slots)", len(s.SRIOV.VFs), slots.DeviceSlots)
	}
	return ""
}

// absolute returns the user's path as an absolute one, relative to dir if need be.
func absolute(path, dir string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// maxDigits keeps numbers small enough to add and multiply. The configuration has the
// real limits.
const maxDigits = 6

func parseNumber(value string, least, most int) (int, error) {
	n, ok := wholeNumber(value)
	if !ok {
		return 0, fmt.Errorf("%s is not allowed; use a whole number, %d to %d", config.Quote(value), least, most)
	}
	return n, nil
}

func wholeNumber(value string) (n int, ok bool) {
	if len(value) > maxDigits || strings.Trim(value, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.Atoi(value)
	return n, err == nil
}

func checkNumber(n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("%d is not allowed; use %d to %d", n, least, most)
	}
	return nil
}

func checkSize(mib int64, least, most config.Size) error {
	if size := config.Size(mib); size < least || size > most {
		return fmt.Errorf("%s is not allowed; use %s to %s", size, least, most)
	}
	return nil
}
