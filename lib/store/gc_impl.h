/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of store_gc share. Private to lib/store. */
#ifndef EPOCHFS_STORE_GC_IMPL_H
#define EPOCHFS_STORE_GC_IMPL_H

#include <stdatomic.h>
#include "lib/format/names.h"
#include "lib/store/gc.h"
#include "lib/store/hash_index.h"
#include "lib/store/store_impl.h"
#include "lib/util/lock.h"

/* An index object of fewer chunks is small; so many small ones are merged. */
#define GC_SMALL_ROWS  8192
#define GC_SMALL_COUNT 16
/* A new index object ends with the pack with which it reaches so many chunks. */
#define GC_INDEX_ROWS 65536

struct gc_pack {
	struct hash id; /* first: found by hash_index */
	uint64_t size;
	bool there;   /* the remote has it */
	bool named;   /* by an index object */
	bool written; /* by this pass */
	/* From the old list; generation 0 with seen_ns: seen without a name. */
	uint64_t generation;
	int64_t since_ns;
	/* Bytes of frames: all, of live chunks, of those at home here. */
	uint64_t all, live, home;
	bool rewrite; /* its chunks go to a new pack */
	bool stays;   /* as it is, since a chunk in it could not be read */
	bool condemn; /* now */
	bool deleted;
	bool to_index; /* the new index objects must name it */
};

struct gc_object {
	struct hash id; /* first: found by hash_index */
	uint64_t number;
	uint64_t size;
	int error;	     /* it could not be read */
	size_t first, count; /* of its rows, in `listed` */
	uint64_t generation;
	int64_t since_ns;
	bool written;
	bool fresh; /* stays as it is */
	bool condemn, deleted;
};

/* A place of a chunk. */
struct gc_row {
	struct hash chunk; /* first: found by hash_index */
	uint32_t pack;
	uint32_t offset;
	uint32_t stored_len;
	uint32_t plain_len;
	uint32_t next; /* another place of the same chunk, or ROW_NONE */
	bool bad;      /* damaged */
	bool checked;  /* read, and right */
	bool home;
	bool covered;	  /* an index object that stays names it */
	atomic_bool live; /* of the chunk: its first row's counts */
};
#define ROW_NONE UINT32_MAX

struct store_gc {
	struct remote *remote;
	struct store_gc_terms terms;
	struct store *store;
	struct gc_pack *packs;
	size_t pack_count, pack_cap;
	struct hash_index packs_by_id;
	struct gc_object *objects;
	size_t object_count, object_cap;
	struct hash_index objects_by_id;
	struct gc_row *rows;
	size_t row_count, row_cap;
	struct hash_index rows_by_chunk; /* the first row of each chunk */
	uint32_t *listed;		 /* numbers of rows, object after object */
	size_t listed_count, listed_cap;
	struct store_gc_totals totals;
	bool marking; /* what the store reads is live */
	struct mutex
		lock; /* guards what store_gc_write adds to rows while its batch looks them up, and calls of progress */
};

/* The number of the pack, added where it is not there. */
int gc_pack_number(struct store_gc *g, const struct hash *id, uint32_t *ret_number);
/* Notes a place that the newest object names. */
int gc_add_row(struct store_gc *g, const struct hash *chunk, const struct store_place *place);
int gc_add_object(struct store_gc *g, uint64_t number, const struct hash *id, uint64_t size);
struct gc_row *gc_first_row(const struct store_gc *g, const struct hash *chunk);
void gc_progress(struct store_gc *g, const char *phase, uint64_t done, uint64_t total);
/* Whether it could be had from there, as far as is known. */
static inline bool gc_row_usable(const struct store_gc *g, const struct gc_row *row)
{
	const struct gc_pack *p = &g->packs[row->pack];

	return p->there && !p->deleted && !row->bad &&
	       (uint64_t)row->offset + row->stored_len <= p->size;
}
/* The best place of a chunk by the rules of gc.h, or NULL. Before the plan, live parts are not known and do not count. */
struct gc_row *gc_best_row(const struct store_gc *g, struct gc_row *first);

/* gc_read.c: which index objects stay; and new ones for what no such object names. */
void gc_plan_indexes(struct store_gc *g);
int gc_write_indexes(struct store_gc *g);
/* A number above those of all index objects and epochs. */
uint64_t gc_next_number(const struct store_gc *g);
/* gc_plan.c: sums up again what is at home where, and what is condemned. -EIO: no copy is left of a live chunk. */
int gc_settle_packs(struct store_gc *g);
/* Reads the copies on which it depends that others are given up, and decides again where one is bad. */
int gc_check_copies(struct store_gc *g);
/* A pack that new index objects are to name. */
bool gc_pack_kept(const struct gc_pack *p);

#endif
