//go:build ignore

/* A client of Slurm's PMI server, in its dialect 1 (lines). Each rank has a connection of its own. */
#ifndef PMI_H
#define PMI_H

#include <stdbool.h>
#include <stddef.h>

/* The longest value that fits into a line with its key. */
enum { PMI_VALUE = 768 };

struct pmi {
	int fd, rank;
	bool ended;
	char name[256]; /* of the space of keys and values */
	char kept[1024];
	size_t have;
};

/* All of these return false once the connection has ended: the rank or Slurm's server is gone. An answer that makes no
 * sense ends this process with a sentence. */

/* Begins the conversation on p->fd. */
bool pmi_begin(struct pmi *p);
bool pmi_put(struct pmi *p, const char *key, const char *value);
/* A value has at most 1023 bytes. Returns false also if there is none. */
bool pmi_get(struct pmi *p, const char *key, char value[1024]);
/* The same for a value that must be there. */
bool pmi_need(struct pmi *p, const char *key, char value[1024]);
/* A barrier: pmi_enter says that the rank waits, pmi_pass returns when all ranks of the run do. What the others put before
 * can be got then. */
bool pmi_enter(struct pmi *p);
bool pmi_pass(struct pmi *p);

/* Tells the relay of this rank that the program has connected, or has finalized. pmi_left returns when the relay
 * knows. */
void pmi_joined(struct pmi *p);
void pmi_left(struct pmi *p);
/* Ends all ranks. This and pmi_joined may be called while another thread waits in another function. */
void pmi_abort(struct pmi *p, int code);

#endif
