/* SPDX-License-Identifier: Apache-2.0 */
/* struct content, and how its missing bytes come from the remote. Private to content*.c. */
#ifndef EPOCHFS_CACHE_CONTENT_PRIVATE_H
#define EPOCHFS_CACHE_CONTENT_PRIVATE_H

#include <stdatomic.h>
#include "lib/store/pool.h"
#include "lib/cache/contents.h"
#include "lib/cache/read_ahead.h"
#include "lib/format/recipe.h"
#include "lib/util/lock.h"

/*
 * Lock order: volume.lock > contents.lock > fetch.lock > content.io. `io` is held for reading over
 * each read of the backing file, and for writing while the descriptor changes or bytes are dropped,
 * so that whoever changes the file below knows when nobody reads it any more.
 */

/* Where a segment of the recipe is. */
enum segment_state {
	SEGMENT_MISSING,
	SEGMENT_COMING, /* a fetch is under way */
	SEGMENT_HERE,	/* in the backing file, and checked since the content was opened */
	SEGMENT_FAILED, /* the last fetch failed with `error`; the next request tries again */
};

/*
 * Bytes that are in the remote, or in a backing file that is not known to be right. The file is
 * sparse; it has the segments that are HERE. What an earlier reader left in it (or a crash, or a
 * power loss) is taken where it has the hash that the recipe names; no list of it is kept.
 */

/*
 * One fetch, on a thread of the contents' pool, so that a reader can be interrupted. Nothing of what it brings is dropped before it has
 * ended: else another could bring the same segment, and who ends first would call failed, or drop, what the other is writing.
 */
struct fetch_job {
	struct pool_task task; /* the first member */
	struct fetch_job *next;
	struct content *c;   /* a reference */
	size_t first, count; /* segments; count 0: the recipe */
	atomic_bool waits;   /* somebody does, for what it brings; set with fetch.lock */
	bool of_rest;	     /* prefetch began it */
};

/* Of all of a content, what prefetch has not asked for: `left` segments from `next` on, and on from the first after the last. */
struct fetch_rest {
	size_t next, left;
	unsigned jobs;	     /* of it, under way */
	unsigned long drops; /* fetch.drops when it began */
};

struct fetch {
	atomic_bool needed; /* false: all bytes are in the backing file */
	struct hash recipe_hash;
	bool kept;	    /* the backing file may hold bytes of before; set once */
	atomic_ulong drops; /* rises when segments are dropped, with content.io held for writing */

	struct mutex lock; /* guards the rest */
	pthread_cond_t changed;
	bool loading, loaded; /* the recipe */
	struct recipe recipe;
	uint8_t *state;		/* enum segment_state of each segment */
	size_t missing;		/* segments that are not HERE */
	struct fetch_job *jobs; /* under way; their segments overlap nowhere */
	int error;
	struct read_ahead ahead;
	bool prefetched; /* all of it is being fetched, or that was tried */
	struct fetch_rest rest;
	unsigned pins; /* while there are any, no segment is dropped */
	int64_t delta; /* bytes that the backing file has more than its row says */
	/* While the disk is full, the segment that was read last, in memory; one reader takes it at a time. */
	struct buf past;
	size_t past_segment;
	int64_t full_until_ns; /* monotonic: until then the disk is not asked again */
};

struct content {
	struct volume *vol;
	struct content *next;
	uint64_t version, size;
	unsigned refs; /* guarded by contents.lock */
	unsigned jobs; /* of these, those of fetches; the same */
	bool detached; /* not in the table, or no longer; guarded by volume.lock */
	int fd; /* backing file, for reading (and writing, while bytes are missing); -1: none */
	uint8_t *bytes; /* inline content; NULL: in the backing file */
	char *what;	/* "epoch 41: model/a.pt", for log lines; NULL: a live file; guarded by
			   volume.lock */
	struct rwlock io;
	struct fetch fetch;
};

struct contents {
	struct mutex lock;
	pthread_cond_t idle;
	unsigned jobs; /* that wait or are under way */
	struct pool *pool;
	struct content *first;
	atomic_llong delta; /* the sum of all fetch.delta */
};

