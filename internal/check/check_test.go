package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vfpool/sriov/sriovtest"
)

// A node is a complete one, made of files and programs' answers; a test removes or adds
// something.
type node struct {
	root     string
	programs map[string]string // output by command line; a missing program fails
	asRoot   bool
}

// listDevices is how QEMU is asked for its devices.
const listDevices = "/usr/bin/qemu-system-x86_64 -machine none -device help"

// onDisk returns an empty directory that is not in memory: the node's file systems are those below its root.
func onDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "check")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{root: onDisk(t), asRoot: true, programs: map[string]string{
		"scontrol show config":                  goodSettings,
		"slurmd -V":                             "slurm-wlm 22.05.8",
		"getent passwd libvirt-qemu":            "libvirt-qemu:x:64055:107::/var/lib/libvirt:/bin/false",
		"getent group libvirt-qemu":             "libvirt-qemu:x:64055:",
		"/usr/bin/qemu-system-x86_64 --version": "QEMU emulator version 7.2.0\nCopyright (c) 2003-2022",
		listDevices:                             "name \"virtio-9p-pci\", bus PCI\nname \"ivshmem-plain\", bus PCI\n",
		"/lib/slurmv-agent probe --config /conf --node-name n1": `{"libvirt": "9.0.0", "underlay": "10.0.0.1"}`,
	}}
	for _, dir := range []string{"var/lib", "run", "sys/kernel/iommu_groups/0", "dev/shm"} {
		n.mkdir(t, dir)
	}
	n.write(t, "etc/os-release", "PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\n", 0o644)
	n.write(t, "usr/lib/x86_64-linux-gnu/libvirt.so.0.9000.0", "", 0o644)
	n.link(t, "libvirt.so.0.9000.0", "usr/lib/x86_64-linux-gnu/libvirt.so.0")
	n.write(t, "usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so", "", 0o644)
	n.write(t, "usr/bin/qemu-system-x86_64", "", 0o755)
	n.write(t, "etc/qemu/firmware/60-uefi.json", `{"interface-types": ["uefi"], "targets": [{"architecture": "x86_64", "machines": ["pc-q35-*"]}], "mapping":
		{"device": "flash", "executable": {"filename": "/f/CODE.fd", "format": "raw"}, "nvram-template": {"filename": "/f/VARS.fd", "format": "raw"}}}`, 0o644)
	n.write(t, "f/CODE.fd", "", 0o644)
	n.write(t, "f/VARS.fd", "", 0o644)
	n.write(t, "usr/lib/slurm/mpi_pmi2.so", "", 0o644)
	n.write(t, "lib/slurmv-agent", "", 0o755)
	n.write(t, "lib/slurmv-relay", "", 0o755)
	n.write(t, "lib/slurmv-guest", "", 0o755)
	n.write(t, "dev/kvm", "", 0o666)
	n.write(t, "dev/vhost-net", "", 0o600)
	n.write(t, "proc/mounts", "/dev/vda / ext4 rw 0 0\nshm /dev/shm tmpfs rw,huge=within_size 0 0\n", 0o644)
	n.write(t, "conf", "", 0o644)
	n.write(t, "etc/slurm/plugstack.conf", "required /lib/slurmv.so\n", 0o644)
	n.plugin(t, 22, 5, 8)
	n.slurmd(t, "n1", 4102444800) // started in 2100, after the plugin was made
	return n
}

const goodSettings = `Configuration data as of 2026-11-20T14:29:06
ConstrainRAMSpace       = yes
KillWait                = 30 sec
PluginDir               = /opt/none:/usr/lib/slurm
ProctrackType           = proctrack/cgroup
PrologFlags             = (null)
PlugStackConfig         = /etc/slurm/plugstack.conf
SLURM_VERSION           = 22.05.8
SlurmdParameters        = (null)
TaskPlugin              = task/cgroup,task/affinity
UnkillableStepTimeout   = 60 sec
`

func (n *node) mkdir(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(n.root, dir), 0o755); err != nil {
		t.Fatal(err)
	}
}

func (n *node) write(t *testing.T, file, text string, mode os.FileMode) {
	t.Helper()
	n.mkdir(t, filepath.Dir(file))
	path := filepath.Join(n.root, file)
	if err := errors.Join(os.WriteFile(path, []byte(text), mode), os.Chmod(path, mode)); err != nil {
		t.Fatal(err)
	}
}

func (n *node) remove(t *testing.T, file string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(n.root, file)); err != nil {
		t.Fatal(err)
	}
}

func (n *node) link(t *testing.T, target, file string) {
	t.Helper()
	n.mkdir(t, filepath.Dir(file))
	if err := os.Symlink(target, filepath.Join(n.root, file)); err != nil {
		t.Fatal(err)
	}
}

