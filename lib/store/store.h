/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The content store: contents go in and come out by the hash of their bytes; below lie packs and index objects in a remote.
 *
 * Threads: a store is used by any number of threads. It has threads of its own that hash and compress, others that put, and others that fetch, so that none of these waits
 * for another. Memory is bounded: three packs under way and some ranges, about 150 MiB with two threads, whatever the size of the contents.
 */
#ifndef EPOCHFS_STORE_STORE_H
#define EPOCHFS_STORE_STORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "lib/format/recipe.h"
#include "lib/format/record.h"
#include "lib/format/tree.h"
#include "lib/remote/remote.h"
#include "lib/util/buf.h"
#include "lib/util/hash.h"

/* Where a chunk lies. */
struct store_place {
	struct hash pack;
	uint32_t offset;
	uint32_t stored_len;
	uint32_t plain_len;
};

/*
 * The chunk index, kept by the caller (lib/volume: in state.db; the command without a mount: in memory, store_memory_index).
 * Called from any thread, without a lock of the store's.
 */
struct store_index {
	void *arg;
	int (*get)(void *arg, const struct hash *chunk,
		   struct store_place *ret_place); /* -ENOENT */
	/* All of one index object at once; then its key counts as loaded. */
	int (*put)(void *arg, const char *index_key, const struct hash *chunks,
		   const struct store_place *places, size_t count);
	bool (*loaded)(void *arg, const char *index_key);
	/* The pack is gone or damaged beyond use: forget what lies in it. */
	int (*forget_pack)(void *arg, const struct hash *pack);
	/* Encoded recipes, and the chunks that make the encoding of a long one: a cache; get -ENOENT. */
	int (*recipe_get)(void *arg, const struct hash *recipe, struct buf *out);
	int (*recipe_put)(void *arg, const struct hash *recipe, const void *data, size_t len);
};

struct store;

/* `remote` stays the caller's and outlives the store; wrap it with retry first. threads 0: one a core, at most 8. */
int store_open(struct remote *remote, const struct store_index *index, unsigned threads,
	       struct store **ret_store);
void store_close(struct store *s);
/*
 * So many ranges are fetched at once: what the remote's connections take, for these wait more than they compute. 4 to 16; without it, one a thread. Before the first use of
 * `s`. -EAGAIN, -ENOMEM: it stays as it was.
 */
int store_set_readers(struct store *s, unsigned count);
/* What one of the two finds damaged or missing, the other stores again: for a store that puts beside one that reads. Before the first use of `s`; both may end first. */
void store_learn_with(struct store *s, struct store *other);

/* ---- beside garbage collection (lib/meta/collection.h has the protocol) ---- */

/*
 * What was condemned up to this generation: no batch that begins from now on builds on these packs, and those that it makes have ids that were never condemned. Replaces what
 * was told before; what was known of other packs is looked for again. Then refreshes the index. The errors of that.
 */
int store_heed(struct store *s, uint64_t generation, const struct hash *condemned, size_t count);
uint64_t store_heeded(struct store *s); /* 0: none */
/* Lists the packs of the remote, so that they need not be looked for one by one. */
int store_look_at_packs(struct store *s);

/* ---- putting: one batch for one epoch ---- */

/*
 * A batch collects the contents of one epoch. Chunks that the index knows, or that came before in the batch, are not stored again; the rest go into packs of about
 * 32 MiB, put while more comes. Nothing is visible to readers before store_batch_finish has put the index object (order: packs, index; the caller puts the epoch's record last).
 *
 * An abandoned batch leaves packs that no index names. Feed the same contents in the same order again and the same packs come of it, whatever the threads did: those that
 * are in the remote are not put again. Otherwise they are garbage.
 *
 * Before a chunk that the index knows is built on, its pack is looked for in the remote (once an hour and pack): what was lost, or was found damaged by a reader, is stored again. The first batch
 * of a store refreshes the index; store_batch_begin gives the errors of that.
 *
 * One thread feeds a batch.
 */
struct store_batch;
int store_batch_begin(struct store *s, uint64_t epoch, struct store_batch **ret_batch);
/* Also in the middle: what is under way is waited for (remote_cancel makes that short). NULL is allowed. */
void store_batch_free(struct store_batch *b);
/*
 * The first error of the remote, of the index or of memory: from then on the batch can only be freed, and every call gives it. 0 while the batch is sound: then an
 * error of store_put_fd was one of that file (its reads, -ENODATA, -EFBIG), and the batch may go on without it. Any thread.
 */
int store_batch_error(struct store_batch *b);

/*
 * Cuts, hashes and stores the content [0, size) of fd (size > 0; fd stays the caller's and must not change meanwhile).
 * The recipe's hash comes back, and how many bytes are in its runs of zeros (NULL: not asked for); the recipe itself is stored too, and cached by the index. Blocks while the pipeline is full. -ENODATA where the file is shorter than size.
 */
int store_put_fd(struct store_batch *b, int fd, uint64_t size, struct hash *ret_recipe,
		 uint64_t *ret_holes);
/*
 * The same for a tree, in memory, without a recipe: sets the record's tree_hash, tree_size and chunks (their places come with store_batch_finish).
 * -EFBIG above TREE_ENCODED_MAX or RECORD_LIST_MAX chunks.
 */
