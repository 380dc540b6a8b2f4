//go:build ignore

#include "pmi.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static bool say(const struct pmi *p, const char *format, ...)
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
	return send(p->fd, line, n, MSG_NOSIGNAL) == n;
}

/* Reads one line, without its newline. Answers come one at a time, so nothing is read ahead. */
static bool hear(struct pmi *p, char line[1024])
{
	char *end;

	while (!(end = memchr(p->kept, '\n', p->have))) {
		ssize_t n = p->have == sizeof(p->kept) ? 0 : read(p->fd, p->kept + p->have, sizeof(p->kept) - p->have);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return !(p->ended = true);
		p->have += n;
	}
	*end++ = 0;
	memcpy(line, p->kept, end - p->kept);
	p->have -= end - p->kept;
	memmove(p->kept, end, p->have);
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

static bool granted(const char *line)
{
	char code[64];

	return !field(line, "rc", code, sizeof(code)) || !atoi(code);
}

static void die(const struct pmi *p, const char *expected, const char *line)
{
	fprintf(stderr, "slurm-v: --mpi=pmix: Slurm's PMI server answers rank %d with '%.200s', not with %s\n", p->rank, line, expected);
	exit(1);
}

/* Hears the answer of that name. */
static bool answer(struct pmi *p, const char *expected, char line[1024])
{
	char command[64];

	if (!hear(p, line))
		return false;
	if (!field(line, "cmd", command, sizeof(command)) || strcmp(command, expected))
		die(p, expected, line);
	return true;
}

/* The same, and the request must have been granted. */
static bool grant(struct pmi *p, const char *expected)
{
	char line[1024];

	if (!answer(p, expected, line))
		return false;
	if (!granted(line))
		die(p, expected, line);
	return true;
}

bool pmi_begin(struct pmi *p)
{
	char line[1024];

	say(p, "cmd=init pmi_version=1 pmi_subversion=1\n");
	if (!grant(p, "response_to_init"))
		return false;
	say(p, "cmd=get_my_kvsname\n");
	if (!answer(p, "my_kvsname", line))
		return false;
	if (!field(line, "kvsname", p->name, sizeof(p->name)))
		die(p, "my_kvsname", line);
	return true;
}

bool pmi_put(struct pmi *p, const char *key, const char *value)
{
	say(p, "cmd=put kvsname=%s key=%s value=%s\n", p->name, key, value);
	return grant(p, "put_result");
}

bool pmi_get(struct pmi *p, const char *key, char value[1024])
{
	char line[1024];

	say(p, "cmd=get kvsname=%s key=%s\n", p->name, key);
	return answer(p, "get_result", line) && granted(line) && field(line, "value", value, 1024);
}

bool pmi_need(struct pmi *p, const char *key, char value[1024])
{
	bool found = pmi_get(p, key, value);

	if (!found && !p->ended)
		die(p, key, "no value");
	return found;
}

bool pmi_enter(struct pmi *p) { return say(p, "cmd=barrier_in\n"); }

bool pmi_pass(struct pmi *p) { return grant(p, "barrier_out"); }

void pmi_joined(struct pmi *p) { say(p, "cmd=slurmv-pmix joined=1\n"); }

void pmi_left(struct pmi *p)
{
	say(p, "cmd=slurmv-pmix joined=0\n");
	grant(p, "slurmv-pmix");
}

void pmi_abort(struct pmi *p, int code) { say(p, "cmd=abort exitcode=%d\n", code); }
