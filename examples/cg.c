/*
 * The smallest eigenvalue of a sparse matrix, by inverse iteration with the conjugate
 * gradient method, in the style of the kernel CG of the NAS parallel benchmarks:
 *
 *     cg [-n ORDER] [-i ITERATIONS]
 *
 * The matrix is symmetric and positive definite, with up to 64 elements in a row, at
 * random places. It is A = Q D Q', where D is diagonal, with eigenvalues from 0.2 to 1,
 * and Q is three layers of rotations, each of which turns random pairs of coordinates.
 * Each iteration solves A z = x by 25 steps of CG and estimates the eigenvalue as
 * zeta = x.x / x.z.
 *
 * What zeta must be is known beforehand: in the coordinates that Q gives, A is D, and
 * division solves the system. So each iteration's zeta is verified against a value that is
 * found without the matrix, without CG and without messages. The exit status is 1 if one
 * is wrong.
 *
 * Each rank has a block of rows, and of every vector.
 */
#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LAYERS = 3, STEPS = 25, ROW = 1 << 2 * LAYERS };
static const double smallest = 0.2, tolerance = 1e-10;

static int order = 4096, iterations = 15;
static int rank, ranks;
static int *rows, *first; /* of each rank */

static void *need(size_t count, size_t size)
{
	void *memory = calloc(count ? count : 1, size);

	if (!memory) {
		perror("cg");
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
	return memory;
}

/* ---- D and Q, which every rank has ---- */

static double *eigenvalue;
static struct layer {
	int *mate; /* with which coordinate each one is turned */
	double *cosine, *sine;
} layers[LAYERS];

/* a sequence of random numbers (splitmix64) */
static uint64_t random_number(void)
{
	static uint64_t state;
	uint64_t x = state += 0x9e3779b97f4a7c15u;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static void shuffle(int *items, int count)
{
	for (int i = count - 1; i > 0; i--) {
		int j = random_number() % (i + 1), item = items[i];

		items[i] = items[j];
		items[j] = item;
	}
}

static void make_layer(struct layer *l)
{
	int *pairs = need(order, sizeof *pairs);

	l->mate = need(order, sizeof *l->mate);
	l->cosine = need(order, sizeof *l->cosine);
	l->sine = need(order, sizeof *l->sine);
	for (int i = 0; i < order; i++)
		pairs[i] = i;
	shuffle(pairs, order);
	for (int i = 0; i < order; i += 2) {
		int a = pairs[i], b = pairs[i + 1];
		double angle = (random_number() >> 11) * 0x1p-53 * 2 * M_PI;

		l->mate[a] = b;
		l->mate[b] = a;
		l->cosine[a] = l->cosine[b] = cos(angle);
		l->sine[a] = -sin(angle);
		l->sine[b] = sin(angle);
	}
	free(pairs);
}

static void make_factors(void)
{
	eigenvalue = need(order, sizeof *eigenvalue);
	for (int i = 0; i < order; i++)
		eigenvalue[i] = pow(smallest, 1 - (double)i / (order - 1));
	for (int i = 0; i < LAYERS; i++)
		make_layer(&layers[i]);
}

/* ---- the matrix, of which a rank has its rows ---- */

struct sparse {
	int count, at[ROW];
	double value[ROW];
};

static void add(struct sparse *x, int at, double value)
{
	int i = 0;

	while (i < x->count && x->at[i] != at)
		i++;
	if (i == x->count) {
		x->at[x->count++] = at;
		x->value[i] = 0;
	}
	x->value[i] += value;
}

/* One layer of Q, or of its inverse if the direction is -1. */
static void turn(struct sparse *x, const struct layer *l, int direction)
{
	struct sparse turned = {0};

	for (int i = 0; i < x->count; i++) {
		int at = x->at[i], mate = l->mate[at];

		add(&turned, at, l->cosine[at] * x->value[i]);
		add(&turned, mate, direction * l->sine[mate] * x->value[i]);
	}
	*x = turned;
}

/* A row of A is its column, A e = Q D Q' e. */
static struct sparse matrix_row(int i)
{
	struct sparse x = {.count = 1, .at = {i}, .value = {1}};

	for (int l = LAYERS - 1; l >= 0; l--)
		turn(&x, &layers[l], -1);
	for (int k = 0; k < x.count; k++)
		x.value[k] *= eigenvalue[x.at[k]];
	for (int l = 0; l < LAYERS; l++)
		turn(&x, &layers[l], 1);
	return x;
}

static struct sparse *matrix;

static void make_matrix(void)
{
	matrix = need(rows[rank], sizeof *matrix);
	for (int i = 0; i < rows[rank]; i++)
		matrix[i] = matrix_row(first[rank] + i);
}

/* y = A x */
static void multiply(const double *x, double *y)
{
	static double *all;

	if (!all)
		all = need(order, sizeof *all);
	MPI_Allgatherv(x, rows[rank], MPI_DOUBLE, all, rows, first, MPI_DOUBLE, MPI_COMM_WORLD);
	for (int i = 0; i < rows[rank]; i++) {
		const struct sparse *row = &matrix[i];
		double sum = 0;

		for (int k = 0; k < row->count; k++)
			sum += row->value[k] * all[row->at[k]];
		y[i] = sum;
	}
}

/* ---- the solver ---- */

static double dot(const double *x, const double *y)
{
	double sum = 0;

	for (int i = 0; i < rows[rank]; i++)
		sum += x[i] * y[i];
	MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
	return sum;
}

/* Solves A z = x; works in p, q and r. Returns |x - A z|. */
static double solve(const double *x, double *z, double *p, double *q, double *r)
{
	double rho;
	int n = rows[rank];

	memset(z, 0, n * sizeof *z);
	memcpy(r, x, n * sizeof *r);
	memcpy(p, x, n * sizeof *p);
	rho = dot(r, r);
	for (int step = 0; step < STEPS; step++) {
		double alpha, before = rho;

		multiply(p, q);
		alpha = rho / dot(p, q);
		for (int i = 0; i < n; i++) {
			z[i] += alpha * p[i];
			r[i] -= alpha * q[i];
		}
		rho = dot(r, r);
		for (int i = 0; i < n; i++)
			p[i] = r[i] + rho / before * p[i];
	}
	multiply(z, q);
	for (int i = 0; i < n; i++)
		r[i] = x[i] - q[i];
	return sqrt(dot(r, r));
}

/* Fills zeta and residual, of each iteration. */
static void iterate(double *zeta, double *residual)
{
	int n = rows[rank];
	double *x = need(5 * n, sizeof *x), *z = x + n;

	for (int i = 0; i < n; i++)
		x[i] = 1 / sqrt(order);
	for (int k = 0; k < iterations; k++) {
		double length;

		residual[k] = solve(x, z, z + n, z + 2 * n, z + 3 * n);
		zeta[k] = dot(x, x) / dot(x, z);
		length = sqrt(dot(z, z));
		for (int i = 0; i < n; i++)
			x[i] = z[i] / length;
	}
	free(x);
}

/* ---- the verification ---- */

/* What zeta must be in each iteration: all of it in the coordinates in which A is D. */
static void expect(double *zeta)
{
	double *x = need(2 * order, sizeof *x), *turned = x + order;

	for (int i = 0; i < order; i++)
		x[i] = 1 / sqrt(order);
	for (int l = LAYERS - 1; l >= 0; l--) {
		for (int i = 0; i < order; i++)
			turned[i] = layers[l].cosine[i] * x[i] - layers[l].sine[i] * x[layers[l].mate[i]];
		memcpy(x, turned, order * sizeof *x);
	}
	for (int k = 0; k < iterations; k++) {
		double xx = 0, xz = 0;

		for (int i = 0; i < order; i++) {
			xx += x[i] * x[i];
			xz += x[i] * x[i] / eigenvalue[i];
			/* Less than the smallest eigenvalue's share, so that nothing overflows. */
			x[i] *= smallest / eigenvalue[i];
		}
		zeta[k] = xx / xz;
	}
	free(x);
}

static int verify(const double *zeta, const double *residual)
{
	double *expected = need(iterations, sizeof *expected);
	int ok = 1;

	expect(expected);
	for (int k = 0; k < iterations; k++) {
		/* What is not a number is wrong, too. */
		int right = fabs(zeta[k] - expected[k]) <= tolerance * expected[k];

		if (rank == 0)
			printf("iteration %d: |x - A z| = %.1e, zeta = %.12f, expected %.12f, %s\n", k + 1, residual[k], zeta[k],
			       expected[k], right ? "right" : "WRONG");
		ok &= right;
	}
	free(expected);
	return ok;
}

/* ---- the program ---- */

static void parse(int argc, char **argv)
{
	int option;

	while ((option = getopt(argc, argv, "n:i:")) != -1) {
		int *value = option == 'n' ? &order : option == 'i' ? &iterations : NULL;

		if (value)
			*value = atoi(optarg);
		if (!value || *value < 1 || order % 2 || order < 2 * ROW) {
			if (rank == 0)
				fprintf(stderr, "usage: cg [-n ORDER (even, at least 128)] [-i ITERATIONS]\n");
			MPI_Finalize();
			exit(2);
		}
	}
}

static void divide_rows(void)
{
	rows = need(ranks, sizeof *rows);
	first = need(ranks, sizeof *first);
	for (int r = 0; r < ranks; r++) {
		first[r] = (int64_t)order * r / ranks;
		rows[r] = (int64_t)order * (r + 1) / ranks - first[r];
	}
}

int main(int argc, char **argv)
{
	double *zeta, *residual, began, seconds;
	int ok;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	parse(argc, argv);
	divide_rows();
	make_factors();
	make_matrix();
	zeta = need(iterations, sizeof *zeta);
	residual = need(iterations, sizeof *residual);

	MPI_Barrier(MPI_COMM_WORLD);
	began = MPI_Wtime();
	iterate(zeta, residual);
	seconds = MPI_Wtime() - began;
	MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);

	ok = verify(zeta, residual);
	if (rank == 0)
		printf("cg: %d iterations in %.4f s, zeta = %.12f by %d ranks: %s\n", iterations, seconds, zeta[iterations - 1], ranks,
		       ok ? "verified" : "WRONG");
	MPI_Finalize();
	return ok ? 0 : 1;
}
