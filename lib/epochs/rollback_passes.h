/* SPDX-License-Identifier: Apache-2.0 */
/* What the passes of a rollback share. Private to rollback_*.c. */
#ifndef EPOCHFS_EPOCHS_ROLLBACK_PASSES_H
#define EPOCHFS_EPOCHS_ROLLBACK_PASSES_H

#include "lib/epochs/rollback.h"

struct apply {
	struct volume *vol;
	uint64_t number; /* of the epoch that is restored */
	const struct tree *tree;
	struct rollback_notice *notice;
	int64_t now_ns;
	uint64_t *ino;	/* of each identity; 0: none yet */
	bool *present;	/* entry: its name leads to that file already */
	bool *let_go;	/* identity: its content went, or its writers' did */
	bool *finished; /* identity: its file is as the tree says, or stays as it is */
	bool keep_logs, new_files;
	bool all_whole;	      /* the epoch's record names nothing torn */
	uint32_t *more_links; /* entry, a directory: subdirectories that stay for their logs */
	struct buf claims;    /* of pass 1 */
	struct buf removed;   /* what pass 2 removes */
};

/* Remembers what the kernel must be told. */
void notice_name(struct apply *a, uint64_t parent, const char *name);
void notice_file(struct apply *a, uint64_t ino);
/* Mode with the type, and the device, as a live file has them. */
uint32_t mode_of_entry(const struct tree_entry *e);
uint32_t rdev_of_entry(const struct tree_entry *e);

/* A name of the live tree. */
struct live_name {
	struct state_file file;
	uint64_t covered;
	char name[256];
};

/* ---- rollback_apply.c ---- */

/* The names in a directory: struct live_name, one after the other. */
int list_live_names(struct apply *a, uint64_t dir, struct buf *out);
/* An open file that was renamed over a committed one counts for nothing: the name is that one's. */
int uncover(struct apply *a, uint64_t dir, struct live_name *n);
/* Pass 2 removes it, and all that is below it. */
int note_removal(struct apply *a, uint64_t parent, const struct live_name *n);

/* ---- rollback_apply.c: what stays ---- */

/* Whether the name is that of a log, which stays as it is. */
bool is_kept_log(struct apply *a, uint64_t dir, const struct live_name *n);
/* A directory that the tree has not, in the one that is `entry` there: it stays where it holds logs that stay; all else is noted for removal. */
int keep_logs_in(struct apply *a, uint64_t parent, uint32_t entry, struct live_name *n);

/* ---- rollback_make.c: pass 3 ---- */

/* Whether this version is torn, as the content of this entry. */
bool is_torn_there(const struct apply *a, const struct tree_entry *e,
		   const struct state_version *v);

/* The file of an entry below the directory `parent`: made, or made equal. */
int make_file(struct apply *a, uint32_t id, const struct tree_entry *e, uint64_t parent);
/* Everything below a directory of the tree, whose file is there. */
int make_dir(struct apply *a, uint32_t dir);

#endif
