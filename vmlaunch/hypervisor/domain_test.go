package hypervisor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestDomainRunsAsTheOwner(t *testing.T) {
	p := plantest.Plan(t)
	for _, vm := range p.VMs {
		want := []libvirtxml.DomainSecLabel{{Type: "static", Model: "dac", Relabel: "no", Label: "+6001:+6001"}}
		if diff := cmp.Diff(want, Describe(p, vm, nil).SecLabel); diff != "" {
			t.Errorf("label differs (-want +got):\n%s", diff)
		}
	}
}

func TestDomainOfMounts(t *testing.T) {
	p := plantest.Plan(t)
	filesystems := Describe(p, p.VMs[0], nil).Devices.Filesystems
	if len(filesystems) != 2 {
		t.Fatalf("%d file systems", len(filesystems))
	}
	if filesystems[0].ReadOnly != nil || filesystems[1].ReadOnly == nil {
		t.Error("the wrong mount is read-only")
	}
	if got := filesystems[1].Source.Mount.Dir; got != "/data" {
		t.Errorf("second mount exports %s", got)
	}
	p.Hardware.Missing.NineP = true
	if filesystems := Describe(p, p.VMs[0], nil).Devices.Filesystems; len(filesystems) != 0 {
		t.Errorf("%d file systems for a QEMU without 9p", len(filesystems))
	}
}

// A user's path stays a value: no text of his can end an XML element.
func TestDomainEscapesPaths(t *testing.T) {
	p := plantest.Plan(t)
	p.Job.Spec.Mounts[0].Host = `/home/<a>'&"/</source><evil/>`
	text, err := Describe(p, p.VMs[0], nil).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	var back libvirtxml.Domain
	if err := back.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	if got := back.Devices.Filesystems[0].Source.Mount.Dir; got != p.Job.Spec.Mounts[0].Host {
		t.Errorf("path became %q", got)
	}
	if strings.Contains(text, "<evil") {
		t.Error("the path became an element")
	}
}

func TestDomainIsPausedByNothingAndStopsOnPowerOff(t *testing.T) {
	p := plantest.Plan(t)
	d := Describe(p, p.VMs[0], nil)
	if d.OnPoweroff != "destroy" || d.OnCrash != "destroy" || d.OnReboot != "restart" {
		t.Errorf("life cycle is %s, %s, %s", d.OnPoweroff, d.OnCrash, d.OnReboot)
	}
	if d.Features.TCG == nil {
		t.Error("nothing bounds the memory of TCG's translated code")
	}
	if d.Type != "qemu" || d.CPU.Mode != "maximum" {
		t.Errorf("TCG domain is %s with CPU %s", d.Type, d.CPU.Mode)
	}
	p.Hardware.Accel = config.AccelKVM
	if d := Describe(p, p.VMs[0], nil); d.Type != "kvm" || d.CPU.Mode != "host-passthrough" {
		t.Errorf("KVM domain is %s with CPU %s", d.Type, d.CPU.Mode)
	}
}

func TestDomainHasItsVFs(t *testing.T) {
	p := plantest.WithVFs(t)
	d := Describe(p, p.VMs[0], []vfpool.Grant{
		{VF: device.VF{Kind: device.SRIOV, PCI: "0000:81:10.3", Device: "0000:81:10.3"}, Settings: device.Settings{MAC: "06:00:00:00:00:01"}},
		{VF: device.VF{Kind: device.Software, Device: "svf0"}, Settings: device.Settings{MAC: "0a:00:00:00:00:01"}},
	})
	text, err := d.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		`<hostdev mode="subsystem" type="pci" managed="no">`, `<driver name="vfio"></driver>`,
		`<address domain="0x0000" bus="0x81" slot="0x10" function="0x3"></address>`,
		`<mac address="0a:00:00:00:00:01"></mac>`, `<target dev="svf0" managed="no"></target>`,
	} {
		if !strings.Contains(text, part) {
			t.Errorf("%s is missing in\n%s", part, text)
		}
	}
}

