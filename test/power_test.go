//go:build cluster

package test

import (
	"os/exec"
	"testing"
)

// A node loses its power. Nothing of the job is left on it when it is back and has
// been cleaned, as its health check does.

const onBothNodes = "--nodes=2 --vm-per-node=1 --memory-per-vm=384M --time=30 --no-requeue"

func TestNodeGoesDown(t *testing.T) {
	j := alice.submit(t, onBothNodes, "slurm-v-run sh -c 'echo up; sleep 300'")
	j.awaitOutput("up")
	restore := powerCut(t, "n2")
	j.await("NODE_FAIL", "FAILED", "CANCELLED")
	restore(j)
}

// With --no-kill the job goes on with the VMs it still has.
func TestNodeGoesDownWithNoKill(t *testing.T) {
	j := alice.submit(t, onBothNodes+" --no-kill", `
slurm-v-run sh -c 'echo up'
until [ -e cut ]; do sleep 0.5; done
slurm-v-run -Q -N1 -n1 -w n1 sh -c 'echo still in $(hostname)'`)
	j.awaitOutput("up")
	restore := powerCut(t, "n2")
	alice.must(t, "touch "+j.dir+"/cut")
	contains(t, j.completes(), "still in vm0")
	restore(j)
}

// powerCut cuts the power of a node. The function it returns gives it back and
// cleans what the job has left there.
func powerCut(t *testing.T, node string) (restore func(*job)) {
	t.Helper()
	clusterNode(t, node, "off")
	root.must(t, "scontrol update nodename="+node+" state=down reason=test")
	return func(j *job) {
		t.Helper()
		clusterNode(t, node, "on")
		root.run(t, "scontrol update nodename="+node+" state=resume")
		if !poll(func() bool {
			return root.run(t, "sinfo -h -n "+node+" -o %T | grep -qE 'idle|mixed|allocated'").code == 0
		}) {
			t.Errorf("%s does not come back: %s", node, root.must(t, "scontrol show node "+node))
		}
		// Slurm may have had the epilog do it, or still take the job for a running one:
		// so what counts is that nothing is left in the end.
		if !poll(func() bool {
			root.must(t, "slurmv clean --node-name "+node, "--node", node)
			return exec.Command("../scripts/leaks", j.id).Run() == nil
		}) {
			t.Errorf("slurmv clean leaves something of job %s", j.id)
		}
	}
}
