/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying the packs and index objects of a remote. */
#ifndef EPOCHFS_STORE_FSCK_H
#define EPOCHFS_STORE_FSCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/format/names.h"
#include "lib/remote/remote.h"
#include "lib/store/store.h"

/*
 * In this order: store_fsck_new; store_fsck_note for each object of the remote; store_fsck_read;
 * then store_fsck_find, from any number of threads, for each chunk that somebody needs; then
 * totals, orphans and problems. All but store_fsck_find: one thread at a time. What is noted is kept
 * in memory: about 60 bytes for each chunk of the volume.
 */
struct store_fsck;

/* `remote` outlives it. 0, -ENOMEM, -EAGAIN. */
int store_fsck_new(struct remote *remote, struct store_fsck **ret_fsck);
void store_fsck_free(struct store_fsck *f); /* NULL is allowed */

/* 1 where the key is that of a pack or an index object, 0 where it is not, or -ENOMEM. */
int store_fsck_note(struct store_fsck *f, const char *key, uint64_t size);

/* Index objects and packs done, and bytes read, of all; from any thread, one at a time. */
typedef void (*store_fsck_progress)(void *arg, uint64_t objects, uint64_t bytes);
/* Objects, and bytes that will be read. */
void store_fsck_size(const struct store_fsck *f, bool read_data, uint64_t *ret_objects,
		     uint64_t *ret_bytes);
/*
 * Reads all index objects and the tables of all packs, and with read_data every chunk, each pack
 * once. What is damaged is noted; only -ENOMEM, and what says that the remote is away (-ECANCELED,
 * -ECONNREFUSED, -ETIMEDOUT), ends it.
 */
int store_fsck_read(struct store_fsck *f, bool read_data, store_fsck_progress progress, void *arg);

/* A store whose index is what was read. Ends with store_fsck_free. */
struct store *store_fsck_store(struct store_fsck *f);

/*
 * Whether the chunk can be had, of this plain length (0: any). Its packs count as needed from then
 * on. Where not, ret_pack is the number of the pack that should hold it, or STORE_FSCK_NONE where no
 * index object names the chunk.
 */
#define STORE_FSCK_NONE SIZE_MAX
bool store_fsck_find(struct store_fsck *f, const struct hash *chunk, uint32_t plain_len,
		     size_t *ret_pack);

/* The pack's key, and one line that says what is wrong with it; false where nothing is, or where it
 * is missing and nobody needed it. */
#define STORE_FSCK_TEXT 160
bool store_fsck_pack(const struct store_fsck *f, size_t pack, char ret_key[KEY_MAX],
		     char ret_text[STORE_FSCK_TEXT]);
/* Whether anybody has asked for something in it. */
bool store_fsck_needed(const struct store_fsck *f, size_t pack);
/* Likewise an index object's key and line. */
bool store_fsck_index(const struct store_fsck *f, size_t object, char ret_key[KEY_MAX],
		      char ret_text[STORE_FSCK_TEXT]);

/* Whether an index object with this key was noted. */
bool store_fsck_has_index(const struct store_fsck *f, const char *key);

/* The key of an index object, by its number from 0 on, and the epoch in it. False: there are no more. */
bool store_fsck_index_epoch(const struct store_fsck *f, size_t object, char ret_key[KEY_MAX],
			    uint64_t *ret_epoch);
/* Whether it names the beginning of a tree, which is read, other than those that are `known`: then it came with a whole epoch.
 * After store_fsck_read; errors that end the whole. */
int store_fsck_has_tree(struct store_fsck *f, size_t object,
			bool (*known)(void *arg, const struct hash *chunk), void *arg,
			bool *ret_has);

/* ---- repair (fsck_repair.c): after store_fsck_read with read_data ---- */

/*
 * From then on the store puts, too. Packs that are damaged, and those that are condemned, go: they are read, but nothing
 * is built on them, so that a batch of the store stores again what it is asked to keep of them. What only the tables of packs name
 * is found as well. `generation` is that of the list of garbage collection which condemns (store_heed). The remote's errors.
 */
int store_fsck_mend(struct store_fsck *f, uint64_t generation, const struct hash *condemned,
		    size_t count);
/* Whether the chunk lies in a pack that stays. */
bool store_fsck_settled(const struct store_fsck *f, const struct hash *chunk);
/* Puts an index object, above all others and above `number`, for packs of which somebody needs what none names. Their number; 0: there are none, and no key. */
int store_fsck_name(struct store_fsck *f, uint64_t number, char ret_key[KEY_MAX],
		    size_t *ret_packs);
/* How many they are. */
size_t store_fsck_unnamed(const struct store_fsck *f);
/* Begins a batch, whose index object is above all others and above `number`. */
int store_fsck_batch(struct store_fsck *f, uint64_t number, struct store_batch **ret_batch);
/* Reads back what batches have put: -EIO where it is not right, and then it counts as bad. */
int store_fsck_read_back(struct store_fsck *f);
/* What was found needed so far no longer counts. */
void store_fsck_forget_needs(struct store_fsck *f);
/* Calls fn for each pack that is there and goes because it is damaged: `wanted` where something that is needed lies in no other. Non-zero ends. */
int store_fsck_each_going(const struct store_fsck *f,
			  int (*fn)(void *arg, const struct hash *id, const char *key,
				    const char *text, bool wanted),
			  void *arg);
/* Likewise each damaged index object. */
int store_fsck_each_bad_index(const struct store_fsck *f,
			      int (*fn)(void *arg, const char *key, const char *text), void *arg);

struct store_fsck_totals {
	size_t packs; /* also those that are missing: numbers of packs are below this */
	size_t packs_there;
	size_t index_objects;
	uint64_t chunks;  /* distinct, that index objects name */
	uint64_t bytes;	  /* of packs and index objects */
	uint64_t orphans; /* packs and index objects that nobody needed */
};
void store_fsck_get_totals(const struct store_fsck *f, struct store_fsck_totals *ret_totals);

#endif
