package hypervisor

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

// templatePlan is a plan with two mounts, and the description of a template for it as
// libvirt saves it: with addresses, and with what it has found out about the disks.
func templatePlan(t *testing.T) (plan.Plan, *libvirtxml.Domain, template.Template) {
	t.Helper()
	p := plan.Plan{Run: "/run/j", Job: plan.Job{Spec: jobspec.Spec{MemoryMiB: 384, VCPUs: 1}}, Owner: owner.Owner{UID: 1001, GID: 100}}
	p.VMs = []plan.VM{{Name: "vm0", Domain: "slurmv-7.0-vm0", UUID: p.UUID(0), MAC: "02:00:00:00:07:00", Tap: "svt7-0",
		Address: netip.MustParsePrefix("172.30.0.1/16"), Overlay: "/s/vm0/overlay.qcow2", Console: "/run/j/vm0.console", Channel: "/run/j/vm0.channel"}}
	from := template.Template{Dir: "/s/templates/1001/k"}
	p.UEFI = emulator.UEFI{Code: "/f/CODE.fd", Vars: "/f/VARS.fd"}
	p.VMs[0].Vars = "/s/vm0.vars"
	p.State = "/s"
	p.Warm = config.Warm{MountSlots: 3, DeviceSlots: 2}
	vm := p.TemplateVM(template.Template{Dir: "/s/templates/1001/7.0.draft"})
	vm.Base = []images.Layer{{Path: "/i/template-image", Format: images.QCOW2}}
	d := DescribeTemplate(p, vm, "/nothing", &ivshmem.Region{Name: "room", Size: plan.TemplateRoom << 20})
	d.Devices.Shmems = nil // unplugged before it is saved
	slot := uint(4)
	d.Devices.Filesystems[1].Address = &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{Slot: &slot}}
	p.VMs[0].Base = []images.Layer{{Path: from.Disk(), Format: images.QCOW2}, {Path: "/i/image.raw", Format: images.Raw}}
	p.Job.Spec.Mounts = []jobspec.Mount{{Host: "/home/a", Guest: "/home/a"}, {Host: "/data", Guest: "/d", ReadOnly: true}}
	return p, d, from
}