// A VF of a Slingshot card reaches the driver of its PF by vsock.
func TestDomainWithSlingshotHasAVSock(t *testing.T) {
	p := plantest.WithVFs(t)
	vf := vfpool.Grant{VF: device.VF{Kind: device.SRIOV, PCI: "0000:81:10.3"}}
	if d := Describe(p, p.VMs[0], []vfpool.Grant{vf}); d.Devices.VSock != nil {
		t.Errorf("a VM without Slingshot has %+v", d.Devices.VSock)
	}
	vf.Slingshot = "0000:81:00.0"
	text, err := Describe(p, p.VMs[0], []vfpool.Grant{vf, vf}).Marshal()
	if want := `<vsock model="virtio">`; err != nil || strings.Count(text, want) != 1 || !strings.Contains(text, `<cid auto="yes"></cid>`) {
		t.Errorf("%s is not there once in\n%s (%v)", want, text, err)
	}
}

// UEFI's program is one for all VMs; each VM writes only to variables of its own.
func TestDomainBootsByUEFI(t *testing.T) {
	p := plantest.Plan(t)
	if d := Describe(p, p.VMs[0], nil); d.OS.Loader != nil || d.OS.NVRam != nil {
		t.Errorf("BIOS has %+v and %+v", d.OS.Loader, d.OS.NVRam)
	}
	p.UEFI = emulator.UEFI{Code: "/f/CODE.fd", Vars: "/f/VARS.fd"}
	for _, vm := range p.VMs {
		d := Describe(p, vm, nil)
		want := []any{&libvirtxml.DomainLoader{Path: "/f/CODE.fd", Readonly: "yes", Type: "pflash"}, &libvirtxml.DomainNVRam{NVRam: vm.Vars}}
		if diff := cmp.Diff(want, []any{d.OS.Loader, d.OS.NVRam}); diff != "" {
			t.Errorf("%s: firmware differs (-want +got):\n%s", vm.Name, diff)
		}
	}
}

// Interrupts reach all CPUs of a large VM, and small VMs have no IOMMU that they do not need.
func TestDomainOfManyCPUs(t *testing.T) {
	tests := map[string]struct {
		vcpus int
		cpus  []plan.CPU
		want  bool
	}{
		"255 CPUs": {255, nil, false},
		"256 CPUs": {256, nil, true},
		"fewer CPUs, on NUMA nodes that leave gaps among their ids": {195, plantest.CPUs(1, 65, 65, 65), true},
		"as many CPUs on one NUMA node":                             {195, plantest.CPUs(1, 195), false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := plantest.Job()
			job.Spec.VMsPerNode, job.Spec.VCPUs, job.CPUs = 1, tt.vcpus, tt.vcpus
			p := plantest.New(t, config.Default(), job, plan.Hardware{Accel: config.AccelKVM, NUMA: -1, CPUs: tt.cpus})
			text := xmlOf(t, p, p.VMs[0])
			for _, part := range []string{
				`<iommu model="intel">`, `<driver intremap="on" caching_mode="on" eim="on"></driver>`, `<ioapic driver="qemu"></ioapic>`,
			} {
				if strings.Contains(text, part) != tt.want {
					t.Errorf("%s: %v, want %v", part, !tt.want, tt.want)
				}
			}
		})
	}
}

func TestDomainHasQueues(t *testing.T) {
	const queues = `<driver queues="2"></driver>`
	for vhost, want := range map[bool]bool{true: true, false: false} {
		p := plantest.New(t, config.Default(), plantest.Job(), plan.Hardware{Accel: config.AccelKVM, NUMA: -1, Vhost: vhost})
		if text := xmlOf(t, p, p.VMs[0]); strings.Contains(text, queues) != want {
			t.Errorf("with vhost %v, %s: want %v in\n%s", vhost, queues, want, text)
		}
	}
}
