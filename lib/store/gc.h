/* SPDX-License-Identifier: Apache-2.0 */
/* Garbage collection of packs and index objects: what is live, what goes, what is rewritten. */
#ifndef EPOCHFS_STORE_GC_H
#define EPOCHFS_STORE_GC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/format/gc_list.h"
#include "lib/format/names.h"
#include "lib/remote/remote.h"
#include "lib/store/store.h"

/*
 * One pass, in this order: store_gc_new; store_gc_read, once the epochs that are there have been listed; store_gc_mark
 * for each chunk that an epoch names, from any number of threads; store_gc_plan; and where it is no dry run
 * store_gc_write, store_gc_delete; then store_gc_list for what is to be published, and store_gc_get_totals. All but
 * store_gc_mark: one thread at a time. Which epochs there are and what they name is the caller's; the protocol that makes it safe beside
 * writers and readers is in lib/meta/collection.h.
 *
 * Each live chunk has one home: the pack that is kept for its sake. Of several packs that hold it, one that is not
 * condemned goes before one that is, then the one with the larger live part. A pack that is no chunk's home is
 * condemned. Where that gives up a copy in a pack that was not condemned yet, the home's copy is read and checked
 * before. A pack of which less than `keep_percent` is at home is rewritten: its chunks are read, stored in new packs,
 * and read back from there. Index objects that name a pack that is not kept, and small ones where there are many,
 * are merged into new ones, whose numbers are above all others, and condemned.
 * A pack that no index object names may belong to an upload under way: it is condemned when it has been
 * seen so for the grace.
 *
 * What is noted is kept in memory: about 70 bytes for each chunk of the volume.
 */
struct store_gc;

struct store_gc_terms {
	struct gc_list *old; /* the list that is in force; an empty one where there is none */
	uint64_t number;     /* the highest epoch's, or 0 */
	int64_t now_ns;	     /* wall clock */
	int64_t grace_ns;
	unsigned keep_percent; /* 0 to 100 */
	bool dry_run;
	unsigned readers; /* at once; 0: as a store has them */
	/* Bytes done of all that a phase has, from any thread, one at a time; may be NULL. */
	void (*progress)(void *arg, const char *phase, uint64_t done, uint64_t total);
	void *arg;
};

/* `remote` and what `terms` points to outlive it. 0, -ENOMEM, -EAGAIN. */
int store_gc_new(struct remote *remote, const struct store_gc_terms *terms,
		 struct store_gc **ret_gc);
void store_gc_free(struct store_gc *g); /* NULL is allowed */

/* Reads all index objects, and which packs there are. The remote's errors. One that is damaged is left out: see store_gc_damaged. */
int store_gc_read(struct store_gc *g);
/* Whether an index object could not be read that is not condemned, and the key of the first. */
bool store_gc_damaged(const struct store_gc *g, char ret_key[KEY_MAX]);

/* A store whose index is what was read: what comes out of it is checked, and marked as live. */
struct store *store_gc_store(struct store_gc *g);
/* The chunk is live. -ENOENT: no index object names it; -EIO: the packs that should hold it are gone (its id in `pack`). */
int store_gc_mark(struct store_gc *g, const struct hash *chunk, uint32_t plain_len,
		  struct store_failure *failure);

/* Decides. The remote's errors, and -EIO where a live chunk that lies in several packs is damaged in all of them. */
int store_gc_plan(struct store_gc *g);
/*
 * Writes new packs, then new index objects. The packs are of `generation`, that of the list that will be published. The remote's errors; -EIO also
 * where what was written cannot be read back.
 */
int store_gc_write(struct store_gc *g, uint64_t generation);
/* Deletes what was condemned the grace ago. Before each request `confirm` is asked, anything but 0 ends it. */
int store_gc_delete(struct store_gc *g, int (*confirm)(void *arg), void *arg);

/*
 * The items of the list that follows: what the old one has condemned, is there and is still to go; what is condemned now, by `generation`; and the packs
 * that no index object names. *ret_news: it is not the same as the old one. *ret_condemned: something is condemned that was not.
 */
int store_gc_list(struct store_gc *g, uint64_t generation, struct gc_list *list, bool *ret_news,
		  bool *ret_condemned);

/* Counts of packs are of packs alone, bytes are of packs and index objects. */
struct store_gc_count {
	uint64_t packs, indexes, bytes;
};
struct store_gc_totals {
	struct store_gc_count before;
	struct store_gc_count condemned; /* by this pass */
	struct store_gc_count deleted;
	struct store_gc_count waiting;	 /* condemned, and not deleted by this pass */
	struct store_gc_count unnamed;	 /* packs that no index object names, not condemned */
	struct store_gc_count rewritten; /* of the condemned: what was, or would be, rewritten */
	struct store_gc_count written;	 /* by this pass */
	uint64_t live_bytes;		 /* of chunks that epochs name, as they are stored */
	int64_t next_ns; /* wall clock: when the first of what waits may be deleted; 0: nothing waits */
};
/* In a dry run, what would be. */
void store_gc_get_totals(const struct store_gc *g, struct store_gc_totals *ret_totals);

#endif
