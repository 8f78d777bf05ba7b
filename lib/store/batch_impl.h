/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline of one batch. Private to lib/store. */
#ifndef EPOCHFS_STORE_BATCH_IMPL_H
#define EPOCHFS_STORE_BATCH_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/format/names.h"
#include "lib/remote/remote.h"
#include "lib/store/pool.h"
#include "lib/store/store_impl.h"
#include "lib/store/trust.h"
#include "lib/util/buf.h"
#include "lib/util/hash.h"
#include "lib/util/lock.h"

/* ---- the packer: collects the frames of one batch into packs, and puts these while more come ---- */

/* So many packs of 32 MiB are in memory at once, the one being filled with them: the daemon is to stay
 * below 200 MiB. */
#define PACKER_PACKS 4

/*
 * The frames' order alone decides what the packs are: the same frames in the same order make the
 * same packs under the same ids. So whoever begins again after an interruption puts again only what
 * is not there yet: a pack that is there with its length and its table is not put.
 *
 * That is so within one generation of garbage collection: from generation 1 on, each pack ends with a frame that says
 * the generation (`trust` knows it when the packer is made), which no index object names. So a pack never comes again
 * under an id that an earlier generation has condemned, and that somebody may be about to delete.
 */
struct packer;

/* `putters` runs the puts; `trust` learns which packs are there; a pack is closed by the frame with
 * which it reaches pack_len. 0 or -ENOMEM. */
int packer_new(struct remote *remote, struct pool *putters, struct trust *trust, size_t pack_len,
	       struct packer **ret_packer);
/* Waits for the puts under way. NULL is allowed. */
void packer_free(struct packer *p);

/* A frame in two pieces, so that a payload which is the chunk itself need not be copied first. */
struct frame_parts {
	const void *head;
	size_t head_len;
	const void *rest; /* NULL where rest_len is 0 */
	size_t rest_len;
};

/* Whether the chunk came before. Any thread. */
bool packer_has(struct packer *p, const struct hash *chunk);
/*
 * Adds a chunk that did not come before. Blocks while PACKER_PACKS are under way. The first error
 * of a put comes back here and from packer_flush, and ends the packer. One thread at a time.
 */
int packer_add(struct packer *p, const struct hash *chunk, const struct frame_parts *frame,
	       uint32_t plain_len);
/* Puts what is there and waits for all of it. The same thread as packer_add. */
int packer_flush(struct packer *p);
/* packer_add and packer_flush fail with this error (at once where they wait). Any thread. */
void packer_fail(struct packer *p, int error);

/* Bytes of packs put so far. Any thread. */
uint64_t packer_stored(struct packer *p);

/* After packer_flush: where a chunk lies; false where it did not come. */
struct store_place;
bool packer_place(struct packer *p, const struct hash *chunk, struct store_place *ret_place);
/* After packer_flush: the number of chunks, and all of them, room for `count` of each. */
size_t packer_count(const struct packer *p);
void packer_chunks(const struct packer *p, struct hash *ret_chunks, struct store_place *ret_places);
/* After packer_flush: appends the index object of all packs. -EINVAL where there is none. */
int packer_index(const struct packer *p, struct buf *out);

/* ---- the pipeline ---- */

/*
 * One feeder cuts, and copies each chunk into a free item of a ring; encoders hash it, look it up
 * and make its frame, in any order, several items at a time where they wait (hash_of_many); then the items are placed (into the packs and into the recipe of
 * their content) strictly in the order in which they were fed, by whichever encoder finds the
 * oldest one done. So packs and recipes do not depend on how the threads ran, and memory is bounded
 * by the ring and the packs. After an error items are still drained, but nothing is done with them.
 */
struct batch_content {
	struct recipe recipe;
	uint64_t fed, drained; /* items; drained: guarded by the batch's lock */
	uint64_t zeros;	       /* zeros since the last chunk that was fed */
	int error;	       /* of the recipe; the batch goes on */
	bool counted;	       /* in the batch's plain and fresh bytes */
};

struct item {
	struct pool_task task;
	struct store_batch *batch;
	struct batch_content *content; /* NULL: the chunk is in no list */
	uint64_t zeros_before;
	struct buf plain;
	struct buf frame; /* empty where the chunk is known */
	bool raw;	  /* `frame` is the header only, `plain` its payload */
	struct hash hash;
	/* Guarded by the batch's lock. It is free again once it is done and its task began, which may have
	 * found it taken along by another: a task must not be queued twice. */
	bool done, began;
};

struct store_batch {
	struct store *store;
	uint64_t epoch;
	struct packer *packer;

	/* Guards what follows and the fields said so above; nothing is called under it. `changed`
	 * tells of head, draining and error. */
	struct mutex lock;
	pthread_cond_t changed;
	int error;
	uint64_t head, tail; /* items [head, tail) are in use, modulo item_count */
	uint64_t taken;	     /* those before it an encoder has, or had */
	bool draining;	     /* a thread places items */
	uint64_t plain, fresh;
	uint64_t index_len;
	bool flushed;

	/* Of the feeding thread, once it is flushed: the index object, empty where nothing is new. */
	struct buf index;
	char index_key[KEY_MAX];

	size_t item_count;
	struct item items[];
};

int batch_error(struct store_batch *b);
void batch_fail(struct store_batch *b, int error);
/* Whether a chunk need not be stored: it came before, or the index names a place and nothing speaks against it. */
int batch_knows(struct store_batch *b, const struct hash *chunk, bool *ret_known);
/* Waits until all that was fed is placed. Gives the batch's error. */
int batch_drain(struct store_batch *b);

/* Feeds one chunk (1 to CHUNK_PLAIN_MAX bytes). Blocks while the ring is full. */
int batch_feed(struct store_batch *b, struct batch_content *c, const void *data, size_t len);
/* Zeros are nothing but a line in the recipe. */
void batch_feed_zeros(struct store_batch *b, struct batch_content *c, uint64_t len);
/* Waits until all items of this content are placed. */
void batch_wait(struct store_batch *b, struct batch_content *c);

/* Stores the encoding as one chunk, or cut into chunks that a recipe of level 1 lists. */
int batch_put_recipe(struct store_batch *b, const struct recipe *r, struct hash *ret_hash);

#endif
