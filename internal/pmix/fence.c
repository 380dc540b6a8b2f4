//go:build ignore

#include "fence.h"

#include "local.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * The data of a VM in fence F, whose lowest rank is R, are the values of the keys pmix-F-R-0, pmix-F-R-1 and so on, in
 * hexadecimal digits, which no PMI server takes for a separator. Before the first is the size in
 * bytes and a colon.
 */
enum { BYTES = PMI_VALUE / 2 - 16 }; /* of data in a value */

static const char digits[] = "0123456789abcdef";

static void key_of(char key[64], unsigned long number, int rank, size_t part)
{
	snprintf(key, 64, "pmix-%lu-%d-%zu", number, rank, part);
}

static void encode(char *to, const unsigned char *from, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		*to++ = digits[from[i] >> 4];
		*to++ = digits[from[i] & 15];
	}
	*to = 0;
}

/* Returns how many bytes the digits are, at most room; -1 if they are none. */
static long decode(char *to, size_t room, const char *from)
{
	size_t n = 0;

	for (; *from && n < room; from += 2) {
		const char *high = strchr(digits, from[0]), *low = from[1] ? strchr(digits, from[1]) : NULL;

		if (!high || !low)
			return -1;
		to[n++] = (high - digits) << 4 | (low - digits);
	}
	return n;
}

static bool put(struct pmi *leader, unsigned long number, const char *data, size_t size)
{
	char key[64], value[PMI_VALUE + 1];
	size_t done = 0;

	for (size_t part = 0; part == 0 || done < size; part++) {
		size_t n = size - done < BYTES ? size - done : BYTES;
		int head = part ? 0 : snprintf(value, sizeof(value), "%zu:", size);

		encode(value + head, (const unsigned char *)data + done, n);
		key_of(key, number, leader->rank, part);
		if (!pmi_put(leader, key, value))
			return false;
		done += n;
	}
	return true;
}

static void die(const char *key)
{
	fprintf(stderr, "slurm-v: --mpi=pmix: Slurm's PMI server has changed what a rank has put (%s)\n", key);
	exit(1);
}

/* Appends the data of a VM to what to has. */
static bool get(struct pmi *leader, unsigned long number, int rank, FILE *to)
{
	char key[64], value[1024], *text = value, bytes[BYTES];
	size_t size = 0, done = 0;

	for (size_t part = 0; part == 0 || done < size; part++) {
		long n;

		key_of(key, number, rank, part);
		if (!pmi_need(leader, key, value))
			return false;
		text = value;
		if (part == 0) {
			size = strtoul(value, &text, 10);
			if (*text++ != ':')
				die(key);
		}
		n = decode(bytes, sizeof(bytes), text);
		if (n < 0 || (n == 0 && done < size) || done + n > size)
			die(key);
		fwrite(bytes, 1, n, to);
		done += n;
	}
	return true;
}

static bool gather_all(const struct placement *p, struct pmi *leader, unsigned long number, const char *data, size_t size, FILE *to)
{
	for (int vm = 0; vm < p->vms; vm++) {
		if (p->leader[vm] == leader->rank)
			fwrite(data, 1, size, to);
		else if (!get(leader, number, p->leader[vm], to))
			return false;
	}
	return true;
}

bool fence(const struct placement *p, bool gather, const char *data, size_t size, char **all, size_t *all_size)
{
	static unsigned long fences;
	struct pmi *leader = &local_of(p->leader[p->here])->pmi;
	unsigned long number = fences++;
	bool ok = !gather || put(leader, number, data, size);
	FILE *to = open_memstream(all, all_size);

	ok = ok && local_barrier() && (!gather || gather_all(p, leader, number, data, size, to));
	fclose(to);
	return ok;
}
