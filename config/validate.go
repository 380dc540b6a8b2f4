package config

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"
)

// Validate checks every value and returns the first fault, as "key: VALUE is
// not …; what is allowed".
func (c Config) Validate() error {
	checks := []func() error{
		c.Paths.validate, c.Limits.validate, c.validateDefaults,
		c.Images.validate, c.Slurm.validate, c.validateNetworks, c.VF.validate, c.IVShmem.validate, c.QEMU.validate,
		c.Launch.validate, c.Warm.validate, c.Fabric.validate, c.validateLicenses, c.validateBackend,
	}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

// firstOf returns the first error. With it, a section's checks read as a list.
func firstOf(faults ...error) error {
	for _, fault := range faults {
		if fault != nil {
			return fault
		}
	}
	return nil
}

func (p Paths) validate() error {
	if p.State == p.Run {
		return fmt.Errorf("paths.run: %s is paths.state too; use two directories", Quote(p.Run))
	}
	return firstOf(
		nodeDirectory("paths.state", p.State),
		nodeDirectory("paths.run", p.Run),
	)
}

func nodeDirectory(key, path string) error {
	if strings.Contains(strings.ReplaceAll(path, "%n", ""), "%") {
		return fmt.Errorf("%s: %s has a %% that is not %%n; only %%n, the node name, is replaced", key, Quote(path))
	}
	if path == "/" {
		return fmt.Errorf("%s: / is not allowed; use a directory of its own", key)
	}
	return absolute(key, path)
}

func nodeDirectoryOrNone(key, path string) error {
	if path == "" {
		return nil
	}
	return nodeDirectory(key, path)
}

func absolute(key, path string) error {
	if err := CheckText(path); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	if !filepath.IsAbs(path) || filepath.Clean(path) != path {
		return fmt.Errorf("%s: %s is not a plain absolute path; begin with / and leave out //, . and ..", key, Quote(path))
	}
	return nil
}

func (l Limits) validate() error {
	return firstOf(
		within("limits.vm_per_node", l.VMPerNode, 1, 1024),
		within("limits.vcpu_per_vm", l.VCPUPerVM, 1, 4096),
		sizeWithin("limits.memory_per_vm", l.MemoryPerVM, MinMemory, 1<<30),
		sizeWithin("limits.disk_size", l.DiskSize, 1, 1<<34),
		within("limits.vf_per_vm", l.VFPerVM, 0, 63),
		within("limits.ivshmem_per_vm", l.IVShmemPerVM, 0, MaxIVShmem),
		sizeWithin("limits.ivshmem_size", l.IVShmemSize, 1, 1<<24),
		sizeWithin("limits.ivshmem_per_job", l.IVShmemPerJob, 1, 1<<28),
		sizeWithin("limits.ivshmem_per_node", l.IVShmemPerNode, 1, 1<<28),
		within("limits.mounts_per_vm", l.MountsPerVM, 0, 64),
		within("limits.ready_timeout", l.ReadyTimeout, 1, 86400),
		within("limits.programs_per_vm", l.ProgramsPerVM, 1, 4096), // the guest agent runs no more
		l.validateHugePages(),
	)
}

// MaxIVShmem is how many shared-memory devices a VM can have: the slots of the PCI
// bridge that they are plugged into.
const MaxIVShmem = 31

// MinMemory is the least memory of a VM: no Linux guest boots with less.
const MinMemory Size = 64

func (c Config) validateDefaults() error {
	d, l := c.Defaults, c.Limits
	return firstOf(
		within("defaults.vcpu_per_vm", d.VCPUPerVM, 1, l.VCPUPerVM),
		sizeWithin("defaults.memory_per_vm", d.MemoryPerVM, MinMemory, l.MemoryPerVM),
		sizeWithin("defaults.disk_size", d.DiskSize, 0, l.DiskSize),
		c.validateDefaultImage(),
		c.validateDefaultNetwork(),
		sizeWithin("defaults.ivshmem_size", d.IVShmemSize, 1, l.IVShmemSize),
		powerOfTwo("defaults.ivshmem_size", d.IVShmemSize),
		within("defaults.ready_timeout", d.ReadyTimeout, 1, l.ReadyTimeout),
		d.Start.validate(),
		c.validateDefaultHugePages(),
	)
}

func (c Config) validateDefaultImage() error {
	const key = "defaults.image"
	image := c.Defaults.Image
	if image == "" || strings.Contains(image, "/") {
		return firstOf(absoluteOrNone(key, image))
	}
	if _, ok := c.Images.Catalogue[image]; !ok {
		return fmt.Errorf("%s: %s is not in the catalogue (%s); use one of its names or an absolute path", key, Quote(image), Names(c.Images.Catalogue))
	}
	return nil
}

func (c Config) validateDefaultNetwork() error {
	name := c.Defaults.Network
	if _, ok := c.Network[name]; !ok {
		return fmt.Errorf("defaults.network: %s is not a network; use one of %s", Quote(name), Names(c.Network))
	}
	return nil
}

func (i Images) validate() error {
	if len(i.Directories) == 0 {
		return fmt.Errorf(`images.directories: the list is empty; name at least one directory, such as "/images"`)
	}
	for _, dir := range i.Directories {
		if err := absolute("images.directories", dir); err != nil {
			return err
		}
	}
	if err := firstOf(
		oneOf("images.mode", i.Mode, ImageModes...),
		nodeDirectoryOrNone("images.cache_dir", i.CacheDir),
		sizeWithin("images.cache_size", i.CacheSize, 0, MaxSize),
	); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(i.Catalogue)) {
		key := "images.catalogue." + Quote(name)
		if err := firstOf(entryName(key, name), i.Catalogue[name].validate(key)); err != nil {
			return err
		}
	}
	return nil
}

