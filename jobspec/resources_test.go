package jobspec

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestResources(t *testing.T) {
	tests := map[string]struct {
		spec       Spec
		want       Resources
		flat       string
		directives []string
	}{
		"CPUs and memory of all VMs, with QEMU's own": {
			Spec{VMsPerNode: 2, VCPUs: 2, MemoryMiB: 1024},
			Resources{CPUsPerNode: 4, MemoryMiBPerNode: 2560}, "cpus:4,mem:2560",
			[]string{"#SBATCH --mincpus=4", "#SBATCH --mem=2560M"},
		},
		"VFs of all VMs": {
			Spec{VMsPerNode: 2, VCPUs: 2, MemoryMiB: 1024, SRIOV: SRIOV{[]VF{{MaxMbps: 5000}}}},
			Resources{CPUsPerNode: 4, MemoryMiBPerNode: 2560, VFsPerNode: 2}, "cpus:4,mem:2560,vf:2",
			[]string{"#SBATCH --mincpus=4", "#SBATCH --mem=2560M"},
		},
		"what the VFs of all VMs reserve": {
			Spec{VMsPerNode: 2, VCPUs: 2, MemoryMiB: 1024, SRIOV: SRIOV{[]VF{{MinMbps: 30000}, {MinMbps: 10000, MaxMbps: 20000}}}},
			Resources{CPUsPerNode: 4, MemoryMiBPerNode: 2560, VFsPerNode: 4, VFMbpsPerNode: 80000}, "cpus:4,mem:2560,vf:4,vfbw:80000",
			[]string{"#SBATCH --mincpus=4", "#SBATCH --mem=2560M"},
		},
		"one VF in all": {
			Spec{VMsPerNode: 1, VCPUs: 1, MemoryMiB: 768, SRIOV: SRIOV{[]VF{{}}}},
			Resources{CPUsPerNode: 1, MemoryMiBPerNode: 1024, VFsPerNode: 1}, "cpus:1,mem:1024,vf:1",
			[]string{"#SBATCH --mincpus=1", "#SBATCH --mem=1G"},
		},
		"shared memory once per node": {
			Spec{VMsPerNode: 4, VCPUs: 1, MemoryMiB: 768, IVShmem: IVShmem{Devices: 2, SizeMiB: 512}},
			Resources{CPUsPerNode: 4, MemoryMiBPerNode: 5120}, "cpus:4,mem:5120",
			[]string{"#SBATCH --mincpus=4", "#SBATCH --mem=5G"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tt.spec.Resources(site())
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("resources differ (-want +got):\n%s", diff)
			}
			if got.Flat() != tt.flat {
				t.Errorf("Flat = %s, want %s", got.Flat(), tt.flat)
			}
			if diff := cmp.Diff(tt.directives, got.Directives()); diff != "" {
				t.Errorf("directives differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestVFsThatSlurmCountsAreAskedFor(t *testing.T) {
	cfg := site()
	cfg.Slurm.GRES = true
	spec := Spec{VMsPerNode: 2, VCPUs: 2, MemoryMiB: 1024, SRIOV: SRIOV{[]VF{{MinMbps: 40000}, {}}}}
	want := []string{"#SBATCH --mincpus=4", "#SBATCH --mem=2560M", "#SBATCH --gres=vf:4,vfbw:80000"}
	if diff := cmp.Diff(want, spec.Resources(cfg).Directives()); diff != "" {
		t.Errorf("directives differ (-want +got):\n%s", diff)
	}
	spec.SRIOV.VFs = nil
	if diff := cmp.Diff(want[:2], spec.Resources(cfg).Directives()); diff != "" {
		t.Errorf("directives of a job without VFs differ (-want +got):\n%s", diff)
	}
}
