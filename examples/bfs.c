/*
 * Breadth-first search over a distributed graph, in the style of the Graph500 benchmark:
 *
 *     bfs [-s SCALE] [-e EDGEFACTOR] [-k KEYS]
 *
 * A Kronecker graph of 2^SCALE vertices, with EDGEFACTOR edges for each, is searched from
 * KEYS vertices, level by level. Each search gives a tree, and each tree is validated
 * against the list of edges. The rate is in traversed edges per second (TEPS): edges in
 * the key's component by the time of the search. The exit status is 1 if a tree is wrong.
 *
 * Vertex v belongs to rank v % ranks, which knows its neighbours and its parent. The graph
 * does not depend on the number of ranks.
 */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int scale = 12, edgefactor = 16, keys = 8;
static int64_t vertices, edges;
static int rank, ranks;

static void *need(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory) {
		perror("bfs");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return memory;
}

static int64_t sum(int64_t mine)
{
	MPI_Allreduce(MPI_IN_PLACE, &mine, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
	return mine;
}

/* ---- the graph ---- */

struct edge {
	int64_t to, from;
};

/* random numbers by their index, so that any rank can make any edge (splitmix64) */
static uint64_t random_number(uint64_t index)
{
	uint64_t x = (index + 1) * 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

/* Hubs must not be known by their number. Every step can be undone, so this is one to one. */
static int64_t shuffled(uint64_t v)
{
	for (int i = 0; i < 3; i++) {
		v = (v * 0x9e3779b97f4a7c15u + 0x7f4a7c15u) & (vertices - 1);
		v ^= v >> (scale + 1) / 2;
	}
	return v;
}

/* Edge i of the list. Each bit of its ends is drawn with the probabilities of Graph500:
 * 0.57 for neither, 0.19 for one of the two, 0.05 for both. */
static struct edge edge(int64_t i)
{
	uint64_t to = 0, from = 0;

	for (int bit = 0; bit < scale; bit++) {
		double r = (random_number(i * 64 + bit) >> 11) * 0x1p-53;

		to = to << 1 | (r >= 0.76);
		from = from << 1 | ((r >= 0.57 && r < 0.76) || r >= 0.95);
	}
	return (struct edge){shuffled(to), shuffled(from)};
}

/* The part of the list which is this rank's to make and to validate. */
static int64_t first_edge(int of)
{
	return edges * of / ranks;
}

static int64_t owned_by(int r)
{
	return (vertices - r + ranks - 1) / ranks;
}

/* Every edge goes to the owner of its end "to". Returns how many came, in *in. */
static int64_t exchange(const struct edge *out, int64_t count, struct edge **in)
{
	int *send = need(4 * ranks, sizeof *send), *receive = send + ranks;
	int *send_at = receive + ranks, *receive_at = send_at + ranks;
	struct edge *sorted = need(count, sizeof *sorted);
	int64_t total = 0;

	for (int64_t i = 0; i < count; i++)
		send[out[i].to % ranks] += 2;
	MPI_Alltoall(send, 1, MPI_INT, receive, 1, MPI_INT, MPI_COMM_WORLD);
	for (int r = 1; r < ranks; r++) {
		send_at[r] = send_at[r - 1] + send[r - 1];
		receive_at[r] = receive_at[r - 1] + receive[r - 1];
	}
	for (int64_t i = 0; i < count; i++) {
		int r = out[i].to % ranks;

		sorted[send_at[r] / 2] = out[i];
		send_at[r] += 2;
	}
	for (int r = 0; r < ranks; r++) {
		send_at[r] -= send[r];
		total += receive[r] / 2;
	}
	*in = need(total, sizeof **in);
	MPI_Alltoallv(sorted, send, send_at, MPI_INT64_T, *in, receive, receive_at, MPI_INT64_T, MPI_COMM_WORLD);
	free(sorted);
	free(send);
	return total;
}

/* The neighbours of my vertex v are neighbour[at[v / ranks]] and on, up to at[v / ranks + 1]. */
static int64_t *at, *neighbour;

static void make_graph(void)
{
	int64_t first = first_edge(rank), count = first_edge(rank + 1) - first, both = 0;
	struct edge *mine = need(2 * count, sizeof *mine), *in;

	for (int64_t i = first; i < first + count; i++) {
		struct edge e = edge(i);

		mine[both++] = e;
		if (e.to != e.from)
			mine[both++] = (struct edge){e.from, e.to};
	}
	both = exchange(mine, both, &in);
	at = need(owned_by(rank) + 2, sizeof *at);
	neighbour = need(both, sizeof *neighbour);
	/* Counted one place further on, so that the places are right when they are filled. */
	for (int64_t i = 0; i < both; i++)
		at[in[i].to / ranks + 2]++;
	for (int64_t v = 2; v < owned_by(rank) + 2; v++)
		at[v] += at[v - 1];
	for (int64_t i = 0; i < both; i++)
		neighbour[at[in[i].to / ranks + 1]++] = in[i].from;
	free(mine);
	free(in);
}

static int has_neighbour(int64_t v)
{
	if (v % ranks != rank)
		return 0;
	for (int64_t i = at[v / ranks]; i < at[v / ranks + 1]; i++)
		if (neighbour[i] != v)
			return 1;
	return 0;
}

/* Search keys are drawn from the vertices which have neighbours, each at most once. */
static int choose_keys(int64_t *key)
{
	int chosen = 0;

	for (int64_t tried = 0; chosen < keys && tried < 64 * vertices; tried++) {
		int64_t v = random_number(64 * edges + tried) % vertices;
		int known = 0;

		for (int i = 0; i < chosen; i++)
			known |= key[i] == v;
		if (!known && sum(has_neighbour(v)))
			key[chosen++] = v;
	}
	return chosen;
}

/* ---- the search ---- */

/* Fills parent, of my vertices; -1 is not reached. Vertices of a level ask all their
 * neighbours to become children; a rank asks each vertex once in a search. */
static void search(int64_t key, int64_t *parent)
{
	int64_t *level = need(owned_by(rank), sizeof *level), size = 0;
	struct edge *ask = need(vertices, sizeof *ask), *asked_of_me;
	char *asked = need(vertices, 1);

	memset(parent, -1, owned_by(rank) * sizeof *parent);
	if (key % ranks == rank) {
		parent[key / ranks] = key;
		level[size++] = key;
	}
	while (sum(size) > 0) {
		int64_t count = 0;

		for (int64_t k = 0; k < size; k++) {
			int64_t v = level[k];

			for (int64_t i = at[v / ranks]; i < at[v / ranks + 1]; i++) {
				if (asked[neighbour[i]])
					continue;
				asked[neighbour[i]] = 1;
				ask[count++] = (struct edge){neighbour[i], v};
			}
		}
		count = exchange(ask, count, &asked_of_me);
		size = 0;
		for (int64_t i = 0; i < count; i++) {
			struct edge e = asked_of_me[i];

			if (parent[e.to / ranks] >= 0)
				continue;
			parent[e.to / ranks] = e.from;
			level[size++] = e.to;
		}
		free(asked_of_me);
	}
	free(asked);
	free(ask);
	free(level);
}

/* ---- the validation ---- */

static int wrong(const char *what, int64_t a, int64_t b)
{
	fprintf(stderr, "bfs: rank %d: %s: %lld and %lld\n", rank, what, (long long)a, (long long)b);
	return 0;
}

/* The whole tree on every rank. */
static void gather(const int64_t *parent, int64_t *tree)
{
	int *count = need(2 * ranks, sizeof *count), *from = count + ranks;
	int64_t *all = need(vertices, sizeof *all);

	for (int r = 0; r < ranks; r++) {
		count[r] = owned_by(r);
		from[r] = r ? from[r - 1] + count[r - 1] : 0;
	}
	MPI_Allgatherv(parent, count[rank], MPI_INT64_T, all, count, from, MPI_INT64_T, MPI_COMM_WORLD);
	for (int64_t v = 0; v < vertices; v++)
		tree[v] = all[from[v % ranks] + v / ranks];
	free(all);
	free(count);
}

/* Every vertex that has a parent leads to the key; how far that is, is its depth. It is -1
 * for the others. The path is memory to work in, for as many vertices. */
static int find_depths(int64_t key, const int64_t *tree, int64_t *depth, int64_t *path)
{
	enum { UNKNOWN = -1, ON_PATH = -2 };

	for (int64_t v = 0; v < vertices; v++)
		depth[v] = UNKNOWN;
	if (tree[key] != key)
		return wrong("the key is not its own parent", key, tree[key]);
	depth[key] = 0;
	for (int64_t v = 0; v < vertices; v++) {
		int64_t length = 0, u;

		for (u = v; tree[v] >= 0 && depth[u] == UNKNOWN; u = tree[u]) {
			depth[u] = ON_PATH;
			path[length++] = u;
			if (tree[u] < 0 || tree[u] >= vertices)
				return wrong("a parent is not in the tree", u, tree[u]);
		}
		if (depth[u] == ON_PATH)
			return wrong("the tree has a cycle", v, u);
		while (length-- > 0)
			depth[path[length]] = depth[tree[path[length]]] + 1;
	}
	return 1;
}

/*
 * My part of the list of edges against the tree: an edge has both ends in it or neither,
 * and they are at most one level apart, since search goes by levels. What is a vertex and
 * its parent is joined by an edge. Counts the edges in the key's component.
 */
static int check_edges(const int64_t *tree, const int64_t *depth, char *joined, int64_t *traversed)
{
	for (int64_t i = first_edge(rank); i < first_edge(rank + 1); i++) {
		struct edge e = edge(i);
		int64_t apart = depth[e.to] - depth[e.from];

		if ((depth[e.to] < 0) != (depth[e.from] < 0))
			return wrong("an edge leads out of the tree", e.to, e.from);
		if (apart < -1 || apart > 1)
			return wrong("an edge joins vertices that are more than a level apart", e.to, e.from);
		joined[e.to] |= tree[e.to] == e.from;
		joined[e.from] |= tree[e.from] == e.to;
		*traversed += depth[e.to] >= 0;
	}
	return 1;
}

static int check_parents(int64_t key, const int64_t *tree, char *joined)
{
	MPI_Allreduce(MPI_IN_PLACE, joined, vertices, MPI_CHAR, MPI_BOR, MPI_COMM_WORLD);
	for (int64_t v = 0; v < vertices; v++)
		if (v != key && tree[v] >= 0 && !joined[v])
			return wrong("no edge joins a vertex to its parent", v, tree[v]);
	return 1;
}

static int all_agree(int ok)
{
	MPI_Allreduce(MPI_IN_PLACE, &ok, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
	return ok;
}

/* Whether parent is a breadth-first tree from the key. Of the graph as it was searched it
 * uses nothing: the edges are made once more. */
static int valid(int64_t key, const int64_t *parent, int64_t *traversed)
{
	int64_t *tree = need(3 * vertices, sizeof *tree), *depth = tree + vertices, *path = depth + vertices;
	char *joined = need(vertices, 1);
	int ok;

	gather(parent, tree);
	*traversed = 0;
	ok = all_agree(find_depths(key, tree, depth, path)) && all_agree(check_edges(tree, depth, joined, traversed)) &&
	     all_agree(check_parents(key, tree, joined));
	*traversed = sum(*traversed);
	free(joined);
	free(tree);
	return ok;
}

/* ---- the program ---- */

static void parse(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "s:e:k:")) != -1) {
		int *value = option == 's' ? &scale : option == 'e' ? &edgefactor : option == 'k' ? &keys : NULL;

		if (value)
			*value = atoi(optarg);
		if (!value || *value < 1 || scale > 20) {
			if (rank == 0)
				fprintf(stderr, "usage: bfs [-s SCALE (up to 20)] [-e EDGEFACTOR] [-k KEYS]\n");
			MPI_Finalize();
			exit(2);
		}
	}
	vertices = INT64_C(1) << scale;
	edges = edgefactor * vertices;
}