func TestClone(t *testing.T) {
	p, d, from := templatePlan(t)
	generation := d.GenID.Value
	before, err := d.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := (describer{p}).clone(d, p.VMs[0], from, nil); err != nil {
		t.Fatal(err)
	}
	text, err := d.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	compact := regexp.MustCompile(`\n *`).ReplaceAllString(text, "")
	if chain := `<backingStore type="file"><format type="qcow2"></format><source file="/s/templates/1001/k/disk.qcow2"></source>` +
		`<backingStore type="file"><format type="raw"></format><source file="/i/image.raw"></source>` +
		`<backingStore></backingStore></backingStore></backingStore>`; !strings.Contains(compact, chain) {
		t.Errorf("the disk's chain is not whole in\n%s", text)
	}
	for _, want := range []string{"<name>slurmv-7.0-vm0<", p.VMs[0].UUID, "/s/vm0/overlay.qcow2", "/s/templates/1001/k/seed.iso",
		"02:00:00:00:07:00", "/run/j/vm0.console", "/run/j/vm0.channel", "/f/CODE.fd<", ">/s/vm0.vars<", `dir="/home/a"`, `dir="/data"`, `dir="/s/templates/1001/k/nothing"`,
		"memory-backend=template.ram", `&#34;mem-path&#34;:&#34;/s/templates/1001/k/memory&#34;`, `&#34;share&#34;:false`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	for _, of := range []string{plan.TemplateMAC, "draft", "template.channel", "template.console", "template.vars", "template-image", generation, p.UUID(-1)} {
		if !strings.Contains(before, of) {
			t.Errorf("the template itself has no %s", of)
		}
		if strings.Contains(text, of) {
			t.Errorf("the template's %s is left in\n%s", of, text)
		}
	}
	mounts := d.Devices.Filesystems
	if len(mounts) != 3 || mounts[0].ReadOnly != nil || mounts[1].ReadOnly == nil || mounts[2].ReadOnly == nil {
		t.Errorf("mounts = %+v", mounts)
	}
	if mounts[1].Address == nil || *mounts[1].Address.PCI.Slot != 4 {
		t.Error("a device is at another place than in the saved VM")
	}
}

// A template boots with room for as much shared memory as a restored VM can have.
func TestTemplateHasRoom(t *testing.T) {
	p, _, _ := templatePlan(t)
	room := ivshmem.Region{Name: "room", Size: plan.TemplateRoom << 20}
	d := DescribeTemplate(p, p.VMs[0], "/nothing", &room)
	if len(d.Devices.Shmems) != 1 || d.Devices.Shmems[0].Size.Value != plan.TemplateRoom {
		t.Errorf("shared memory: %+v", d.Devices.Shmems)
	}
	for mib, cold := range map[int]bool{plan.TemplateRoom: false, plan.TemplateRoom + 1: true} {
		job := plantest.Job()
		job.Spec.IVShmem = jobspec.IVShmem{Devices: 1, SizeMiB: int64(mib)}
		cfg := config.Default()
		if why := plantest.New(t, cfg, job, plan.Hardware{Accel: config.AccelTCG, NUMA: -1}).Cold; (why != "") != cold {
			t.Errorf("%d MiB: boots cold because %q", mib, why)
		}
	}
	bridged := func(c libvirtxml.DomainController) bool { return c.Model == "pcie-to-pci-bridge" }
	if !slices.ContainsFunc(d.Devices.Controllers, bridged) {
		t.Error("the devices' bridge is missing")
	}
	// RHEL's QEMU has neither the devices nor the bridge.
	without := DescribeTemplate(p, p.VMs[0], "/nothing", nil).Devices
	if len(without.Shmems) != 0 || slices.ContainsFunc(without.Controllers, bridged) {
		t.Errorf("a template for a QEMU without IVShmem has %+v and %+v", without.Shmems, without.Controllers)
	}
}

// A restored guest knows of its CPUs what the template's guest has learned at boot.
func TestTemplatesKnowTheCPUsOfTheirVMs(t *testing.T) {
	hw := plan.Hardware{Accel: config.AccelKVM, NUMA: -1, CPUs: plantest.CPUs(2, 2, 2), Memory: []int{0, 1}}
	tests := map[string]plan.Plan{
		"pinned to whole cores": plantest.On(t, hw, 2),
		"not pinned":            plantest.On(t, plan.Hardware{Accel: config.AccelKVM, NUMA: -1, Unpinned: "nobody owns cores"}, 2),
	}
	for name, p := range tests {
		t.Run(name, func(t *testing.T) {
			booted, made := Describe(p, p.VMs[1], nil), DescribeTemplate(p, p.TemplateVM(template.Template{Dir: "/t"}), "/nothing", nil)
			if diff := cmp.Diff(booted.CPU, made.CPU); diff != "" {
				t.Errorf("the CPU differs (-booted +template):\n%s", diff)
			}
			if diff := cmp.Diff(booted.Features, made.Features); diff != "" {
				t.Errorf("hints differ (-booted +template):\n%s", diff)
			}
			if made.CPUTune != nil || made.NUMATune != nil {
				t.Errorf("the template is pinned: %+v, %+v", made.CPUTune, made.NUMATune)
			}
		})
	}
}

// Under KVM queues are the kernel's business.
func TestQueuesAreInlineWhereEmulated(t *testing.T) {
	for accel, want := range map[config.Accel]bool{config.AccelTCG: true, config.AccelKVM: false} {
		p := plan.Plan{Hardware: plan.Hardware{Accel: accel}}
		line := describer{p}.commandLine()
		has := func(a libvirtxml.DomainQEMUCommandlineArg) bool { return a.Value == inlineQueues[1] }
		if got := line != nil && slices.ContainsFunc(line.Args, has); got != want {
			t.Errorf("%s: %v", accel, got)
		}
	}
}

func TestCloneRefusesAnotherTemplate(t *testing.T) {
	p, d, from := templatePlan(t)
	d.Devices.Filesystems = d.Devices.Filesystems[:1]
	if err := (describer{p}).clone(d, p.VMs[0], from, nil); err == nil {
		t.Error("two mounts in one slot")
	}
}

// The stream comes behind the new head, whole, as often as somebody opens the file.
func TestSaveFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "saved")
	stream := strings.Repeat("page of memory, ", 200_000)
	if err := os.WriteFile(path, []byte("old head"+stream), 0o600); err != nil {
		t.Fatal(err)
	}
	saved, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer saved.Close()
	if _, err := saved.Seek(8, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	file, err := saveFile(template.SaveFile{XML: []byte("<domain/>")}, saved)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for range 2 {
		again, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		head, err := template.ReadSaveFile(again)
		if err != nil || string(head.XML) != "<domain/>" {
			t.Errorf("head = %q, %v", head.XML, err)
		}
		rest, err := io.ReadAll(again)
		if err != nil || string(rest) != stream {
			t.Errorf("%d bytes of %d came: %v", len(rest), len(stream), err)
		}
	}
}

// Pages of the template that a VF would have copied one by one are copied before.
func TestMemoryForVFs(t *testing.T) {
	p, _, from := templatePlan(t)
	p.Job.Spec.VCPUs = 20
	card := vfpool.Grant{VF: device.VF{Kind: device.SRIOV, PCI: "0000:81:10.3"}}
	bridge := vfpool.Grant{VF: device.VF{Kind: device.Software, Device: "svf0"}}
	tests := map[string]struct {
		vfs  []vfpool.Grant
		want bool
	}{
		"without VFs":         {nil, false},
		"a VF of a bridge":    {[]vfpool.Grant{bridge}, false},
		"a VF of a card":      {[]vfpool.Grant{card}, true},
		"VFs of both of them": {[]vfpool.Grant{bridge, card}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			restored := fmt.Sprint(describer{p}.mapMemory(p.VMs[0], from, tt.vfs))
			if got := strings.Contains(restored, `"prealloc":true,"prealloc-threads":16`); got != tt.want {
				t.Errorf("restored: %v in %s", got, restored)
			}
			booted, err := Describe(p, p.VMs[0], tt.vfs).Marshal()
			if got := strings.Contains(booted, `<allocation mode="immediate" threads="16"></allocation>`); err != nil || got != tt.want {
				t.Errorf("booted: %v, %v in %s", got, err, booted)
			}
		})
	}
}
