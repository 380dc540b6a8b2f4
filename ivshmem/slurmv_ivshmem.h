/*
 * Shared memory between the VMs of a Slurm-V job on one node (IVShmem), for MPI
 * libraries and others that move data between ranks. All of it is in this file.
 *
 * A run of slurm-v-run in a job with --ivshmem has a device, which is the same
 * memory in every VM of the job on that node, and nobody else's. At the start of
 * the run it is zero. Ranks of other nodes have another memory: the peers of a
 * rank are those that have the same.
 *
 *	struct slurmv_ivshmem shm;
 *	if (slurmv_ivshmem_open(&shm) == 0)
 *		for (int r = slurmv_ivshmem_next_peer(-1); r >= 0; r = slurmv_ivshmem_next_peer(r))
 *			...shm.base, shm.size...
 *
 * It is memory and no more: who writes where, and when others may read it, is up
 * to its users, by atomic operations as between threads. There are no interrupts.
 *
 * This header reads three variables:
 *
 *	SLURMV_IVSHMEM        the file to map, such as /dev/slurmv/ivshmem0
 *	SLURMV_IVSHMEM_SIZE   how many bytes a program may map; MPI may have the rest
 *	SLURMV_IVSHMEM_PEERS  the ranks that have it, in rising order, such as 0-3,8
 */
#ifndef SLURMV_IVSHMEM_H
#define SLURMV_IVSHMEM_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

struct slurmv_ivshmem {
	void *base;
	size_t size;
};

/* How many bytes an open device has, 0 if that is not known. The device is a file, or else
 * a character device, whose size sysfs tells. */
static inline size_t slurmv_ivshmem_size(int fd)
{
	char path[64], text[32] = "";
	struct stat st;
	int file;

	if (fstat(fd, &st) < 0)
		return 0;
	if (st.st_size > 0 || !S_ISCHR(st.st_mode))
		return (size_t)st.st_size;
	snprintf(path, sizeof(path), "/sys/dev/char/%u:%u/size", major(st.st_rdev), minor(st.st_rdev));
	file = open(path, O_RDONLY | O_CLOEXEC);
	if (file < 0)
		return 0;
	if (read(file, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	close(file);
	return (size_t)strtoull(text, NULL, 10);
}

static inline int slurmv_ivshmem_map(struct slurmv_ivshmem *shm, const char *device, size_t at_most)
{
	int failed, fd = open(device, O_RDWR | O_CLOEXEC);

	if (fd < 0)
		return -1;
	shm->size = slurmv_ivshmem_size(fd);
	if (shm->size > at_most)
		shm->size = at_most;
	shm->base = mmap(NULL, shm->size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	failed = errno;
	close(fd);
	errno = failed;
	return shm->base == MAP_FAILED ? -1 : 0;
}

/* Maps the device of that name. Returns 0, or -1 with errno. */
static inline int slurmv_ivshmem_open_device(struct slurmv_ivshmem *shm, const char *device)
{
	return slurmv_ivshmem_map(shm, device, SIZE_MAX);
}

/* Maps the device of this run. Returns 0, or -1 with errno, which is ENODEV if the
 * run has none. */
static inline int slurmv_ivshmem_open(struct slurmv_ivshmem *shm)
{
	const char *device = getenv("SLURMV_IVSHMEM"), *size = getenv("SLURMV_IVSHMEM_SIZE");

	if (device && *device) /* a character device may have a little more than was asked for */
		return slurmv_ivshmem_map(shm, device, size ? (size_t)strtoull(size, NULL, 10) : SIZE_MAX);
	errno = ENODEV;
	return -1;
}

static inline void slurmv_ivshmem_close(struct slurmv_ivshmem *shm)
{
	munmap(shm->base, shm->size);
	shm->base = NULL;
	shm->size = 0;
}

/* Returns the lowest rank above after that has the memory too, -1 if there is none.
 * The caller's own rank is among them. */
static inline int slurmv_ivshmem_next_peer(int after)
{
	const char *at = getenv("SLURMV_IVSHMEM_PEERS");

	while (at && *at >= '0' && *at <= '9') {
		char *end;
		long first = strtol(at, &end, 10), last = first;

		if (*end == '-')
			last = strtol(end + 1, &end, 10);
		if (after < last)
			return (int)(after < first ? first : after + 1);
		at = *end == ',' ? end + 1 : NULL;
	}
	return -1;
}

/* Returns 1 if the rank has the memory, 0 if not. */
static inline int slurmv_ivshmem_is_peer(int rank)
{
	return rank >= 0 && slurmv_ivshmem_next_peer(rank - 1) == rank;
}

#ifdef __cplusplus
}
#endif

#endif