int store_put_tree(struct store_batch *b, const void *data, size_t len,
		   struct epoch_record *record);

/*
 * Sees to it that a recipe that was stored before, with all that it names, lies in packs that are there and not condemned (store_heed): what does not is read from
 * where it still lies and stored again. -EIO where that cannot be: the others are kept nevertheless. For packs that were not looked for lately see store_look_at_packs.
 */
int store_batch_keep(struct store_batch *b, const struct hash *recipe);

struct store_stats {
	uint64_t plain; /* bytes of files fed */
	uint64_t fresh; /* of them not stored before */
	uint64_t
		stored; /* bytes of packs and index objects, also those that an earlier try had put */
};
/*
 * Waits for all packs. Sets the record's bytes_new and bytes_stored, and adds the key of the index object (none where nothing is new). The object is not put yet: a caller
 * who keeps these three, and gives the record with them to the batch of a later try, has there the sum of both, and no key of an object that was never put. On failure as below.
 */
int store_batch_flush(struct store_batch *b, struct epoch_record *record,
		      struct store_stats *ret_stats);
/*
 * Does that where it was not done, puts the index object (none where nothing is new), tells the caller's index. Sets in the record, for
 * its tree's chunks, the packs and where in them they lie. On failure (-errno of the remote, -ECANCELED) the batch can only be freed.
 */
int store_batch_finish(struct store_batch *b, struct epoch_record *record,
		       struct store_stats *ret_stats);
/* Appends the key of an index object that another batch put. -ENOMEM. */
int store_record_add_index(struct epoch_record *record, const char *key);
/* Progress, from any thread. */
void store_batch_progress(struct store_batch *b, struct store_stats *ret_stats);

/* ---- getting ---- */

/* Why a chunk could not be had, for the log line: the pack's id in hex ("" where no index names the chunk). Set only with -EIO; where one is asked for, NULL is allowed. */
struct store_failure {
	char pack[HASH_HEX];
};

/* The recipe with this hash, from the cache or the remote, checked (a level-1 recipe is resolved). -EIO: damaged or missing. */
int store_get_recipe(struct store *s, const struct hash *hash, struct recipe *ret_recipe,
		     struct store_failure *failure);
/* The same from the index alone, not checked: -ENODATA where it has not got it, -EIO where it is damaged. */
int store_known_recipe(const struct store_index *index, const struct hash *hash,
		       struct recipe *ret_recipe);
/*
 * Fetches chunks [first, first + count) of a recipe's segments, ranges of one pack coalesced and many in flight, and gives each, checked against
 * its hash, to `sink` (from the store's threads, several at once, in any order, zero segments not at all; the sink must not call the store). -EIO: chunks are damaged or
 * missing in every place that an index object names (failure is filled); the others near them still came. Any other error ends it: -ECANCELED, that of the remote, or of the sink.
 */
typedef int (*store_sink)(void *arg, size_t segment, const void *plain, size_t len);
int store_get_segments(struct store *s, const struct recipe *r, size_t first, size_t count,
		       store_sink sink, void *arg, struct store_failure *failure);
/* The same, behind all that somebody waits for as long as *waits is false: it may become true meanwhile, from any thread. */
int store_get_segments_ahead(struct store *s, const struct recipe *r, size_t first, size_t count,
			     store_sink sink, void *arg, const atomic_bool *waits,
			     struct store_failure *failure);
/* The bytes of a tree that a record names, by the hints in the record, else by the index. Checked. */
int store_get_tree(struct store *s, const struct epoch_record *record, struct buf *out);
/*
 * Loads index objects that the caller's index has not yet, also those put by others meanwhile; damaged ones are logged and left out. Called by itself when a chunk is not
 * found. The errors of the remote and of the index.
 */
int store_index_refresh(struct store *s);

/* ---- an index in memory, for the command ---- */
int store_memory_index_new(struct store_index *ret_index);
void store_memory_index_free(struct store_index *index);

/* ---- how much of the remote epochs share (chunk_usage.c) ---- */

/* What epochs take in the remote: the bytes of all chunks that they need, each counted once. */

/*
 * A chunk counts with its frame and its row in the pack's table (pack.h). Those of an epoch are its tree's, its files' recipes',
 * and its files'. What no index names counts for nothing: it is not there. Small files lie in the tree.
 *
 * Chunks are told apart by 64 bits of their hash, 16 bytes of memory each: two of a thousand million would be one.
 * Not thread-safe.
 */
struct store_usage;

/*
 * `store` may be NULL: then only recipes are read that the index has, and an epoch that needs another is -ENODATA. With one, the
 * index is refreshed first, with the errors of that. Both outlive the usage.
 */
int store_usage_new(const struct store_index *index, struct store *store,
		    struct store_usage **ret_usage);
void store_usage_free(struct store_usage *u); /* NULL is allowed */
/* Adds an epoch: 0; -ENODATA; -EIO where a recipe is damaged or missing; or that of the remote. After a failure the sums are of
 * no use. */
int store_usage_add(struct store_usage *u, const struct epoch_record *record,
		    const struct tree *tree);
/* Of all that was added. */
uint64_t store_usage_bytes(const struct store_usage *u);

#endif
