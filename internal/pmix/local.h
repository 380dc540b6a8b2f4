//go:build ignore

/* The ranks that the run has in this VM, as they come from the guest agent. */
#ifndef LOCAL_H
#define LOCAL_H

#include "pmi.h"

#include <stdbool.h>

struct local {
	struct pmi pmi;
	int program; /* a socket to the process that becomes the program */
};

/* Takes the next rank from the guest agent's socket. Returns NULL when there will be no more. */
struct local *local_receive(int agent);

/* How many ranks have come, and how many the whole run has. */
int local_count(void);
int local_ranks(void);

/* The i-th that has come; the one of that rank, NULL if it has not come. */
struct local *local_at(int i);
struct local *local_of(unsigned rank);

/* Enters a barrier with all that have come, and returns when all ranks of the run have. */
bool local_barrier(void);

#endif
