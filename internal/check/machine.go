package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/ivshmem"
)

// kvm checks that every user can open the device, since QEMU runs as the job's owner.
func kvm(_ context.Context, i *inspection) []Result {
	const name = "KVM"
	if i.probeErr != nil {
		return unprobed(name, i.probeErr)
	}
	info, err := os.Stat(i.path("/dev/kvm"))
	open := err == nil && info.Mode().Perm()&0o006 == 0o006
	_, err = os.Stat(i.path("/dev/vhost-net"))
	return []Result{judgeKVM(i.cfg.QEMU.Accel, i.probe.KVMError, open, err == nil)}
}

func judgeKVM(wish config.Accel, problem string, open, vhost bool) Result {
	const name = "KVM"
	switch {
	case wish == config.AccelTCG:
		return ok(name, "not used: accel = \"tcg\" in the configuration")
	case problem != "" && wish == config.AccelKVM:
		return wrong(name, problem, "turn on virtualisation in the firmware and load kvm_intel or kvm_amd, or set accel = \"auto\"")
	case problem != "":
		return warning(name, problem, "VMs run emulated (TCG), many times slower: turn on virtualisation in the firmware and load kvm_intel or kvm_amd")
	case !open:
		return wrong(name, "usable, but /dev/kvm is not open to all users", "chmod 0666 /dev/kvm by a udev rule: QEMU runs as the job's owner")
	case !vhost:
		return warning(name, "usable, but there is no /dev/vhost-net", "load the kernel's module vhost_net at boot: without it QEMU moves the frames of VMs' NICs, which have one queue then")
	}
	return ok(name, "usable")
}

// networks checks what the agent made for trial in a separate namespace: if that worked,
// it can make networks for jobs.
func networks(_ context.Context, i *inspection) []Result {
	const name = "networks"
	if i.probeErr != nil {
		return unprobed(name, i.probeErr)
	}
	return []Result{judgeNetworks(i.probe)}
}

func judgeNetworks(p Probe) Result {
	const name = "networks"
	switch {
	case p.NodeNetworkError != "":
		return wrong(name, p.NodeNetworkError, "load or build the kernel's modules bridge, tun and nf_tables with its bridge family: no VM has a network without")
	case p.JobNetworkError != "":
		return wrong(name, p.JobNetworkError, "load or build the kernel's module vxlan: it joins the VMs of a job with several nodes")
	case p.SiteNetworkError != "":
		return wrong(name, p.SiteNetworkError, "load or build the kernel's modules veth, sch_ingress, cls_u32 and act_mirred: they are between a VM and a bridge of the site")
	case p.UnderlayError != "":
		return wrong(name, p.UnderlayError, "name the nodes' own network in the configuration: [network.default] underlay; jobs with several nodes need it")
	case p.PeersError != "":
		return wrong(name, p.PeersError, "say in the configuration where nodes are: [network.default] peers; jobs with several nodes need it")
	}
	seen := "bridge, taps, nftables and VXLAN work"
	if p.Underlay != "" {
		seen += "; other nodes reach this one at " + p.Underlay
	}
	return ok(name, seen)
}

// hugepages informs about huge pages. VMs do not need them; only if the site wants them is
// their absence a warning.
func hugepages(_ context.Context, i *inspection) []Result {
	const name = "hugepages"
	var seen []string
	there := map[string]bool{}
	dirs, _ := filepath.Glob(i.path("/sys/kernel/mm/hugepages/hugepages-*"))
	for _, dir := range dirs {
		all, free := readNumber(dir, "nr_hugepages"), readNumber(dir, "free_hugepages")
		if size := strings.TrimPrefix(filepath.Base(dir), "hugepages-"); all > 0 {
			seen = append(seen, fmt.Sprintf("%s: %d, %d free", size, all, free))
			there[size] = true
		}
	}
	for _, use := range usesOfHugePages(i.cfg) {
		if use.page > 0 && !there[fmt.Sprintf("%dkB", use.page.MiB()<<10)] {
			return []Result{warning(name, orNone(strings.Join(seen, "; ")), fmt.Sprintf("reserve pages of %s for %s (vm.nr_hugepages, or hugepages= for the kernel): until then %s", use.page, use.of, use.without))}
		}
	}
	return []Result{ok(name, orNone(strings.Join(seen, "; ")))}
}

type useOfHugePages struct {
	page        config.Size
	of, without string
}

func usesOfHugePages(cfg config.Config) []useOfHugePages {
	return []useOfHugePages{
		{cfg.IVShmem.HugePage, "shared memory", "--ivshmem has ordinary ones"},
		{cfg.Defaults.HugePages.Size(), "the VMs' memory", "jobs fail here unless they say --vm-hugepages=no"},
	}
}

func readNumber(dir, file string) int {
	text, _ := os.ReadFile(filepath.Join(dir, file))
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// sharedMemory checks what --ivshmem needs, and nothing else does.
func sharedMemory(_ context.Context, i *inspection) []Result {
	const name, dir = "shared memory", ivshmem.Dir
	text, _ := os.ReadFile(i.path("/proc/mounts"))
	kind, options := mountedAt(string(text), dir)
	if kind != "tmpfs" {
		return []Result{warning(name, dir+" is no tmpfs", "mount a tmpfs there: jobs with --ivshmem fail on this node")}
	}
	var has unix.Statfs_t
	_ = unix.Statfs(i.path(dir), &has)
	seen := fmt.Sprintf("%s holds %s", dir, config.Size(int64(has.Blocks)*has.Bsize>>20))
	for option := range strings.SplitSeq(options, ",") {
		if strings.HasPrefix(option, "huge=") {
			seen += ", " + option
		}
	}
	if page := i.cfg.IVShmem.HugePage; page > 0 {
		huge, err := ivshmem.HugePages(i.Root, string(text), page.MiB()<<20)
		if err != nil {
			return []Result{warning(name, seen+"; "+err.Error(), fmt.Sprintf("mount one (mount -t hugetlbfs -o pagesize=%s,mode=0755 none /dev/hugepages): --ivshmem has ordinary pages until then", page))}
		}
		seen += ", huge pages in " + huge
	}
	return []Result{ok(name, seen)}
}

// mountedAt returns the file system at dir according to /proc/mounts, whose last line for
// a directory is the one on top.
func mountedAt(mounts, dir string) (kind, options string) {
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); len(f) > 3 && f[1] == dir {
			kind, options = f[2], f[3]
		}
	}
	return kind, options
}