// hugePages gives the node huge pages of kib KiB, and mounts a file system of them.
func (n *node) hugePages(t *testing.T, kib int, mounted string) {
	t.Helper()
	n.write(t, fmt.Sprintf("sys/kernel/mm/hugepages/hugepages-%dkB/nr_hugepages", kib), "8\n", 0o644)
	n.mkdir(t, "dev/hugepages")
	n.write(t, "proc/mounts", "shm /dev/shm tmpfs rw 0 0\nnone /dev/hugepages hugetlbfs rw,pagesize="+mounted+" 0 0\n", 0o644)
}

// cards gives the node the sysfs of network cards with SR-IOV.
func (n *node) cards(t *testing.T, cards ...sriovtest.Card) {
	t.Helper()
	n.remove(t, "sys")
	node := sriovtest.New(t, cards...)
	if err := os.CopyFS(filepath.Join(n.root, "sys"), os.DirFS(filepath.Join(node.Root, "sys"))); err != nil {
		t.Fatal(err)
	}
}

// plugin installs a library that has only the symbol that check reads.
func (n *node) plugin(t *testing.T, a, b, c uint32) {
	t.Helper()
	library, err := compile(a<<16 | b<<8 | c)
	if err != nil {
		t.Skipf("no C compiler: install gcc (%v)", err)
	}
	n.write(t, "lib/slurmv.so", string(library), 0o755)
}

var compiled = map[uint32][]byte{}

func compile(version uint32) ([]byte, error) {
	if library, done := compiled[version]; done {
		return library, nil
	}
	dir, err := os.MkdirTemp("", "slurmv-check-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	file := filepath.Join(dir, "plugin.so")
	cc := exec.Command("cc", "-shared", "-nostdlib", "-o", file, "-x", "c", "-")
	cc.Stdin = strings.NewReader(fmt.Sprintf("const unsigned int plugin_version = %#x;", version))
	if out, err := cc.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w: %s", err, out)
	}
	compiled[version], err = os.ReadFile(file)
	return compiled[version], err
}

// slurmd adds a daemon to /proc that started 100 s after boot.
func (n *node) slurmd(t *testing.T, node string, boot int64) {
	t.Helper()
	n.write(t, "proc/stat", fmt.Sprintf("cpu 1 2\nbtime %d\n", boot), 0o644)
	n.write(t, "proc/77/comm", "slurmd\n", 0o644)
	n.write(t, "proc/77/cmdline", "/usr/sbin/slurmd\x00-N\x00"+node+"\x00", 0o644)
	n.write(t, "proc/77/stat", "77 (slurmd) x) S"+strings.Repeat(" 1", 18)+" 10000 1 1\n", 0o644)
	n.limits(t, "unlimited", "1048576")
}

func (n *node) limits(t *testing.T, memory, files string) {
	t.Helper()
	row := "%-26s%-21s%-21s%-10s\n"
	n.write(t, "proc/77/limits", fmt.Sprintf(row, "Limit", "Soft Limit", "Hard Limit", "Units")+
		fmt.Sprintf(row, "Max open files", "1024", files, "files")+
		fmt.Sprintf(row, "Max locked memory", "65536", memory, "bytes"), 0o644)
}

func (n *node) set(setting string) {
	name, _, _ := strings.Cut(setting, "=")
	var lines []string
	for line := range strings.Lines(goodSettings) {
		if !strings.HasPrefix(line, name) {
			lines = append(lines, line)
		}
	}
	n.programs["scontrol show config"] = strings.Join(append(lines, setting+"\n"), "")
}

func (n *node) probe(json string) {
	n.programs["/lib/slurmv-agent probe --config /conf --node-name n1"] = json
}

// countNode is how Slurm is asked for what it gives to jobs on the node.
const countNode = "sinfo --noheader --nodes=n1 --format=%c %m"

// cloud lets OpenStack make the node's VMs. Slurm gives jobs 16 CPUs and 4000 MiB there.
func (n *node) cloud(t *testing.T, said string) {
	t.Helper()
	n.write(t, "conf", "[backend]\ntype = \"openstack\"\n[network.default]\ntype = \"neutron\"\nneutron = \"guests\"\n", 0o644)
	n.probe(`{"libvirt": "9.0.0", "cloud": ` + said + `}`)
	n.programs[countNode] = "16 4000\n"
}

func (n *node) run(_ context.Context, program string, args ...string) (string, error) {
	line := strings.Join(append([]string{program}, args...), " ")
	answer, known := n.programs[line]
	if !known {
		return "", fmt.Errorf("%s: says\nwhy", program)
	}
	return answer, nil
}

func (n *node) check() []Result {
	return Preflight{Root: n.root, Name: "n1", Config: "/conf", Agent: "/lib/slurmv-agent", AsRoot: n.asRoot, Run: n.run}.Check(context.Background())
}

