//go:build ignore

/* The PMIx server of the ranks of this VM. */
#ifndef SERVER_H
#define SERVER_H

#include "libpmix.h"
#include "placement.h"

/* Begins to serve the ranks that have come. Ends this process with a sentence if it cannot. */
void server_begin(const struct libpmix *pmix, const struct placement *p);

/* Returns the environment that the program of a rank needs for it, in addition to its own. */
char **server_environment(int rank);

/* Does what the programs ask for, until the guest agent's socket ends. Then nothing of the server is left, in files either. */
void server_run(int agent);

#endif
