package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCommentedFileGivesExactlyTheDefaults(t *testing.T) {
	got, err := Parse("slurmv.toml", []byte(Commented))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Default(), got); diff != "" {
		t.Errorf("the commented file differs from the defaults (-default +file):\n%s", diff)
	}
}

// A key that the file leaves out has its default, too, so the test above would not notice
// the omission.
func TestCommentedFileStatesEveryKey(t *testing.T) {
	stated := func(key string) bool {
		for line := range strings.Lines(Commented) {
			line = strings.TrimPrefix(line, "# ")
			if strings.HasPrefix(line, key+" = ") {
				return true
			}
		}
		return false
	}
	var walk func(reflect.Type)
	walk = func(section reflect.Type) {
		for field := range section.Fields() {
			kind := field.Type
			if kind.Kind() == reflect.Map {
				kind = kind.Elem()
			}
			if kind.Kind() == reflect.Struct {
				walk(kind)
			} else if !stated(field.Tag.Get("toml")) {
				t.Errorf("slurmv.toml does not state %s of %s", field.Tag.Get("toml"), section.Name())
			}
		}
	}
	walk(reflect.TypeFor[Config]())
}

func TestParse(t *testing.T) {
	tests := map[string]struct {
		text string
		want func(*Config)
	}{
		"an empty file is all defaults":  {"", func(*Config) {}},
		"a key replaces its default":     {"[limits]\nvm_per_node = 4", func(c *Config) { c.Limits.VMPerNode = 4 }},
		"a size may be a bare number":    {"[defaults]\nmemory_per_vm = 2048", func(c *Config) { c.Defaults.MemoryPerVM = 2048 }},
		"a list replaces the whole list": {`images.directories = ["/a", "/b"]`, func(c *Config) { c.Images.Directories = []string{"/a", "/b"} }},
		"images may be cached elsewhere": {
			"[images]\nmode = \"direct\"\ncache_dir = \"/local/%n\"\ncache_size = \"20G\"",
			func(c *Config) {
				c.Images.Mode, c.Images.CacheDir, c.Images.CacheSize = ImageDirect, "/local/%n", 20<<10
			},
		},
		"the default image may be a catalogue name": {
			"[defaults]\nimage = \"r9\"\n[images.catalogue.r9]\npath = \"/i/r9.qcow2\"",
			func(c *Config) {
				c.Defaults.Image = "r9"
				c.Images.Catalogue = map[string]Image{"r9": {Path: "/i/r9.qcow2", Firmware: FirmwareAuto}}
			},
		},
		"an image may name its firmware": {
			"images.catalogue = {a = {path = \"/a\", firmware = \"uefi\"}, b = {path = \"/b\"}}",
			func(c *Config) {
				c.Images.Catalogue = map[string]Image{"a": {Path: "/a", Firmware: FirmwareUEFI}, "b": {Path: "/b", Firmware: FirmwareAuto}}
			},
		},
		"UEFI firmware of the site's": {"[qemu]\nuefi_code = \"/c\"\nuefi_vars = \"/v\"", func(c *Config) { c.QEMU.UEFICode, c.QEMU.UEFIVars = "/c", "/v" }},
		"the default network keeps what is not said": {
			"[network.default]\nsubnet = \"10.99.0.0/20\"",
			func(c *Config) {
				c.Network["default"] = Network{Type: NetworkJob, Subnet: "10.99.0.0/20", VXLANPort: VXLANPort, Egress: []string{}}
			},
		},
		"the default network may become a bridge": {
			"[network.default]\ntype = \"bridge\"\nbridge = \"br0\"",
			func(c *Config) {
				c.Network["default"] = Network{Type: NetworkBridge, Bridge: "br0", Addresses: "dhcp"}
			},
		},
		"huge pages may be forbidden":   {"limits.hugepages = []", func(c *Config) { c.Limits.HugePages = []HugePages{} }},
		"huge pages may be the default": {`defaults.hugepages = "1G"`, func(c *Config) { c.Defaults.HugePages = HugePages1G }},
		"Slurm may count VFs":           {"slurm.gres = true", func(c *Config) { c.Slurm.GRES = true }},
		"VFs as a site may want them": {
			"[vf]\npfs = [\"ens1f0\", \"ens1f1\"]\nmode = \"soft\"\nreserve = 0\nrequeue = true",
			func(c *Config) {
				c.VF = VF{PFs: []string{"ens1f0", "ens1f1"}, Mode: VFSoft, Requeue: true, Software: map[string]SoftwarePF{}, CreatePerPF: map[string]int{}}
			},
		},
		"VFs that are made at boot": {
			"[vf]\npfs = [\"ens1f0\", \"ens1f1\"]\ncreate = 16\ncreate_per_pf = { ens1f1 = 8 }",
			func(c *Config) {
				c.VF.PFs, c.VF.Create, c.VF.CreatePerPF = []string{"ens1f0", "ens1f1"}, 16, map[string]int{"ens1f1": 8}
			},
		},
		"VFs that are made of one PF, though jobs may use all": {
			"vf.create_per_pf = { ens1f1 = 8 }", func(c *Config) { c.VF.CreatePerPF = map[string]int{"ens1f1": 8} },
		},
		"a software PF keeps what is not said": {
			"[vf.software.soft0]\nbridge = \"br0\"\nrate = \"10g\"",
			func(c *Config) {
				c.VF.Software = map[string]SoftwarePF{"soft0": {Bridge: "br0", Rate: 10000, VFs: 16, NUMA: -1}}
			},
		},
		"software PFs inline, with a bare rate": {
			"vf.software = {a = {bridge = \"br0\", rate = 500}, b = {bridge = \"br1\", rate = \"500m\", vfs = 2, numa = 0}}",
			func(c *Config) {
				c.VF.Software = map[string]SoftwarePF{
					"a": {Bridge: "br0", Rate: 500, VFs: 16, NUMA: -1}, "b": {Bridge: "br1", Rate: 500, VFs: 2},
				}
			},
		},
		"networks inline keep what is not said, too": {
			`network = {default = {vxlan_port = 4790}, lan = {type = "bridge", bridge = "br0"}}`,
			func(c *Config) {
				c.Network["default"] = Network{Type: NetworkJob, Subnet: "172.30.0.0/16", VXLANPort: 4790, Egress: []string{}}
				c.Network["lan"] = Network{Type: NetworkBridge, Bridge: "br0", Addresses: "dhcp"}
			},
		},
		"nodes have other names in the underlay": {
			"[network.default]\npeers = \"%n-ib.site\"",
			func(c *Config) {
				c.Network["default"] = Network{Type: NetworkJob, Subnet: "172.30.0.0/16", Peers: "%n-ib.site", VXLANPort: VXLANPort, Egress: []string{}}
			},
		},
		"VMs may be let out of their network": {
			"[network.default]\negress = [\"licences.site:27000-27009\", \"10.1.0.0/16:80\", \"10.2.0.1\", \"any:443\"]",
			func(c *Config) {
				c.Network["default"] = Network{Type: NetworkJob, Subnet: "172.30.0.0/16", VXLANPort: VXLANPort,
					Egress: []string{"licences.site:27000-27009", "10.1.0.0/16:80", "10.2.0.1", "any:443"}}
			},
		},
		"a second network stands beside the default": {
			"[network.fast]\ntype = \"job\"\nunderlay = \"fd00::/64\"",
			func(c *Config) {
				c.Network["fast"] = Network{Type: NetworkJob, Subnet: "172.30.0.0/16", Underlay: "fd00::/64", VXLANPort: VXLANPort, Egress: []string{}}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			want := Default()
			tt.want(&want)
			got, err := Parse("test.toml", []byte(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("configuration differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	long := `"/` + strings.Repeat("x", MaxText) + `"`
	tests := map[string]struct{ text, want string }{
		"a misspelt key, by line and with the known ones": {"\n[slurm]\nresource = \"user\"", `test.toml:3: slurm.resource: unknown key; known here: bin, resources, qemu_overhead`},
		"an unknown section":                              {"[limit]\nvm_per_node = 4", `test.toml:1: limit: unknown key; known here: paths, limits,`},
		"an unknown key of a network":                     {"[network.default]\nport = 1", `test.toml:2: network.default.port: unknown key; known here: type, subnet,`},
		"an unknown key at the top":                       {"vm_per_node = 4", `test.toml:1: vm_per_node: unknown key; known here: paths,`},
		"a key in another case":                           {"[limits]\nVM_PER_NODE = 4", `test.toml:2: limits.VM_PER_NODE: unknown key`},
		"a text for a number":                             {"[limits]\nvm_per_node = \"4\"", `test.toml:2: limits.vm_per_node: not a whole number`},
		"a number for a text":                             {"[qemu]\ncpu = 4", `test.toml:2: qemu.cpu: not a text in quotes`},
		"a text for a list":                               {"[images]\ndirectories = \"/\"", `test.toml:2: images.directories: not a list of texts in quotes`},
		"a value for a section":                           {"limits = 3", `test.toml:1: limits: not a section`},
		"a size in an unknown unit":                       {"[limits]\nmemory_per_vm = \"8Q\"", `test.toml:2: limits.memory_per_vm: 8Q is not a size; use a number and K, M, G or T, such as 8G`},
		"a key given twice":                               {"[limits]\nvm_per_node = 4\nvm_per_node = 5", `test.toml: key vm_per_node is already defined`},
		"an integer too large for a size":                 {"[limits]\n\nmemory_per_vm = 9999999999999999", `test.toml:3: limits.memory_per_vm: 9999999999999999 is too large a size`},
		"a truth value for a text":                        {"[qemu]\ncpu = true", `test.toml:2: qemu.cpu: not a text in quotes`},
		"a wrong type in an inline table":                 {`limits = {vcpu_per_vm = 4, vm_per_node = "4"}`, `test.toml:1: limits.vm_per_node: not a whole number`},
		"an unknown key inline":                           {`limits = {vms = 4}`, `test.toml:1: limits.vms: unknown key; known here: vm_per_node,`},
		"a key below a value":                             {`qemu.cpu.model = "max"`, `test.toml:1: qemu.cpu.model: unknown key; qemu.cpu has no keys below it`},
		"a list of networks":                              {"\n[[network.lan]]\ntype = \"job\"", `test.toml:2: network.lan: not a list; write [network.lan] with one pair of brackets`},
		"a number in a list of texts":                     {"[images]\ndirectories = [\n\"/a\",\n3]", `test.toml:4: images.directories: not a list of texts in quotes`},
		"a number beyond any":                             {"limits.vm_per_node = 99999999999999999999", `value out of range`},
		"a fraction for a number":                         {"limits.vm_per_node = 1.5", `test.toml:1: limits.vm_per_node: not a whole number`},
		"text that is not TOML":                           {"limits {", `test.toml:1: `},
		"a state directory not absolute":                  {`paths.state = "var"`, `paths.state: var is not a plain absolute path; begin with /`},
		"a run directory with dots":                       {`paths.run = "/run/../etc"`, `paths.run: /run/../etc is not a plain absolute path`},
		"an empty directory":                              {`paths.run = ""`, `paths.run: "" is not a plain absolute path`},
		"the root as a directory":                         {`paths.state = "/"`, `paths.state: / is not allowed`},
		"another percent letter":                          {`paths.state = "/var/%h"`, `paths.state: /var/%h has a % that is not %n`},
		"one directory for both":                          {`paths.state = "/run/slurmv/%n"`, `paths.run: /run/slurmv/%n is paths.state too`},
		"a path longer than any":                          {`paths.state = ` + long, `bytes long; at most 4095 are allowed`},
		"a control character in a path":                   {`paths.state = "/a\u001b[2J"`, `paths.state: "/a\x1b[2J" has a control or invisible character`},
		"no VMs at all":                                   {`limits.vm_per_node = 0`, `limits.vm_per_node: 0 is not allowed; use 1 to 1024`},
		"more VMs than can be named":                      {`limits.vm_per_node = 1025`, `limits.vm_per_node: 1025 is not allowed`},
		"a negative vCPU limit":                           {`limits.vcpu_per_vm = -1`, `limits.vcpu_per_vm: -1 is not allowed; use 1 to 4096`},
		"a memory limit below any guest":                  {`limits.memory_per_vm = "1M"`, `limits.memory_per_vm: 1M is not allowed; use 64M to 1024T`},
		"a disk limit of nothing":                         {`limits.disk_size = 0`, `limits.disk_size: 0 is not allowed`},
		"too many VFs":                                    {`limits.vf_per_vm = 64`, `limits.vf_per_vm: 64 is not allowed; use 0 to 63`},
		"too many shared devices":                         {`limits.ivshmem_per_vm = 32`, `limits.ivshmem_per_vm: 32 is not allowed; use 0 to 31`},
		"huge pages of a size that there is not":          {`ivshmem.huge_page = "4M"`, `ivshmem.huge_page: 4M is not allowed; use "2M", "1G" or "0"`},
		"shared memory of another kind":                   {`ivshmem.device = "pmem"`, `ivshmem.device: pmem is not allowed; use "auto" or "ivshmem" or "nvdimm"`},
		"no shared memory for a job":                      {`limits.ivshmem_per_job = "0"`, `limits.ivshmem_per_job: 0 is not allowed`},
		"no shared memory for a node":                     {`limits.ivshmem_per_node = "0"`, `limits.ivshmem_per_node: 0 is not allowed`},
		"shared memory of nothing":                        {`limits.ivshmem_size = "0"`, `limits.ivshmem_size: 0 is not allowed`},
		"too many mounts":                                 {`limits.mounts_per_vm = 65`, `limits.mounts_per_vm: 65 is not allowed`},
		"a time limit of nothing":                         {`limits.ready_timeout = 0`, `limits.ready_timeout: 0 is not allowed; use 1 to 86400`},
		"more programs than a guest runs":                 {`limits.programs_per_vm = 4097`, `limits.programs_per_vm: 4097 is not allowed; use 1 to 4096`},
		"no programs":                                     {`limits.programs_per_vm = 0`, `limits.programs_per_vm: 0 is not allowed`},
		"a default above its limit":                       {"[limits]\nvcpu_per_vm = 2\n[defaults]\nvcpu_per_vm = 4", `defaults.vcpu_per_vm: 4 is not allowed; use 1 to 2`},
		"default memory below any guest":                  {`defaults.memory_per_vm = "32M"`, `defaults.memory_per_vm: 32M is not allowed; use 64M to 4T`},
		"a default disk above its limit":                  {`defaults.disk_size = "5T"`, `defaults.disk_size: 5T is not allowed; use 0 to 4T`},
		"a default image not listed":                      {`defaults.image = "r9"`, `defaults.image: r9 is not in the catalogue (which is empty); use one of its names or an absolute path`},
		"a default image not absolute":                    {`defaults.image = "i/r9"`, `defaults.image: i/r9 is not a plain absolute path`},
		"a default network not there":                     {`defaults.network = "lan"`, `defaults.network: lan is not a network; use one of default`},
		"shared memory not a power":                       {`defaults.ivshmem_size = "24M"`, `defaults.ivshmem_size: 24M is not a power of two; use one such as 16M`},
		"a default time above its limit":                  {`defaults.ready_timeout = 3601`, `defaults.ready_timeout: 3601 is not allowed; use 1 to 3600`},
		"huge pages that nobody has":                      {`limits.hugepages = ["no"]`, `limits.hugepages: no is not allowed; use "2M" or "1G"`},
		"default huge pages that nobody has":              {`defaults.hugepages = "4M"`, `defaults.hugepages: 4M is not allowed; use auto, no, 2M or 1G`},
		"default huge pages that are forbidden":           {"[limits]\nhugepages = [\"1G\"]\n[defaults]\nhugepages = \"2M\"", `defaults.hugepages: 2M is not allowed at this site (limits.hugepages); use no`},
		"default huge pages with templates":               {"[defaults]\nhugepages = \"2M\"\nstart = \"warm\"", `defaults.hugepages: 2M is not possible with defaults.start = "warm"`},
		"an unknown way to start":                         {`defaults.start = "hot"`, `defaults.start: hot is not allowed; use auto, warm or cold`},
		"more mount slots than ports":                     {`warm.mount_slots = 17`, `warm.mount_slots: 17 is not allowed; use 0 to 16`},
		"no image directories":                            {`images.directories = []`, `images.directories: the list is empty`},
		"an image directory not absolute":                 {`images.directories = ["images"]`, `images.directories: images is not a plain absolute path`},
		"an unknown image mode":                           {`images.mode = "link"`, `images.mode: link is not allowed; use "direct" or "cache" or "copy"`},
		"a cache directory not absolute":                  {`images.cache_dir = "cache"`, `images.cache_dir: cache is not a plain absolute path`},
		"a catalogue name with a slash":                   {"[images.catalogue.\"a/b\"]\npath = \"/x\"", `images.catalogue.a/b: not a name`},
		"a firmware that there is not":                    {"[images.catalogue.r9]\npath = \"/x\"\nfirmware = \"efi\"", `images.catalogue.r9.firmware: efi is not allowed; use "auto" or "bios" or "uefi"`},
		"UEFI firmware without variables":                 {`qemu.uefi_code = "/c"`, `qemu.uefi_code: firmware and its variables belong together; set qemu.uefi_vars, too, or neither`},
		"UEFI firmware at a relative path":                {"[qemu]\nuefi_code = \"c\"\nuefi_vars = \"/v\"", `qemu.uefi_code: c is not a plain absolute path`},
		"a catalogue entry without path":                  {"[images.catalogue.r9]", `images.catalogue.r9.path: "" is not a plain absolute path`},
		"an unknown resources word":                       {`slurm.resources = "lua"`, `slurm.resources: lua is not allowed; use "user" or "job_submit" or "cli_filter"`},
		"commands of Slurm at a relative path":            {`slurm.bin = "bin"`, `slurm.bin: bin is not a plain absolute path`},
		"an overhead beyond reason":                       {`slurm.qemu_overhead = "2T"`, `slurm.qemu_overhead: 2T is not allowed; use 0 to 1T`},
		"a network without type":                          {`network.lan.bridge = "br0"`, `network.lan.type: "" is not allowed; use "job" or "bridge"`},
		"a default network of no type":                    {`network.default.type = ""`, `network.default.type: "" is not allowed; use "job" or "bridge"`},
		"an unknown network type":                         {`network.lan.type = "nat"`, `network.lan.type: nat is not allowed; use "job" or "bridge"`},
		"a network name with a space":                     {"[network.\"a b\"]\ntype = \"job\"", `network.a b: not a name`},
		"a subnet of IPv6":                                {`network.default.subnet = "fd00::/64"`, `network.default.subnet: fd00::/64 is not an IPv4 network`},
		"a subnet with host bits":                         {`network.default.subnet = "172.30.0.1/16"`, `network.default.subnet: 172.30.0.1/16 has host bits set; use 172.30.0.0/16`},
		"a subnet without room":                           {`network.default.subnet = "172.30.0.0/31"`, `network.default.subnet: 172.30.0.0/31 has an unusable length`},
		"an underlay that is no network":                  {`network.default.underlay = "eth0"`, `network.default.underlay: eth0 is not a network`},
		"peers that are one host":                         {`network.default.peers = "head"`, `network.default.peers: head is not allowed; write ""`},
		"peers that are no host names":                    {`network.default.peers = "%n ib"`, `network.default.peers: %n ib is not allowed; write ""`},
		"peers of a bridge":                               {"[network.b]\ntype = \"bridge\"\nbridge = \"br0\"\npeers = \"any\"", `network.b.peers: has no meaning in a network of type "bridge"; leave it out`},
		"a way out to no host":                            {`network.default.egress = ["10.1.0.300"]`, `network.default.egress: 10.1.0.300 is not an IPv4 address, an IPv4 network such as 10.1.0.0/16, a host name, or any`},
		"a way out to a network with bits of a host":      {`network.default.egress = ["10.1.0.1/16"]`, `10.1.0.1/16 is not an IPv4 address`},
		"a way out to ports the wrong way round":          {`network.default.egress = ["any:9-8"]`, `network.default.egress: 9-8 is not a port such as 443, or ports such as 27000-27009`},
		"a way out of a network of the site":              {"[network.lan]\ntype = \"bridge\"\nbridge = \"br0\"\negress = [\"any\"]", `network.lan.egress: has no meaning`},
		"a port of zero":                                  {`network.default.vxlan_port = 0`, `network.default.vxlan_port: 0 is not allowed; use 1 to 65535`},
		"a bridge of a job's network":                     {`network.default.bridge = "br0"`, `network.default.bridge: has no meaning in a network of type "job"`},
		"a bridge network without bridge":                 {`network.lan.type = "bridge"`, `network.lan.bridge: "" is not an interface name`},
		"a bridge name with a slash":                      {"[network.lan]\ntype = \"bridge\"\nbridge = \"br/0\"", `network.lan.bridge: br/0 is not an interface name`},
		"addresses of an unknown kind":                    {"[network.lan]\ntype = \"bridge\"\nbridge = \"br0\"\naddresses = \"ra\"", `network.lan.addresses: ra is not allowed; use "dhcp"`},
		"a subnet of a bridge":                            {"[network.lan]\ntype = \"bridge\"\nbridge = \"br0\"\nsubnet = \"10.0.0.0/8\"", `network.lan.subnet: has no meaning in a network of type "bridge"`},
		"a text for a truth value":                        {`slurm.gres = "yes"`, `test.toml:1: slurm.gres: not true or false, without quotes`},
		"a PF that is no interface":                       {`vf.pfs = ["ens1f0", "0000:01:00.0"]`, `vf.pfs: 0000:01:00.0 is not an interface name; use 1 to 15 letters`},
		"PFs without a list":                              {`vf.pfs = "ens1f0"`, `test.toml:1: vf.pfs: not a list of texts in quotes`},
		"an unknown mode of VFs":                          {`vf.mode = "lax"`, `vf.mode: lax is not allowed; use "strict" or "soft"`},
		"a reserve of everything":                         {`vf.reserve = 100`, `vf.reserve: 100 is not allowed; use 0 to 99`},
		"a reserve below zero":                            {`vf.reserve = -1`, `vf.reserve: -1 is not allowed`},
		"VF addresses of IPv6":                            {`vf.subnet = "fd00::/64"`, `vf.subnet: fd00::/64 is not an IPv4 network`},
		"VLANs by the number of the job":                  {"[vf]\nvlans = \"2000-2999\"", `test.toml:2: vf.vlans: is pool in [fabric.vlan] now, and jobs get their VLANs from PrologSlurmctld; write it there, as docs/fabric.md says`},
		"no VLANs by the number of the job":               {`vf.vlans = ""`, `test.toml:1: vf.vlans: is pool in [fabric.vlan] now`},
		"a text for requeue":                              {`vf.requeue = "no"`, `vf.requeue: not true or false`},
		"an unknown key of VFs":                           {`vf.vlan = "1-2"`, `vf.vlan: unknown key; known here: pfs, mode, reserve, subnet, requeue, create, create_per_pf, software`},
		"VFs to make of no PF":                            {`vf.create = 4`, `vf.create: no PFs are named; name them in vf.pfs`},
		"fewer VFs than none":                             {"[vf]\npfs = [\"a\"]\ncreate = -1", `vf.create: -1 is not allowed; use 0 to 4096`},
		"more VFs than any card has":                      {`vf.create_per_pf = { a = 4097 }`, `vf.create_per_pf.a: 4097 is not allowed; use 0 to 4096`},
		"VFs to make of a PF for nobody":                  {"[vf]\npfs = [\"a\"]\ncreate_per_pf = { b = 4 }", `vf.create_per_pf.b: not in vf.pfs, so no job can have its VFs; add it there`},
		"VFs to make of no interface":                     {`vf.create_per_pf = { "a/b" = 4 }`, `vf.create_per_pf.a/b: a/b is not an interface name`},
		"a software PF without bridge":                    {`vf.software.s.rate = "1g"`, `vf.software.s.bridge: "" is not an interface name`},
		"a software PF without rate":                      {`vf.software.s.bridge = "br0"`, `vf.software.s.rate: 0 is not allowed; use 1m to 10000g`},
		"a software PF of another unit":                   {"[vf.software.s]\nbridge = \"br0\"\nrate = \"1T\"", `test.toml:3: vf.software.s.rate: 1T is not a rate; use a whole number of Mb/s, such as 500`},
		"a software PF without VFs":                       {"[vf.software.s]\nbridge = \"br0\"\nrate = \"1g\"\nvfs = 0", `vf.software.s.vfs: 0 is not allowed; use 1 to 256`},
		"a software PF nowhere":                           {"[vf.software.s]\nbridge = \"br0\"\nrate = \"1g\"\nnuma = -2", `vf.software.s.numa: -2 is not allowed; use -1 to 1023`},
		"a software PF with a long name":                  {"[vf.software.abcdefghijklmnop]\nbridge = \"br0\"\nrate = \"1g\"", `vf.software.abcdefghijklmnop: abcdefghijklmnop is not an interface name`},
		"a list of software PFs":                          {"[[vf.software]]\nbridge = \"br0\"", `test.toml:1: vf.software: not a list; write [vf.software] with one pair of brackets`},
		"a value for a software PF":                       {"vf.software.s = 3", `test.toml:1: vf.software.s: not a section`},
		"an emulator not absolute":                        {`qemu.emulator = "qemu"`, `qemu.emulator: qemu is not a plain absolute path`},
		"a label that nova's tags have no room for":       {`backend.label = "` + strings.Repeat("a", 33) + `"`, `backend.label: 33 characters are too many; use at most 32`},
		"a machine with a comma":                          {`qemu.machine = "q35,smm=on"`, `qemu.machine: q35,smm=on is not a name of QEMU's`},
		"an unknown accelerator":                          {`qemu.accel = "hvf"`, `qemu.accel: hvf is not allowed; use "auto" or "kvm" or "tcg"`},
		"a CPU with a comma":                              {`qemu.cpu = "max,-sve"`, `qemu.cpu: max,-sve is not a name of QEMU's`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("test.toml", []byte(tt.text))
			if err == nil || !strings.HasPrefix(err.Error(), "test.toml:") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one of test.toml with %q", err, tt.want)
			}
		})
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	restore := Path
	t.Cleanup(func() { Path = restore })

	Path = filepath.Join(dir, "missing.toml")
	for _, path := range []string{"", Path} {
		if got, err := Load(path); err != nil || !cmp.Equal(got, Default()) {
			t.Errorf("Load(%q) without a file at the default path = %v, want the defaults", path, err)
		}
	}
	if _, err := Load(filepath.Join(dir, "other.toml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file elsewhere: error = %v, want %v", err, fs.ErrNotExist)
	}
	if _, err := Load(dir); err == nil {
		t.Error("a directory is read as a configuration")
	}
	huge := write("huge.toml", strings.Repeat("# long\n", maxFile/7+1))
	if _, err := Load(huge); err == nil || !strings.Contains(err.Error(), "longer than") {
		t.Errorf("huge file: error = %v, want one about its length", err)
	}
	Path = write("default.toml", "[limits]\nvm_per_node = 3\n")
	if got, err := Load(""); err != nil || got.Limits.VMPerNode != 3 {
		t.Errorf("Load of the default path = %d VMs, %v; want 3", got.Limits.VMPerNode, err)
	}
}

func TestNodeDirectories(t *testing.T) {
	tests := map[string]struct{ path, node, want string }{
		"the node name is put in":             {"/var/lib/slurmv/%n", "n1", "/var/lib/slurmv/n1"},
		"as often as it stands there":         {"/s/%n/%n", "n1", "/s/n1/n1"},
		"a path without it is left alone":     {"/var/lib/slurmv", "n1", "/var/lib/slurmv"},
		"a forged name stays one element":     {"/s/%n", "../../etc", "/s/.._.._etc"},
		"a name of dots goes nowhere":         {"/s/%n", "..", "/s/__"},
		"a name with a percent is not reread": {"/s/%n", "%n", "/s/%n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Paths: Paths{State: tt.path, Run: tt.path}}
			if got := cfg.StateDir(tt.node); got != tt.want {
				t.Errorf("StateDir = %s, want %s", got, tt.want)
			}
			if got := cfg.RunDir(tt.node); got != tt.want {
				t.Errorf("RunDir = %s, want %s", got, tt.want)
			}
		})
	}
}

// For any bytes, the answer is a one-line error that names the file, or a configuration
// that other programs can rely on.
func FuzzParse(f *testing.F) {
	f.Add([]byte(Commented))
	f.Add([]byte("[network.lan]\ntype = \"bridge\"\nbridge = \"br0\""))
	f.Add([]byte("limits = {vm_per_node = 1}\n[images.catalogue.a]\npath=\"/a\""))
	f.Add([]byte("[[network]]\n"))
	f.Add([]byte("[vf]\nreserve = 1\n[vf.software.s]\nbridge = \"br0\"\nrate = 500"))
	f.Add([]byte("[fabric]\nvlan.pool = \"2-9\"\nvni.pool = '0x20'\n[fabric.pool.a]\nkind = \"vni\"\npool = \"33,40-50\"\npartitions = [\"a\"]"))
	f.Add([]byte("a.b.c.d = 1\nnetwork.\"\\n\".x = 2"))
	f.Fuzz(func(t *testing.T, data []byte) {
		cfg, err := Parse("fuzz.toml", data)
		if err != nil {
			if text := err.Error(); !strings.HasPrefix(text, "fuzz.toml:") || strings.Contains(text, "\n") {
				t.Errorf("error is not one line about the file: %q", text)
			}
			return
		}
		if err := cfg.Validate(); err != nil {
			t.Errorf("Parse accepted what Validate refuses: %v", err)
		}
		if _, ok := cfg.Network["default"]; !ok {
			t.Error("there is no default network")
		}
	})
}
