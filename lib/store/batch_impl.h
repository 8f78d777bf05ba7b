/* SPDX-License-Identifier: Apache-2.0 */
/* The pipeline of one batch. Private to lib/store. */
#ifndef EPOCHFS_STORE_BATCH_IMPL_H
#define EPOCHFS_STORE_BATCH_IMPL_H

#include "lib/format/names.h"
#include "lib/store/packer.h"
#include "lib/store/store_impl.h"
#include "lib/util/lock.h"

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
