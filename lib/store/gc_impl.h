/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of store_gc share (gc.h says what a pass is). Private to lib/store.
 *
 *	gc.c		making and ending; the tables; marking; the index of the store that the pass reads and writes with
 *	gc_read.c	store_gc_read; which index objects stay, and the writing of new ones
 *	gc_plan.c	store_gc_plan, store_gc_delete, store_gc_list: homes, condemning, deleting
 *	gc_write.c	store_gc_write: packs that are rewritten
 *
 * Three tables hold all that is known of the remote: packs, index objects, and rows, one for each place of a chunk that an index
 * object names. An entry is never removed, so its number in the table stands for it for the whole pass; a pointer to one holds
 * until something is added to its table. Lengths are bytes, as stored unless they say "plain"; times are of the wall clock,
 * in nanoseconds.
 *
 * Threads: a pass is of one thread. store_gc_mark, from any number of them, only reads the tables and sets `live`. While store_gc_write
 * has a batch, the batch's threads look chunks up through the store's index, and at its end add rows: under `lock`, under which the
 * thread of the pass changes then what they read. The functions below take no lock, but gc_progress. An int is 0 or -ENOMEM, where nothing else is said.
 */
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

/* A pack that is listed, or that an index object names. */
struct gc_pack {
	struct hash id; /* first: found by hash_index */
	uint64_t size;	/* 0 where it is not there */
	bool there;	/* the remote has it */
	bool named;	/* by an index object */
	bool written;	/* by this pass */
	/* From the old list: condemned by this generation, at this time. Generation 0 with a time: seen since then without a name. */
	uint64_t generation;
	int64_t since_ns;
	/* Bytes of frames: all, of live chunks, of those at home here. */
	uint64_t all, live, home;
	bool rewrite;  /* its chunks go to a new pack */
	bool stays;    /* as it is though `rewrite`, since a chunk in it could not be read */
	bool condemn;  /* by this pass */
	bool deleted;  /* by this pass */
	bool to_index; /* the new index objects must name it */
};

/* An index object. Where the same bytes lie under several numbers, there are several with one id. */
struct gc_object {
	struct hash id; /* first: found by hash_index */
	uint64_t number;
	uint64_t size;
	int error;	     /* -errno of why it could not be read; it has no rows then */
	size_t first, count; /* of its rows, in `listed` */
	/* As of a pack. */
	uint64_t generation;
	int64_t since_ns;
	bool written;
	bool condemn, deleted;
	bool fresh; /* stays as it is */
};

/* A place of a chunk. The rows of one chunk are a list: the first one is found by the chunk's hash. */
struct gc_row {
	struct hash chunk; /* first: found by hash_index */
	uint32_t pack;	   /* its number in `packs` */
	uint32_t offset;
	uint32_t stored_len;
	uint32_t plain_len;
	uint32_t next;	  /* another place of the same chunk, or ROW_NONE */
	bool bad;	  /* damaged */
	bool checked;	  /* read, and right */
	bool home;	  /* the pack is kept for this copy */
	bool covered;	  /* an index object that stays names it */
	atomic_bool live; /* of the chunk: its first row's counts */
};
#define ROW_NONE UINT32_MAX

struct store_gc {
	struct remote *remote; /* borrowed */
	struct store_gc_terms terms;
	struct store *store; /* owned; its index is these tables */
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
	bool marking;	   /* until the plan: what the store reads is live */
	struct mutex lock; /* LOCK_STORE_GC: see above; also calls of progress */
};

/* ---- gc.c: the tables, and what they say of a chunk ---- */

/* The number of the pack with this id, which is added where the table has none. */
int gc_pack_number(struct store_gc *g, const struct hash *id, uint32_t *ret_number);
/* Adds an index object, without rows; also where the table has one of this id. */
int gc_add_object(struct store_gc *g, uint64_t number, const struct hash *id, uint64_t size);
/* Notes a place of a chunk as named by the object that was added last, and its pack as named. A place that is there gets no second row. */
int gc_add_row(struct store_gc *g, const struct hash *chunk, const struct store_place *place);
/* The first row of a chunk, which has its `live`; NULL: no index object names it. */
struct gc_row *gc_first_row(const struct store_gc *g, const struct hash *chunk);
/* Whether the chunk could be had from there, as far as is known: the pack is there and long enough, and no read has failed. */
static inline bool gc_row_usable(const struct store_gc *g, const struct gc_row *row)
{
	const struct gc_pack *p = &g->packs[row->pack];

	return p->there && !p->deleted && !row->bad &&
	       (uint64_t)row->offset + row->stored_len <= p->size;
}
/* Of a chunk's list of rows the best usable one by the rules of gc.h, or NULL. Before the plan, live parts are not known and do not count. */
struct gc_row *gc_best_row(const struct store_gc *g, struct gc_row *first);
/* Tells the caller of the pass. Takes `lock`. */
void gc_progress(struct store_gc *g, const char *phase, uint64_t done, uint64_t total);

/* ---- gc_plan.c: homes ---- */

/* Decides anew, for all live chunks, which copy is at home, and from that which packs are condemned: after whatever changed rows or
 * packs. 0, or -EIO: no usable copy of a live chunk is left. Then
 * the pass is over: nothing may be condemned. */
int gc_settle_packs(struct store_gc *g);
/* Reads and checks each home's copy for whose sake another one is given up, and settles again where it is damaged. -ENOMEM, the remote's
 * errors, or -EIO as above. */
int gc_check_copies(struct store_gc *g);
/* Whether it stays and index objects are to name it: a chunk is at home in it, and it is not rewritten. */
bool gc_pack_kept(const struct gc_pack *p);

/* ---- gc_read.c: index objects; once the packs are settled ---- */

/* Decides which index objects stay and which are condemned, and for which packs new ones are needed. No I/O. */
void gc_plan_indexes(struct store_gc *g);
/* The same, then puts those that are needed. The remote's errors, -ENOMEM; -EIO: a home would be named by none, nothing may be condemned. */
int gc_write_indexes(struct store_gc *g);
/* A number above those of all index objects, and of the epoch that the terms name. */
uint64_t gc_next_number(const struct store_gc *g);

#endif
