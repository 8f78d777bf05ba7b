/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the cutter share: marks, the formats that set them, the gear hash. */
#ifndef EPOCHFS_STORE_CUTTER_IMPL_H
#define EPOCHFS_STORE_CUTTER_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/store/cutter.h"

/*
 * What the window holds beyond the place of the next cut: a whole chunk, then enough to tell
 * whether a zip's entry that begins in it is large (CUTTER_TENSOR_MIN, and 68 KiB for its header,
 * name and extra field), or a run of zeros long enough.
 */
#define CUTTER_AHEAD (CUTTER_CHUNK_MAX + ((size_t)256 << 10))

/* As cutter_open, with a window of this size, at least CUTTER_AHEAD: for tests, as it must not
 * change the cuts (but that a safetensors header has to fit in). */
int cutter_open_window(const struct cutter_source *source, size_t window,
		       struct cutter **ret_cutter);

/* A place where a segment must begin, and what begins there: a large tensor, or anything else. */
struct mark {
	uint64_t offset;
	bool tensor;
};

/* A queue of marks in rising order. Zero-initialise. */
struct marks {
	struct mark *items;
	size_t head; /* the first one not yet passed */
	size_t count;
	size_t cap;
};

/* Appends a mark: 0 or -ENOMEM. At the offset of the last one it takes that one's place; before it,
 * it is ignored. */
int marks_push(struct marks *m, uint64_t offset, bool tensor);
/* The first one, or NULL. */
const struct mark *marks_first(const struct marks *m);
void marks_pop(struct marks *m);
void marks_free(struct marks *m);

/*
 * The scan of a zip for its entries. `entry` is where the data of the last header begins; it gets a
 * mark once CUTTER_TENSOR_MIN bytes have passed without another header.
 */
struct zip_scan {
	uint64_t pos; /* every header before here has been seen */
	uint64_t entry;
	bool has_entry;
	bool large; /* the entry has got its mark */
};

bool zip_begins(const uint8_t *data, size_t len);
/* Scans `len` bytes that stand at `base` in the file (base <= z->pos); `end`: they are its last. 0
 * or -ENOMEM. */
int zip_scan(struct zip_scan *z, const uint8_t *data, size_t len, uint64_t base, bool end,
	     struct marks *m);
/* Every mark before this offset is known. */
uint64_t zip_settled(const struct zip_scan *z);

/*
 * Where the len bytes at the start of a file of `size` bytes hold a whole safetensors header, sets
 * the marks of its tensors and ret_data to where their bytes begin: 1. 0 where they do not;
 * -ENOMEM. What the header says is only believed where it lies in the file.
 */
int safetensors_marks(const uint8_t *data, size_t len, uint64_t size, struct marks *m,
		      uint64_t *ret_data);

/*
 * The length of the content-defined chunk at the start of `data`, which has `len` bytes up to where
 * it must end. `phase` (< 8) is the offset of its first word.
 */
size_t gear_cut(const uint8_t *data, size_t len, size_t phase);

/* The number of zero bytes at the start of `data`. */
size_t zero_prefix(const uint8_t *data, size_t len);
/*
 * The first run of CUTTER_ZERO_MIN or more zeros, in whole words (the first at `phase`), that
 * begins at or before `max`: its offset, or `len` where there is none. It may not go beyond len; a
 * run that does so counts with what lies before.
 */
size_t zero_run(const uint8_t *data, size_t max, size_t len, size_t phase);

#endif
