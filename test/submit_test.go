//go:build cluster

package test

import (
	"strings"
	"testing"
)

// A mistake is an error where it is made, at submission.
func TestSubmissionRefuses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ command, want string }{
		"a size that is none":             {"sbatch --vm-per-node=1 --memory-per-vm=8Q --wrap=true", "8Q is not a size"},
		"no VMs":                          {"sbatch --vm-per-node=0 --wrap=true", "--vm-per-node"},
		"an option without --vm-per-node": {"sbatch --vcpu-per-vm=2 --wrap=true", "--vm-per-node"},
		"an unknown network":              {"sbatch --vm-per-node=1 --vm-network=fabric --wrap=true", "fabric"},
		"a relative mount":                {"sbatch --vm-per-node=1 --vm-mount=data --wrap=true", "--vm-mount"},
		"a heterogeneous job":             {"sbatch --vm-per-node=1 --wrap=true : --vm-per-node=1", "eterogeneous"},
		"srun outside of an allocation":   {"srun --vm-per-node=1 hostname", "slurm-v-run"},
		"more VMs than the site allows":   {"sbatch --vm-per-node=1000 --wrap=true", "--vm-per-node"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := alice.run(t, "cd ~ && "+tt.command)
			if o.code == 0 {
				t.Errorf("accepted: %s", o.stdout)
			}
			contains(t, o.stderr, tt.want)
		})
	}
}

func TestHelpNamesTheOptions(t *testing.T) {
	t.Parallel()
	for _, command := range []string{"sbatch", "salloc", "srun"} {
		help := alice.must(t, command+" --help")
		contains(t, help, "--vm-per-node=", "--vcpu-per-vm=", "--memory-per-vm=", "--disk-size=", "--vm-image=",
			"--sriov=", "--ivshmem=", "--vm-network=", "--vm-mount=", "--vm-user-data=", "--vm-ready-timeout=")
	}
}

// The VMs' CPUs and memory become part of the request.
func TestRequestGrowsByTheVMs(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, "--nodes=1 --vm-per-node=2 --vcpu-per-vm=2 --memory-per-vm=512M", "sleep 100")
	j.await("RUNNING")
	contains(t, field(alice.must(t, "scontrol show job "+j.id), allocated), "cpu=4", "mem=1920M")
}

// A submission from inside a VM job starts clean of it.
func TestSbatchInsideAVMJobIsNoVMJob(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, `env | grep -c SLURMV_SPEC
sbatch --parsable --wait --output=inner.out --wrap='env | grep -c SLURMV_SPEC; slurm-v-run hostname; echo "status: $?"'`)
	if out := j.completes(); !strings.HasPrefix(out, "1\n") {
		t.Errorf("the outer job has not one request:\n%s", out)
	}
	inner := j.file("inner.out")
	contains(t, inner, "status: 1", "--vm-per-node")
	if !strings.HasPrefix(inner, "0\n") {
		t.Errorf("the inner job has inherited the request:\n%s", inner)
	}
}

func TestVFsThatNoNodeHas(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small+" --no-requeue --sriov=1:pf=ens9", "slurm-v-run hostname")
	contains(t, j.ends("FAILED", "1:0"), "lease VFs to job", "ens9", "not sent to other nodes")
}
