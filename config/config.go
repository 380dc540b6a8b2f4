// Package config reads the one configuration file of Slurm-V.
//
// [Load] turns the file into a [Config]: a plain value with every default filled in and
// every value checked. An unknown key is an error, so that a misspelt limit does not
// silently become no limit. The commented slurmv.toml beside this file states every key
// with its default.
//
// A Config says what the site allows and prefers. Package jobspec has the request of a
// job.
package config

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Properties of the installation, set at build time with -ldflags -X.
var (
	Path    = "/etc/slurm-v/slurmv.toml"   // the configuration file
	Libdir  = "/usr/local/lib/slurm-v"     // directory of Slurm's plugin
	Libexec = "/usr/local/libexec/slurm-v" // directory of the programs that users do not call
	Version = "unreleased"                 // the Makefile sets 0.1.0+COMMIT
)

// Commented is the file that make install puts in place. It has every key, with its
// default and a comment.
//
//go:embed slurmv.toml
var Commented string

// maxFile bounds the size of the file, in bytes: a configuration is a few kilobytes.
const maxFile = 1 << 20

// A Config is what the site has decided. Its fields are the sections of the file.
type Config struct {
	Paths    Paths              `toml:"paths"`
	Limits   Limits             `toml:"limits"`
	Defaults Defaults           `toml:"defaults"`
	Images   Images             `toml:"images"`
	Slurm    Slurm              `toml:"slurm"`
	Network  map[string]Network `toml:"network"` // by the name that --vm-network gives
	VF       VF                 `toml:"vf"`
	IVShmem  IVShmem            `toml:"ivshmem"`
	Backend  Backend            `toml:"backend"`
	QEMU     QEMU               `toml:"qemu"`
	Launch   Launch             `toml:"launch"`
	Measure  Measure            `toml:"measure"`
	Warm     Warm               `toml:"warm"`
	Fabric   Fabric             `toml:"fabric"`
}

// Paths are the directories on a node. %n in them is the node's name in Slurm;
// [Config.StateDir] and [Config.RunDir] replace it.
type Paths struct {
	State string `toml:"state"` // journals and overlays, which survive a reboot
	Run   string `toml:"run"`   // sockets and locks, which do not survive a reboot
}

// Limits are the largest values a job may ask for.
type Limits struct {
	VMPerNode      int  `toml:"vm_per_node"`
	VCPUPerVM      int  `toml:"vcpu_per_vm"`
	MemoryPerVM    Size `toml:"memory_per_vm"`
	DiskSize       Size `toml:"disk_size"`
	VFPerVM        int  `toml:"vf_per_vm"`
	IVShmemPerVM   int  `toml:"ivshmem_per_vm"`   // devices
	IVShmemSize    Size `toml:"ivshmem_size"`     // of one device
	IVShmemPerJob  Size `toml:"ivshmem_per_job"`  // of all devices of a job, on each node
	IVShmemPerNode Size `toml:"ivshmem_per_node"` // of all jobs on a node
	MountsPerVM    int  `toml:"mounts_per_vm"`
	ReadyTimeout   int  `toml:"ready_timeout"`   // seconds
	ProgramsPerVM  int  `toml:"programs_per_vm"` // running at once

	HugePages []HugePages `toml:"hugepages"` // sizes that jobs may have; empty for none
}

// Defaults are the values of options that a job leaves out.
type Defaults struct {
	VCPUPerVM    int    `toml:"vcpu_per_vm"`
	MemoryPerVM  Size   `toml:"memory_per_vm"`
	DiskSize     Size   `toml:"disk_size"` // 0: the size of the image
	Image        string `toml:"image"`     // absolute path, name in the catalogue, or "" for none
	Network      string `toml:"network"`
	IVShmemSize  Size   `toml:"ivshmem_size"`
	ReadyTimeout int    `toml:"ready_timeout"` // seconds
	Start        Start  `toml:"start"`

	HugePages HugePages `toml:"hugepages"`
}

// Images says where images come from.
type Images struct {
	// Directories are where images, and the files that they are based on, may lie.
	Directories []string         `toml:"directories"`
	Mode        ImageMode        `toml:"mode"`       // of jobs that do not choose
	CacheDir    string           `toml:"cache_dir"`  // of a node; "" is a directory below its state directory
	CacheSize   Size             `toml:"cache_size"` // of all copies; 0 is half of the file system
	Catalogue   map[string]Image `toml:"catalogue"`  // by the name that --vm-image gives
}

