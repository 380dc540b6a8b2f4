//go:build ignore

#define _GNU_SOURCE

#include "local.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

static struct local **local;
static int count, ranks;

int local_count(void) { return count; }

int local_ranks(void) { return ranks; }

struct local *local_at(int i) { return local[i]; }

struct local *local_of(unsigned rank)
{
	for (int i = 0; i < count; i++)
		if ((unsigned)local[i]->pmi.rank == rank)
			return local[i];
	return NULL;
}

/* What the guest agent sends for a rank, with its two descriptors: PMI's and the program's. */
struct arrival {
	int32_t rank, ranks;
};

static bool receive(int agent, struct arrival *a, int fds[2])
{
	union {
		struct cmsghdr header;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} control;
	struct iovec data = {a, sizeof(*a)};
	struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	struct cmsghdr *header;
	ssize_t n;

	do
		n = recvmsg(agent, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL);
	while (n < 0 && errno == EINTR);
	header = CMSG_FIRSTHDR(&message);
	if (n != sizeof(*a) || !header || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(2 * sizeof(int)))
		return false;
	memcpy(fds, CMSG_DATA(header), 2 * sizeof(int));
	return true;
}

static void check(const struct arrival *a)
{
	if (a->rank >= 0 && a->rank < a->ranks && (!ranks || a->ranks == ranks) && !local_of(a->rank))
		return;
	fprintf(stderr, "slurm-v: --mpi=pmix: a program says that it is rank %d of %d, which another is or cannot be: PMI_RANK and PMI_SIZE are Slurm's and must stay as they are\n", a->rank, a->ranks);
	exit(1);
}

struct local *local_receive(int agent)
{
	struct arrival a;
	struct local *new;
	int fds[2];

	if (!receive(agent, &a, fds))
		return NULL;
	check(&a);
	ranks = a.ranks;
	new = calloc(1, sizeof(*new));
	*new = (struct local){.pmi = {.fd = fds[0], .rank = a.rank}, .program = fds[1]};
	local = realloc(local, (count + 1) * sizeof(*local));
	return local[count++] = new;
}

bool local_barrier(void)
{
	bool all = true;

	for (int i = 0; i < count; i++)
		all = pmi_enter(&local[i]->pmi) && all;
	for (int i = 0; all && i < count; i++)
		all = pmi_pass(&local[i]->pmi);
	return all;
}
