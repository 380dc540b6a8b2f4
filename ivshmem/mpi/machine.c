//go:build ignore

#include "machine.h"

#include "files.h"
#include "real.h"
#include "settings.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int file_of(const char *text, size_t n)
{
	int fd = raw(SYS_memfd_create, "slurm-v", MFD_CLOEXEC);

	if (fd >= 0) {
		raw(SYS_write, fd, text, n);
		raw(SYS_lseek, fd, 0, SEEK_SET);
	}
	return fd;
}

/*
 * UCX takes two processes for neighbours if their machines have the same boot id. So all processes
 * of the job on this node that have the region have one.
 */
static int boot_id(void)
{
	char text[48];

	return file_of(text, snprintf(text, sizeof(text), "%s\n", settings()->machine));
}

/* Whether it is UCX that asks. A UCX without libraries of its own is in the program or in MPI's library, and makes its files. */
static bool is_ucx(const void *caller)
{
	const char *library = real_library(caller);

	if (library && (strstr(library, "/libucs") || strstr(library, "/libuct")))
		return true;
	return files_of_ucx() && !real_loaded("libucs.so.0");
}

/*
 * UCX looks for a neighbour's process by its number, which means nothing in another VM. If
 * there is none of that number here, it is told of one that began a hundredth of a second after
 * the machine, since it takes a beginning at zero for an error. Slurm notices a neighbour that dies. Others wait for the end of a
 * process in this way.
 */
static int process(const char *path, const void *caller)
{
	char text[160];
	int pid, end = 0;

	if (sscanf(path, "/proc/%d/stat%n", &pid, &end) != 1 || !end || path[end] || !raw(SYS_faccessat, AT_FDCWD, path, F_OK) || !is_ucx(caller))
		return -1;
	return file_of(text, snprintf(text, sizeof(text),
				      "%d (rank) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 17 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
				      pid));
}

int machine_open(const char *path, const void *caller)
{
	if (!path || strncmp(path, "/proc/", 6) || !settings())
		return -1;
	if (!strcmp(path, "/proc/sys/kernel/random/boot_id"))
		return files_ready() ? boot_id() : -1;
	return process(path, caller);
}
