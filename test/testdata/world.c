// A world of ranks that checks itself, and then ends as its argument says.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static MPI_Comm world; /* the ranks that check each other */
static int rank, ranks;
static char vm[MPI_MAX_PROCESSOR_NAME];

static int on(int argc, char **argv, const char *what) { return argc > 1 && !strcmp(argv[1], what); }

/* Every rank sends each other one that many bytes, which say who sends them to whom. Returns how many are wrong. */
static long exchange(int bytes)
{
	unsigned char *out = malloc((size_t)ranks * bytes), *in = malloc((size_t)ranks * bytes);
	long wrong = 0;

	for (int to = 0; to < ranks; to++)
		for (int i = 0; i < bytes; i++)
			out[(size_t)to * bytes + i] = rank * 31 + to * 7 + i * 13 + 1;
	memset(in, 0, (size_t)ranks * bytes);
	MPI_Alltoall(out, bytes, MPI_BYTE, in, bytes, MPI_BYTE, world);
	for (int from = 0; from < ranks; from++)
		for (int i = 0; i < bytes; i++)
			wrong += in[(size_t)from * bytes + i] != (unsigned char)(from * 31 + rank * 7 + i * 13 + 1);
	free(out);
	free(in);
	return wrong;
}

#ifdef OPEN_MPI
/* How many files of Open MPI's shared memory this rank has mapped: its own and those of the ranks that it talks to so. */
static int segments(void)
{
	FILE *maps = fopen("/proc/self/maps", "r");
	char line[4096];
	int n = 0;

	while (fgets(line, sizeof(line), maps))
		n += strstr(line, "/vader_segment.") || strstr(line, "/sm_segment.");
	fclose(maps);
	return n;
}

/* Whether messages go to so many neighbours without shared memory. */
static int lacks_segments(int neighbours)
{
	if (neighbours == 1 || segments() >= neighbours)
		return 0;
	printf("rank %d has mapped %d segments of shared memory, and has %d neighbours\n", rank, segments(), neighbours - 1);
	return 1;
}
#else
static int lacks_segments(int neighbours)
{
	(void)neighbours; /* other MPI libraries have other files */
	return 0;
}
#endif

static void check(void)
{
	static const int sizes[] = {1, 100, 5000, 70000};
	int sum, neighbours, lowest;
	long wrong = 0, all;
	MPI_Comm machine;

	MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, world);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
		wrong += exchange(sizes[i]);
	MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
	MPI_Comm_size(machine, &neighbours);
	MPI_Allreduce(&rank, &lowest, 1, MPI_INT, MPI_MIN, machine);
	printf("rank %d of %d in %s is one of %d from %d on\n", rank, ranks, vm, neighbours, lowest);
	wrong += lacks_segments(neighbours);
	MPI_Reduce(&wrong, &all, 1, MPI_LONG, MPI_SUM, 0, world);
	if (rank == 0)
		printf("%d ranks add up to %d, %ld wrong\n", ranks, sum, all);
	MPI_Comm_free(&machine);
}

/* The ranks of this VM, of which each has two. Nothing is sent to another VM, since there may be no way. */
static MPI_Comm neighbours(void)
{
	int both[] = {rank & ~1, rank | 1};
	MPI_Group all, pair;
	MPI_Comm comm;

	MPI_Comm_group(MPI_COMM_WORLD, &all);
	MPI_Group_incl(all, 2, both, &pair);
	MPI_Comm_create_group(MPI_COMM_WORLD, pair, 0, &comm);
	return comm;
}

static void spawn(char *program)
{
	MPI_Comm children;

	MPI_Comm_spawn(program, MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
	printf("spawned\n");
}

/* Waits for what others do to this run. */
static void wait_for_the_end(void)
{
	printf("rank %d waits\n", rank);
	fflush(stdout);
	for (;;)
		MPI_Barrier(MPI_COMM_WORLD), usleep(20000);
}

int main(int argc, char **argv)
{
	int length;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Get_processor_name(vm, &length);
	world = on(argc, argv, "neighbours") ? neighbours() : MPI_COMM_WORLD;
	MPI_Comm_rank(world, &rank);
	MPI_Comm_size(world, &ranks);
	if (argc < 2 || world != MPI_COMM_WORLD)
		check();
	if (on(argc, argv, "spawn"))
		spawn(argv[0]);
	if (on(argc, argv, "wait"))
		wait_for_the_end();
	if (on(argc, argv, "abort") && rank == 1)
		MPI_Abort(MPI_COMM_WORLD, 6);
	if (on(argc, argv, "exit") && rank == 1)
		exit(5);
	if (on(argc, argv, "leave") && rank == 1)
		exit(0);
	if (on(argc, argv, "abort") || on(argc, argv, "exit") || on(argc, argv, "leave"))
		MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return on(argc, argv, "return") ? 3 : 0;
}
