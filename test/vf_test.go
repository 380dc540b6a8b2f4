//go:build cluster

package test

import (
	"fmt"
	"strings"
	"testing"
)

// The cluster's nodes have two bridges each that stand for cards, vf0 and vf1, with
// 8 VFs and 100 Gb/s each.

const withVF = "--nodes=1 --memory-per-vm=384M --time=90 "

// usesVFs is a script that shows the VFs of two VMs, tries one, and waits for letGo.
const usesVFs = `
slurm-v-run -Q -n 2 sh -c 'for i in /sys/class/net/*/address; do ! grep -q "^0[6a]:" $i || echo VF of $(hostname): $(cat $i); done'
slurm-v-run -Q -n 1 ping -c 3 -w 60 vm1-vf0 > /dev/null && echo the VF answers
until [ -e seen ]; do sleep 0.5; done`

// VMs see their VFs, reach each other over them by name, and the node says who has
// them.
func TestVMsHaveVFs(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, withVF+"--vm-per-node=2 --sriov=1:min=10g,pf=vf0+1:max=5g,pf=vf1", usesVFs)
	j.awaitOutput("the VF answers")
	contains(t, j.output(), "VF of vm0: 06:", "VF of vm0: 0a:", "VF of vm1: 06:", "VF of vm1: 0a:")
	node := field(alice.must(t, "scontrol show job "+j.id), "NodeList")
	list := root.must(t, "slurmv vf list --output json", "--node", node)
	if n := strings.Count(list, `"job": "`+j.id+`.`); n != 4 {
		t.Errorf("slurmv vf list shows %d VFs of the job, want 4:\n%s", n, list)
	}
	contains(t, root.must(t, "slurmv vf list", "--node", node), "software", j.id+".", "attached")
	j.letGo()
	contains(t, alice.must(t, "sacct -n -j "+j.id+" -X -o ReqTRES%200,AllocTRES%200"), "gres/vf=4", "gres/vfbw=20000")
}

// Not beside others that want VFs of a certain card.
func TestJobsWaitWhileVFsAreTaken(t *testing.T) {
	first := alice.submit(t, withVF+"--vm-per-node=2 --sriov=4 --nodelist=n2", "slurm-v-run sh -c 'echo up; sleep 3000'")
	first.awaitOutput("up")
	second := bob.submit(t, withVF+"--vm-per-node=3 --sriov=4 --nodelist=n2", "slurm-v-run echo up")
	if !poll(func() bool {
		return strings.Contains(bob.must(t, "squeue -h -o %r -j "+second.id), "Resources")
	}) {
		t.Errorf("job %s does not wait: %s", second.id, bob.must(t, "scontrol show job "+second.id))
	}
	alice.must(t, "scancel "+first.id)
	contains(t, second.completes(), "up")
}

func TestForgedVFsGetNothing(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct{ have, forged, want string }{
		"more VFs":       {"1", "[{},{},{}]", "VFs (gres/vf)"},
		"more bandwidth": {"1:min=1g", `[{"min":9000}]`, "Mb/s of VF bandwidth (gres/vfbw)"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := alice.submit(t, withVF+"--vm-per-node=1 --sriov="+tt.have, fmt.Sprintf(
				`export SLURM_SPANK_SLURMV_SPEC=$(echo "$SLURM_SPANK_SLURMV_SPEC" | sed 's/"sriov":{"vfs":[^]]*]/"sriov":{"vfs":%s/')
slurm-v-run hostname`, tt.forged))
			contains(t, j.ends("FAILED", "1:0"), tt.want)
		})
	}
}

// Slurm counts sums: 100 Gb/s are free on n1, but not on one card. The job goes to n2 when
// there is room, and n1 stays in use.
func TestAJobThatDoesNotFitGoesElsewhere(t *testing.T) {
	t.Parallel()
	holds := func(node, bandwidth string) *job {
		j := alice.submit(t, fmt.Sprintf(withVF+"--vm-per-node=1 --sriov=1:min=%[1]s,pf=vf0+1:min=%[1]s,pf=vf1 --nodelist=%[2]s", bandwidth, node), "slurm-v-run sh -c 'echo up; sleep 3000'")
		j.awaitOutput("up")
		return j
	}
	holds("n1", "50g")
	full := holds("n2", "75g")
	second := bob.submit(t, withVF+"--vm-per-node=1 --sriov=1:min=60g --requeue", "slurm-v-run echo up")
	second.eventually("is sent elsewhere", func() bool {
		return strings.Contains(bob.must(t, "scontrol show job "+second.id), "ExcNodeList=n1")
	})
	contains(t, bob.must(t, "scontrol show job "+second.id), "slurm-v: not on n1: lease VFs", "vf0", "vf1", "Restarts=1")
	alice.must(t, "scancel "+full.id)
	contains(t, second.completes(), "up")
	if got := field(bob.must(t, "scontrol show job "+second.id), "NodeList"); got != "n2" {
		t.Errorf("job %s ran on %s", second.id, got)
	}
	if state := root.must(t, "sinfo -h -n n1 -o %T"); strings.Contains(state, "drain") {
		t.Errorf("n1 is %s", state)
	}
}

func TestSlurmCountsWhatThePoolHas(t *testing.T) {
	t.Parallel()
	conf := root.must(t, "slurmv vf gres-conf", "--node", "n1")
	contains(t, conf, "NodeName=n1 Name=vf Count=16 Flags=CountOnly", "NodeName=n1 Name=vfbw Count=200000 Flags=CountOnly")
	contains(t, root.must(t, "scontrol show node n1"), "vf:16", "vfbw:200000")
}
