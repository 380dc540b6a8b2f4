// A rank that speaks PMIx as MPI libraries do. It prints one line for each thing that it learns.
#include <fcntl.h>
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LONG = 5000 }; /* more than one value of PMI */

static pmix_proc_t me, all;

static void check(const char *what, int status)
{
	if (status == PMIX_SUCCESS)
		return;
	printf("%s: %d\n", what, status);
	exit(1);
}

static void put(pmix_scope_t scope, const char *key)
{
	char text[LONG + 1];
	pmix_value_t value = {.type = PMIX_STRING, .data.string = text};

	memset(text, 'a' + me.rank, LONG);
	text[LONG] = 0;
	check("put", PMIx_Put(scope, key, &value));
	check("commit", PMIx_Commit());
}

static void fence(bool gather)
{
	pmix_info_t info = {.key = PMIX_COLLECT_DATA, .value = {.type = PMIX_BOOL, .data.flag = gather}};

	check("fence", PMIx_Fence(&all, 1, &info, 1));
}

static pmix_value_t *get(pmix_rank_t rank, const char *key)
{
	pmix_proc_t of = all;
	pmix_value_t *value;

	of.rank = rank;
	check(key, PMIx_Get(&of, key, NULL, 0, &value));
	return value;
}

/* Has the server say something. */
static void explain(void)
{
	pmix_value_t text = {.type = PMIX_STRING, .data.string = "an explanation\nof two lines\n"};
	pmix_info_t info = {.key = PMIX_LOG_STDERR, .value = text};

	check("log", PMIx_Log(&info, 1, NULL, 0));
}

static void check_card(pmix_rank_t rank)
{
	const char *card = get(rank, "card")->data.string;
	size_t good = 0;

	while (card[good] == (char)('a' + rank))
		good++;
	printf("%u has the card of %u: %zu bytes\n", me.rank, rank, good);
}

/* What Open MPI's shared memory and UCX tell neighbours: where they have their memory. */
static void check_segment(pmix_rank_t rank)
{
	pmix_proc_t of = me;
	pmix_value_t *value;
	int status;

	of.rank = rank;
	status = PMIx_Get(&of, "segment", NULL, 0, &value);
	printf("%u has the segment of %u: %s\n", me.rank, rank, status == PMIX_SUCCESS && value->data.string[0] == (char)('a' + rank) ? "true" : "false");
}

/* The guest agent leaves a program neither PMI nor the descriptors by which it starts programs. */
static void check_inheritance(void)
{
	if (getenv("PMI_FD") || getenv("PMI_RANK"))
		check("PMI is offered", -1);
	for (int fd = 3; fd <= 5; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			check("a descriptor is open", fd);
}

int main(int argc, char **argv)
{
	unsigned ranks;

	check_inheritance();
	check("init", PMIx_Init(&me, NULL, 0));
	strcpy(all.nspace, me.nspace);
	all.rank = PMIX_RANK_WILDCARD;
	ranks = get(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE)->data.uint32;
	printf("%u of %u with %s at %s\n", me.rank, ranks, get(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS)->data.string, get(me.rank, PMIX_HOSTNAME)->data.string);
	fflush(stdout);
	if (argc > 1 && !strcmp(argv[1], "abort") && me.rank == 1) {
		PMIx_Abort(7, "", NULL, 0);
		return 7;
	}
	if (argc > 1 && !strcmp(argv[1], "exit"))
		return 0;
	if (argc > 1 && !strcmp(argv[1], "explain"))
		explain();
	put(PMIX_GLOBAL, "card");
	put(PMIX_LOCAL, "segment");
	fence(true);
	for (unsigned rank = 0; rank < ranks; rank++)
		check_card(rank);
	for (unsigned rank = 0; argc > 1 && !strcmp(argv[1], "local") && rank < ranks; rank++)
		check_segment(rank);
	fence(false);
	check("finalize", PMIx_Finalize(NULL, 0));
	return argc > 1 ? atoi(argv[1]) : 0;
}
