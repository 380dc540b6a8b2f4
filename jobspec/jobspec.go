// Package jobspec defines the request of a job: the texts of the --vm-* options and the
// value, a [Spec], that they become.
//
// [Options] is the only table of the options; everything that offers or explains them is
// made from it. [Parse] turns texts into a Spec when the job is submitted. The Spec
// travels to the nodes as the text of [Spec.Encode]. The user can change that text, so a
// node uses nothing of it until [Decode] and [Spec.Validate] have accepted it against the
// node's own configuration.
//
// The package only decides, and touches nothing. Other packages find out whether an image
// exists or the node has a free VF.
package jobspec

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/config"
)

// A Spec is the request of one job. All of its VMs are alike.
type Spec struct {
	VMsPerNode int              `json:"vms_per_node"`
	VCPUs      int              `json:"vcpus"`      // of one VM
	MemoryMiB  int64            `json:"memory_mib"` // of one VM
	DiskMiB    int64            `json:"disk_mib"`   // of one VM; 0 for the size of the image
	Image      string           `json:"image"`      // absolute path, or a name in the catalogue
	ImageMode  config.ImageMode `json:"image_mode"`
	Firmware   config.Firmware  `json:"firmware,omitempty"` // "" is auto, and readable for an older node
	SRIOV      SRIOV            `json:"sriov"`
	IVShmem    IVShmem          `json:"ivshmem"`
	Network    string           `json:"network"` // a name in the configuration
	// Mounts are in the order of their guest paths, so that a directory comes
	// before those inside it.
	Mounts       []Mount          `json:"mounts,omitempty"`
	UserData     string           `json:"user_data,omitempty"`      // absolute path of a cloud-init file
	ReadyTimeout time.Duration    `json:"ready_timeout_ns"`         // whole seconds
	Start        config.Start     `json:"start,omitempty"`          // "" is auto: an older plugin does not set it
	HugePages    config.HugePages `json:"hugepages,omitempty"`      // "" is auto, which an older agent understands
	Fabric       string           `json:"fabric,omitempty"`         // fabric.Choice; "" is the site's, which an older agent understands
	WorkDir      string           `json:"work_dir"`                 // of the job
	WorkDirAlias string           `json:"work_dir_alias,omitempty"` // another path of it, which an older agent does not know; "" for none
	Nonce        string           `json:"nonce,omitempty"`          // of the submission; known only to the job's own processes
}

// SRIOV asks for virtual functions.
type SRIOV struct {
	VFs []VF `json:"vfs,omitempty"` // of one VM, in the order given
}

// A VF is one virtual function of a VM. Rates are in Mb/s.
type VF struct {
	MinMbps uint32 `json:"min,omitempty"` // 0 without a reservation
	MaxMbps uint32 `json:"max,omitempty"` // 0 without a cap
	PF      string `json:"pf,omitempty"`  // name of the physical function; "" for any
	NUMA    NUMA   `json:"numa,omitempty"`
	Spread  bool   `json:"spread,omitempty"` // on another PF than the VM's other VFs with Spread
}

// NUMA says how near the physical function must be to the VM's CPUs.
type NUMA string

// The values of NUMA.
const (
	NUMAPrefer  NUMA = "" // on the VM's NUMA node if a VF is free there, else elsewhere
	NUMARequire NUMA = "require"
	NUMAAny     NUMA = "any"
)

// IVShmem asks for shared-memory devices, which all VMs of the job on a node share.
type IVShmem struct {
	Devices int   `json:"devices"`
	SizeMiB int64 `json:"size_mib"` // of one device; a power of two; 0 without devices
}

// A Mount is a directory of the host that the VMs see.
type Mount struct {
	Host     string `json:"host"`
	Guest    string `json:"guest"`
	ReadOnly bool   `json:"ro,omitempty"`
}

// A valueError says what is wrong with one part of a request.
type valueError struct {
	Source string // as the user wrote it: "--memory-per-vm" or "SLURMV_MEMORY_PER_VM"
	Reason string // what is wrong and what is allowed
}

// Error reads "--memory-per-vm: 8Q is not a size; use …".
func (e *valueError) Error() string { return e.Source + ": " + e.Reason }

// Parse calls [ParseIn] with the working directory of the calling program.
func Parse(values map[string]string, env func(string) string, cfg config.Config) (Spec, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Spec{}, fmt.Errorf("find the working directory: %w", err)
	}
	return ParseIn(dir, values, env, cfg)
}

