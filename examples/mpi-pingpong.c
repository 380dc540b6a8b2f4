/* Two ranks send messages back and forth. Prints, for each size, the time of one message in microseconds: half of
 * the round trip, the best of 20 series.
 *
 *     mpicc -O2 -o mpi-pingpong mpi-pingpong.c && slurm-v-run -n 2 -N 1 ./mpi-pingpong
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { SERIES = 20, LARGEST = 1 << 21 };

/* Sends so many messages there and back. Returns microseconds for one. */
static double series(int rank, char *buffer, int bytes, int messages)
{
	double began = MPI_Wtime();

	for (int i = 0; i < messages; i++) {
		if (rank == 0)
			MPI_Send(buffer, bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
		MPI_Recv(buffer, bytes, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		if (rank == 1)
			MPI_Send(buffer, bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
	}
	return (MPI_Wtime() - began) * 1e6 / messages / 2;
}

static double best(int rank, char *buffer, int bytes, int messages)
{
	double least = series(rank, buffer, bytes, messages);

	for (int i = 1; i < SERIES; i++) {
		double again = series(rank, buffer, bytes, messages);
		least = again < least ? again : least;
	}
	return least;
}

/* As many messages as take about a hundredth of a second, as rank 0 has measured it. */
static int messages_of(int rank, char *buffer, int bytes)
{
	int messages = 1 + 5000 / best(rank, buffer, bytes, 10);

	MPI_Bcast(&messages, 1, MPI_INT, 0, MPI_COMM_WORLD);
	return messages;
}

int main(int argc, char **argv)
{
	char *buffer = calloc(LARGEST, 1);
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	if (ranks != 2) {
		fprintf(stderr, "mpi-pingpong: two ranks play, not %d\n", ranks);
		MPI_Abort(MPI_COMM_WORLD, 2);
	}
	for (int bytes = 8; bytes <= LARGEST; bytes *= 8) {
		int messages = messages_of(rank, buffer, bytes);
		double micros = best(rank, buffer, bytes, messages);

		if (rank == 0)
			printf("%d %.3f\n", bytes, micros), fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
