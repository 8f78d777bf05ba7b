/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of a repair share. Private to repair*.c, and its source to caches.c. */
#ifndef EPOCHFS_ADMIN_REPAIR_INTERNAL_H
#define EPOCHFS_ADMIN_REPAIR_INTERNAL_H

#include <pthread.h>
#include "lib/admin/catalog_fsck.h"
#include "lib/admin/repair.h"
#include "lib/format/gc_list.h"
#include "lib/util/lock.h"
#include "lib/volume/open_steps.h"

/* A local state and what lies beside it. */
struct repair_source {
	struct state *state;
	struct mutex *lock; /* of the state's main connection */
	int objects_fd, trees_fd;
	/* Of one that was opened here: */
	struct mutex own_lock;
	int cache_fd, lock_fd;
	bool copied;
};

/* A record's text. */
struct repair_copy {
	uint64_t number;
	char *text; /* owned */
};

struct repair {
	const struct repair_how *how;
	struct remote *remote;
	int (*confirm)(void *arg); /* whether the lease is held still; NULL: nothing is written */
	void *confirm_arg;
	struct repair_source *source; /* NULL: there is none */
	struct opening_message *message;
	struct repair_totals totals;
	struct repair_copy *copies; /* what summaries say */
	size_t copy_count, copy_cap;
	struct volume_info info; /* as it is, or is to be */
	struct fsck fsck;	 /* of the pass under way */
	struct buf trees;	 /* numbers of epochs whose trees are stored again */
	uint64_t generation;	 /* of the list of garbage collection in force; 0: there is none */
	bool list_damaged;
};

/* "would be " in a dry run. */
void repair_say(struct repair *r, enum repair_outcome outcome, const char *key, const char *where,
		const char *what);
/* Before anything is written. */
int repair_confirm(struct repair *r);
void repair_note_gone(struct repair *r, uint64_t epoch);

/* ---- repair_source.c ---- */

/* The cache of a mount of this volume: -ENOENT where there is none; a line in the log where it is in use. */
int repair_source_open(const struct volume_options *options, const char *uuid,
		       struct repair_source *ret_source);
void repair_source_close(struct repair_source *s);
/* The epoch's record as it was when it became durable (free it), or NULL and `ret_dropped`. -ENOENT. */
int repair_source_record(struct repair_source *s, uint64_t number, char **ret_text,
			 bool *ret_dropped);
/* Numbers of the epochs that are, or were, in the remote: appends uint64_t. */
int repair_source_epochs(struct repair_source *s, struct buf *out);
int repair_source_tag(struct repair_source *s, const char *name, uint64_t *ret_number);
/* The tree's bytes, by its address in that remote. -ENOENT. */
int repair_source_tree(struct repair_source *s, struct remote *remote,
		       const struct epoch_record *record, struct buf *out);
/* A descriptor of a whole local copy, not checked yet; or -errno. */
int repair_source_content(struct repair_source *s, const struct hash *recipe, uint64_t size);
/* The copy of epochfs.json in the caches of this machine: -ENOENT. */
int repair_source_info(const struct volume_options *options, const char *uuid, struct buf *out);

/* ---- repair.c ---- */

/* Sees to it that epochfs.json is whole. With a line where it cannot be. */
int repair_info(struct repair *r, const struct volume_options *options);

/* ---- repair_records.c ---- */

/* Records and tombstones, tags, summaries. */
int repair_records(struct repair *r);
/* Another record of this epoch that names another tree, and can be read: its text, or -ENOENT. */
int repair_other_record(struct repair *r, const struct epoch_record *record, struct buf *tree,
			const char **ret_text);
int repair_summaries(struct repair *r);

/* ---- repair_contents.c ---- */

/* Packs, index objects, trees and contents. -EEXIST: a garbage collection has come between; again. */
int repair_contents(struct repair *r);

/* ---- repair_contents.c ---- */

/* What was replaced is condemned. -EEXIST as above. */
int repair_condemn(struct repair *r);

#endif
