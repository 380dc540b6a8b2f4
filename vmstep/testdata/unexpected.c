/* Rank 1 sends rank 0 as many messages of 4 KiB as the argument says. Rank 0 takes them after another one, which rank 1 sends after
 * them, and verifies them. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 4096 };

static void give(int n)
{
	char *messages = malloc((size_t)n * SIZE);
	MPI_Request *requests = malloc((n + 1) * sizeof(*requests));

	for (int i = 0; i < n; i++) {
		memset(messages + (size_t)i * SIZE, i, SIZE);
		MPI_Isend(messages + (size_t)i * SIZE, SIZE, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &requests[i]);
	}
	MPI_Isend(messages, 1, MPI_BYTE, 0, 2, MPI_COMM_WORLD, &requests[n]);
	for (int i = 0; i <= n; i++)
		MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
}

static int take(int n)
{
	unsigned char message[SIZE];
	int wrong = 0;

	MPI_Recv(message, 1, MPI_BYTE, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
	for (int i = 0; i < n; i++) {
		MPI_Recv(message, SIZE, MPI_BYTE, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
		wrong += message[0] != i % 256 || memcmp(message, message + 1, SIZE - 1);
	}
	return wrong;
}

int main(int argc, char **argv)
{
	int me, n = atoi(argv[1]);

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &me);
	if (me)
		give(n);
	else
		printf("%d messages, %d wrong\n", n, take(n));
	MPI_Finalize();
	return 0;
}
