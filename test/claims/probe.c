/*
 * A rank of a run that has claimed an IVShmem device:
 *
 *     probe NAME [leave]
 *
 * It tells what it finds of other runs in the device, which must be nothing, signs the
 * device with the run's name, waits until all ranks which share it have signed, and
 * stays until a file NAME.go appears in its directory. With "leave" it also starts a
 * process that has a session of its own and goes on signing for ever.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "slurmv_ivshmem.h"

enum { SLOT = 64, SLOTS = 4096 };

static const char *need(const char *name)
{
	const char *value = getenv(name);

	if (!value) {
		printf("%s is not set\n", name);
		exit(1);
	}
	return value;
}

/* own is the signature of a run; ranks of one run have the same. */
static uint64_t own(const char *name)
{
	uint64_t sum = 14695981039346656037u;

	for (; *name; name++)
		sum = (sum ^ (unsigned char)*name) * 1099511628211u;
	return sum | 1;
}

static volatile uint64_t *slot(volatile char *device, long rank)
{
	return (volatile uint64_t *)(device + rank * SLOT);
}

static int foreign(volatile char *device, uint64_t mine)
{
	int found = 0;

	for (long i = 0; i < SLOTS; i++)
		if (*slot(device, i) != 0 && *slot(device, i) != mine)
			found++;
	return found;
}

static int signed_by_all(volatile char *device, uint64_t mine)
{
	for (int r = slurmv_ivshmem_next_peer(-1); r >= 0; r = slurmv_ivshmem_next_peer(r))
		if (*slot(device, r) != mine)
			return 0;
	return 1;
}

static void sign_for_ever(volatile char *device, uint64_t mine)
{
	if (fork() != 0)
		return;
	setsid();
	for (;; usleep(50000))
		*slot(device, SLOTS - 1) = mine;
}

int main(int argc, char **argv)
{
	long size = atol(need("SLURMV_IVSHMEM_SIZE")), rank = atol(need("SLURM_PROCID"));
	const char *name = argc > 1 ? argv[1] : "?";
	uint64_t mine = own(name);
	struct slurmv_ivshmem shm;
	volatile char *device;
	char go[256];

	setvbuf(stdout, NULL, _IOLBF, 0);
	if (slurmv_ivshmem_open(&shm) != 0) {
		perror(need("SLURMV_IVSHMEM"));
		return 1;
	}
	if (shm.size != (size_t)size)
		printf("the device has %zu bytes, not %ld\n", shm.size, size);
	device = shm.base;
	*slot(device, rank) = mine;
	if (argc > 2 && strcmp(argv[2], "leave") == 0)
		sign_for_ever(device, mine);
	for (int i = 0; i < 600 && !signed_by_all(device, mine); i++)
		usleep(100000);
	usleep(300000); /* for one who signs and should not */
	printf("%s: rank %ld in %s maps %s of %ld bytes with %s: %d foreign, %s\n", name, rank, need("SLURMV_VM"),
	       need("SLURMV_IVSHMEM"), size, need("SLURMV_IVSHMEM_PEERS"), foreign(device, mine), signed_by_all(device, mine) ? "all signed" : "not all signed");
	snprintf(go, sizeof go, "%s.go", name);
	while (access(go, F_OK) != 0)
		usleep(300000);
	return 0;
}
