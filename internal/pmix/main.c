//go:build ignore

#define _GNU_SOURCE

#include "libpmix.h"
#include "local.h"
#include "placement.h"
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The descriptor of the guest agent's socket. */
enum { AGENT = 4 };

/* Waits for the guest agent or a rank's PMI. Returns the number of a rank that can be heard, -1 for the agent. */
static int await(void)
{
	int n = local_count();
	struct pollfd *each = calloc(n + 1, sizeof(*each));

	for (int i = 0; i < n; i++)
		each[i] = (struct pollfd){local_at(i)->pmi.ended ? -1 : local_at(i)->pmi.fd, POLLIN, 0};
	each[n] = (struct pollfd){AGENT, POLLIN, 0};
	while (poll(each, n + 1, -1) < 0 && errno == EINTR)
		;
	for (n = local_count() - 1; n >= 0 && !each[n].revents;)
		n--;
	free(each);
	return n;
}

/* A rank enters the first barrier as soon as it comes. */
static void welcome(struct local *new, struct placement **p)
{
	struct pmi *rank = &new->pmi;

	if (!pmi_begin(rank))
		return;
	if (!*p)
		*p = placement_new(rank, local_ranks());
	if (placement_announce(*p, rank))
		pmi_enter(rank);
}

/* The others of this VM have entered, too, before the barrier let one pass. */
static bool pass(struct local *first)
{
	bool all = pmi_pass(&first->pmi);

	for (int i = 0; all && i < local_count(); i++)
		all = local_at(i) == first || pmi_pass(&local_at(i)->pmi);
	return all;
}

/* Takes the ranks as they come, at any time and in any order, until all of the run have come to their servers. Without a
 * mapping, nothing else says how many ranks this VM has. Returns NULL if that will not be. */
static struct placement *gather(void)
{
	struct placement *p = NULL;

	for (;;) {
		int heard = await();
		struct local *rank = heard < 0 ? local_receive(AGENT) : local_at(heard);

		if (!rank)
			return NULL;
		if (heard < 0)
			welcome(rank, &p);
		else if (pass(rank) && placement_learn(p, &rank->pmi))
			return p;
	}
}

/* The variables, each ended by a zero, and another zero: who gets that has got them all. */
static void answer(const struct local *rank)
{
	FILE *to = fdopen(rank->program, "w");

	for (char **e = server_environment(rank->pmi.rank); *e; e++)
		fwrite(*e, 1, strlen(*e) + 1, to);
	fputc(0, to);
	fclose(to);
}

/* The guest agent starts this for the first rank of a run in a VM. It ends it, by the end of the socket, after the last. */
int main(void)
{
	const struct libpmix *pmix;
	struct placement *p;

	signal(SIGPIPE, SIG_IGN); /* a rank may be gone */
	if (fcntl(AGENT, F_SETFD, FD_CLOEXEC)) {
		fprintf(stderr, "slurm-v: slurmv-pmix is started by the agent in a VM: use slurm-v-run --mpi=pmix\n");
		return 1;
	}
	pmix = libpmix_open();
	if (!(p = gather()))
		return 0;
	server_begin(pmix, p);
	for (int i = 0; i < local_count(); i++)
		answer(local_at(i));
	server_run(AGENT);
	return 0;
}
