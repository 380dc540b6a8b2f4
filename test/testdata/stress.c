/* Ranks talk in all ways, with random sizes, for so many seconds, and check every byte. All draw the same random
 * numbers, so each knows what the others do.
 *
 *     stress SECONDS SEED
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 4 << 20, BLOCK = 4096 };

static int me, n;
static long wrong;
static unsigned char *out, *in;

static unsigned char byte(int from, int to, int round, int i) { return from * 31 + to * 7 + round * 3 + i + i / 251; }

static void fill(unsigned char *at, int from, int to, int round, int size)
{
	for (int i = 0; i < size; i++)
		at[i] = byte(from, to, round, i);
}

static void check(const unsigned char *at, int from, int to, int round, int size)
{
	for (int i = 0; i < size; i++)
		wrong += at[i] != byte(from, to, round, i);
}

/* Small sizes are as probable as large ones. */
static int size_of_round(void)
{
	int most = 1 << rand() % 23;

	return 1 + rand() % most;
}

static void in_a_ring(int round, int size)
{
	int to = (me + 1 + round % (n - 1)) % n, from = (me - 1 - round % (n - 1) + n) % n;

	fill(out, me, to, round, size);
	MPI_Sendrecv(out, size, MPI_BYTE, to, round % 1000, in, size, MPI_BYTE, from, round % 1000, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	check(in, from, me, round, size);
}

/* Many messages at once, which arrive in any order. */
static void in_a_crowd(int round, int size)
{
	MPI_Request all[64];
	int requests = 0;

	size = size / 16 + 1;
	for (int other = 0; other < n && other < 16; other++) {
		fill(out + (size_t)other * size, me, other, round, size);
		MPI_Irecv(in + (size_t)other * size, size, MPI_BYTE, other, 7, MPI_COMM_WORLD, &all[requests++]);
		MPI_Isend(out + (size_t)other * size, size, MPI_BYTE, other, 7, MPI_COMM_WORLD, &all[requests++]);
	}
	MPI_Waitall(requests, all, MPI_STATUSES_IGNORE);
	for (int other = 0; other < n && other < 16; other++)
		check(in + (size_t)other * size, other, me, round, size);
}

static void by_broadcast(int round, int size)
{
	int root = round % n;

	if (me == root)
		fill(in, root, root, round, size);
	MPI_Bcast(in, size, MPI_BYTE, root, MPI_COMM_WORLD);
	check(in, root, root, round, size);
}

static void by_reduction(int round, int size)
{
	int count = size / sizeof(int) + 1, *mine = (int *)out, *all = (int *)in;

	for (int i = 0; i < count; i++)
		mine[i] = me + i % 1000 + round % 1000;
	MPI_Allreduce(mine, all, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int i = 0; i < count; i++)
		wrong += all[i] != n * (n - 1) / 2 + n * (i % 1000 + round % 1000);
}

/* Into the memory of the neighbours, in whole blocks: MPICH 4.0.2 puts to wrong places between windows of odd sizes, also
 * without VMs. */
static void by_window(int round, int size)
{
	static MPI_Comm node = MPI_COMM_NULL;
	int rank, ranks, to;
	unsigned char *base;
	MPI_Win window;

	if (node == MPI_COMM_NULL)
		MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
	MPI_Comm_rank(node, &rank);
	MPI_Comm_size(node, &ranks);
	size = (size / 16 / BLOCK + 1) * BLOCK;
	to = (rank + 1) % ranks;
	fill(out, rank, to, round, size);
	MPI_Win_allocate(size, 1, MPI_INFO_NULL, node, &base, &window);
	MPI_Win_fence(0, window);
	MPI_Put(out, size, MPI_BYTE, to, 0, size, MPI_BYTE, window);
	MPI_Win_fence(0, window);
	check(base, (rank - 1 + ranks) % ranks, rank, round, size);
	MPI_Win_free(&window);
}

static void (*const ways[])(int, int) = {in_a_ring, in_a_crowd, by_broadcast, by_reduction, by_window};

int main(int argc, char **argv)
{
	int rounds = 0, more = 1;
	long all;
	double end;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	MPI_Comm_size(MPI_COMM_WORLD, &n);
	if (argc != 3 || n < 2)
		MPI_Abort(MPI_COMM_WORLD, 2);
	out = malloc(LARGEST + 64 * n);
	in = malloc(LARGEST + 64 * n);
	srand(atoi(argv[2]));
	for (end = MPI_Wtime() + atoi(argv[1]); more; rounds++) {
		ways[rand() % (sizeof(ways) / sizeof(*ways))](rounds, size_of_round());
		more = MPI_Wtime() < end;
		MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
	}
	MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
	if (me == 0)
		printf("%d rounds of %d ranks, %ld wrong\n", rounds, n, all);
	MPI_Finalize();
	return wrong != 0;
}
