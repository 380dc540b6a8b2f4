//go:build cluster

package test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// hello puts the example into u's job directory and returns the commands that
// build and run it.
func hello(t *testing.T, u user) string {
	t.Helper()
	source, err := os.ReadFile("../examples/hello-mpi.c")
	if err != nil {
		t.Fatal(err)
	}
	u.writeFile(t, "~/hello-mpi.c", string(source))
	return "mpicc -O2 -o hello-mpi ~/hello-mpi.c && slurm-v-run -n 8 ./hello-mpi"
}

var rankLine = regexp.MustCompile(`(?m)^rank (\d) of 8 runs in (vm\d) on node (n\d)$`)

// checkHello checks that eight ranks ran in four VMs on two nodes.
func checkHello(t *testing.T, out string) {
	t.Helper()
	contains(t, out, "the ranks add up to 28, which is right")
	ranks, vms, nodes := map[string]bool{}, map[string]string{}, map[string]bool{}
	for _, m := range rankLine.FindAllStringSubmatch(out, -1) {
		ranks[m[1]], vms[m[2]], nodes[m[3]] = true, m[3], true
	}
	if len(ranks) != 8 || len(vms) != 4 || len(nodes) != 2 {
		t.Errorf("%d ranks in %d VMs on %d nodes, want 8, 4, 2:\n%s", len(ranks), len(vms), len(nodes), out)
	}
}

const twoByTwo = "--nodes=2 --vm-per-node=2 --vcpu-per-vm=2 --memory-per-vm=384M --time=10"

func TestBatchJobOfTwoUsersAtOnce(t *testing.T) {
	jobs := []*job{
		alice.submit(t, twoByTwo, hello(t, alice)),
		bob.submit(t, twoByTwo, hello(t, bob)),
	}
	for _, j := range jobs {
		checkHello(t, j.completes())
	}
}

func TestSalloc(t *testing.T) {
	o := alice.run(t, "cd ~ && salloc "+twoByTwo+" bash -c '"+hello(t, alice)+"; squeue -h -o %A --me >&2'")
	if o.code != 0 {
		t.Fatalf("exit status %d\n%s\n%s", o.code, o.stdout, o.stderr)
	}
	checkHello(t, o.stdout)
	for _, id := range regexp.MustCompile(`Granted job allocation (\d+)`).FindAllStringSubmatch(o.stderr, -1) {
		checkLeaks(t, id[1])
	}
	if !strings.Contains(o.stderr, "ready in") {
		t.Errorf("no word about the VMs being ready:\n%s", o.stderr)
	}
}