// ParseIn makes a Spec of option values. Their keys are the options' names without dashes
// ("vm-per-node"). An option that is not among them takes its value from its variable in
// env, if that is not empty, and else from cfg. Relative paths are relative to dir, the
// job's working directory.
//
// The error is a [*ValueError] for the first wrong option.
func ParseIn(dir string, values map[string]string, env func(string) string, cfg config.Config) (Spec, error) {
	if err := checkNames(values); err != nil {
		return Spec{}, err
	}
	spec := defaults(dir, cfg)
	if err := spec.checkWorkDir(); err != nil {
		return Spec{}, err
	}
	for _, option := range Options {
		if err := option.read(&spec, values, env, cfg); err != nil {
			return Spec{}, err
		}
	}
	return spec, nil
}

// checkNames refuses unknown options, and VM options in a job that is not a VM job.
func checkNames(values map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.ContainsFunc(Options, func(o Option) bool { return o.Name == name }) {
			return &valueError{"--" + name, "is not an option of Slurm-V"}
		}
	}
	if _, ok := values[perNode]; ok {
		return nil
	}
	for _, option := range Options {
		if _, ok := values[option.Name]; ok {
			return &valueError{"--" + option.Name, "needs --vm-per-node=N beside it, which makes the job run in VMs"}
		}
	}
	return &valueError{"--" + perNode, "is missing; --vm-per-node=N makes a job run in VMs"}
}

func defaults(dir string, cfg config.Config) Spec {
	d := cfg.Defaults
	return Spec{
		VCPUs:        d.VCPUPerVM,
		MemoryMiB:    d.MemoryPerVM.MiB(),
		DiskMiB:      d.DiskSize.MiB(),
		Image:        d.Image,
		ImageMode:    cfg.Images.Mode,
		Network:      d.Network,
		Mounts:       withWorkDir(nil, dir, cfg),
		ReadyTimeout: time.Duration(d.ReadyTimeout) * time.Second,
		Start:        d.Start,
		HugePages:    unlessAuto(d.HugePages),
		WorkDir:      dir,
	}
}

// read puts the option's value into spec and checks the result at once, so that the error
// names what the user wrote.
func (o Option) read(spec *Spec, values map[string]string, env func(string) string, cfg config.Config) error {
	source := "--" + o.Name
	value, given := values[o.Name]
	if !given && o.Env != "" && env(o.Env) != "" {
		source, value, given = o.Env, env(o.Env), true
	}
	err := o.parseIf(given, spec, value, cfg)
	if err == nil {
		err = o.check(*spec, cfg)
	}
	if err != nil {
		return &valueError{source, err.Error()}
	}
	return nil
}

func (o Option) parseIf(given bool, spec *Spec, value string, cfg config.Config) error {
	if !given {
		return nil
	}
	if value == "" {
		return fmt.Errorf("has no value; write --%s=%s", o.Name, o.Arg)
	}
	if err := config.CheckText(value); err != nil {
		return err
	}
	return o.parse(spec, value, cfg)
}

// Validate checks a Spec of unknown origin against the configuration of the
// node. It refuses everything that ParseIn with that configuration could not
// have made; the error is a [*ValueError].
func (s Spec) Validate(cfg config.Config) error {
	if err := s.checkWorkDir(); err != nil {
		return err
	}
	for _, option := range Options {
		if err := option.check(s, cfg); err != nil {
			return &valueError{"--" + option.Name, err.Error()}
		}
	}
	return nil
}

func (s Spec) checkWorkDir() error {
	if err := checkPath(s.WorkDir); err != nil {
		return &valueError{"working directory", err.Error()}
	}
	if alias := s.WorkDirAlias; alias != "" && !s.takesAlias(alias) {
		return &valueError{"working directory", fmt.Sprintf("it cannot be %s, too", config.Quote(alias))}
	}
	return nil
}

// checkPath refuses a path that filepath.Clean would change, so that each directory has
// only one name.
func checkPath(path string) error {
	if err := config.CheckText(path); err != nil {
		return err
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return fmt.Errorf("%s is not a plain absolute path", config.Quote(path))
	}
	return nil
}

// within reports whether path is dir or below it. It compares only the names.
func within(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

var errNoImage = errors.New("no image is named and the site has no default; write --vm-image=PATH or --vm-image=NAME")
