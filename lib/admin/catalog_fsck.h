/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of catalog_fsck share. Private to catalog_fsck*.c. */
#ifndef EPOCHFS_ADMIN_CATALOG_FSCK_H
#define EPOCHFS_ADMIN_CATALOG_FSCK_H

#include "lib/admin/catalog.h"
#include "lib/format/gc_list.h"
#include "lib/format/names.h"
#include "lib/format/record.h"
#include "lib/format/volume_info.h"
#include "lib/meta/opening.h"
#include "lib/store/fsck.h"
#include "lib/store/hash_index.h"
#include "lib/store/pool.h"
#include "lib/util/buf.h"

/* Packs that make one content unreadable, as far as they are told. */
#define CULPRITS_MAX 4

/* What is known of a content, by its recipe. */
struct fsck_recipe {
	struct hash hash;   /* first: found by hash_index */
	uint64_t size;	    /* that it says itself */
	uint64_t claimed;   /* that a tree says */
	bool unreadable;    /* the recipe itself, though its chunk is there */
	bool unnamed_chunk; /* one that no index object names */
	bool moves;	    /* not all of it lies in packs that stay */
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
	uint64_t *parents;  /* likewise; 0 */
	size_t epoch_count, epoch_cap;
	bool dropped;	    /* some epoch was whose tree is not known: it may be there still */
	struct buf heads;   /* the first chunks of the trees, struct hash */
	struct buf missing; /* numbers of epochs that something names, uint64_t */
	struct fsck_keys tags, gc_lists, summaries, parts, slots;
	struct gc_list gc_list; /* the newest that is whole */
	/* For a tree that cannot be read (may be NULL): 0 with its bytes, from elsewhere. */
	int (*tree)(void *arg, const struct epoch_record *record, struct buf *out);
	/* Whether a content that cannot be read can be had from elsewhere (may be NULL): then it hits nothing. */
	bool (*content)(void *arg, const struct hash *recipe, uint64_t size);
	void *hook_arg; /* of both */
	struct buf
		moving; /* numbers of epochs whose trees do not lie in packs that stay, uint64_t */

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

/* Nothing is lost by this. */
void fsck_note(struct fsck *f, const char *key, const char *where, const char *what);
/* A note of what may be lost, or may be as a writer at work left it. */
void fsck_unsure(struct fsck *f, const char *key, const char *where, const char *what);
/* What an error says of an object; `text` may be used for it. */
const char *fsck_wrong(int error, char text[STORE_FSCK_TEXT]);
const uint64_t *fsck_find_epoch(const struct fsck *f, uint64_t number);
/* Whether the list of garbage collection has condemned this pack or index object. */
bool fsck_condemned(const struct fsck *f, const char *key);

/*
 * In this order, with how and remote set: fsck_open lists what is there; fsck_read reads index objects and packs; fsck_records the records and what they name;
 * fsck_meta the rest; fsck_report tells what it hits. fsck_records_again, after a repair, judges again. fsck_free closes the remote, too.
 */
int fsck_open(struct fsck *f, struct opening_message *m);
int fsck_read(struct fsck *f);
int fsck_records(struct fsck *f);
int fsck_records_again(struct fsck *f);
int fsck_meta(struct fsck *f); /* catalog_fsck_meta.c */
void fsck_add_totals(struct fsck *f);
void fsck_free(struct fsck *f);

/* catalog_fsck.c: the tree of a record, and all that it names. */
int fsck_tree(struct fsck *f, const struct epoch_record *record);
/* Whether a content can be read. */
bool fsck_readable(const struct fsck_recipe *r);
/* The hit's key, and where and what it hits, as a problem has them. */
void fsck_hit_text(struct fsck *f, const struct fsck_hit *h, char ret_key[KEY_MAX],
		   struct buf *where, char ret_text[STORE_FSCK_TEXT]);
/* catalog_fsck_report.c: hits, then packs and index objects that hit nothing. */
void fsck_report(struct fsck *f);

#endif
