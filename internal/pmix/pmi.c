//go:build ignore

#define _GNU_SOURCE

#include "pmi.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int server = -1;
static int rank, ranks;
static char name[256]; /* of the space of keys and values */

static bool say(const char *format, ...)
{
	char line[1024];
	va_list args;
	int n;

	va_start(args, format);
	n = vsnprintf(line, sizeof(line), format, args);
	va_end(args);
	if (n < 0 || n >= (int)sizeof(line))
		return false;
	/* One send, so that a line of pmi_abort is not inside another. */
	return send(server, line, n, MSG_NOSIGNAL) == n;
}

/* Reads one line, without its newline. Answers come one at a time, so nothing is read ahead. */
static bool hear(char line[1024])
{
	static char kept[1024];
	static size_t have;
	char *end;

	while (!(end = memchr(kept, '\n', have))) {
		ssize_t n = have == sizeof(kept) ? 0 : read(server, kept + have, sizeof(kept) - have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return false;
		have += n;
	}
	*end++ = 0;
	memcpy(line, kept, end - kept);
	have -= end - kept;
	memmove(kept, end, have);
	return true;
}

/* Finds the field of that name in a line: name=value, ended by a space. */
static bool field(const char *line, const char *wanted, char *value, size_t size)
{
	size_t length = strlen(wanted);

	for (const char *at = line; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
		if (!strncmp(at, wanted, length) && at[length] == '=') {
			snprintf(value, size, "%.*s", (int)strcspn(at + length + 1, " "), at + length + 1);
			return true;
		}
	return false;
}

/* Hears the answer of that name; false also if it says that the request was refused. */
static bool answer(const char *expected, char line[1024])
{
	char value[64];

	if (!hear(line) || !field(line, "cmd", value, sizeof(value)) || strcmp(value, expected))
		return false;
	return !field(line, "rc", value, sizeof(value)) || !atoi(value);
}

static int number(const char *variable)
{
	const char *text = getenv(variable);

	return text ? atoi(text) : -1;
}

void pmi_init(void)
{
	char line[1024];

	server = number("PMI_FD");
	rank = number("PMI_RANK");
	ranks = number("PMI_SIZE");
	if (server < 3 || rank < 0 || ranks <= rank || !say("cmd=init pmi_version=1 pmi_subversion=1\n") || !answer("response_to_init", line) ||
	    !say("cmd=get_my_kvsname\n") || !answer("my_kvsname", line) || !field(line, "kvsname", name, sizeof(name))) {
		fprintf(stderr, "slurm-v: --mpi=pmix: Slurm's PMI server does not answer rank %d\n", rank);
		exit(1);
	}
}

int pmi_rank(void) { return rank; }

int pmi_ranks(void) { return ranks; }

bool pmi_put(const char *key, const char *value)
{
	char line[1024];

	return say("cmd=put kvsname=%s key=%s value=%s\n", name, key, value) && answer("put_result", line);
}

bool pmi_get(const char *key, char value[1024])
{
	char line[1024];

	return say("cmd=get kvsname=%s key=%s\n", name, key) && answer("get_result", line) && field(line, "value", value, 1024);
}

bool pmi_barrier(void)
{
	char line[1024];

	return say("cmd=barrier_in\n") && answer("barrier_out", line);
}

void pmi_joined(void) { say("cmd=slurmv-pmix joined=1\n"); }

void pmi_left(void)
{
	char line[1024];

	if (say("cmd=slurmv-pmix joined=0\n"))
		answer("slurmv-pmix", line);
}

void pmi_abort(int code) { say("cmd=abort exitcode=%d\n", code); }

bool pmi_wait(int wake)
{
	struct pollfd both[] = {{server, 0, 0}, {wake, POLLIN, 0}};

	while (poll(both, 2, -1) < 0)
		if (errno != EINTR)
			return false;
	return !both[0].revents;
}
