/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays that grow, and sets of numbers in them. */
#ifndef EPOCHFS_UTIL_ARRAY_H
#define EPOCHFS_UTIL_ARRAY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Room for one more behind `count` items of `size` bytes at *items, which has room for *cap and is
 * freed with free(3): 0, or -ENOMEM with nothing changed. What is new is not initialised. Items may
 * move. Not thread-safe.
 */
int array_reserve(void **items, size_t *cap, size_t count, size_t size);

/* ---- which bytes of something were written ---- */

/* No two touch; in order. Zero-initialised it is empty. Not thread-safe. */
struct spans {
	struct span {
		uint64_t from, to; /* without `to` */
	} * v;
	size_t count, cap;
};

/* So many are kept. */
#define SPANS_MAX 4096

/* What comes when there are too many, or no memory, and touches none, is not noted: then less was written than was. */
void spans_add(struct spans *s, uint64_t from, uint64_t to);
/* Whether all numbers below `to` are in it. */
bool spans_reach(const struct spans *s, uint64_t to);
/* Empties it and frees its memory. */
void spans_free(struct spans *s);

#endif
