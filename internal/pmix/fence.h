//go:build ignore

/* Fences: all ranks wait for each other, and their VMs exchange what they have to say. */
#ifndef FENCE_H
#define FENCE_H

#include "placement.h"

#include <stdbool.h>
#include <stddef.h>

/* A barrier of all ranks. With gather, *all becomes the data of all VMs, one after the other, in allocated memory; data are
 * those of this VM. Returns false if a rank of this VM or PMI's server is gone. */
bool fence(const struct placement *p, bool gather, const char *data, size_t size, char **all, size_t *all_size);

#endif
