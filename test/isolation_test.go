//go:build cluster

package test

import (
	"strings"
	"testing"
)

// Whatever a user changes inside his job, he gets no more than Slurm gave him.
func TestForgedRequestsGetNothing(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ forge, want string }{
		"more VMs than CPUs": {
			`SLURM_SPANK_SLURMV_SPEC=$(echo "$SLURM_SPANK_SLURMV_SPEC" | sed 's/"vms_per_node":1/"vms_per_node":9/')`,
			"CPUs",
		},
		"more memory": {
			`SLURM_SPANK_SLURMV_SPEC=$(echo "$SLURM_SPANK_SLURMV_SPEC" | sed 's/"memory_mib":384/"memory_mib":7000/')`,
			"MiB of memory",
		},
		"more VMs, and more CPUs and memory as if the plugin said so": {
			`SLURMV_CPUS=64 SLURMV_MEM=64000 SLURMV_UID=0 SLURMV_GID=0 SLURM_SPANK_SLURMV_SPEC=$(echo "$SLURM_SPANK_SLURMV_SPEC" | sed 's/"vms_per_node":1/"vms_per_node":9/')`,
			"CPUs",
		},
		"text that is no request": {`SLURM_SPANK_SLURMV_SPEC='$(reboot)'`, "VM options"},
		"nothing":                 {"NOTHING=forged", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := alice.submit(t, small, "export "+tt.forge+"\nslurm-v-run hostname")
			if tt.want == "" {
				contains(t, j.completes(), "vm0\n")
				return
			}
			out := j.ends("FAILED", "1:0")
			contains(t, out, tt.want)
			if strings.Contains(out, "vm0\n") {
				t.Error("the VMs came up")
			}
		})
	}
}

// The names that Slurm and the plugin have for things among themselves mean
// nothing when a user sets them: the job has the VMs that it was submitted with.
func TestForgedVariablesChangeNothing(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, `
for option in vm_per_node=9 vcpu_per_vm=9 memory_per_vm=7G; do
	export _SLURM_SPANK_OPTION_slurmv_$option SLURM_SPANK__SLURM_SPANK_OPTION_slurmv_$option
done
export SLURMV_SPEC="$(echo "$SLURM_SPANK_SLURMV_SPEC" | sed 's/:1,/:9,/g')" SLURMV_REQUEST=cpus:64,mem:64000
export SLURMV_VM_PER_NODE=9 SLURMV_VCPU_PER_VM=9 SLURMV_MEMORY_PER_VM=7G
export SLURMV_CPUS=64 SLURMV_MEM=64000 SLURMV_UID=0 SLURMV_GID=0 SLURMV_JOB=1 SLURMV_NODE=n9
slurm-v-run -n 1 sh -c 'echo $(hostname) $(nproc) $(id -u):$(id -g) $(pwd); awk "/MemTotal/ { print \$2 < 400000 ? \"small\" : \$2 }" /proc/meminfo'
slurmv ps --output json | grep -c '"vm":'
srun --overlap hostname`)
	contains(t, j.completes(), "vm0 1 6001:6001 "+j.dir+"\nsmall\n", "1\nn")
}

// Nor do they make a VM job of one that was submitted without VMs.
func TestForgedVariablesMakeNoVMJob(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ forge, command, want string }{
		"an option":                   {"_SLURM_SPANK_OPTION_slurmv_vm_per_node=9", "slurm-v-run hostname", "has no VMs"},
		"an option of the outer job":  {"SLURM_SPANK__SLURM_SPANK_OPTION_slurmv_vm_per_node=9", "srun --overlap hostname", "a step cannot add VMs"},
		"a request without VMs in it": {"SLURM_SPANK_SLURMV_SPEC={}", "slurm-v-run hostname", "VM options"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := alice.submit(t, "--nodes=1 --time=90", "export "+tt.forge+"\n"+tt.command)
			contains(t, j.ends("FAILED", "1:0"), tt.want)
		})
	}
}

// With the request of another job it has VMs, if they fit into its own CPUs and
// memory.
func TestRequestOfAnotherJob(t *testing.T) {
	t.Parallel()
	spec := strings.TrimSpace(alice.submit(t, small, `echo "$SLURM_SPANK_SLURMV_SPEC"`).completes())
	j := alice.submit(t, "--nodes=1 --mem=300M --time=90", "export SLURM_SPANK_SLURMV_SPEC='"+spec+"'\nslurm-v-run hostname")
	contains(t, j.ends("FAILED", "1:0"), "the job has 300 on node")
}

// relayOfATask sets $relay, by which a task runs a program in a VM.
const relayOfATask = `
relay=$(dirname $(dirname $(command -v slurm-v-run)))/libexec/slurm-v/slurmv-relay
`

// A second job of the same user is a stranger to the first. What it does there, the
// first does at home.
func TestOneJobCannotUseAnothersVMs(t *testing.T) {
	t.Parallel()
	first := alice.submit(t, small, relayOfATask+`
slurm-v-run -Q true
srun --overlap -n1 $relay --vm=0 -- echo at home; echo "status: $?"
sleep 3000`)
	first.awaitOutput("status: ")
	contains(t, first.output(), "at home\nstatus: 0\n")
	node := field(alice.must(t, "scontrol show job "+first.id), "NodeList")
	for name, options := range map[string]string{"another job of the user": "", "another job with VMs": "--vm-per-node=1 --memory-per-vm=384M"} {
		second := alice.submit(t, "--nodes=1 --time=90 --nodelist="+node+" "+options, relayOfATask+`
srun --overlap -n1 env SLURM_JOB_ID=`+first.id+` SLURM_JOBID=`+first.id+` $relay --vm=0 -- echo intruder; echo "status: $?"`)
		out := second.completes()
		if strings.Contains(out, "intruder\n") || strings.Contains(out, "status: 0") {
			t.Errorf("%s ran a program:\n%s", name, out)
		}
		contains(t, out, "not part of job "+first.id)
	}
}
