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

#endif
