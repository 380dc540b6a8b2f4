package jobspec

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/config"
)

// site is a configuration with a catalogue, a second network and small limits.
func site() config.Config {
	cfg := config.Default()
	cfg.Images.Catalogue = map[string]config.Image{
		"rocky9":   {Path: "/images/rocky9.qcow2"},
		"debian12": {Path: "/images/debian12.qcow2"},
	}
	cfg.Defaults.Image = "rocky9"
	cfg.Network["campus"] = config.Network{Type: config.NetworkBridge, Bridge: "br0", Addresses: "dhcp"}
	cfg.Limits.VMPerNode = 8
	cfg.Limits.MountsPerVM = 3
	cfg.Fabric.VNI.Pool = config.Tags{{First: 1024, Last: 2047}}
	return cfg
}

func noEnv(string) string { return "" }

// plain is the Spec that --vm-per-node=2 alone gives at the site.
func plain() Spec {
	return Spec{
		VMsPerNode: 2, VCPUs: 1, MemoryMiB: 1024, Image: "rocky9", ImageMode: config.ImageCache, Network: "default",
		Mounts:       []Mount{{Host: "/home/u/run", Guest: "/home/u/run"}},
		ReadyTimeout: 300 * time.Second, Start: config.StartAuto, WorkDir: "/home/u/run",
	}
}

func TestOptionBeatsVariableBeatsDefault(t *testing.T) {
	tests := map[string]struct {
		option, env string
		cfg         func(*config.Config)
		value       func(Spec) any
		byOption    any
		byEnv       any
		byConfig    any
	}{
		"vCPUs":  {"5", "6", func(c *config.Config) { c.Defaults.VCPUPerVM = 7 }, func(s Spec) any { return s.VCPUs }, 5, 6, 7},
		"memory": {"5G", "6G", func(c *config.Config) { c.Defaults.MemoryPerVM = 7168 }, func(s Spec) any { return s.MemoryMiB }, int64(5120), int64(6144), int64(7168)},
		"disk":   {"5G", "6G", func(c *config.Config) { c.Defaults.DiskSize = 7168 }, func(s Spec) any { return s.DiskMiB }, int64(5120), int64(6144), int64(7168)},
		"image":  {"/5", "/6", func(c *config.Config) { c.Defaults.Image = "/7" }, func(s Spec) any { return s.Image }, "/5", "/6", "/7"},
		"mode": {"copy", "direct", func(c *config.Config) { c.Images.Mode = config.ImageDirect }, func(s Spec) any { return s.ImageMode },
			config.ImageCopy, config.ImageDirect, config.ImageDirect},
		"firmware": {"uefi", "bios", func(*config.Config) {}, func(s Spec) any { return s.Firmware },
			config.FirmwareUEFI, config.FirmwareBIOS, config.Firmware("")},
		"VFs":     {"5", "6", func(*config.Config) {}, func(s Spec) any { return len(s.SRIOV.VFs) }, 5, 6, 0},
		"devices": {"5", "6:32M", func(*config.Config) {}, func(s Spec) any { return s.IVShmem }, IVShmem{5, 16}, IVShmem{6, 32}, IVShmem{}},
		"network": {"campus", "default", func(c *config.Config) { c.Defaults.Network = "third"; c.Network["third"] = c.Network["campus"] },
			func(s Spec) any { return s.Network }, "campus", "default", "third"},
		"mounts":    {"none,/5", "none", func(*config.Config) {}, func(s Spec) any { return len(s.Mounts) }, 1, 0, 1},
		"user data": {"/5", "/6", func(*config.Config) {}, func(s Spec) any { return s.UserData }, "/5", "/6", ""},
		"time":      {"5", "6", func(c *config.Config) { c.Defaults.ReadyTimeout = 7 }, func(s Spec) any { return s.ReadyTimeout }, 5 * time.Second, 6 * time.Second, 7 * time.Second},
		"start":     {"warm", "cold", func(*config.Config) {}, func(s Spec) any { return s.Start }, config.StartWarm, config.StartCold, config.StartAuto},
		"huge pages": {"2M", "no", func(c *config.Config) { c.Defaults.HugePages = config.HugePages1G }, func(s Spec) any { return s.HugePages },
			config.HugePages2M, config.HugePagesNo, config.HugePages1G},
		"tags": {"off", "vni:2", func(*config.Config) {}, func(s Spec) any { return s.Fabric }, "off", "vni:2", ""},
	}
	names := map[string]string{
		"vCPUs": "vcpu-per-vm", "memory": "memory-per-vm", "disk": "disk-size", "image": "vm-image", "mode": "vm-image-mode", "firmware": "vm-firmware", "VFs": "sriov",
		"devices": "ivshmem", "network": "vm-network", "mounts": "vm-mount", "user data": "vm-user-data", "time": "vm-ready-timeout", "start": "vm-start", "huge pages": "vm-hugepages",
		"tags": "vm-fabric",
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := site()
			tt.cfg(&cfg)
			parse := func(values map[string]string, env func(string) string) any {
				t.Helper()
				values["vm-per-node"] = "2"
				spec, err := ParseIn("/home/u/run", values, env, cfg)
				if err != nil {
					t.Fatal(err)
				}
				return tt.value(spec)
			}
			variable := "SLURMV_" + strings.ToUpper(strings.ReplaceAll(names[name], "-", "_"))
			env := func(key string) string {
				if key == variable {
					return tt.env
				}
				return ""
			}
			if got := parse(map[string]string{names[name]: tt.option}, env); got != tt.byOption {
				t.Errorf("with option and variable: %v, want %v", got, tt.byOption)
			}
			if got := parse(map[string]string{}, env); got != tt.byEnv {
				t.Errorf("with the variable: %v, want %v", got, tt.byEnv)
			}
			if got := parse(map[string]string{}, noEnv); got != tt.byConfig {
				t.Errorf("with neither: %v, want %v", got, tt.byConfig)
			}
		})
	}
	if len(tests) != len(Options)-1 {
		t.Errorf("%d options are tested, want all %d but vm-per-node", len(tests), len(Options)-1)
	}
}

