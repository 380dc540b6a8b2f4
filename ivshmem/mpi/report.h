/* What the relay of this rank learns about the shared memory: see internal/pmi. */
#ifndef REPORT_H
#define REPORT_H

#include <stddef.h>

/* The program is about to write its first message to the PMI server, if fd is its. */
void report_init(int fd, const void *message, size_t n);
/* The program is about to connect to its PMIx server. */
void report_pmix(void);
/* The program has mapped a file that a rank of another VM made. */
void report_peer(const char *name);

#endif
