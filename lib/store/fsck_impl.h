/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of store_fsck share. Private to lib/store. */
#ifndef EPOCHFS_STORE_FSCK_IMPL_H
#define EPOCHFS_STORE_FSCK_IMPL_H

#include <stdatomic.h>
#include "lib/store/fsck.h"
#include "lib/store/hash_index.h"
#include "lib/store/store_impl.h"
#include "lib/util/lock.h"

struct fsck_pack {
	struct hash id; /* first: found by hash_index */
	uint64_t size;
	bool missing; /* an index object names it, the remote does not have it */
	int error;    /* it could not be read; or 0 */
	bool table_damaged;
	bool cut;	     /* shorter than its index says */
	bool unlike;	     /* its table says otherwise than the index */
	uint32_t damaged;    /* chunks */
	uint32_t damaged_at; /* the first of them */
	atomic_bool needed;
	bool goes;		     /* nothing is built on it: it is damaged, or condemned */
	atomic_bool wanted;	     /* it goes, and something needed lies in no pack that stays */
	atomic_bool unnamed;	     /* something needed lies here that no index object names */
	bool written;		     /* by the batch of a repair */
	size_t first_row, row_count; /* in by_place */
};

struct fsck_object {
	char key[KEY_MAX];
	struct hash id;
	uint64_t size;
	int error;		     /* -EBADMSG: damaged */
	size_t first_row, row_count; /* in rows */
};

/* What one index object says of one chunk; when it is repaired, also what only the pack's table says. */
struct fsck_row {
	struct hash chunk; /* first: found by hash_index */
	uint32_t pack;
	uint32_t offset;
	uint32_t stored_len;
	uint32_t plain_len;
	uint32_t next; /* another row of the same chunk, or ROW_NONE */
	bool bad;
	bool loose; /* only the pack's own table names it */
};
#define ROW_NONE UINT32_MAX

struct store_fsck {
	struct remote *remote;
	struct store *store;
	struct fsck_pack *packs;
	size_t pack_count, pack_cap;
	struct hash_index packs_by_id;
	struct fsck_object *objects;
	size_t object_count, object_cap;
	struct fsck_row *rows;
	size_t row_count, row_cap;
	struct hash_index rows_by_chunk; /* the first row of each chunk */
	uint32_t *by_place;		 /* numbers of rows, by pack and offset */
	struct fsck_row *loose;		 /* what no index object names, until it is repaired */
	size_t loose_count, loose_cap;
	bool repairing;

	store_fsck_progress progress;
	void *arg;
	struct mutex lock; /* guards what follows, and the calls of progress */
	uint64_t done_objects, done_bytes;
};

void fsck_done(struct store_fsck *f, uint64_t bytes);
/* Whether an error says that the remote is away, or that going on is senseless. */
bool fsck_ends(int error);
/* The number of the pack, noted as missing where it is not there: -ENOMEM. */
int fsck_pack_number(struct store_fsck *f, const struct hash *id, uint32_t *ret_number);

/* Adds a place to those of its chunk: -ENOMEM. */
int fsck_add_row(struct store_fsck *f, const struct fsck_row *row);
/* fsck_index.c: what was read, as a store asks for it. */
struct store_index fsck_index(struct store_fsck *f);

/* fsck_packs.c: checks all packs against rows, which are sorted by place. */
int fsck_read_packs(struct store_fsck *f, bool read_data);

#endif
