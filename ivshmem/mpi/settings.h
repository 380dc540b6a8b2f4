/* What the guest agent says to this library, in one variable of the program. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

struct settings {
	char device[64];   /* of the run, such as /dev/slurmv/ivshmem0 */
	char machine[40];  /* the boot id that all VMs of the job on this node tell MPI */
	unsigned vm;       /* number of this VM in the job */
	uint64_t programs; /* bytes at the device's beginning that are the program's if it wants them */
	const char *ranks; /* of the node, for PMIx: 0,1,2,3; NULL without PMIx */
	bool debug;
};

/* NULL if this run has no memory for MPI. */
const struct settings *settings(void);

/* The number at the beginning of a text. */
unsigned long number_of(const char *text);

/* Writes a line to the standard error; at most a line's worth of it. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The same if the user wants to see what this library does. */
void debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