// different returns the results that are not ok, as "status name".
func different(results []Result) []string {
	names := []string{}
	for _, r := range results {
		if r.Status != OK {
			names = append(names, string(r.Status)+" "+r.Name)
		}
	}
	return names
}

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		change func(*testing.T, *node)
		want   []string // all results that are not ok
		seen   string   // text in Seen of the last of them
	}{
		"a node that lacks nothing": {func(*testing.T, *node) {}, []string{"skipped SR-IOV"}, "no network device"},
		"who is not root cannot try things": {func(_ *testing.T, m *node) { m.asRoot = false },
			[]string{"skipped libvirt opens", "skipped KVM", "skipped networks", "skipped SR-IOV"}, ""},
		"a configuration with a mistake": {func(t *testing.T, m *node) { m.write(t, "conf", "[slurm]\nresource = 1", 0o644) },
			[]string{"error configuration", "skipped directories", "skipped SR-IOV", "skipped resources"}, ""},
		"a state directory that users cannot pass": {func(t *testing.T, m *node) {
			m.mkdir(t, "var/lib/slurmv")
			if err := os.Chmod(filepath.Join(m.root, "var/lib/slurmv"), 0o700); err != nil {
				t.Fatal(err)
			}
		}, []string{"error state directory", "error image cache", "skipped SR-IOV"}, ""},
		"a file where the state directory should be": {func(t *testing.T, m *node) { m.write(t, "var/lib/slurmv", "", 0o644) },
			[]string{"error state directory", "error image cache", "skipped SR-IOV"}, ""},
		"programs that are not installed": {func(t *testing.T, m *node) { m.remove(t, "lib/slurmv-guest") },
			[]string{"error programs", "skipped SR-IOV"}, ""},
		"no relay": {func(t *testing.T, m *node) { m.remove(t, "lib/slurmv-relay") }, []string{"error programs", "skipped SR-IOV"}, ""},
		"an agent that others can change": {func(t *testing.T, m *node) { m.write(t, "lib/slurmv-agent", "", 0o775) },
			[]string{"error programs", "skipped SR-IOV"}, ""},
		"an agent that does not run": {func(_ *testing.T, m *node) { m.probe("{") },
			[]string{"error libvirt opens", "error KVM", "error networks", "skipped SR-IOV"}, ""},
		"memory without a limit":              {func(_ *testing.T, m *node) { m.set("ConstrainRAMSpace       = no") }, []string{"skipped SR-IOV", "warning ConstrainRAMSpace"}, ""},
		"a Slurm that does not tell":          {func(_ *testing.T, m *node) { m.set("ConstrainRAMSpace") }, []string{"skipped SR-IOV", "skipped ConstrainRAMSpace"}, ""},
		"Slurm's plugin for PMI-2 is missing": {func(t *testing.T, m *node) { m.remove(t, "usr/lib/slurm") }, []string{"skipped SR-IOV", "warning PMI"}, "no mpi_pmi2.so in /opt/none:/usr/lib/slurm"},
		"no libvirt": {func(t *testing.T, m *node) { m.remove(t, "usr/lib/x86_64-linux-gnu") },
			[]string{"error libvirt", "error libvirt QEMU driver", "skipped SR-IOV"}, ""},
		"no account for libvirt": {func(_ *testing.T, m *node) { delete(m.programs, "getent group libvirt-qemu") },
			[]string{"error libvirt's account", "skipped SR-IOV"}, ""},
		"an agent that does not reach slurmctld": {func(_ *testing.T, m *node) {
			m.probe(`{"libvirt": "9.0.0", "slurm_error": "scontrol is not in /usr/bin"}`)
		}, []string{"skipped SR-IOV", "error slurm"}, "the agent does not reach slurmctld: scontrol is not in /usr/bin"},
		"libvirt that does not open": {func(_ *testing.T, m *node) { m.probe(`{"libvirt_error": "no"}`) },
			[]string{"error libvirt opens", "skipped SR-IOV"}, ""},
		"RHEL's QEMU": {func(_ *testing.T, m *node) { m.programs[listDevices] = "name \"virtio-blk-pci\", bus PCI\n" }, []string{"warning QEMU's devices", "skipped SR-IOV"}, ""},
		"RHEL's QEMU has NVDIMMs": {func(_ *testing.T, m *node) {
			m.programs[listDevices] = "name \"virtio-9p-pci\", bus PCI\nname \"nvdimm\"\n"
		}, []string{"skipped SR-IOV"}, ""},
		"a site wants NVDIMMs": {func(t *testing.T, m *node) { m.write(t, "conf", "[ivshmem]\ndevice = \"nvdimm\"\n", 0o644) }, []string{"warning QEMU's devices", "skipped SR-IOV"}, ""},
		"QEMU without 9p":      {func(_ *testing.T, m *node) { m.programs[listDevices] = "name \"ivshmem-plain\", bus PCI\n" }, []string{"warning QEMU's devices", "skipped SR-IOV"}, ""},
		"QEMU that lists none": {func(_ *testing.T, m *node) { delete(m.programs, listDevices) }, []string{"error QEMU's devices", "skipped SR-IOV"}, ""},
		"no QEMU": {func(t *testing.T, m *node) { m.remove(t, "usr/bin") },
			[]string{"error QEMU", "skipped SR-IOV"}, ""},
		"the emulator of the configuration": {func(t *testing.T, m *node) { m.write(t, "conf", "[qemu]\nemulator = \"/opt/qemu\"", 0o644) },
			[]string{"error QEMU", "skipped SR-IOV"}, ""},
		"no UEFI firmware": {func(t *testing.T, m *node) { m.remove(t, "etc/qemu") },
			[]string{"warning UEFI firmware", "skipped SR-IOV"}, ""},
		"UEFI firmware of the configuration": {func(t *testing.T, m *node) {
			m.write(t, "conf", "[qemu]\nuefi_code = \"/f/none.fd\"\nuefi_vars = \"/f/VARS.fd\"", 0o644)
		}, []string{"warning UEFI firmware", "skipped SR-IOV"}, ""},
		"no KVM": {func(_ *testing.T, m *node) { m.probe(`{"kvm_error": "no"}`) },
			[]string{"warning KVM", "skipped SR-IOV"}, ""},
		"no KVM where the site wants it": {func(t *testing.T, m *node) {
			m.probe(`{"kvm_error": "no"}`)
			m.write(t, "conf", "[qemu]\naccel = \"kvm\"", 0o644)
		}, []string{"error KVM", "skipped SR-IOV"}, ""},
		"KVM that is not for users": {func(t *testing.T, m *node) { m.write(t, "dev/kvm", "", 0o660) },
			[]string{"error KVM", "skipped SR-IOV"}, ""},
		"KVM without vhost": {func(t *testing.T, m *node) { m.remove(t, "dev/vhost-net") },
			[]string{"warning KVM", "skipped SR-IOV"}, ""},
		"a kernel without VXLAN": {func(_ *testing.T, m *node) {
			m.probe(`{"job_network_error": "make vxlan: operation not supported"}`)
		},
			[]string{"error networks", "skipped SR-IOV"}, ""},
		"a VXLAN port that users may take": {func(t *testing.T, m *node) {
			m.write(t, "conf", "[network.default]\nvxlan_port = 4789\n", 0o644)
		}, []string{"warning VXLAN port", "skipped SR-IOV"}, ""},
		"users that may take any port": {func(t *testing.T, m *node) {
			m.write(t, "proc/sys/net/ipv4/ip_unprivileged_port_start", "0\n", 0o644)
		}, []string{"warning VXLAN port", "skipped SR-IOV"}, ""},
		"users that may take the ports above": {func(t *testing.T, m *node) {
			m.write(t, "proc/sys/net/ipv4/ip_unprivileged_port_start", "300\n", 0o644)
		}, []string{"skipped SR-IOV"}, ""},
		"a VXLAN port that is taken": {func(_ *testing.T, m *node) {
			m.probe(`{"underlay": "10.0.0.1", "port_holders": {"default": "process 4711 (python3) of user bob"}}`)
		}, []string{"error VXLAN port", "skipped SR-IOV"}, ""},
		"a kernel without redirection": {func(_ *testing.T, m *node) {
			m.probe(`{"site_network_error": "no mirred"}`)
		}, []string{"error networks", "skipped SR-IOV"}, ""},
		"an underlay where nobody looks for the node": {func(_ *testing.T, m *node) {
			m.probe(`{"underlay": "10.9.0.1", "peers_error": "node n1 is said to be at 10.9.0.1"}`)
		}, []string{"error networks", "skipped SR-IOV"}, ""},
		"a cloud that gives what Slurm gives": {func(t *testing.T, m *node) {
			m.cloud(t, `{"cpus": 16, "memory_mib": 4000}`)
		}, []string{"skipped SR-IOV"}, ""},
		"a cloud that gives more": {func(t *testing.T, m *node) {
			m.cloud(t, `{"cpus": 256, "memory_mib": 4000}`)
		}, []string{"warning OpenStack", "skipped SR-IOV"}, ""},
		"a cloud with a user's password": {func(t *testing.T, m *node) {
			m.cloud(t, `{"cpus": 16, "memory_mib": 4000, "password": true}`)
		}, []string{"warning OpenStack credentials", "skipped SR-IOV"}, ""},
		"a cloud with a password that does not answer": {func(t *testing.T, m *node) {
			m.cloud(t, `{"error": "log in: no route to host", "password": true}`)
		}, []string{"error OpenStack", "warning OpenStack credentials", "skipped SR-IOV"}, ""},
		"a cloud that does not answer": {func(t *testing.T, m *node) {
			m.cloud(t, `{"error": "log in: no route to host"}`)
		}, []string{"error OpenStack", "skipped SR-IOV"}, ""},
		"a cloud, and Slurm does not say what the node has": {func(t *testing.T, m *node) {
			m.cloud(t, `{"cpus": 16, "memory_mib": 4000}`)
			delete(m.programs, countNode)
		}, []string{"skipped OpenStack", "skipped SR-IOV"}, ""},
		"a cloud, and a card whose VFs neutron gives": {func(t *testing.T, m *node) {
			m.cards(t, sriovtest.Card{Name: "eth1", Driver: "igb", VFs: 7})
			m.cloud(t, `{"cpus": 16, "memory_mib": 4000}`)
		}, []string{"skipped SR-IOV"}, "VFs that neutron gives them"},
		"few descriptors": {func(t *testing.T, m *node) { m.limits(t, "unlimited", "1024") },
			[]string{"warning limits", "skipped SR-IOV"}, ""},
		"no shared memory": {func(t *testing.T, m *node) { m.write(t, "proc/mounts", "/dev/vda / ext4 rw 0 0\n", 0o644) },
			[]string{"warning shared memory", "skipped SR-IOV"}, ""},
		"huge pages that are wanted and not there": {func(t *testing.T, m *node) {
			m.write(t, "conf", "[ivshmem]\nhuge_page = \"2M\"\n", 0o644)
		}, []string{"warning hugepages", "warning shared memory", "skipped SR-IOV"}, ""},
		"huge pages of another size": {func(t *testing.T, m *node) {
			m.write(t, "conf", "[ivshmem]\nhuge_page = \"2M\"\n", 0o644)
			m.hugePages(t, 1<<20, "1024M")
		}, []string{"warning hugepages", "warning shared memory", "skipped SR-IOV"}, ""},
		"huge pages that are wanted": {func(t *testing.T, m *node) {
			m.write(t, "conf", "[ivshmem]\nhuge_page = \"2M\"\n", 0o644)
			m.hugePages(t, 2<<10, "2M")
		}, []string{"skipped SR-IOV"}, ""},
		"huge pages that VMs have by default": {func(t *testing.T, m *node) {
			m.write(t, "conf", "[defaults]\nhugepages = \"1G\"\n", 0o644)
			m.hugePages(t, 2<<10, "2M")
		}, []string{"warning hugepages", "skipped SR-IOV"}, ""},
		"something over the shared memory": {func(t *testing.T, m *node) {
			m.write(t, "proc/mounts", "shm /dev/shm tmpfs rw 0 0\n/dev/vdb /dev/shm ext4 rw 0 0\n", 0o644)
		}, []string{"warning shared memory", "skipped SR-IOV"}, ""},
		"VFs without IOMMU and locked memory": {func(t *testing.T, m *node) {
			m.limits(t, "65536", "1048576")
			m.cards(t, sriovtest.Card{Name: "eth1", Driver: "igb", VFs: 7, NoIOMMU: true})
		}, []string{"warning limits", "warning SR-IOV"}, "the IOMMU is off"},
		"a card without VFs": {func(t *testing.T, m *node) {
			m.cards(t, sriovtest.Card{Name: "eth1", Driver: "igb", TotalVFs: 7})
			m.mkdir(t, "sys/kernel/iommu_groups/0")
		}, []string{"warning SR-IOV"}, "eth1: it has no VFs"},
		"a card with VFs": {func(t *testing.T, m *node) {
			m.cards(t, sriovtest.Card{Name: "eth1", Driver: "igb", VFs: 7})
		}, []string{}, ""},
		"a card that nova gives out, too": {func(t *testing.T, m *node) {
			m.cards(t, sriovtest.Card{Name: "eth1", Driver: "igb", VFs: 7})
			m.write(t, "etc/nova/nova.conf", "[pci]\ndevice_spec = {\"devname\": \"eth1\", \"physical_network\": \"fabric\"}\n", 0o640)
		}, []string{"warning SR-IOV"}, "eth1: nova gives its VFs to VMs, too (/etc/nova/nova.conf)"},
		"a card that is left to nova": {func(t *testing.T, m *node) {
			m.cards(t, sriovtest.Card{Name: "eth1", Driver: "igb", VFs: 7})
			m.write(t, "etc/nova/nova.conf", "[pci]\ndevice_spec = {\"devname\": \"eth1\"}\n", 0o640)
			m.write(t, "conf", "[vf]\npfs = [\"eth2\"]\n", 0o644)
		}, []string{}, ""},
		"a bridge of the configuration that is not there": {func(t *testing.T, m *node) {
			m.write(t, "conf", "[vf.software.soft0]\nbridge = \"br-none\"\nrate = \"1g\"\n", 0o644)
		}, []string{"warning software VFs"}, "br-none"},
		"a plugin of another release": {func(t *testing.T, m *node) { m.plugin(t, 23, 11, 1) },
			[]string{"skipped SR-IOV", "error plugin"}, "is built for Slurm 23.11.1, but this is Slurm 22.05.8"},
		"a plugin of the same release": {func(t *testing.T, m *node) { m.plugin(t, 22, 5, 3) }, []string{"skipped SR-IOV"}, ""},
		"a plugin that is none": {func(t *testing.T, m *node) { m.write(t, "lib/slurmv.so", strings.Repeat("text", 100), 0o644) },
			[]string{"skipped SR-IOV", "error plugin"}, "bad magic number"},
		"a plugin that is not in the stack": {func(t *testing.T, m *node) {
			m.write(t, "etc/slurm/plugstack.conf", "# required /lib/slurmv.so\nrequired /other.so", 0o644)
		},
			[]string{"skipped SR-IOV", "error plugstack"}, "has no line for slurmv.so"},
		"an optional plugin": {func(t *testing.T, m *node) {
			m.write(t, "etc/slurm/plugstack.conf", "include plugstack.conf.d/*.conf", 0o644)
			m.write(t, "etc/slurm/plugstack.conf.d/slurmv.conf", "optional /lib/slurmv.so config=/conf", 0o644)
		}, []string{"skipped SR-IOV", "error plugstack"}, "optional /lib/slurmv.so in /etc/slurm/plugstack.conf.d/slurmv.conf"},
		"a plugin without its path": {func(t *testing.T, m *node) { m.write(t, "etc/slurm/plugstack.conf", "required slurmv.so", 0o644) },
			[]string{"skipped SR-IOV", "error plugstack"}, ""},
		"an argument that the plugin refuses": {func(t *testing.T, m *node) {
			m.write(t, "etc/slurm/plugstack.conf", "required /lib/slurmv.so config=/conf conf=/x", 0o644)
		}, []string{"skipped SR-IOV", "error plugstack"}, "with the argument conf=/x"},
		"an argument with a relative path": {func(t *testing.T, m *node) {
			m.write(t, "etc/slurm/plugstack.conf", "required /lib/slurmv.so agent=x", 0o644)
		}, []string{"skipped SR-IOV", "error plugstack"}, "with the argument agent=x"},
		"arguments that the plugin takes": {func(t *testing.T, m *node) {
			m.write(t, "etc/slurm/plugstack.conf", "required /lib/slurmv.so config=/conf agent=/lib/slurmv-agent state=/var/lib/slurmv/%n", 0o644)
		}, []string{"skipped SR-IOV"}, ""},
		"a plugin in the cache of a slurmd without files of its own": {func(t *testing.T, m *node) {
			m.remove(t, "etc/slurm")
			m.write(t, "run/slurm/conf/plugstack.conf", "required /lib/slurmv.so", 0o644)
			m.set("PlugStackConfig = (null)")
		}, []string{"skipped SR-IOV"}, ""},
		"a plugin in the cache of one of several slurmd": {func(t *testing.T, m *node) {
			m.remove(t, "etc/slurm")
			m.write(t, "var/spool/slurmd-n1/conf-cache/plugstack.conf", "required /lib/slurmv.so", 0o644)
			m.set("PlugStackConfig = (null)\nSlurmdSpoolDir = /var/spool/slurmd-%n")
		}, []string{"skipped SR-IOV"}, ""},
		"a plugin beside slurmd's own slurm.conf": {func(t *testing.T, m *node) {
			m.write(t, "etc/slurm/plugstack.conf", "", 0o644)
			m.write(t, "opt/slurm/plugstack.conf", "required /lib/slurmv.so", 0o644)
			m.write(t, "proc/77/environ", "PATH=/bin\x00SLURM_CONF=/opt/slurm/slurm.conf\x00", 0o600)
			m.set("PlugStackConfig = (null)")
		}, []string{"skipped SR-IOV"}, ""},
		"a plugin in a cache beside the file that slurmd reads": {func(t *testing.T, m *node) {
			m.remove(t, "etc/slurm")
			m.write(t, "run/slurm/conf/plugstack.conf", "required /lib/slurmv.so", 0o644)
		}, []string{"skipped SR-IOV", "error plugstack"}, "/etc/slurm/plugstack.conf: no such file"},
		"a plugin in no file": {func(t *testing.T, m *node) {
			m.remove(t, "etc/slurm")
			m.set("PlugStackConfig = (null)\nSlurmdSpoolDir = /var/spool/slurmd")
		}, []string{"skipped SR-IOV", "error plugstack"}, "/etc/slurm/plugstack.conf: no such file"},
		"files that include each other": {func(t *testing.T, m *node) {
			m.write(t, "etc/slurm/plugstack.conf", "include plugstack.conf", 0o644)
		}, []string{"skipped SR-IOV", "error plugstack"}, "include each other"},
		"slurmd from before the plugin": {func(t *testing.T, m *node) { m.slurmd(t, "n1", 1000) },
			[]string{"skipped SR-IOV", "error slurmd"}, "started 1970-01-01"},
		"slurmd from before a package with an older build": {func(t *testing.T, m *node) {
			old := time.Now().AddDate(0, 0, -30)
			if err := os.Chtimes(filepath.Join(m.root, "lib/slurmv.so"), old, old); err != nil {
				t.Fatal(err)
			}
			m.slurmd(t, "n1", time.Now().AddDate(0, 0, -1).Unix())
		}, []string{"skipped SR-IOV", "error slurmd"}, ""},
		"a slurmd of another cluster beside it": {func(t *testing.T, m *node) {
			m.write(t, "proc/66/comm", "slurmd\n", 0o644)
			m.write(t, "proc/66/cmdline", "/usr/sbin/slurmd\x00-N\x00n1\x00", 0o644)
			m.write(t, "proc/66/stat", "66 (slurmd) S"+strings.Repeat(" 1", 18)+" -300000000000 1 1\n", 0o644) // long before the plugin
			for process, network := range map[string]string{"66": "net:[1]", "77": "net:[2]", "self": "net:[2]"} {
				m.link(t, network, "proc/"+process+"/ns/net")
			}
		}, []string{"skipped SR-IOV"}, ""},
		"only the slurmd of another node": {func(t *testing.T, m *node) { m.slurmd(t, "n2", 4102444800) },
			[]string{"skipped limits", "skipped SR-IOV", "warning slurmd"}, "does not run here"},
		"no slurmctld": {func(_ *testing.T, m *node) { delete(m.programs, "scontrol show config") },
			[]string{"skipped SR-IOV", "error slurm", "skipped resources"}, ""},
		"processes that are not tracked": {func(_ *testing.T, m *node) { m.set("ProctrackType = proctrack/linuxproc") },
			[]string{"skipped SR-IOV", "error ProctrackType"}, "proctrack/linuxproc"},
		"tasks without limits": {func(_ *testing.T, m *node) { m.set("TaskPlugin = task/affinity") },
			[]string{"skipped SR-IOV", "warning TaskPlugin"}, ""},
		"an end that Slurm does not wait for": {func(_ *testing.T, m *node) { m.set("UnkillableStepTimeout = 20 sec") },
			[]string{"skipped SR-IOV", "error UnkillableStepTimeout, KillWait"}, "20 s, 30 s"},
		"programs that are killed at once": {func(_ *testing.T, m *node) { m.set("KillWait = 2 sec") },
			[]string{"skipped SR-IOV", "warning UnkillableStepTimeout, KillWait"}, "60 s, 2 s"},
		"epilogs that Slurm leaves out": {func(_ *testing.T, m *node) { m.set("PrologFlags = Alloc,Contain,RunInJob") },
			[]string{"skipped SR-IOV", "error PrologFlags"}, ""},
		"epilogs that Slurm leaves out, and a script that calls the agent": {func(_ *testing.T, m *node) {
			m.set("PrologFlags = Alloc,Contain,RunInJob\nEpilog = /etc/slurm/slurmv-epilog.sh")
		}, []string{"skipped SR-IOV"}, ""},
		"epilogs that Slurm leaves out, and the site's own": {func(_ *testing.T, m *node) {
			m.set("PrologFlags = RunInJob\nEpilog[0] = /etc/slurm/slurmv-epilog.sh")
		}, []string{"skipped SR-IOV"}, ""},
		"hooks in a clone": {func(_ *testing.T, m *node) { m.set("SlurmdParameters = config_overrides,contain_spank") },
			[]string{"skipped SR-IOV", "warning SlurmdParameters"}, ""},
		"a script that slurmctld does not load": {func(t *testing.T, m *node) { m.write(t, "conf", "[slurm]\nresources = \"job_submit\"", 0o644) },
			[]string{"skipped SR-IOV", "error resources"}, "JobSubmitPlugins="},
		"a script that slurmctld loads": {func(t *testing.T, m *node) {
			m.write(t, "conf", "[slurm]\nresources = \"job_submit\"", 0o644)
			m.set("JobSubmitPlugins = all_partitions,lua")
		}, []string{"skipped SR-IOV"}, ""},
		"a script that asks, and a configuration that says users do": {func(t *testing.T, m *node) {
			m.write(t, "etc/slurm/job_submit.lua", "return slurmv_job_submit(job_desc)\n", 0o644)
			m.set("JobSubmitPlugins = lua")
		}, []string{"skipped SR-IOV", "warning resources"}, "/etc/slurm/job_submit.lua loads Slurm-V's"},
		"a script of the site's own": {func(t *testing.T, m *node) {
			m.write(t, "etc/slurm/job_submit.lua", "return slurm.SUCCESS\n", 0o644)
			m.set("JobSubmitPlugins = lua")
		}, []string{"skipped SR-IOV"}, ""},
		"a script that slurmctld loads by its full name": {func(t *testing.T, m *node) {
			m.write(t, "conf", "[slurm]\nresources = \"job_submit\"", 0o644)
			m.set("JobSubmitPlugins = job_submit/lua")
		}, []string{"skipped SR-IOV"}, ""},
		"a script that sbatch loads by its full name": {func(t *testing.T, m *node) {
			m.write(t, "conf", "[slurm]\nresources = \"cli_filter\"", 0o644)
			m.set("CliFilterPlugins = cli_filter/lua")
		}, []string{"skipped SR-IOV"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := newNode(t)
			tt.change(t, m)
			results := m.check()
			if diff := cmp.Diff(tt.want, different(results)); diff != "" {
				t.Errorf("what is not ok differs (-want +got):\n%s\n%v", diff, results)
			}
			var seen string
			for _, r := range results {
				if r.Status != OK {
					seen = r.Seen
				}
				if r.Status == Error && r.Advice == "" {
					t.Errorf("%s: an error without advice", r.Name)
				}
				if argumentsOfEpilog.MatchString(r.Advice) {
					t.Errorf("%s: Slurm reads no arguments there: %s", r.Name, r.Advice)
				}
				if strings.Contains(r.Seen, "\n") {
					t.Errorf("%s: %q is not one line", r.Name, r.Seen)
				}
			}
			if !strings.Contains(seen, tt.seen) {
				t.Errorf("seen %q does not contain %q", seen, tt.seen)
			}
		})
	}
}