func TestAVariableIsNamedInItsError(t *testing.T) {
	env := func(key string) string {
		return map[string]string{"SLURMV_MEMORY_PER_VM": "8Q", "SLURMV_VM_PER_NODE": "x"}[key]
	}
	_, err := ParseIn("/home/u/run", map[string]string{"vm-per-node": "2"}, env, site())
	const want = "SLURMV_MEMORY_PER_VM: 8Q is not a size; use a number and K, M, G or T, such as 8G"
	if err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

func TestOnlyVMPerNodeMakesAVMJob(t *testing.T) {
	tests := map[string]struct {
		values map[string]string
		want   string
	}{
		"other options without it":   {map[string]string{"vcpu-per-vm": "4", "sriov": "x"}, "--vcpu-per-vm: needs --vm-per-node=N beside it, which makes the job run in VMs"},
		"tags for VMs that it lacks": {map[string]string{"vm-fabric": "vni:1", "vm-network": "lan"}, "--vm-network: needs --vm-per-node=N beside it, which makes the job run in VMs"},
		"no options":                 {nil, "--vm-per-node: is missing; --vm-per-node=N makes a job run in VMs"},
		"an option nobody knows":     {map[string]string{"vm-per-node": "2", "vm-size": "big"}, "--vm-size: is not an option of Slurm-V"},
	}
	everywhere := func(string) string { return "2" } // a variable alone never makes a VM job
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := ParseIn("/home/u/run", tt.values, everywhere, site())
			if err == nil || err.Error() != tt.want {
				t.Errorf("error = %v, want %s", err, tt.want)
			}
		})
	}
}

func TestWorkingDirectory(t *testing.T) {
	tests := map[string]struct{ dir, mount, want string }{
		"is mounted":                        {"/home/u", "", ""},
		"may be /tmp":                       {"/tmp", "", ""},
		"cannot be the guest's root":        {"/", "", "--vm-mount: the working directory / cannot be mounted in the VMs, which have their own; submit from another directory or write --vm-mount=none"},
		"cannot be a directory of guests":   {"/usr/src", "", "--vm-mount: the working directory /usr/src cannot be mounted"},
		"may be anything if left out":       {"/usr/src", "none", ""},
		"is not mounted if it is covered":   {"/usr/local/x", "/usr/local/x", ""},
		"must be absolute":                  {"home/u", "", "working directory: home/u is not a plain absolute path"},
		"must be there":                     {"", "", `working directory: "" is not a plain absolute path`},
		"must have one name":                {"/home/../u", "", "working directory: /home/../u is not a plain absolute path"},
		"must not have control characters":  {"/home/\x07", "", "working directory: \"/home/\\a\" has a control or invisible character"},
		"may have letters of many scripts":  {"/home/ü/数", "", ""},
		"may have what separates in mounts": {"/home/u/a,b:c", "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			values := map[string]string{"vm-per-node": "2"}
			if tt.mount != "" {
				values["vm-mount"] = tt.mount
			}
			spec, err := ParseIn(tt.dir, values, noEnv, site())
			switch {
			case tt.want == "" && err != nil:
				t.Fatal(err)
			case tt.want != "" && (err == nil || !strings.HasPrefix(err.Error(), tt.want)):
				t.Errorf("error = %v, want %s", err, tt.want)
			case tt.want == "":
				checkRoundTrip(t, spec, site())
			}
		})
	}
}