/* content_local.c: content of a few bytes, which is in the database. */

/* It is read from there: reading it needs no room. With the volume's lock. */
int inline_open_locked(struct content *c);
/* Gives its version a backing file, which an edit can clone or take over. Without a lock. */
int inline_place(const struct content *c);

/* content_fetch.c */

/* content_fetch for one read, of bytes that there are: with read-ahead as read_ahead.h says. */
int fetch_for_reader(struct content *c, uint64_t offset, uint64_t len, interrupted_fn interrupted,
		     void *arg);
/* Where the cache's disk has no room even so: the bytes, through memory. 0, -EINTR between two segments, or why they cannot be had. */
int fetch_past_disk(struct content *c, void *data, size_t len, uint64_t offset,
		    interrupted_fn interrupted, void *arg);
/* lseek(2) by the recipe, of an offset before the end: 0, -ENXIO, -EINTR, or why there is no recipe. */
int fetch_seek(struct content *c, uint64_t offset, int whence, interrupted_fn interrupted,
	       void *arg, uint64_t *ret_offset);
/* Brings the recipe, and says of it what there is to say in `fetch`. */
void fetch_bring_recipe(struct content *c);
/* Brings those of the segments that are COMING, `waits` as store.h has it. 0, or why some did not come, which is logged: these stay COMING. */
int fetch_bring(struct content *c, size_t first, size_t count, const atomic_bool *waits);
/* From `first` on, not beyond `last`: what is MISSING, and not too much for one fetch, is COMING. How many segments these are; 0: none. */
size_t fetch_claim_locked(struct content *c, size_t first, size_t last);

/* content_jobs.c: fetches on the pool. With fetch.lock, which they may drop for a while. */

/* Fetches of a content ahead of one reader, and of the rest of it, at once. */
#define FETCH_SPANS 4

int fetch_pool_new(struct pool **ret_pool);
/*
 * A fetch of segments that are COMING, or with count 0 of the recipe. Where there is no thread for what somebody waits for, the caller brings it
 * himself before it returns. 0; else nothing was begun, and the segments are MISSING again: -ENOMEM, and for POOL_LATER -EAGAIN.
 */
int fetch_start_locked(struct content *c, size_t first, size_t count, enum pool_when when,
		       bool of_rest);
/* Somebody waits for [first, last]: its fetches go before what can wait from now on. True where the lock was dropped: look again. */
bool fetch_hurry_locked(struct content *c, size_t first, size_t last);
/* Of a job that is none of a content's: it is waited for by contents_drain. */
void contents_job_begins(struct contents *all);
void contents_job_ends(struct contents *all);

/* Fetches all of it, from there on and then what is before, while others than fetches have it open; without
 * fetch.lock. Does nothing where that was begun already, or the cache has no room for it. */
void prefetch(struct content *c, uint64_t from);

/* content_local.c: the sparse backing file. */

/* Makes it, or takes the one that an earlier reader left; where there is no room for a file, the content is detached. With the volume's lock. */
int fetch_open_locked(struct content *c, const struct state_version *v);
/* Notes in the row what is there. With the volume's and the contents' lock. */
void fetch_close_locked(struct content *c);
/* Before the content is freed, in any case. */
void fetch_free(struct content *c);
bool fetch_whole(const struct fetch *f);
/* All is there: the kernel may read the file itself from the next open on. */
void fetch_note_whole(struct content *c);
/* A segment's bytes, checked, go into the file and are HERE. */
int fetch_write(struct content *c, size_t segment, const void *plain, size_t len);
/* Of segments that are COMING, those that the file holds already are HERE. 0 or -ENOMEM. */
int fetch_find_kept(struct content *c, size_t first, size_t count);
/*
 * Makes room in the cache for `bytes` of segments [first, first + count): other content is evicted,
 * then segments of this one are dropped that nobody has asked for lately. It does not fail: a reader
 * gets his bytes as long as the disk takes them.
 */
void fetch_make_room(struct content *c, uint64_t bytes, size_t first, size_t count);

#endif
