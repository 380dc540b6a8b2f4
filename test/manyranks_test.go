//go:build cluster

package test

import (
	"strings"
	"testing"
)

// As many ranks as large nodes have find each other, in the memory that the request has for VMs and their relays. There are
// more of them than CPUs, so Slurm has to be told (-O). Those on two nodes do not compute: 64 emulated ranks that wait for
// each other by TCP take many minutes.
func TestManyRanks(t *testing.T) {
	t.Parallel()
	out := alice.submit(t, "--nodes=2 --vm-per-node=2 --memory-per-vm=768M --time=90", `cat > sum.c << 'END'
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
	int rank, ranks, sum;
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("%d ranks add up to %d\n", ranks, sum);
	return MPI_Finalize();
}
END
mpicc -O2 -o sum sum.c || exit 1
echo "one node: $(slurm-v-run -Q -O -N 1 -n 64 ./sum)"
echo "two nodes: $(slurm-v-run -Q -O -n 128 sh -c 'echo "rank $PMI_RANK of $PMI_SIZE"' | sort -u | grep -c "of 128$") ranks of PMI"
`).completes()
	contains(t, out, "one node: 64 ranks add up to 2016\n", "two nodes: 128 ranks of PMI\n")
	if strings.Contains(out, "slurm-v:") {
		t.Errorf("something is said:\n%s", out)
	}
}
