//go:build ignore

/* Which rank is in which VM. */
#ifndef PLACEMENT_H
#define PLACEMENT_H

#include "pmi.h"

#include <stdbool.h>

struct placement {
	int ranks, vms;
	int here;      /* number of this VM */
	bool mapped;   /* PMI has told it; else the names of the VMs do */
	int *vm;       /* of each rank; VMs count from 0 in the order of their first rank */
	int *leader;   /* lowest rank of each VM */
	char **name;   /* host name of each VM */
};

/* The placement of a run with so many ranks, by PMI's mapping: as one of its ranks has been told. Without a mapping each
 * rank is alone until placement_learn. */
struct placement *placement_new(struct pmi *p, int ranks);

/* Announces the name of this VM for a rank. A barrier of all ranks follows, and then placement_learn. */
bool placement_announce(const struct placement *p, struct pmi *rank);

/* Learns the names of all VMs. */
bool placement_learn(struct placement *p, struct pmi *rank);

/* The place of a rank among those of its VM. */
int placement_local_rank(const struct placement *p, int rank);
int placement_local_size(const struct placement *p, int vm);
/* The ranks of a VM, separated by commas. The caller frees it. */
char *placement_peers(const struct placement *p, int vm);
/* The names of the VMs, separated by commas; the ranks of all VMs, with semicolons between VMs. */
char *placement_node_map(const struct placement *p);
char *placement_proc_map(const struct placement *p);

/* Fills node[0..ranks) from a mapping such as (vector,(0,2,4)): from node 0 on, 2 nodes with 4
 * ranks each. Ranks that are left go round again. Returns whether it is one. */
bool placement_parse(const char *mapping, int *node, int ranks);

#endif