// A package puts the plugin where make install does not.
func TestThePathOfTheInstalledPluginIsAdvised(t *testing.T) {
	config.Libdir = "/usr/lib64/slurm-v"
	m := newNode(t)
	m.write(t, "etc/slurm/plugstack.conf", "", 0o644)
	want := "add to /etc/slurm/plugstack.conf: required /usr/lib64/slurm-v/slurmv.so"
	if results := m.check(); !slices.ContainsFunc(results, func(r Result) bool { return r.Advice == want }) {
		t.Errorf("nothing advises %q: %v", want, results)
	}
}

// Slurm's own slurm.spec and Fedora's have the plugins in the package slurm. Others have only the libraries of programs.
func TestThePackageWithThePluginForPMI2IsAdvised(t *testing.T) {
	m := newNode(t)
	m.remove(t, "usr/lib/slurm")
	const want = "RHEL: slurm)"
	if results := m.check(); !slices.ContainsFunc(results, func(r Result) bool { return r.Name == "PMI" && strings.Contains(r.Advice, want) }) {
		t.Errorf("nothing advises %q: %v", want, results)
	}
}

// Epilog= takes the path of a program.
var argumentsOfEpilog = regexp.MustCompile(`Epilog=(\S+ \S| with )`)

// An administrator reads what each option comes to with the node's QEMU.
func TestWhatTheDevicesOfQEMUAreFor(t *testing.T) {
	const list = "name \"nvdimm\"\nname \"virtio-9p-pci\", bus PCI\nname \"ivshmem-plain\", bus PCI\n"
	const path = "/usr/bin/qemu-system-x86_64 has "
	for name, tt := range map[string]struct {
		lacks []string
		want  Result
	}{
		"Debian's": {nil, ok(devicesName, "IVShmem for --ivshmem, 9p for images without FUSE")},
		"RHEL's": {[]string{"virtio-9p-pci", "ivshmem-plain"}, warning(devicesName, path+"NVDIMMs for --ivshmem, and no 9p: "+
			"an image whose kernel has no FUSE cannot see directories of the node", "nothing, if all images have FUSE")},
		"one with neither": {[]string{"nvdimm", "ivshmem-plain"}, warning(devicesName, path+"no IVShmem devices and no NVDIMMs: jobs with --ivshmem fail here",
			"name another QEMU in [qemu] emulator if users want the option")},
	} {
		t.Run(name, func(t *testing.T) {
			m := newNode(t)
			m.programs[listDevices] = list
			for _, device := range tt.lacks {
				m.programs[listDevices] = strings.ReplaceAll(m.programs[listDevices], device, "x")
			}
			results := m.check()
			i := slices.IndexFunc(results, func(r Result) bool { return r.Name == devicesName })
			if diff := cmp.Diff(tt.want, results[i]); diff != "" {
				t.Errorf("result differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFailed(t *testing.T) {
	if Failed([]Result{{Status: OK}, {Status: Warning}, {Status: Skipped}}) {
		t.Error("a warning counts as a failure")
	}
	if !Failed([]Result{{Status: OK}, {Status: Error}}) {
		t.Error("an error does not count")
	}
}
