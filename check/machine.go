package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// kvm: QEMU runs as the job's owner, so the device must open for everybody.
func kvm(_ context.Context, i *inspection) []Result {
	const name = "KVM"
	if i.probeErr != nil {
		return unprobed(name, i.probeErr)
	}
	info, err := os.Stat(i.path("/dev/kvm"))
	open := err == nil && info.Mode().Perm()&0o006 == 0o006
	return []Result{judgeKVM(i.cfg.QEMU.Accel, i.probe.KVMError, open)}
}

func judgeKVM(wish config.Accel, problem string, open bool) Result {
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
	}
	return ok(name, "usable")
}

// networks: what the agent could make in a namespace aside, it can make for jobs.
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
	case p.UnderlayError != "":
		return wrong(name, p.UnderlayError, "name the nodes' own network in the configuration: [network.default] underlay; jobs with several nodes need it")
	}
	seen := "bridge, taps, nftables and VXLAN work"
	if p.Underlay != "" {
		seen += "; other nodes reach this one at " + p.Underlay
	}
	return ok(name, seen)
}

// hugepages are information: VMs do not need them.
func hugepages(_ context.Context, i *inspection) []Result {
	const name = "hugepages"
	var seen []string
	dirs, _ := filepath.Glob(i.path("/sys/kernel/mm/hugepages/hugepages-*"))
	for _, dir := range dirs {
		all, free := readNumber(dir, "nr_hugepages"), readNumber(dir, "free_hugepages")
		if all > 0 {
			seen = append(seen, fmt.Sprintf("%s: %d, %d free", strings.TrimPrefix(filepath.Base(dir), "hugepages-"), all, free))
		}
	}
	return []Result{ok(name, orNone(strings.Join(seen, "; ")))}
}

func readNumber(dir, file string) int {
	text, _ := os.ReadFile(filepath.Join(dir, file))
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	return n
}

// iommu: without one no VF can be given to a VM.
func iommu(_ context.Context, i *inspection) []Result {
	const name = "IOMMU"
	groups, _ := os.ReadDir(i.path("/sys/kernel/iommu_groups"))
	switch {
	case len(groups) > 0:
		return []Result{ok(name, fmt.Sprintf("on, %d groups", len(groups)))}
	case len(i.sriov) > 0:
		return []Result{warning(name, "off", "turn it on in the firmware and with intel_iommu=on or amd_iommu=on on the kernel's command line: --sriov is refused here without")}
	}
	return []Result{ok(name, "off; no device has SR-IOV, so nothing needs it")}
}

// An sriovDevice is a network interface whose device can have VFs.
type sriovDevice struct {
	name        string
	total, made int
}

func findSRIOV(root string) []sriovDevice {
	var devices []sriovDevice
	dirs, _ := filepath.Glob(filepath.Join(root, "sys/class/net/*/device"))
	for _, dir := range dirs {
		if total := readNumber(dir, "sriov_totalvfs"); total > 0 {
			devices = append(devices, sriovDevice{filepath.Base(filepath.Dir(dir)), total, readNumber(dir, "sriov_numvfs")})
		}
	}
	return devices
}

func sriov(_ context.Context, i *inspection) []Result {
	const name = "SR-IOV"
	if len(i.sriov) == 0 {
		return []Result{skipped(name, "no network device here has it: --sriov is refused on this node", "")}
	}
	var results []Result
	for _, d := range i.sriov {
		seen := fmt.Sprintf("%s: %d of %d VFs", d.name, d.made, d.total)
		if d.made == 0 {
			results = append(results, warning(name, seen, fmt.Sprintf("make VFs at boot: echo %d > /sys/class/net/%s/device/sriov_numvfs", d.total, d.name)))
			continue
		}
		results = append(results, ok(name, seen))
	}
	return results
}
