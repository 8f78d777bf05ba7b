/* SPDX-License-Identifier: Apache-2.0 */
/* Cuts a file's content into segments at places that the content itself decides. */
#ifndef EPOCHFS_STORE_CUTTER_H
#define EPOCHFS_STORE_CUTTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "lib/util/cleanup.h"

/*
 * The segments of a file follow one another without gap from 0 to its size. A DATA segment becomes
 * a chunk; a ZERO segment costs nothing but its line in the recipe. Where to cut:
 *
 *  - zip (torch.save, npz), told by its first local header: an entry of CUTTER_TENSOR_MIN bytes or
 *    more starts a segment at its data and ends one at the next header. Headers are found by a scan
 *    while streaming, because torch.save writes their sizes as 0.
 *  - safetensors, told by its JSON header: the same for tensors, whose offsets stand there.
 *  - Inside such a tensor: every CUTTER_CHUNK_MAX bytes from its start.
 *  - Everything else, also what lies between large tensors: content-defined, by a gear hash over
 *    8-byte words (one step a word, cuts only between words; CUTTER_CHUNK_MIN to _MAX, 256 KiB on
 *    average).
 *  - Zeros: inside a tensor, blocks of CUTTER_ZERO_MIN from its start that are all zero; elsewhere
 *    runs of that length or more. Two ZERO segments may follow one another.
 *
 * The cuts depend on nothing but the content: not on holes, which are only skipped faster.
 */
#define CUTTER_CHUNK_MIN  ((size_t)64 << 10)
#define CUTTER_CHUNK_MAX  ((size_t)1 << 20)
#define CUTTER_ZERO_MIN	  ((size_t)64 << 10)
#define CUTTER_TENSOR_MIN ((size_t)128 << 10)

enum segment_kind { SEGMENT_DATA, SEGMENT_ZERO };

struct segment {
	enum segment_kind kind;
	uint64_t offset;
	uint64_t len;	     /* DATA: 1 .. CUTTER_CHUNK_MAX; ZERO: any, also beyond 4 GiB */
	const uint8_t *data; /* DATA: the content, until the next call of cutter_next; ZERO: NULL */
};

/* Where the content comes from. It must not change while it is cut. */
struct cutter_source {
	uint64_t size;
	/* Reads up to len bytes at offset, fewer only at the end: the count or -errno. */
	ssize_t (*pread)(void *arg, void *data, size_t len, uint64_t offset);
	/* The first offset at or after `offset` that may hold data, or any value >= size where
	 * there is none; may be NULL, where holes are not known. */
	uint64_t (*next_data)(void *arg, uint64_t offset);
	void *arg;
};

/* A regular file as such a source. Its holes, and what is only preallocated, are not read; its file offset changes
 * (lseek). */
struct cutter_file {
	int fd;
	uint64_t size; /* cut is [0, size) */
	/* Asked before each read, of a few MiB: true ends the cutting with -ECANCELED. NULL: never. */
	bool (*stopped)(void *arg);
	void *arg;
	/* The cutter's own: the next hole at or after what was read, and its end. */
	uint64_t hole, data;
};

/* One file being cut; memory up to CUTTER_MEMORY_MAX. Not thread-safe. */
struct cutter;
#define CUTTER_MEMORY_MAX ((size_t)12 << 20)

/* Reads the file's start. 0, -ENOMEM, or the source's error. */
int cutter_open(const struct cutter_source *source, struct cutter **ret_cutter);
/* The same for a file, which stays, open, until cutter_close. */
int cutter_open_file(struct cutter_file *file, struct cutter **ret_cutter);
/* 1 and the next segment; 0 at the end; -errno of the source, -ECANCELED, -ENODATA where the content ends
 * before its size. */
int cutter_next(struct cutter *c, struct segment *ret_segment);
/* NULL is allowed. */
void cutter_close(struct cutter *c);

static inline void cleanup_cutter_fn(struct cutter **c)
{
	cutter_close(*c);
}
#define cleanup_cutter CLEANUP(cleanup_cutter_fn)

/* ---- for cutter*.c alone ---- */

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