// ImageMode is how VMs access their image.
type ImageMode string

// The values of ImageMode.
const (
	ImageDirect ImageMode = "direct" // VMs read the image where it lies
	ImageCache  ImageMode = "cache"  // VMs read a copy on the node, which its jobs share
	ImageCopy   ImageMode = "copy"   // each VM has its own copy
)

// ImageModes lists all modes.
var ImageModes = []ImageMode{ImageDirect, ImageCache, ImageCopy}

// An Image is one entry of the site's catalogue.
type Image struct {
	Path     string   `toml:"path"`
	Firmware Firmware `toml:"firmware"` // that boots it
}

// Slurm says how the VMs' CPUs and memory get into a job's request.
type Slurm struct {
	Bin          string    `toml:"bin"` // directory of Slurm's commands; "" searches root's PATH
	Resources    Resources `toml:"resources"`
	QEMUOverhead Size      `toml:"qemu_overhead"` // per VM, in addition to the guest's memory
	GRES         bool      `toml:"gres"`          // Slurm counts VFs: GresTypes has vf and vfbw
}

// Resources says who adds the VMs' CPUs and memory to the request.
type Resources string

// The values of Resources.
const (
	ResourcesUser      Resources = "user"       // the user; the plugin checks and prints the lines to add
	ResourcesJobSubmit Resources = "job_submit" // the shipped job_submit.lua in slurmctld
	ResourcesCLIFilter Resources = "cli_filter" // the shipped cli_filter.lua in sbatch, salloc and srun
)

// A Network is one choice of --vm-network.
type Network struct {
	Type NetworkType `toml:"type"`

	// For a job's own network.
	Subnet    string `toml:"subnet"`     // IPv4 prefix that VM addresses are computed in
	Underlay  string `toml:"underlay"`   // prefix that contains the node's address; "" takes the default route's address
	Peers     string `toml:"peers"`      // addresses of the job's other nodes there; see PeersAny, PeerHost
	VXLANPort int    `toml:"vxlan_port"` // UDP

	Egress []string `toml:"egress"` // where VMs may connect to outside of the network; see ParseDestination

	// For a bridge that the node has.
	Bridge    string `toml:"bridge"`
	Addresses string `toml:"addresses"`

	// For a network of OpenStack's. Subnet is then that of neutron, or "" where its DHCP
	// gives the VMs their addresses.
	Neutron string `toml:"neutron"` // name or id
}

// PeersAny takes every address of the underlay for the address of a node.
const PeersAny = "any"

// PeerHost returns the host name that resolves to a node's underlay address: the node's
// own name unless the network has a pattern.
func (n Network) PeerHost(node string) string {
	return strings.ReplaceAll(cmp.Or(n.Peers, "%n"), "%n", node)
}

// VXLANPort is the default UDP port. Any user could take a port from 1024 on first and so
// keep VM jobs off a node; only root may take one below. IANA has not assigned port 299,
// and RPC programs take ports from 600 on.
const VXLANPort = 299

// NetworkType is the kind of a Network.
type NetworkType string

// The values of NetworkType.
const (
	NetworkJob    NetworkType = "job"    // connects only the VMs of one job
	NetworkBridge NetworkType = "bridge" // a bridge that the administrator has made on every node

	NetworkNeutron NetworkType = "neutron" // a network of OpenStack's
)

// IVShmem configures the memory that VMs share.
type IVShmem struct {
	Device   IVShmemDevice `toml:"device"`
	HugePage Size          `toml:"huge_page"` // size of its pages; 0 for ordinary pages
}

// An IVShmemDevice is the form in which VMs have the memory that they share.
type IVShmemDevice string

const (
	IVShmemAuto   IVShmemDevice = "auto"    // what is fast and QEMU has
	IVShmemPCI    IVShmemDevice = "ivshmem" // QEMU's PCI device ivshmem-plain
	IVShmemNVDIMM IVShmemDevice = "nvdimm"  // persistent memory, which every kernel caches
)

// QEMU configures how virtual machines run.
type QEMU struct {
	Emulator string `toml:"emulator"` // absolute path; "" lets libvirt find it
	Machine  string `toml:"machine"`
	Accel    Accel  `toml:"accel"`
	CPU      string `toml:"cpu"`       // model; "" takes one that fits the accelerator
	UEFICode string `toml:"uefi_code"` // absolute path of UEFI firmware; "" asks QEMU's list of firmware
	UEFIVars string `toml:"uefi_vars"` // of its empty variables; "" exactly if UEFICode is
}

