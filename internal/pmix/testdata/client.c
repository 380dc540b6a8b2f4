// A rank that speaks PMIx as MPI libraries do. It prints one line for each thing that it learns.
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

static void put(void)
{
	char text[LONG + 1];
	pmix_value_t value = {.type = PMIX_STRING, .data.string = text};

	memset(text, 'a' + me.rank, LONG);
	text[LONG] = 0;
	check("put", PMIx_Put(PMIX_GLOBAL, "card", &value));
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

static void check_card(pmix_rank_t rank)
{
	const char *card = get(rank, "card")->data.string;
	size_t good = 0;

	while (card[good] == (char)('a' + rank))
		good++;
	printf("%u has the card of %u: %zu bytes\n", me.rank, rank, good);
}

int main(int argc, char **argv)
{
	unsigned ranks;

	check("init", PMIx_Init(&me, NULL, 0));
	strcpy(all.nspace, me.nspace);
	all.rank = PMIX_RANK_WILDCARD;
	ranks = get(PMIX_RANK_WILDCARD, PMIX_JOB_SIZE)->data.uint32;
	printf("%u of %u with %s at %s\n", me.rank, ranks, get(PMIX_RANK_WILDCARD, PMIX_LOCAL_PEERS)->data.string, get(me.rank, PMIX_HOSTNAME)->data.string);
	fflush(stdout);
	if (argc > 1 && !strcmp(argv[1], "abort") && me.rank == 1)
		PMIx_Abort(7, "", NULL, 0);
	if (argc > 1 && !strcmp(argv[1], "exit"))
		return 0;
	put();
	fence(true);
	for (unsigned rank = 0; rank < ranks; rank++)
		check_card(rank);
	printf("PMI_FD %s\n", getenv("PMI_FD") ? "is set" : "is not set");
	fence(false);
	check("finalize", PMIx_Finalize(NULL, 0));
	return argc > 1 ? atoi(argv[1]) : 0;
}
