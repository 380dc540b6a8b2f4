/* Rank 1 is done at once, and waits in MPI_Finalize when the others make a window. MPI over UCX connects to all ranks for that, and
 * so needs an answer of rank 1. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

enum { BLOCK = 4096 }; /* MPICH 4.0.2 puts to wrong places between windows of odd sizes, also without VMs */

/* Whether the number of the one before does not arrive. */
static int put(MPI_Comm others)
{
	int me, n, from, mine, *theirs, wrong;
	MPI_Win window;

	MPI_Comm_rank(others, &me);
	MPI_Comm_size(others, &n);
	from = (me + n - 1) % n;
	mine = 1000 + me;
	MPI_Win_allocate(BLOCK, sizeof(int), MPI_INFO_NULL, others, &theirs, &window);
	MPI_Win_fence(0, window);
	MPI_Put(&mine, 1, MPI_INT, (me + 1) % n, 0, 1, MPI_INT, window);
	MPI_Win_fence(0, window);
	wrong = *theirs != 1000 + from;
	MPI_Win_free(&window);
	return wrong;
}

int main(int argc, char **argv)
{
	const int done = 1;
	int me, wrong, total;
	MPI_Group all, rest;
	MPI_Comm others;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	if (me != done) {
		sleep(3);
		MPI_Comm_group(MPI_COMM_WORLD, &all);
		MPI_Group_excl(all, 1, &done, &rest);
		MPI_Comm_create_group(MPI_COMM_WORLD, rest, 0, &others);
		wrong = put(others);
		MPI_Reduce(&wrong, &total, 1, MPI_INT, MPI_SUM, 0, others);
	}
	if (me == 0)
		printf("rank 1 was done early, %d wrong\n", total);
	MPI_Finalize();
	return 0;
}
