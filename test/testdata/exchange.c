/* Every rank sends bytes of all sizes to every other and adds to a counter in rank 0's window;
 * all is verified. Says how many ranks see each other as neighbours. With an argument there is no window:
 * Open MPI 4.1 has none between ranks that reach each other by TCP only. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned char byte(int from, int to, int i) { return from * 31 + to * 7 + i; }

static int me, n;

/* How many bytes arrive wrong. */
static int exchange(int size)
{
	unsigned char *out = malloc(size * n), *in = malloc(size * n);
	int wrong = 0;

	for (int to = 0; to < n; to++)
		for (int i = 0; i < size; i++)
			out[to * size + i] = byte(me, to, i);
	MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
	for (int from = 0; from < n; from++)
		for (int i = 0; i < size; i++)
			wrong += in[from * size + i] != byte(from, me, i);
	free(out);
	free(in);
	return wrong;
}

/* Whether additions of all ranks are lost. */
static int add(void)
{
	MPI_Win window;
	long *counter, one = 1, was;
	int lost;

	MPI_Win_allocate(sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &counter, &window);
	*counter = 0;
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_lock_all(0, window);
	for (int i = 0; i < 5; i++) {
		MPI_Fetch_and_op(&one, &was, MPI_LONG, 0, 0, MPI_SUM, window);
		MPI_Win_flush(0, window);
	}
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Win_sync(window);
	lost = me == 0 && *counter != 5L * n;
	MPI_Win_unlock_all(window);
	MPI_Win_free(&window);
	return lost;
}

int main(int argc, char **argv)
{
	int neighbours, wrong = 0, total;
	MPI_Comm node;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	for (int size = 1; size <= 1 << 15; size *= 8)
		wrong += exchange(size);
	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
	MPI_Comm_size(node, &neighbours);
	if (argc < 2)
		wrong += add();
	MPI_Reduce(&wrong, &total, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
	if (me == 0)
		printf("%d ranks, %d of them neighbours, %d wrong\n", n, neighbours, total);
	MPI_Finalize();
	return 0;
}