func TestASiteWithoutMountsHasNone(t *testing.T) {
	cfg := site()
	cfg.Limits.MountsPerVM = 0
	spec, err := ParseIn("/home/u", map[string]string{"vm-per-node": "2"}, noEnv, cfg)
	if err != nil || spec.Mounts != nil {
		t.Errorf("mounts = %v, %v; want none", spec.Mounts, err)
	}
}

func TestASiteWithoutImageNeedsOne(t *testing.T) {
	cfg := site()
	cfg.Defaults.Image = ""
	_, err := ParseIn("/home/u", map[string]string{"vm-per-node": "2"}, noEnv, cfg)
	if err == nil || !strings.Contains(err.Error(), "--vm-image: no image is named and the site has no default") {
		t.Errorf("error = %v, want one that asks for an image", err)
	}
}

func TestParseIsInTheWorkingDirectory(t *testing.T) {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := Parse(map[string]string{"vm-per-node": "1", "vm-mount": "none"}, noEnv, site())
	if err != nil || spec.WorkDir != dir {
		t.Errorf("working directory = %s, %v; want %s", spec.WorkDir, err, dir)
	}
}

// No option value leads to these Specs: only a forger can write them.
func TestValidateRefusesForgery(t *testing.T) {
	tests := map[string]struct {
		forge func(*Spec)
		want  string
	}{
		"no VMs":                        {func(s *Spec) { s.VMsPerNode = 0 }, "--vm-per-node: 0 is not allowed"},
		"more VMs than the node's own":  {func(s *Spec) { s.VMsPerNode = 9 }, "--vm-per-node: 9 is not allowed; use 1 to 8"},
		"vCPUs below zero":              {func(s *Spec) { s.VCPUs = -1 }, "--vcpu-per-vm: -1 is not allowed"},
		"memory below zero":             {func(s *Spec) { s.MemoryMiB = -1 }, "--memory-per-vm: -1M is not allowed"},
		"a disk below zero":             {func(s *Spec) { s.DiskMiB = -1 }, "--disk-size: -1M is not allowed"},
		"an image going up":             {func(s *Spec) { s.Image = "/images/../etc/shadow" }, "--vm-image: /images/../etc/shadow is not a plain absolute path"},
		"a relative image":              {func(s *Spec) { s.Image = "../x" }, "--vm-image: ../x is not a plain absolute path"},
		"an image with a newline":       {func(s *Spec) { s.Image = "/a\nb" }, "--vm-image: \"/a\\nb\" has a control"},
		"more VFs than the node's own":  {func(s *Spec) { s.SRIOV.VFs = make([]VF, 17) }, "--sriov: 17 VFs per VM are not allowed; use 0 to 16"},
		"a minimum above the maximum":   {func(s *Spec) { s.SRIOV.VFs = []VF{{}, {MinMbps: 2, MaxMbps: 1}} }, "--sriov: the minimum of 2m is above the maximum of 1m"},
		"a rate beyond any":             {func(s *Spec) { s.SRIOV.VFs = []VF{{MaxMbps: 10_000_001}} }, "--sriov: 10000001m is too high a rate; at most 10000g can be given"},
		"a PF of another directory":     {func(s *Spec) { s.SRIOV.VFs = []VF{{PF: "../../x"}} }, "--sriov: pf: ../../x is not an interface name"},
		"a second form of a NUMA word":  {func(s *Spec) { s.SRIOV.VFs = []VF{{NUMA: "prefer"}} }, "--sriov: numa: prefer is not"},
		"two VFs spread over one PF":    {func(s *Spec) { s.SRIOV.VFs = []VF{{PF: "a", Spread: true}, {PF: "a", Spread: true}} }, "--sriov: spread puts each VF on another"},
		"devices below zero":            {func(s *Spec) { s.IVShmem.Devices = -1 }, "--ivshmem: -1 is not allowed"},
		"a size without device":         {func(s *Spec) { s.IVShmem.SizeMiB = 16 }, "--ivshmem: 16M of shared memory has no device"},
		"shared memory below zero":      {func(s *Spec) { s.IVShmem = IVShmem{1, -16} }, "--ivshmem: -16M is not allowed"},
		"a network of another node":     {func(s *Spec) { s.Network = "lan" }, "--vm-network: lan is not a network"},
		"a relative host directory":     {func(s *Spec) { s.Mounts[0].Host = "x" }, "--vm-mount: x is not a plain absolute path"},
		"a host directory going up":     {func(s *Spec) { s.Mounts[0].Host = "/x/.." }, "--vm-mount: /x/.. is not a plain absolute path"},
		"a guest directory going up":    {func(s *Spec) { s.Mounts[0].Guest = "/x/../etc" }, "--vm-mount: /x/../etc is not a plain absolute path"},
		"mounts out of order":           {func(s *Spec) { s.Mounts = []Mount{{"/b", "/b", false}, {"/a", "/a", false}} }, "--vm-mount: /a is out of order"},
		"relative user data":            {func(s *Spec) { s.UserData = "x" }, "--vm-user-data: x is not a plain absolute path"},
		"part of a second":              {func(s *Spec) { s.ReadyTimeout = 1500 * time.Millisecond }, "--vm-ready-timeout: 1.5s is not a whole number of seconds"},
		"a time below zero":             {func(s *Spec) { s.ReadyTimeout = -time.Second }, "--vm-ready-timeout: -1 is not allowed"},
		"another form of a choice":      {func(s *Spec) { s.Fabric = "bulk,vni:1" }, "--vm-fabric: bulk,vni:1 is not as Slurm-V writes it"},
		"a choice of anything":          {func(s *Spec) { s.Fabric = "vni:1\n" }, `--vm-fabric: "vni:1\n" is not allowed`},
		"more VNIs than a job has":      {func(s *Spec) { s.Fabric = "vni:9" }, "--vm-fabric: vni:9 is too many"},
		"a class of another site":       {func(s *Spec) { s.Fabric = "dedicated" }, "--vm-fabric: jobs of this site may not use the traffic class dedicated"},
		"an alias over the guest's own": {func(s *Spec) { s.WorkDirAlias = "/etc" }, "working directory: it cannot be /etc, too"},
		"an alias going up":             {func(s *Spec) { s.WorkDirAlias = "/home/../etc" }, "working directory: it cannot be /home/../etc, too"},
		"no working directory":          {func(s *Spec) { s.WorkDir = "" }, `working directory: "" is not a plain absolute path`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			spec := plain()
			tt.forge(&spec)
			if err := spec.Validate(site()); err == nil || !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error = %v, want %s", err, tt.want)
			}
		})
	}
	if err := plain().Validate(site()); err != nil {
		t.Errorf("the Spec that was forged is refused as it was: %v", err)
	}
}

