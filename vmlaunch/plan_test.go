package vmlaunch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

func someJob() Job {
	return Job{
		ID: journal.ID{Job: 42, Restart: 1}, Cluster: "c", Node: "n2", Rank: 1, Nodes: 2,
		UID: 6001, GID: 6001, CPUs: 4, Memory: 2048,
		Spec: jobspec.Spec{
			VMsPerNode: 2, VCPUs: 2, MemoryMiB: 512, Image: "/images/x.qcow2", ImageMode: config.ImageDirect, Network: "default",
			Mounts:       []jobspec.Mount{{Host: "/home/a", Guest: "/home/a"}, {Host: "/data", Guest: "/mnt/data", ReadOnly: true}},
			ReadyTimeout: time.Minute, WorkDir: "/home/a",
		},
	}
}

func somePlan(t *testing.T) Plan {
	t.Helper()
	p, err := NewPlan(config.Default(), someJob(), Owner{Name: "a", UID: 6001, GID: 6001}, Hardware{Accel: config.AccelTCG, NUMA: -1})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestPlanNumbersVMsThroughTheJob(t *testing.T) {
	p := somePlan(t)
	var got []string
	for _, vm := range p.VMs {
		got = append(got, vm.Name+" "+vm.Domain+" "+vm.Address.String()+" "+vm.MAC)
	}
	want := []string{
		"vm2 slurmv-42.1-vm2 172.30.0.3/16 02:00:00:0a:80:02",
		"vm3 slurmv-42.1-vm3 172.30.0.4/16 02:00:00:0a:80:03",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("VMs differ (-want +got):\n%s", diff)
	}
	if p.VMs[0].UUID == p.VMs[1].UUID {
		t.Error("two VMs have the same UUID")
	}
	if p.State != "/var/lib/slurmv/n2/jobs/42.1" || p.Run != "/run/slurmv/n2/jobs/42.1" {
		t.Errorf("directories are %s and %s", p.State, p.Run)
	}
}

func TestPlanIsTheSameEveryTime(t *testing.T) {
	if diff := cmp.Diff(somePlan(t).VMs[1].UUID, somePlan(t).VMs[1].UUID); diff != "" {
		t.Error(diff)
	}
}

func TestPlanRefusesAnUnknownNetwork(t *testing.T) {
	job := someJob()
	job.Spec.Network = "fabric"
	_, err := NewPlan(config.Default(), job, Owner{}, Hardware{Accel: config.AccelTCG, NUMA: -1})
	if err == nil || !strings.Contains(err.Error(), `"fabric"`) {
		t.Errorf("error = %v", err)
	}
}

func TestDomainRunsAsTheOwner(t *testing.T) {
	p := somePlan(t)
	for _, vm := range p.VMs {
		want := []libvirtxml.DomainSecLabel{{Type: "static", Model: "dac", Relabel: "no", Label: "+6001:+6001"}}
		if diff := cmp.Diff(want, p.domain(vm, nil).SecLabel); diff != "" {
			t.Errorf("label differs (-want +got):\n%s", diff)
		}
	}
}

func TestDomainOfMounts(t *testing.T) {
	p := somePlan(t)
	filesystems := p.domain(p.VMs[0], nil).Devices.Filesystems
	if len(filesystems) != 2 {
		t.Fatalf("%d file systems", len(filesystems))
	}
	if filesystems[0].ReadOnly != nil || filesystems[1].ReadOnly == nil {
		t.Error("the wrong mount is read-only")
	}
	if got := filesystems[1].Source.Mount.Dir; got != "/data" {
		t.Errorf("second mount exports %s", got)
	}
}

// A user's path stays a value: no text of his can end an XML element.
func TestDomainEscapesPaths(t *testing.T) {
	p := somePlan(t)
	p.Job.Spec.Mounts[0].Host = `/home/<a>'&"/</source><evil/>`
	text, err := p.domain(p.VMs[0], nil).Marshal()
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
	p := somePlan(t)
	d := p.domain(p.VMs[0], nil)
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
	if d := p.domain(p.VMs[0], nil); d.Type != "kvm" || d.CPU.Mode != "host-passthrough" {
		t.Errorf("KVM domain is %s with CPU %s", d.Type, d.CPU.Mode)
	}
}

func TestAdmit(t *testing.T) {
	tests := map[string]struct {
		change func(*Job)
		want   string
	}{
		"accepts what fits":                    {change: func(*Job) {}},
		"accepts where memory is not managed":  {change: func(j *Job) { j.Memory = 0; j.Spec.MemoryMiB = 4096 }},
		"refuses more CPUs than the job has":   {change: func(j *Job) { j.CPUs = 3 }, want: "2 VMs × 2 CPUs need 4; the job has 3 on node n2"},
		"refuses more memory than the job has": {change: func(j *Job) { j.Memory = 1535 }, want: "2 VMs × 768 MiB of memory need 1536; the job has 1535 on node n2"},
		"accepts shared memory that fits":      {change: func(j *Job) { j.Spec.IVShmem = jobspec.IVShmem{Devices: 2, SizeMiB: 256} }},
		"refuses shared memory beside":         {change: func(j *Job) { j.Memory = 1599; j.Spec.IVShmem = jobspec.IVShmem{Devices: 2, SizeMiB: 32} }, want: "2 VMs × 768 MiB of memory, and 64 that they share, need 1600; the job has 1599 on node n2"},
		"refuses a spec beyond the limits":     {change: func(j *Job) { j.Spec.VMsPerNode = 1 << 20 }, want: "vm-per-node"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := someJob()
			tt.change(&job)
			err := job.Admit(config.Default())
			if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

func planWithVFs(t *testing.T) Plan {
	t.Helper()
	cfg := config.Default()
	cfg.VF.VLANs, cfg.VF.Subnet = "2000-2999", "172.29.0.0/16"
	job := someJob()
	job.Spec.SRIOV.VFs = []jobspec.VF{{MinMbps: 100}, {}}
	p, err := NewPlan(cfg, job, Owner{Name: "a", UID: 6001, GID: 6001}, Hardware{Accel: config.AccelTCG, NUMA: 1})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestClaimIsOfAllVMsOfTheNode(t *testing.T) {
	want := vfpool.Claim{
		Job: journal.ID{Job: 42, Restart: 1}, VLAN: 2042, Owner: device.Owner{UID: 6001, GID: 6001},
		Requests: []vfpool.Request{
			{VM: 0, Index: 0, NUMA: 1, MAC: "06:00:00:0a:80:02", VF: jobspec.VF{MinMbps: 100}},
			{VM: 0, Index: 1, NUMA: 1, MAC: "0a:00:00:0a:80:02"},
			{VM: 1, Index: 0, NUMA: 1, MAC: "06:00:00:0a:80:03", VF: jobspec.VF{MinMbps: 100}},
			{VM: 1, Index: 1, NUMA: 1, MAC: "0a:00:00:0a:80:03"},
		},
	}
	if diff := cmp.Diff(want, planWithVFs(t).claim()); diff != "" {
		t.Errorf("claim differs (-want +got):\n%s", diff)
	}
}

func TestVFsHaveAddressesAndNames(t *testing.T) {
	hosts, err := planWithVFs(t).vfHosts(3)
	want := []guest.Host{{Name: "vm3-vf0", Address: "172.29.0.7"}, {Name: "vm3-vf1", Address: "172.29.0.8"}}
	if diff := cmp.Diff(want, hosts); diff != "" || err != nil {
		t.Errorf("%v, hosts differ (-want +got):\n%s", err, diff)
	}
	if nics := somePlan(t).VMs[0].vfNICs(); len(nics) != 0 {
		t.Errorf("a VM without VFs has the NICs %v", nics)
	}
}

func TestDomainHasItsVFs(t *testing.T) {
	p := planWithVFs(t)
	d := p.domain(p.VMs[0], []vfpool.Grant{
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

func TestHugePage(t *testing.T) {
	spec := jobspec.Spec{VMsPerNode: 2, MemoryMiB: 1024}
	tests := map[string]struct {
		free map[string]string // by the size of the page
		want uint
	}{
		"a node without":                {nil, 0},
		"enough of both":                {map[string]string{"2048": "1024\n", "1048576": "2\n"}, 1048576},
		"too few of the large ones":     {map[string]string{"2048": "1024\n", "1048576": "1\n"}, 2048},
		"too few":                       {map[string]string{"2048": "1023\n"}, 0},
		"pages that VMs do not fill up": {map[string]string{"16777216": "9\n"}, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			sysfs := t.TempDir()
			for size, free := range tt.free {
				dir := filepath.Join(sysfs, "kernel/mm/hugepages/hugepages-"+size+"kB")
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "free_hugepages"), []byte(free), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := hugePage(sysfs, spec); got != tt.want {
				t.Errorf("pages of %d KiB, want %d", got, tt.want)
			}
		})
	}
}
