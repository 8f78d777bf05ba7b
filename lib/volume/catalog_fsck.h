/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of catalog_fsck share. Private to catalog_fsck*.c. */
#ifndef EPOCHFS_VOLUME_CATALOG_FSCK_H
#define EPOCHFS_VOLUME_CATALOG_FSCK_H

#include "lib/format/names.h"
#include "lib/format/record.h"
#include "lib/format/volume_info.h"
#include "lib/store/fsck.h"
#include "lib/store/hash_index.h"
#include "lib/store/pool.h"
#include "lib/util/buf.h"
#include "lib/volume/catalog.h"

/* Packs that make one content unreadable, as far as they are told. */
#define CULPRITS_MAX 4

/* What is known of a content, by its recipe. */
struct fsck_recipe {
	struct hash hash; /* first: found by hash_index */
	uint64_t size;
	bool unreadable;    /* the recipe itself, though its chunk is there */
	bool unnamed_chunk; /* one that no index object names */
	unsigned culprit_count;
	size_t culprits[CULPRITS_MAX]; /* numbers of packs */
};

/* Something damaged that a path needs, in these epochs. */
struct fsck_hit {
	struct hash id; /* first: of path, pack and text */
	char *path;	/* "": the tree itself */
	size_t pack;	/* STORE_FSCK_NONE: `key` and `text` say it */
	char *key;
	const char *text; /* static */
	uint64_t first, last, count;
};

struct fsck_keys {
	char **keys;
	size_t count, cap;
};

struct fsck {
	const struct catalog_fsck *how;
	struct catalog_fsck_totals totals;
	struct remote *remote;
	struct store_fsck *store;
	struct pool *pool; /* checks recipes */
	bool has_info;
	struct volume_info info;

	uint64_t *epochs;   /* numbers of the records that are there, ascending */
	struct hash *trees; /* the trees that they name; all zero where the record cannot be read */
	size_t epoch_count, epoch_cap;
	struct fsck_keys tags, gc_lists;
	uint64_t gc_generation; /* of the list that the totals tell of */

	struct fsck_recipe *recipes;
	size_t recipe_count, recipe_cap;
	struct hash_index recipes_by_hash;
	struct fsck_hit *hits;
	size_t hit_count, hit_cap;
	struct hash_index hits_by_id;

	struct catalog_progress progress;
};

void fsck_problem(struct fsck *f, const char *key, const char *where, const char *what);
/* Notes that a path (or the tree, "") of an epoch is hit. With a pack, key and text are not looked at.
 */
int fsck_hit(struct fsck *f, uint64_t epoch, const char *path, size_t pack, const char *key,
	     const char *text);
/* Whether an error ends the whole. */
bool fsck_fatal(int error);

/* catalog_fsck_tree.c: the tree of a record, and all that it names. */
int fsck_tree(struct fsck *f, const struct epoch_record *record);
/* catalog_fsck_report.c: hits, then packs and index objects that hit nothing. */
void fsck_report(struct fsck *f);

#endif
