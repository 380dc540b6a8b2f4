package vmlaunch

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
)

func someJob() Job {
	return Job{
		ID: journal.ID{Job: 42, Restart: 1}, Cluster: "c", Node: "n2", Rank: 1, Nodes: 2,
		UID: 6001, GID: 6001, CPUs: 4, Memory: 2048,
		Spec: jobspec.Spec{
			VMsPerNode: 2, VCPUs: 2, MemoryMiB: 512, Image: "/images/x.qcow2", Network: "default",
			Mounts:       []jobspec.Mount{{Host: "/home/a", Guest: "/home/a"}, {Host: "/data", Guest: "/mnt/data", ReadOnly: true}},
			ReadyTimeout: time.Minute, WorkDir: "/home/a",
		},
	}
}

func somePlan(t *testing.T) Plan {
	t.Helper()
	p, err := NewPlan(config.Default(), someJob(), Owner{Name: "a", UID: 6001, GID: 6001}, config.AccelTCG)
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
	_, err := NewPlan(config.Default(), job, Owner{}, config.AccelTCG)
	if err == nil || !strings.Contains(err.Error(), `"fabric"`) {
		t.Errorf("error = %v", err)
	}
}

func TestDomainRunsAsTheOwner(t *testing.T) {
	p := somePlan(t)
	for _, vm := range p.VMs {
		want := []libvirtxml.DomainSecLabel{{Type: "static", Model: "dac", Relabel: "no", Label: "+6001:+6001"}}
		if diff := cmp.Diff(want, p.domain(vm).SecLabel); diff != "" {
			t.Errorf("label differs (-want +got):\n%s", diff)
		}
	}
}

func TestDomainOfMounts(t *testing.T) {
	p := somePlan(t)
	filesystems := p.domain(p.VMs[0]).Devices.Filesystems
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
	text, err := p.domain(p.VMs[0]).Marshal()
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
	d := p.domain(p.VMs[0])
	if d.OnPoweroff != "destroy" || d.OnCrash != "destroy" || d.OnReboot != "restart" {
		t.Errorf("life cycle is %s, %s, %s", d.OnPoweroff, d.OnCrash, d.OnReboot)
	}
	if d.Features.TCG == nil {
		t.Error("nothing bounds the memory of TCG's translated code")
	}
	if d.Type != "qemu" || d.CPU.Mode != "maximum" {
		t.Errorf("TCG domain is %s with CPU %s", d.Type, d.CPU.Mode)
	}
	p.Accel = config.AccelKVM
	if d := p.domain(p.VMs[0]); d.Type != "kvm" || d.CPU.Mode != "host-passthrough" {
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
