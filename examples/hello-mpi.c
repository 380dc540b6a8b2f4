/* Every rank says where it runs; all of them add up a sum and check it. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	MPI_Init(&argc, &argv);
	int rank, size, sum;
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);

	char vm[256] = "";
	gethostname(vm, sizeof vm - 1);
	const char *node = getenv("SLURMD_NODENAME");
	printf("rank %d of %d runs in %s on node %s\n", rank, size, vm, node ? node : "?");

	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	if (rank == 0)
		printf("the ranks add up to %d, which is %s\n", sum, sum == size * (size - 1) / 2 ? "right" : "WRONG");

	MPI_Finalize();
	return sum == size * (size - 1) / 2 ? 0 : 1;
}
