//go:build ignore

/* Which rank is in which VM. */
#ifndef PLACEMENT_H
#define PLACEMENT_H

#include <stdbool.h>

struct placement {
	int ranks, vms;
	int *vm;       /* of each rank; VMs count from 0 in the order of their first rank */
	int *leader;   /* lowest rank of each VM */
	char **name;   /* host name of each VM */
};

/* Asks PMI for the mapping, and the leaders for the names of their VMs. All ranks must call it.
 * Returns NULL if PMI's server is gone. */
struct placement *placement_learn(void);

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
