//go:build ignore

#define _GNU_SOURCE

#include "report.h"

#include "files.h"
#include "real.h"
#include "settings.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/*
 * The relay reads what this process says to the PMI server. Messages of ours go the same
 * way, are for the relay alone, and have no answer. Each is one write, so it is never inside
 * another message.
 */
static int server = -1;
static bool framed; /* messages have their length in front, as in PMI 2 after its first */

/* The guest agent names the socket that leads to the relay. The program may start an mpirun,
 * whose ranks have another PMI server. */
static bool is_server(int fd)
{
	const char *socket = getenv("SLURMV_PMI_SOCKET");
	struct stat st;

	return socket && !raw(SYS_fstat, fd, &st) && S_ISSOCK(st.st_mode) && st.st_ino == number_of(socket);
}

/* After its exchange, the program may have closed the descriptor, whose number is another file's then. */
static void tell(const char *what)
{
	char text[128];
	int n = snprintf(text, sizeof(text), "cmd=slurmv-shm%c%s%c", framed ? ';' : ' ', what, framed ? ';' : '\n');

	if (framed) {
		memmove(text + 6, text, n);
		memcpy(text, "      ", 6);
		text[snprintf(text, 7, "%d", n)] = ' ';
		n += 6;
	}
	if (is_server(server))
		raw(SYS_write, server, text, n);
}

/* The process that begins the exchange is the rank, not the shell that started it. So the
 * relay knows, before it answers anything, that this rank sees files of other VMs. One that cannot
 * open the region does not say so. */
void report_init(int fd, const void *message, size_t n)
{
	if (server >= 0 || n < 8 || memcmp(message, "cmd=init", 8) || !is_server(fd) || !files_ready())
		return;
	server = fd;
	tell("ready=1");
	framed = memmem(message, n, "pmi_version=2", 13) != NULL;
}

/* The guest agent has left the program a descriptor of the socket that its PMIx server uses. */
void report_pmix(void)
{
	const char *fd = getenv("SLURMV_PMI_FD");

	if (server >= 0 || !fd || !is_server(number_of(fd)))
		return;
	server = number_of(fd);
	tell("ready=1");
}

void report_peer(const char *name)
{
	static const struct {
		const char *prefix, *by, *unless; /* a library that the process has */
	} transports[] = { /* a space would end the name */
		{"/dev/shm/ucx_", "UCX", NULL},
		{"/dev/shm/vader_", "Open_MPI", NULL},
		{"/dev/shm/sm_segment", "Open_MPI", NULL},
		{"/dev/shm/mpich_", "MPICH", "libucp.so.0"}, /* over UCX, MPICH's own files are for its start and for windows */
	};
	static atomic_bool told[sizeof(transports) / sizeof(*transports)];
	char what[40];

	for (size_t i = 0; server >= 0 && i < sizeof(transports) / sizeof(*transports); i++)
		if (!strncmp(name, transports[i].prefix, strlen(transports[i].prefix)) && !(transports[i].unless && real_loaded(transports[i].unless)) &&
		    !atomic_exchange(&told[i], true)) {
			snprintf(what, sizeof(what), "peer=%s", transports[i].by);
			tell(what);
		}
}