func (s Slurm) validate() error {
	return firstOf(
		absoluteOrNone("slurm.bin", s.Bin),
		oneOf("slurm.resources", s.Resources, ResourcesUser, ResourcesJobSubmit, ResourcesCLIFilter),
		sizeWithin("slurm.qemu_overhead", s.QEMUOverhead, 0, 1<<20),
	)
}

func (c Config) validateNetworks() error {
	for _, name := range slices.Sorted(maps.Keys(c.Network)) {
		key := "network." + Quote(name)
		if err := firstOf(entryName(key, name), c.Network[name].validate(key)); err != nil {
			return err
		}
	}
	return nil
}

func (n Network) validate(key string) error {
	switch n.Type {
	case NetworkJob:
		return firstOf(
			vmSubnet(key+".subnet", n.Subnet),
			underlay(key+".underlay", n.Underlay),
			peers(key+".peers", n.Peers),
			within(key+".vxlan_port", n.VXLANPort, 1, 65535),
			egress(key+".egress", n.Egress),
			meaningless(key+".bridge", n.Bridge, n.Type),
			meaningless(key+".addresses", n.Addresses, n.Type),
			meaningless(key+".neutron", n.Neutron, n.Type),
		)
	case NetworkNeutron:
		return n.validateNeutron(key)
	case NetworkBridge:
		return firstOf(
			interfaceName(key+".bridge", n.Bridge),
			oneOf(key+".addresses", n.Addresses, "dhcp"),
			meaningless(key+".subnet", n.Subnet, n.Type),
			meaningless(key+".underlay", n.Underlay, n.Type),
			meaningless(key+".peers", n.Peers, n.Type),
			meaningless(key+".vxlan_port", n.VXLANPort, n.Type),
			meaningless(key+".egress", strings.Join(n.Egress, ", "), n.Type),
			meaningless(key+".neutron", n.Neutron, n.Type),
		)
	}
	return oneOf(key+".type", n.Type, NetworkJob, NetworkBridge, NetworkNeutron)
}

func (n Network) validateNeutron(key string) error {
	return firstOf(
		entryName(key+".neutron", n.Neutron),
		neutronSubnet(key+".subnet", n.Subnet),
		meaningless(key+".underlay", n.Underlay, n.Type),
		meaningless(key+".peers", n.Peers, n.Type),
		meaningless(key+".vxlan_port", n.VXLANPort, n.Type),
		meaningless(key+".egress", strings.Join(n.Egress, ", "), n.Type),
		meaningless(key+".bridge", n.Bridge, n.Type),
		meaningless(key+".addresses", n.Addresses, n.Type),
	)
}

// vmSubnet checks that a network has room for a VM and for the network and broadcast
// addresses, and that it is not far larger than the 14 bits of VM numbers can use.
func vmSubnet(key, text string) error {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil || !prefix.Addr().Is4():
		return fmt.Errorf("%s: %s is not an IPv4 network; write it such as 172.30.0.0/16", key, Quote(text))
	case prefix != prefix.Masked():
		return fmt.Errorf("%s: %s has host bits set; use %s", key, Quote(text), prefix.Masked())
	case prefix.Bits() < 8 || prefix.Bits() > 30:
		return fmt.Errorf("%s: %s has an unusable length; use /8 to /30", key, Quote(text))
	}
	return nil
}

func underlay(key, text string) error {
	if text == "" {
		return nil
	}
	if prefix, err := netip.ParsePrefix(text); err != nil || prefix != prefix.Masked() {
		return fmt.Errorf(`%s: %s is not a network; write the one the nodes' addresses lie in, such as 10.0.0.0/8, or "" for the default route's`, key, Quote(text))
	}
	return nil
}

func peers(key, text string) error {
	if text == "" || text == PeersAny {
		return nil
	}
	if !strings.Contains(text, "%n") || !entryPattern().MatchString(strings.ReplaceAll(text, "%n", "n")) {
		return fmt.Errorf(`%s: %s is not allowed; write "" for the NodeAddr that Slurm has of a node, a host name with %%n for the node's name, such as "%%n-ib", or "any"`, key, Quote(text))
	}
	return nil
}