// Launch configures how the VMs of a job start on a node.
type Launch struct {
	Parallel int `toml:"parallel"` // VMs that start and boot at once; 0 computes it from the node's CPUs
}

// Measure makes a launch slower, to measure how much each optimisation gains.
type Measure struct {
	Serial    bool `toml:"serial"`     // one VM after another
	NoOverlap bool `toml:"no_overlap"` // make what the VMs share one by one, and before the VMs
}

// Accel is how QEMU runs guest code.
type Accel string

// The values of Accel.
const (
	AccelAuto Accel = "auto" // KVM where it works, else TCG
	AccelKVM  Accel = "kvm"
	AccelTCG  Accel = "tcg"
)

// Default returns the configuration of a site that has no file.
func Default() Config {
	return Config{
		Paths: Paths{State: "/var/lib/slurmv/%n", Run: "/run/slurmv/%n"},
		Limits: Limits{
			VMPerNode: 64, VCPUPerVM: 1024, MemoryPerVM: 4 << 20, DiskSize: 4 << 20,
			VFPerVM: 16, MountsPerVM: 16,
			IVShmemPerVM: 16, IVShmemSize: 16 << 10, IVShmemPerJob: 64 << 10, IVShmemPerNode: 1 << 20,
			ReadyTimeout: 3600, ProgramsPerVM: 1024,
			HugePages: []HugePages{HugePages2M, HugePages1G},
		},
		Defaults: Defaults{
			VCPUPerVM: 1, MemoryPerVM: 1 << 10, Network: "default",
			IVShmemSize: 16, ReadyTimeout: 300, Start: StartAuto, HugePages: HugePagesAuto,
		},
		Images:  Images{Directories: []string{"/"}, Mode: ImageCache, Catalogue: map[string]Image{}},
		Slurm:   Slurm{Resources: ResourcesUser, QEMUOverhead: 256},
		Network: map[string]Network{"default": defaultNetwork(NetworkJob)},
		VF:      VF{PFs: []string{}, Mode: VFStrict, Reserve: 5, Software: map[string]SoftwarePF{}, CreatePerPF: map[string]int{}},
		Backend: defaultBackend(),
		IVShmem: IVShmem{Device: IVShmemAuto},
		QEMU:    QEMU{Machine: "q35", Accel: AccelAuto},
		Warm:    Warm{Size: 20 << 10, MountSlots: 4, DeviceSlots: 4},
		Fabric:  defaultFabric(),
	}
}

func defaultNetwork(kind NetworkType) Network {
	switch kind {
	case NetworkJob:
		return Network{Type: kind, Subnet: "172.30.0.0/16", VXLANPort: VXLANPort, Egress: []string{}}
	case NetworkBridge:
		return Network{Type: kind, Addresses: "dhcp"}
	}
	return Network{Type: kind}
}

// Load reads the file at path, or at [Path] if path is empty. The file at [Path] may be
// missing: the site then has the defaults. Any other path was given explicitly, so a
// missing file there is an error.
func Load(path string) (Config, error) {
	if path == "" {
		path = Path
	}
	data, err := readFile(path)
	if errors.Is(err, fs.ErrNotExist) && path == Path {
		return Default(), nil
	}
	if err != nil {
		return Config{}, fmt.Errorf("read configuration: %w", err)
	}
	return Parse(path, data)
}

func readFile(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		return nil, fmt.Errorf("%s: longer than %d bytes, so not a configuration", path, maxFile)
	}
	return data, err
}

// StateDir returns the directory of a node's journals and overlays.
func (c Config) StateDir(node string) string { return expand(c.Paths.State, node) }

// RunDir returns the directory of a node's sockets and locks.
func (c Config) RunDir(node string) string { return expand(c.Paths.Run, node) }

// ImageCache returns the directory in which a node keeps copies of images.
func (c Config) ImageCache(node string) string {
	if c.Images.CacheDir == "" {
		return filepath.Join(c.StateDir(node), "images")
	}
	return expand(c.Images.CacheDir, node)
}

// expand replaces %n in path by the node's name. A name that is not a single path element
// is forged, as Slurm allows none, and must not lead outside.
func expand(path, node string) string {
	name := strings.Map(func(r rune) rune {
		if r == '/' || r < ' ' {
			return '_'
		}
		return r
	}, node)
	if strings.Trim(name, ".") == "" {
		name = strings.Repeat("_", len(name))
	}
	return filepath.Clean(strings.ReplaceAll(path, "%n", name))
}
