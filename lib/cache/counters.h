/* SPDX-License-Identifier: Apache-2.0 */
/* What a volume counts while it is open, for who watches it (lib/metrics). */
#ifndef EPOCHFS_CACHE_COUNTERS_H
#define EPOCHFS_CACHE_COUNTERS_H

#include <stdatomic.h>
#include <stdint.h>

/*
 * All begin at 0 when the volume is opened, and rise. Any thread, any lock: each field is atomic for itself, and two of them may be of
 * different moments.
 */

/* ---- how long something took ---- */

#define HISTOGRAM_BOUNDS 13
/* Ascending, in nanoseconds. A time counts in the first place whose bound it does not pass; the last place has no bound. */
extern const int64_t histogram_bounds_ns[HISTOGRAM_BOUNDS];

struct histogram {
	_Atomic uint64_t count[HISTOGRAM_BOUNDS + 1];
	_Atomic int64_t sum_ns;
};

void histogram_add(struct histogram *h, int64_t ns);

/* ---- the counters of a volume ---- */

struct counters {
	struct histogram
		save; /* of a file that was saved: from its first open for writing to its last close */
	struct histogram
		close; /* of a close of a file open for writing: what it waits in the daemon */
	/* Files that were being saved: their writer was killed; a write was refused; their own format says that they are cut off. */
	_Atomic uint64_t killed, refused, torn;
	/* Opens of closed content that nobody had open: all of it was local; some must come from the remote. */
	_Atomic uint64_t cache_hits, cache_misses;
	/* Bytes of contents that were given to the store; of them not stored before; and of packs and index objects made of these. */
	_Atomic uint64_t store_input, store_new, store_output;
};

void counters_add_stored(struct counters *c, uint64_t input, uint64_t fresh, uint64_t output);

#endif
