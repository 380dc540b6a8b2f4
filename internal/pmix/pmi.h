//go:build ignore

/* A client of Slurm's PMI server, in its dialect 1 (lines). */
#ifndef PMI_H
#define PMI_H

#include <stdbool.h>
#include <stddef.h>

/* The longest value that fits into a line with its key. */
enum { PMI_VALUE = 768 };

/* Begins the conversation on the descriptor that PMI_FD names. Exits with a sentence if there
 * is none. */
void pmi_init(void);
int pmi_rank(void);
int pmi_ranks(void);

/* All of these return whether the server has answered and granted it. */
bool pmi_put(const char *key, const char *value);
/* A value has at most 1023 bytes. */
bool pmi_get(const char *key, char value[1024]);
/* Returns when all ranks have called it, and have seen what the others put before. */
bool pmi_barrier(void);

/* Tells the relay of this rank that the program has connected, or has finalized. pmi_left returns when the relay
 * knows. */
void pmi_joined(void);
void pmi_left(void);
/* Ends all ranks. This and pmi_joined may be called while another thread waits in another function. */
void pmi_abort(int code);

/* Waits until the connection ends, or wake can be read. Returns false at the end. */
bool pmi_wait(int wake);

#endif
