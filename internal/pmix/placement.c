//go:build ignore

#include "placement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool placement_parse(const char *mapping, int *node, int ranks)
{
	int first, nodes, each, rank = 0;

	if (strncmp(mapping, "(vector", 7))
		return false;
	while (rank < ranks) {
		int before = rank;

		for (const char *at = strchr(mapping + 1, '('); at; at = strchr(at + 1, '(')) {
			if (sscanf(at, "(%d,%d,%d)", &first, &nodes, &each) != 3)
				return false;
			for (int i = 0; i < nodes; i++)
				for (int k = 0; k < each && rank < ranks; k++)
					node[rank++] = first + i;
		}
		if (rank == before)
			return false;
	}
	return true;
}

/* Numbers the VMs in the order of their first ranks. */
static void number_vms(struct placement *p, const int *node)
{
	for (int rank = 0; rank < p->ranks; rank++) {
		int vm = 0;

		while (vm < p->vms && node[p->leader[vm]] != node[rank])
			vm++;
		if (vm == p->vms)
			p->leader[p->vms++] = rank;
		p->vm[rank] = vm;
	}
}

/* Without a mapping each rank is alone at first, and has told its name. VMs of a job have different
 * names. */
static void join_names(struct placement *p)
{
	int *node = calloc(p->ranks, sizeof(int));

	for (int rank = 0; rank < p->ranks; rank++) {
		node[rank] = 0;
		while (strcmp(p->name[node[rank]], p->name[rank]))
			node[rank]++;
	}
	p->vms = 0;
	number_vms(p, node);
	for (int vm = 0; vm < p->vms; vm++)
		p->name[vm] = p->name[p->leader[vm]];
	free(node);
}

struct placement *placement_new(struct pmi *rank, int ranks)
{
	struct placement *p = calloc(1, sizeof(*p));
	int *node = calloc(ranks, sizeof(int));
	char mapping[1024];

	p->ranks = ranks;
	p->vm = calloc(ranks, sizeof(int));
	p->leader = calloc(ranks, sizeof(int));
	p->name = calloc(ranks, sizeof(char *));
	p->mapped = pmi_get(rank, "PMI_process_mapping", mapping) && placement_parse(mapping, node, ranks);
	for (int r = 0; !p->mapped && r < ranks; r++)
		node[r] = r; /* a mapping that makes no sense may have left something */
	number_vms(p, node);
	free(node);
	return p;
}

/* Each leader puts the name of its VM, so that it travels once. */
bool placement_announce(const struct placement *p, struct pmi *rank)
{
	char key[32], name[256] = "";

	if (p->leader[p->vm[rank->rank]] != rank->rank)
		return true;
	snprintf(key, sizeof(key), "pmix-vm-%d", rank->rank);
	return !gethostname(name, sizeof(name) - 1) && pmi_put(rank, key, name);
}

bool placement_learn(struct placement *p, struct pmi *rank)
{
	char key[32], value[1024];

	for (int vm = 0; vm < p->vms; vm++) {
		snprintf(key, sizeof(key), "pmix-vm-%d", p->leader[vm]);
		if (!pmi_need(rank, key, value))
			return false;
		p->name[vm] = strdup(value);
	}
	if (!p->mapped)
		join_names(p);
	p->here = p->vm[rank->rank];
	return true;
}

int placement_local_rank(const struct placement *p, int rank)
{
	int n = 0;

	for (int r = 0; r < rank; r++)
		n += p->vm[r] == p->vm[rank];
	return n;
}

int placement_local_size(const struct placement *p, int vm)
{
	int n = 0;

	for (int r = 0; r < p->ranks; r++)
		n += p->vm[r] == vm;
	return n;
}

static void print_peers(const struct placement *p, int vm, FILE *to)
{
	const char *separator = "";

	for (int r = 0; r < p->ranks; r++)
		if (p->vm[r] == vm) {
			fprintf(to, "%s%d", separator, r);
			separator = ",";
		}
}

char *placement_peers(const struct placement *p, int vm)
{
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	print_peers(p, vm, to);
	fclose(to);
	return text;
}

char *placement_node_map(const struct placement *p)
{
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	for (int vm = 0; vm < p->vms; vm++)
		fprintf(to, "%s%s", vm ? "," : "", p->name[vm]);
	fclose(to);
	return text;
}

char *placement_proc_map(const struct placement *p)
{
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	for (int vm = 0; vm < p->vms; vm++) {
		fputs(vm ? ";" : "", to);
		print_peers(p, vm, to);
	}
	fclose(to);
	return text;
}
