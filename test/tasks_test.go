//go:build cluster

package test

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// VMs without the plugin: three steps of the script's own. The plugin of this
// cluster has no part in it, and its epilog none before the job is over.
const taskOptions = "--nodes=2 --mincpus=4 --mem=1700M --time=90"

// taskScript runs four ranks in four VMs, ends these, and waits.
const taskScript = `
mpicc -O2 -o hello-mpi ~/hello-mpi.c
vms="srun --overlap --nodes=2 --ntasks-per-node=1 --mem=0 --cpu-bind=none"
$vms --job-name=slurm-v --kill-on-bad-exit=1 \
	slurmv launch --vm-per-node=2 --vcpu-per-vm=2 --memory-per-vm=384M &
srun --overlap --mpi=pmi2 --kill-on-bad-exit=1 --ntasks-per-node=2 slurmv run -- ./hello-mpi
echo "run: $?"
$vms slurmv reclaim; echo "reclaim: $?"
wait $!; echo "launch: $?"
until [ -e looked ]; do sleep 0.3; done
`

func TestTasksWithoutThePlugin(t *testing.T) {
	t.Parallel()
	hello(t, alice, 4)
	refused := alice.submit(t, taskOptions, taskScript)
	alice.must(t, "touch "+refused.dir+"/looked")
	out := refused.completes()
	contains(t, out, "run: 1", "launch: 1", "the administrator has to let users start the node agent")
	line := regexp.MustCompile(`(?m)ALL ALL=.*$`).FindString(out)
	allow(t, line)

	j := alice.submit(t, taskOptions, taskScript)
	j.awaitOutput("launch: ")
	checkReclaimed(t, j)
	alice.must(t, "touch "+j.dir+"/looked")
	out = j.completes()
	contains(t, out, "run: 0", "reclaim: 0", "launch: 0")
	checkHello(t, out, 4)
}

// allow puts a line into the nodes' sudoers until the test ends.
func allow(t *testing.T, line string) {
	t.Helper()
	const file = "/etc/sudoers.d/slurm-v"
	t.Cleanup(func() { root.must(t, "rm -f "+file, "--node", "n1") })
	o := root.runIn(t, []byte(line+"\n"), "cat > "+file+" && chmod 440 "+file+" && visudo -cf "+file, "--node", "n1")
	if o.code != 0 {
		t.Fatalf("%q is no line for sudoers: %s%s", line, o.stdout, o.stderr)
	}
}

// checkReclaimed fails the test if a job that still runs holds more than its cgroup.
func checkReclaimed(t *testing.T, j *job) {
	t.Helper()
	left, _ := exec.Command("../scripts/leaks", j.id).Output()
	contains(t, string(left), "n1: cgroup: ") // what is there is found
	for line := range strings.Lines(string(left)) {
		if !strings.Contains(line, ": cgroup: ") {
			t.Errorf("reclaim has left %s", line)
		}
	}
}
