/* SPDX-License-Identifier: Apache-2.0 */
/* Which bytes of something were written: a set of numbers, kept as spans. */
#ifndef EPOCHFS_UTIL_SPANS_H
#define EPOCHFS_UTIL_SPANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

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