func TestAliasWorkDir(t *testing.T) {
	const physical, logical = "/lustre/u", "/home/u/scratch"
	tests := map[string]struct{ mount, path, want string }{
		"the shell's path":                    {"", logical, logical},
		"the directory's own path":            {"", physical, ""},
		"a path that a mount has":             {"/home/u", logical, ""},
		"a path below which a mount is":       {"/data:" + logical + "/data", logical, ""},
		"a directory that the VMs do not see": {"none", logical, ""},
		"a directory below a mount":           {"/lustre", logical, logical},
		"a path of the guest's own":           {"", "/var/run/u", ""},
		"a path with a link and ..":           {"", "/home/u/scratch/../scratch", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			values := map[string]string{"vm-per-node": "1"}
			if tt.mount != "" {
				values["vm-mount"] = tt.mount
			}
			spec, err := ParseIn(physical, values, noEnv, site())
			if err != nil {
				t.Fatal(err)
			}
			spec.AliasWorkDir(tt.path)
			if spec.WorkDirAlias != tt.want {
				t.Errorf("alias = %q, want %q", spec.WorkDirAlias, tt.want)
			}
			if err := spec.Validate(site()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOptionsAreFitForSlurm(t *testing.T) {
	const spankLongest = 75 // SPANK_OPTION_MAXLEN
	for _, option := range Options {
		if len(option.Name) > spankLongest || option.Arg == "" || !strings.HasPrefix(option.Usage, "[slurm-v] ") {
			t.Errorf("option %+v is not fit to be registered", option.Name)
		}
		if strings.ContainsAny(option.Name+option.Arg+option.Usage+option.Env, "\"\\\n%") {
			t.Errorf("option %s has a character that a table in C would have to escape", option.Name)
		}
	}
}
