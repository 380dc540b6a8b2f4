//go:build cluster

package test

import (
	"regexp"
	"strings"
	"testing"
)

// exchange builds the program of testdata/exchange.c in a job.
func exchange(t *testing.T, compiler string) string {
	t.Helper()
	return source(t, "exchange.c") + compiler + " -O2 -o exchange exchange.c\n"
}

// neighboursOnANode returns how many of two ranks on a node, without VMs, are neighbours for MPICH. Debian builds MPICH 5 so that
// a rank has no other neighbours than itself.
func neighboursOnANode(t *testing.T) string {
	t.Helper()
	out := alice.submit(t, "--nodes=1 --ntasks=2", exchange(t, "mpicc")+"srun --mpi=pmi2 ./exchange messages").completes()
	found := regexp.MustCompile(`^2 ranks, ([12]) of them neighbours, 0 wrong\n$`).FindStringSubmatch(out)
	if found == nil {
		t.Fatalf("two ranks on a node say %q", out)
	}
	return found[1]
}

const throughMemory = "slurm-v: MPI talks through shared memory between the 2 VMs of "

// An unmodified MPI program in four VMs on two nodes talks through the memory that the VMs of
// a node share, and says so. With the network instead, it comes to the same result.
func TestMPIThroughSharedMemory(t *testing.T) {
	t.Parallel()
	out := alice.submit(t, twoByTwo+" --ivshmem=2:16M --ntasks=4", exchange(t, "mpicc")+source(t, "early.c")+`
mpicc -O2 -o early early.c
slurm-v-run ./exchange
slurm-v-run -Q ./early
echo == off
slurm-v-run -n 2 -N 1 --mpi-shm=off ./exchange
echo == by the user
UCX_TLS=tcp slurm-v-run -n 2 -N 1 ./exchange
echo == two runs at once
slurm-v-run -n 2 -N 1 ./exchange > other 2>&1 & other=$!
slurm-v-run -n 2 -N 1 sh -c './exchange; ls /dev/shm'; wait $other; cat other`).completes()

	parts, neighbours := strings.Split(out, "== "), neighboursOnANode(t)
	contains(t, parts[0], throughMemory+"n1 (UCX)", throughMemory+"n2 (UCX)", "4 ranks, "+neighbours+" of them neighbours, 0 wrong", "rank 1 was done early, 0 wrong\n")
	contains(t, parts[1], "2 ranks, 1 of them neighbours, 0 wrong")
	contains(t, parts[2], "2 ranks, ", " 0 wrong", "slurm-v: MPI talked between the 2 VMs of ", " by the network, not through shared memory")
	for _, want := range []string{throughMemory, " (UCX)\n", "2 ranks, " + neighbours + " of them neighbours, 0 wrong\n"} {
		if n := strings.Count(parts[3], want); n != 2 {
			t.Errorf("%d of 2 runs at once say %q:\n%s", n, want, parts[3])
		}
	}
	if strings.Contains(parts[1], "shared memory") {
		t.Errorf("with --mpi-shm=off:\n%s", parts[1])
	}
	if strings.Contains(out, "mpich_shar") || strings.Contains(out, "ucx_shm") {
		t.Errorf("files of MPI's in a VM's own /dev/shm:\n%s", out)
	}
}

// A VM that crashes takes its rank along. That of the other VM would wait for it for ever, in the shared memory, but all VMs of a
// job end with the first.
func TestAVMThatCrashesEndsItsMPIRun(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, "--nodes=1 --nodelist=n1 --vm-per-node=2 --ivshmem=1:16M --ntasks=2 --time=90 "+twoCPUs, source(t, "world.c")+`
mpicc -O2 -o world world.c && slurm-v-run ./world wait`)
	j.awaitOutput("rank 0 waits\n")
	j.awaitOutput("rank 1 waits\n")
	contains(t, j.output(), throughMemory+"n1 (UCX)")
	j.signalVM("KILL", "vm1")
	contains(t, j.ends("FAILED", ""), "vm1", "lost")
}

// A device that is too small for MPI is named, with the size that is needed.
func TestMPIWithTooLittleSharedMemory(t *testing.T) {
	t.Parallel()
	const need = "the IVShmem device has 4 MiB, and MPI needs more for 2 ranks on a node: submit the job with --ivshmem=1:16M"
	out := alice.submit(t, "--nodes=1 --vm-per-node=2 --memory-per-vm=384M --time=90 --ntasks=2 --ivshmem=1:4M", exchange(t, "mpicc")+`
slurm-v-run ./exchange
echo == on
slurm-v-run --mpi-shm=on ./exchange; echo "status $?"`).completes()

	parts := strings.Split(out, "== on")
	contains(t, parts[0], "2 ranks, 1 of them neighbours, 0 wrong", "by the network, not through shared memory: "+need)
	contains(t, parts[1], "--mpi-shm=on: "+need, "status 1")
}
