package vmlaunch

import (
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/jobspec"
)

// templatePlan is a plan with two mounts, and the description of a template for it as
// libvirt saves it: with addresses, and with what it has found out about the disks.
func templatePlan(t *testing.T) (Plan, *libvirtxml.Domain, template.Template) {
	t.Helper()
	p := Plan{Run: "/run/j", Job: Job{Spec: jobspec.Spec{MemoryMiB: 384, VCPUs: 1}}, Owner: Owner{UID: 1001, GID: 100}}
	p.VMs = []VMPlan{{Name: "vm0", Domain: "slurmv-7.0-vm0", UUID: p.uuid(0), MAC: "02:00:00:00:07:00", Tap: "svt7-0",
		Address: netip.MustParsePrefix("172.30.0.1/16"), Overlay: "/s/vm0/overlay.qcow2", Console: "/run/j/vm0.console", Channel: "/run/j/vm0.channel"}}
	from := template.Template{Dir: "/s/templates/1001/k"}
	d := p.templateDomain(p.templateVM(template.Template{Dir: "/s/templates/1001/7.0.draft"}), config.Warm{MountSlots: 3, DeviceSlots: 2}, "/nothing", ivshmem.Region{Name: "room", Size: templateRoom << 20})
	d.Devices.Shmems = nil // unplugged before it is saved
	slot := uint(4)
	d.Devices.Filesystems[1].Address = &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{Slot: &slot}}
	d.Devices.Disks[0].BackingStore = &libvirtxml.DomainDiskBackingStore{}
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
	if err := p.clone(d, p.VMs[0], from); err != nil {
		t.Fatal(err)
	}
	text, err := d.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<name>slurmv-7.0-vm0<", p.VMs[0].UUID, "/s/vm0/overlay.qcow2", "/s/templates/1001/k/seed.iso",
		"02:00:00:00:07:00", "/run/j/vm0.console", "/run/j/vm0.channel", `dir="/home/a"`, `dir="/data"`, `dir="/s/templates/1001/k/nothing"`,
		"memory-backend=template.ram", `&#34;mem-path&#34;:&#34;/s/templates/1001/k/memory&#34;`, `&#34;share&#34;:false`} {
		if !strings.Contains(text, want) {
			t.Errorf("%s is missing in\n%s", want, text)
		}
	}
	for _, of := range []string{templateMAC, "draft", "template.channel", "template.console", "backingStore", generation, p.uuid(-1)} {
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

// What a template boots with is room for as much shared memory as a VM can be restored with.
func TestTemplateHasRoom(t *testing.T) {
	p, _, _ := templatePlan(t)
	room := ivshmem.Region{Name: "room", Size: templateRoom << 20}
	d := p.templateDomain(p.VMs[0], config.Warm{}, "/nothing", room)
	if len(d.Devices.Shmems) != 1 || d.Devices.Shmems[0].Size.Value != templateRoom {
		t.Errorf("shared memory: %+v", d.Devices.Shmems)
	}
	for devices, cold := range map[int]bool{templateRoom: false, templateRoom + 1: true} {
		p.Job.Spec.IVShmem = jobspec.IVShmem{Devices: devices, SizeMiB: 1}
		if why := p.coldBecause(config.Default()); (why != "") != cold {
			t.Errorf("%d MiB: boots cold because %q", devices, why)
		}
	}
}

// Under KVM queues are the kernel's business.
func TestQueuesAreInlineWhereEmulated(t *testing.T) {
	for accel, want := range map[config.Accel]bool{config.AccelTCG: true, config.AccelKVM: false} {
		p := Plan{Hardware: Hardware{Accel: accel}}
		has := func(a libvirtxml.DomainQEMUCommandlineArg) bool { return a.Value == inlineQueues[1] }
		if got := slices.ContainsFunc(p.commandLine().Args, has); got != want {
			t.Errorf("%s: %v", accel, got)
		}
	}
}

func TestCloneRefusesAnotherTemplate(t *testing.T) {
	p, d, from := templatePlan(t)
	d.Devices.Filesystems = d.Devices.Filesystems[:1]
	if err := p.clone(d, p.VMs[0], from); err == nil {
		t.Error("two mounts in one slot")
	}
}

func TestColdBecause(t *testing.T) {
	cfg := config.Default()
	cells := Pinning{Cells: []Cell{{CPUs: []int{0}}, {CPUs: []int{1}}}}
	tests := map[string]struct {
		change func(*Plan)
		want   string
	}{
		"nothing":         {func(*Plan) {}, ""},
		"huge pages":      {func(p *Plan) { p.Hardware.HugePage = 2048 }, "huge pages"},
		"two NUMA nodes":  {func(p *Plan) { p.VMs[0].Pinning = cells }, "NUMA"},
		"much shared":     {func(p *Plan) { p.Job.Spec.IVShmem = jobspec.IVShmem{Devices: 4, SizeMiB: 8 << 10} }, "address space"},
		"some shared":     {func(p *Plan) { p.Job.Spec.IVShmem = jobspec.IVShmem{Devices: 4, SizeMiB: 16} }, ""},
		"user data":       {func(p *Plan) { p.Job.Spec.UserData = "/u" }, "--vm-user-data"},
		"too many mounts": {func(p *Plan) { p.Job.Spec.Mounts = make([]jobspec.Mount, 5) }, "5 mounts"},
		"as many as can":  {func(p *Plan) { p.Job.Spec.Mounts = make([]jobspec.Mount, 4) }, ""},
		"too many VFs":    {func(p *Plan) { p.Job.Spec.SRIOV.VFs = make([]jobspec.VF, 5) }, "5 virtual functions"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p, _, _ := templatePlan(t)
			tt.change(&p)
			if got := p.coldBecause(cfg); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q in it", got, tt.want)
			}
		})
	}
}

// The stream comes through the pipe behind the new head, whole.
func TestFeed(t *testing.T) {
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
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	fed := make(chan error, 1)
	go func() { fed <- feed(w, template.SaveFile{XML: []byte("<domain/>")}, saved) }()
	head, err := template.ReadSaveFile(r)
	if err != nil || string(head.XML) != "<domain/>" {
		t.Errorf("head = %q, %v", head.XML, err)
	}
	rest, err := io.ReadAll(r)
	if err != nil || string(rest) != stream {
		t.Errorf("%d bytes of %d came: %v", len(rest), len(stream), err)
	}
	if err := <-fed; err != nil {
		t.Error(err)
	}
}

// When QEMU goes away, so does whoever feeds it.
func TestFeedWithoutReader(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Close()
	if err := feed(w, template.SaveFile{XML: []byte("<domain/>")}, os.Stdin); err == nil {
		t.Error("nobody read, and there is no error")
	}
}

func TestIdentitiesAreUnlike(t *testing.T) {
	seen := map[string]bool{}
	for range 32 {
		id, err := newIdentity("vm0")
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range []string{string(id.Seed), id.MachineID, id.BootID, id.HostKey} {
			if seen[text] || len(text) < 32 {
				t.Errorf("%q came twice, or is too short", text)
			}
			seen[text] = true
		}
	}
}
