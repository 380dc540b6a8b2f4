//go:build cluster

package test

import (
	"os/exec"
	"testing"
)

// onBothNodes is a job with a VM on each of two nodes.
const onBothNodes = "--nodes=2 --vm-per-node=1 --memory-per-vm=384M --time=90 --no-requeue"

// A node loses its power. With --no-kill a job goes on with the VMs that it still has. Nothing
// of the jobs is left on the node when it is back and has been cleaned, as its health check
// does.
func TestNodeGoesDown(t *testing.T) {
	ends := alice.submit(t, onBothNodes, "slurm-v-run sh -c 'echo up; sleep 3000'")
	goesOn := alice.submit(t, onBothNodes+" --no-kill", `
slurm-v-run sh -c 'echo up'
until [ -e cut ]; do sleep 0.5; done
slurm-v-run -Q -N1 -n1 -w n1 sh -c 'echo still in $(hostname)'`)
	ends.awaitOutput("up")
	goesOn.awaitOutput("up")
	restore := powerCut(t, "n2")
	ends.await("NODE_FAIL", "FAILED", "CANCELLED")
	alice.must(t, "touch "+goesOn.dir+"/cut")
	contains(t, goesOn.completes(), "still in vm0")
	restore(ends, goesOn)
}

// cleanNodes does what the health check of a site's nodes does. It may fail, and is repeated: it reports whether all
// nodes are clean.
func cleanNodes(t *testing.T) bool {
	t.Helper()
	clean := true
	for _, node := range []string{"n1", "n2"} {
		clean = root.run(t, "slurmv clean --node-name "+node, "--node", node).code == 0 && clean
	}
	return clean
}

// powerCut cuts the power of a node. The function it returns gives it back and
// cleans what the jobs have left there.
func powerCut(t *testing.T, node string) (restore func(...*job)) {
	t.Helper()
	clusterNode(t, node, "off")
	root.must(t, "scontrol update nodename="+node+" state=down reason=test")
	return func(jobs ...*job) {
		t.Helper()
		clusterNode(t, node, "on")
		if inOpenStack() {
			cloudUp(t)
		}
		root.run(t, "scontrol update nodename="+node+" state=resume")
		if !poll(func() bool {
			return root.run(t, "sinfo -h -n "+node+" -o %T | grep -qE 'idle|mixed|allocated'").code == 0
		}) {
			t.Errorf("%s does not come back: %s", node, root.must(t, "scontrol show node "+node))
		}
		// Slurm may have had the epilog do it, or still take the job for a running one:
		// so what counts is that nothing is left in the end.
		for _, j := range jobs {
			if !poll(func() bool {
				root.must(t, "slurmv clean --node-name "+node, "--node", node)
				return exec.Command("../scripts/leaks", j.id).Run() == nil
			}) {
				t.Errorf("slurmv clean leaves something of job %s", j.id)
			}
		}
	}
}