/* The time since began, of the rank that was last. */
static double elapsed(double began)
{
	double took = MPI_Wtime() - began;

	MPI_Allreduce(MPI_IN_PLACE, &took, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	return took;
}

int main(int argc, char **argv)
{
	double began, total = 0, inverse_rates = 0;
	int64_t *key, *parent;
	int all_valid = 1;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	parse(argc, argv);

	began = MPI_Wtime();
	make_graph();
	key = need(keys, sizeof *key);
	keys = choose_keys(key);
	parent = need(owned_by(rank), sizeof *parent);
	if (rank == 0)
		printf("graph of %lld vertices and %lld edges, made in %.3f s by %d ranks\n", (long long)vertices, (long long)edges,
		       MPI_Wtime() - began, ranks);

	for (int i = 0; i < keys; i++) {
		int64_t traversed;
		double seconds;
		int ok;

		MPI_Barrier(MPI_COMM_WORLD);
		began = MPI_Wtime();
		search(key[i], parent);
		seconds = elapsed(began);
		ok = valid(key[i], parent, &traversed);
		if (rank == 0)
			printf("search from %lld: %lld edges in %.4f s, %s\n", (long long)key[i], (long long)traversed, seconds, ok ? "valid" : "WRONG");
		all_valid &= ok;
		total += seconds;
		inverse_rates += seconds / traversed;
	}
	if (rank == 0)
		printf("bfs: %d searches in %.4f s, %.3e TEPS (harmonic mean): %s\n", keys, total, keys / inverse_rates, all_valid ? "verified" : "WRONG");
	MPI_Finalize();
	return all_valid ? 0 : 1;
}
