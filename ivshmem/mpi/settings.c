//go:build ignore

#include "settings.h"

#include "real.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

/* Files that read numbers do without _GNU_SOURCE, with which the functions for that are those of glibc 2.38. Images may be
 * older. */

static struct settings here;
static enum { UNREAD, NONE, READ } state;

/* The variable is written by vmstep.MPIMemory: DEVICE:MACHINE:VM:BYTES. Two threads that read it
 * at once come to the same. */
static void read_settings(void)
{
	const char *text = getenv("SLURMV_MPI_SHM");
	unsigned long long bytes;

	if (!text || sscanf(text, "%63[^:]:%39[^:]:%u:%llu", here.device, here.machine, &here.vm, &bytes) != 4) {
		state = NONE;
		return;
	}
	here.programs = bytes;
	here.ranks = getenv("SLURMV_MPI_RANKS") ? strdup(getenv("SLURMV_MPI_RANKS")) : NULL;
	here.debug = getenv("SLURMV_MPI_SHM_DEBUG") != NULL;
	state = READ;
}

const struct settings *settings(void)
{
	if (state == UNREAD)
		read_settings();
	return state == READ ? &here : NULL;
}

unsigned long number_of(const char *text) { return strtoul(text, NULL, 10); }

static void write_line(const char *format, va_list args)
{
	char line[400];
	int saved = errno, n = snprintf(line, sizeof(line) - 1, "slurm-v: ");

	n += vsnprintf(line + n, sizeof(line) - 1 - n, format, args);
	if (n > (int)sizeof(line) - 2)
		n = sizeof(line) - 2;
	line[n++] = '\n';
	raw(SYS_write, 2, line, n);
	errno = saved;
}

void say(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(format, args);
	va_end(args);
}

void debug(const char *format, ...)
{
	va_list args;

	if (!settings() || !here.debug)
		return;
	va_start(args, format);
	write_line(format, args);
	va_end(args);
}