// CheckInterface refuses a text that cannot be the name of a network interface. It also
// refuses names that the kernel allows but that would need quoting.
func CheckInterface(name string) error {
	if len(name) > 15 || !interfacePattern().MatchString(name) {
		return fmt.Errorf("%s is not an interface name; use 1 to 15 letters, digits, '.', '_' and '-'", Quote(name))
	}
	return nil
}

func interfaceName(key, name string) error {
	if err := CheckInterface(name); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func (i IVShmem) validate() error {
	switch i.HugePage {
	case 0, 2, 1 << 10:
		return oneOf("ivshmem.device", i.Device, IVShmemAuto, IVShmemPCI, IVShmemNVDIMM)
	}
	return fmt.Errorf(`ivshmem.huge_page: %s is not allowed; use "2M", "1G" or "0"`, i.HugePage)
}

func (q QEMU) validate() error {
	if (q.UEFICode == "") != (q.UEFIVars == "") {
		return fmt.Errorf("qemu.uefi_code: firmware and its variables belong together; set qemu.uefi_vars, too, or neither")
	}
	return firstOf(
		absoluteOrNone("qemu.emulator", q.Emulator),
		modelName("qemu.machine", q.Machine),
		oneOf("qemu.accel", q.Accel, AccelAuto, AccelKVM, AccelTCG),
		modelNameOrNone("qemu.cpu", q.CPU),
		absoluteOrNone("qemu.uefi_code", q.UEFICode),
		absoluteOrNone("qemu.uefi_vars", q.UEFIVars),
	)
}

func (l Launch) validate() error { return within("launch.parallel", l.Parallel, 0, 1024) }

// The patterns are compiled on first use: programs that only need this package's version
// start faster.
var (
	entryPattern     = compiled(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)
	interfacePattern = compiled(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`)
)

func compiled(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

func entryName(key, name string) error {
	if !entryPattern().MatchString(name) {
		return fmt.Errorf("%s: not a name; use up to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit", key)
	}
	return nil
}

func modelName(key, name string) error {
	if !entryPattern().MatchString(name) {
		return fmt.Errorf("%s: %s is not a name of QEMU's; use up to 64 letters, digits, '.', '_' and '-'", key, Quote(name))
	}
	return nil
}

func modelNameOrNone(key, name string) error {
	if name == "" {
		return nil
	}
	return modelName(key, name)
}

func absoluteOrNone(key, path string) error {
	if path == "" {
		return nil
	}
	return absolute(key, path)
}

func within(key string, n, least, most int) error {
	if n < least || n > most {
		return fmt.Errorf("%s: %d is not allowed; use %d to %d", key, n, least, most)
	}
	return nil
}

func sizeWithin(key string, size, least, most Size) error {
	if size < least || size > most {
		return fmt.Errorf("%s: %s is not allowed; use %s to %s", key, size, least, most)
	}
	return nil
}

func powerOfTwo(key string, size Size) error {
	if !size.PowerOfTwo() {
		return fmt.Errorf("%s: %s is not a power of two; use one such as 16M", key, size)
	}
	return nil
}

func oneOf[T ~string](key string, value T, allowed ...T) error {
	if slices.Contains(allowed, value) {
		return nil
	}
	quoted := make([]string, len(allowed))
	for i, a := range allowed {
		quoted[i] = strconv.Quote(string(a))
	}
	return fmt.Errorf("%s: %s is not allowed; use %s", key, Quote(string(value)), strings.Join(quoted, " or "))
}

func meaningless[T comparable](key string, value T, kind NetworkType) error {
	var unset T
	if value != unset {
		return fmt.Errorf("%s: has no meaning in a network of type %q; leave it out", key, kind)
	}
	return nil
}

// MaxText bounds, in bytes, every text from a site or a user: it is the longest path that
// the kernel takes.
const MaxText = 4095

// CheckText refuses characters that no path, name or other value needs and that would
// disturb a terminal, a log or a message: control and other invisible characters, bytes
// that are not UTF-8. It also refuses more than [MaxText] bytes.
func CheckText(text string) error {
	switch {
	case len(text) > MaxText:
		return fmt.Errorf("%s is %d bytes long; at most %d are allowed", Quote(text), len(text), MaxText)
	case !utf8.ValidString(text):
		return fmt.Errorf("%s is not UTF-8 text", Quote(text))
	case strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return fmt.Errorf("%s has a control or invisible character", Quote(text))
	}
	return nil
}

// Names lists the keys of a section for a message.
func Names[V any](section map[string]V) string {
	if len(section) == 0 {
		return "which is empty"
	}
	return strings.Join(slices.Sorted(maps.Keys(section)), ", ")
}
