package hypervisor

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func xmlOf(t *testing.T, p plan.Plan, vm plan.VM) string {
	t.Helper()
	text, err := Describe(p, vm, nil).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDomainOnOneNUMANode(t *testing.T) {
	p := plantest.On(t, plan.Hardware{NUMA: -1, CPUs: plantest.CPUs(1, 3, 2), Memory: []int{0, 1}}, 2)
	text := xmlOf(t, p, p.VMs[1])
	contain(t, text, `<vcpupin vcpu="0" cpuset="3"></vcpupin>`, `<vcpupin vcpu="1" cpuset="4"></vcpupin>`,
		`<emulatorpin cpuset="2"></emulatorpin>`, `<memory mode="preferred" nodeset="1"></memory>`)
	if Describe(p, p.VMs[1], nil).CPU.Numa != nil {
		t.Error("a VM on one node has NUMA nodes of its own")
	}
	for i, vm := range p.VMs {
		if node := p.NUMA(vm); node != i {
			t.Errorf("VFs of VM %d are wanted near node %d", i, node)
		}
	}
	p.Hardware.Memory = []int{0}
	if Describe(p, p.VMs[1], nil).NUMATune != nil {
		t.Error("memory is wanted of a node that has none")
	}
}

func TestDomainOnTwoNUMANodes(t *testing.T) {
	tests := map[string]struct {
		hugePage uint
		memory   []int
		want     []uint // MiB of the nodes
	}{
		"memory as CPUs":         {memory: []int{0, 1}, want: []uint{767, 256}},
		"in whole pages":         {memory: []int{0, 1}, hugePage: 2048, want: []uint{766, 256}},
		"too few pages":          {memory: []int{0, 1}, hugePage: 512 << 10},
		"a node without memory":  {memory: []int{0}},
		"nobody knows of memory": {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := plantest.Job()
			job.Spec.VMsPerNode, job.Spec.VCPUs, job.Spec.MemoryMiB = 1, 4, 1023
			p := plantest.New(t, config.Default(), job, plan.Hardware{NUMA: -1, CPUs: plantest.CPUs(1, 3, 1), Memory: tt.memory}).OnPages(tt.hugePage)
			d := Describe(p, p.VMs[0], nil)
			var got []uint
			if d.CPU.Numa != nil {
				for _, c := range d.CPU.Numa.Cell {
					got = append(got, c.Memory)
				}
				contain(t, xmlOf(t, p, p.VMs[0]), `<cell id="0" cpus="0-2"`, `<cell id="1" cpus="3-3"`,
					`<memnode cellid="0" mode="preferred" nodeset="0">`, `<memnode cellid="1" mode="preferred" nodeset="1">`)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("nodes differ (-want +got):\n%s", diff)
			}
			if n := p.NUMA(p.VMs[0]); n != -1 {
				t.Errorf("VFs of a VM on two nodes are wanted near node %d", n)
			}
		})
	}
}

// The guest knows how its vCPUs lie, and that they have CPUs to themselves.
func TestGuestsKnowTheirCPUs(t *testing.T) {
	const dedicated = `<hint-dedicated state="on"></hint-dedicated>`
	p := plantest.On(t, plan.Hardware{Accel: config.AccelKVM, NUMA: -1, CPUs: plantest.CPUs(2, 2)}, 2)
	contain(t, xmlOf(t, p, p.VMs[0]), `<topology sockets="1" cores="1" threads="2"></topology>`, dedicated, `<poll-control state="on"></poll-control>`)
	p.QEMU.CPU = "EPYC"
	if strings.Contains(xmlOf(t, p, p.VMs[0]), dedicated) {
		t.Error("libvirt refuses this with a CPU model")
	}
	p = plantest.On(t, plan.Hardware{Accel: config.AccelKVM, NUMA: -1, Unpinned: "nobody owns cores"}, 2)
	text := xmlOf(t, p, p.VMs[0])
	contain(t, text, `<topology sockets="1" cores="2" threads="1"></topology>`)
	if strings.Contains(text, dedicated) {
		t.Error("its vCPUs share CPUs")
	}
}

// Guests see the hyper-threads of AMD's CPUs only if QEMU is told to pass on how to tell them.
func TestGuestsTellHyperThreads(t *testing.T) {
	const (
		amd   = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu ht svm topoext sse\n\nprocessor\t: 1\n"
		intel = "processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu ht vmx xtopology sse\n\nprocessor\t: 1\n"
		told  = `<feature policy="require" name="topoext"></feature>`
	)
	whole, single := plantest.CPUs(2, 2), plantest.CPUs(1, 4)
	tests := map[string]struct {
		cpuinfo string
		accel   config.Accel
		model   string
		cpus    []plan.CPU
		want    bool
	}{
		"AMD with hyper-threads":       {cpuinfo: amd, accel: config.AccelKVM, cpus: whole, want: true},
		"AMD without hyper-threads":    {cpuinfo: amd, accel: config.AccelKVM, cpus: single},
		"Intel with hyper-threads":     {cpuinfo: intel, accel: config.AccelKVM, cpus: whole},
		"a CPU model of the site's":    {cpuinfo: amd, accel: config.AccelKVM, model: "EPYC", cpus: whole},
		"an emulated CPU on AMD":       {cpuinfo: amd, accel: config.AccelTCG, cpus: whole},
		"a machine that tells of none": {accel: config.AccelKVM, cpus: whole},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			filetest.Write(t, filepath.Join(root, "proc/cpuinfo"), tt.cpuinfo)
			p := plantest.On(t, plan.Hardware{Accel: tt.accel, NUMA: -1, CPUs: tt.cpus, TopoExt: TellsThreads(root)}, 2)
			p.QEMU.CPU = tt.model
			if text := xmlOf(t, p, p.VMs[0]); strings.Contains(text, told) != tt.want {
				t.Errorf("%s: want %v in\n%s", told, tt.want, text)
			}
		})
	}
}

func contain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s is missing in\n%s", part, text)
		}
	}
}

func TestDomainThatIsNotPinned(t *testing.T) {
	p := plantest.On(t, plan.Hardware{NUMA: 3, Unpinned: "nobody owns cores"}, 2)
	d := Describe(p, p.VMs[0], nil)
	if d.CPUTune != nil || d.NUMATune != nil || p.Unpinned != "nobody owns cores" {
		t.Errorf("%v, %v, because %q", d.CPUTune, d.NUMATune, p.Unpinned)
	}
	if n := p.NUMA(p.VMs[1]); n != 3 {
		t.Errorf("VFs are wanted near node %d, and the job's cores are on 3", n)
	}
}
