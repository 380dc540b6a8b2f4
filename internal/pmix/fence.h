//go:build ignore

/* Fences: all ranks wait for each other, and exchange what they have to say. */
#ifndef FENCE_H
#define FENCE_H

#include <stdbool.h>
#include <stddef.h>

/* A barrier of all ranks. With gather, *all becomes the data of all ranks, one after the other,
 * in allocated memory. Returns false if PMI's server is gone or what it says makes no sense. */
bool fence(bool gather, const char *data, size_t size, char **all, size_t *all_size);

#endif
