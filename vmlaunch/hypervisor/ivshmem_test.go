package hypervisor

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestDomainHasRoomForSharedMemory(t *testing.T) {
	const port, bridge = "pcie-root-port 1", "pcie-to-pci-bridge 2"
	tests := map[string]struct {
		shared jobspec.IVShmem
		want   []string // the PCI controllers
	}{
		"none":                 {jobspec.IVShmem{}, nil},
		"some":                 {jobspec.IVShmem{Devices: 2, SizeMiB: 16}, []string{port, bridge}},
		"as much as fits":      {jobspec.IVShmem{Devices: 1, SizeMiB: 16 << 10}, []string{port, bridge}},
		"more than fits":       {jobspec.IVShmem{Devices: 2, SizeMiB: 16 << 10}, []string{"pcie-root 0 67108864 KiB", port, bridge}},
		"a sum that is uneven": {jobspec.IVShmem{Devices: 3, SizeMiB: 16 << 10}, []string{"pcie-root 0 134217728 KiB", port, bridge}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := plantest.Job()
			job.Spec.IVShmem = tt.shared
			p := plantest.New(t, config.Default(), job, plan.Hardware{Accel: config.AccelTCG, NUMA: -1})
			text, err := Describe(p, p.VMs[0], nil).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, pciControllers(t, text)); diff != "" {
				t.Errorf("controllers differ (-want +got):\n%s", diff)
			}
		})
	}
}

// See [plan.Plan.PossibleVCPUs].
func TestVMsThatShareMemoryCanHaveTwoVCPUs(t *testing.T) {
	tests := map[string]struct {
		accel  config.Accel
		shared jobspec.IVShmem
		vcpus  int
		want   libvirtxml.DomainVCPU
	}{
		"emulated, with shared memory":    {config.AccelTCG, jobspec.IVShmem{Devices: 1, SizeMiB: 16}, 1, libvirtxml.DomainVCPU{Current: 1, Value: 2}},
		"emulated, with three vCPUs":      {config.AccelTCG, jobspec.IVShmem{Devices: 1, SizeMiB: 16}, 3, libvirtxml.DomainVCPU{Current: 3, Value: 3}},
		"emulated, without shared memory": {config.AccelTCG, jobspec.IVShmem{}, 1, libvirtxml.DomainVCPU{Current: 1, Value: 1}},
		"with KVM":                        {config.AccelKVM, jobspec.IVShmem{Devices: 1, SizeMiB: 16}, 1, libvirtxml.DomainVCPU{Current: 1, Value: 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := plantest.Job()
			job.Spec.VMsPerNode, job.Spec.VCPUs, job.CPUs, job.Spec.IVShmem = 1, tt.vcpus, tt.vcpus, tt.shared
			for _, cpus := range [][]plan.CPU{nil, plantest.CPUs(1, tt.vcpus)} {
				p := plantest.New(t, config.Default(), job, plan.Hardware{Accel: tt.accel, NUMA: -1, CPUs: cpus})
				d := Describe(p, p.VMs[0], nil)
				if *d.VCPU != tt.want {
					t.Errorf("%+v, want %+v", *d.VCPU, tt.want)
				}
				if lies := d.CPU.Topology; uint(lies.Sockets*lies.Cores*lies.Threads) != tt.want.Value {
					t.Errorf("%d vCPUs with the topology %+v", tt.want.Value, *lies)
				}
			}
		})
	}
}

func pciControllers(t *testing.T, text string) (controllers []string) {
	t.Helper()
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	for _, c := range d.Devices.Controllers {
		switch {
		case c.Type != "pci":
		case c.PCI != nil && c.PCI.Hole64 != nil:
			controllers = append(controllers, fmt.Sprint(c.Model, " ", *c.Index, " ", c.PCI.Hole64.Size, " ", c.PCI.Hole64.Unit))
		default:
			controllers = append(controllers, fmt.Sprint(c.Model, " ", *c.Index))
		}
	}
	return controllers
}

// The slot tells a guest which device it is, and every region has one.
func TestSharedMemoryIsInOrder(t *testing.T) {
	for index, slot := range map[int]string{0: "0x01", 1: "0x02", config.MaxIVShmem - 1: "0x1f"} {
		text, err := shmemDevice(ivshmem.Region{Name: "slurmv-x", Index: index, Size: 16 << 20}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{
			`<shmem name="slurmv-x">`, `<model type="ivshmem-plain"></model>`, `<size unit="M">16</size>`,
			`<address type="pci" bus="0x02" slot="` + slot + `"></address>`,
		} {
			if !strings.Contains(text, part) {
				t.Errorf("%s is missing in\n%s", part, text)
			}
		}
	}
}

// A template has slots for whatever its VMs may want, and all VMs without shared memory have none.
func TestDomainHasSlotsForNVDIMMs(t *testing.T) {
	slots := func(d *libvirtxml.Domain) string {
		var values []string
		for _, a := range d.QEMUCommandline.Args {
			values = append(values, a.Value)
		}
		_, after, found := strings.Cut(strings.Join(values, " "), "-machine nvdimm=on -m ")
		if !found {
			return "none"
		}
		return strings.Fields(after)[0]
	}
	cfg, job := config.Default(), plantest.Job()
	cfg.IVShmem.Device = config.IVShmemNVDIMM
	hw := plan.Hardware{Accel: config.AccelTCG, NUMA: -1}
	p := plantest.New(t, cfg, job, hw)
	if got := slots(Describe(p, p.VMs[0], nil)); got != "none" {
		t.Errorf("without shared memory: %s", got)
	}
	if got, want := slots(DescribeTemplate(p, p.VMs[0], "/nothing", nil)), fmt.Sprintf("slots=31,maxmem=%dM", job.Spec.MemoryMiB+31*532); got != want {
		t.Errorf("template: %s, want %s", got, want)
	}
	job.Spec.IVShmem = jobspec.IVShmem{Devices: 2, SizeMiB: 16}
	p = plantest.New(t, cfg, job, hw)
	d := Describe(p, p.VMs[0], nil)
	if got, want := slots(d), fmt.Sprintf("slots=2,maxmem=%dM", job.Spec.MemoryMiB+2*18); got != want {
		t.Errorf("two devices: %s, want %s", got, want)
	}
	text, err := d.Marshal()
	if err != nil || len(pciControllers(t, text)) != 0 {
		t.Errorf("it has the bridge of PCI devices, too (%v)", err)
	}
}
