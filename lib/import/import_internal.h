/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of an import share. Private to import*.c. */
#ifndef EPOCHFS_IMPORT_IMPORT_INTERNAL_H
#define EPOCHFS_IMPORT_IMPORT_INTERNAL_H

#include "lib/import/import.h"
#include "lib/import/import_scan.h"
#include "lib/meta/doubts.h"
#include "lib/store/store.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/volume/open_steps.h"

struct import {
	struct volume *vol; /* volume_open_for_import */
	struct rules *rules;
	atomic_bool cancelled;

	struct mutex lock; /* a leaf: guards the rest */
	struct import_progress progress;
	struct store_batch *batch; /* while there is one: its figures come on top */
	uint64_t plain_before;	   /* what it had read when the last file was done */
};

/* What import_known.c has of the parent's recipes, and import_doubts.c of its files. */
struct known_recipe;
struct import_move;

/* Why a file is torn, though its end says nothing. */
#define IMPORT_WHY_CHANGED "it changed while it was read"

/* One import_run. */
struct import_job {
	struct import *imp;
	const struct import_how *how;
	struct opening_message *message;
	int root_fd;
	uint64_t root_dev, root_ino;
	int64_t began_ns; /* wall clock */
	bool believes;	  /* the file system's ctime can be relied on */
	struct scan scan; /* what becomes the tree */

	/* The epoch before; 0: there is none. */
	struct epoch_record parent;
	struct tree *parent_tree;
	struct known_recipe *known; /* those that it names, sorted */
	size_t known_count;

	struct epoch_record record; /* of the epoch in the making */
	struct store_batch *batch;
	bool store_failed;	    /* what failed is the store's, not a file's */
	uint64_t part_len, in_part; /* bytes of files that went into the batch */
	uint64_t inline_bytes;
	unsigned changing;   /* files that could not be read whole, or not as they were to be */
	char *changing_path; /* the first of them; owned */
	struct doubts *doubts;
	struct import_move *moves;
	size_t move_count;
	struct tree_entry *torn; /* of the epoch before, but what changed while it was read */
	size_t torn_count;
	struct buf reason; /* why it is not complete */
	unsigned named;
	uint64_t files_read, bytes_read;
};

bool import_stops(const struct import_job *j);
/* Counts a file that keeps changing. 0 or -ENOMEM. */
int import_note_changing(struct import_job *j, size_t number);
/* The failure of a path: the line, and the error. */
int import_fail_at(struct import_job *j, size_t number, int error);

/* ---- import_commit.c ---- */

/* The scan becomes what the epoch before has, without the path that is to be removed. */
int import_take_parent(struct import_job *j);

/* ---- import_contents.c ---- */

/* Reads the files whose content is not known, in the order of the scan. */
int import_contents(struct import_job *j);
/* Ends the batch under way. 0 where there is none. */
int import_part_end(struct import_job *j);
/* Begins a batch where there is none. */
int import_part_begin(struct import_job *j);
/* A file of the directory that had this content (`arg` is the job): a descriptor, or -ENOENT. For upload_epoch.h. */
int import_open_content(void *arg, const struct hash *recipe, uint64_t size);

/* ---- import_known.c ---- */

/* Lists what the epoch before has. */
int import_known_load(struct import_job *j);
/* Takes the contents of files that have not changed since this machine last imported them. */
int import_known_take(struct import_job *j);
/* After a file was read between two equal looks, with nobody writing it (or not known). */
void import_known_remember(struct import_job *j, const struct scan_node *n,
			   enum io_writers writers);
/* Forgets files that were not met for long. */
void import_known_forget(struct import_job *j);
/* What earlier tries have put for this epoch goes into the record; and what this one has put is kept for later ones. */
void import_parts_recall(struct import_job *j);
void import_parts_remember(struct import_job *j);

/* ---- import_commit.c ---- */

/* The newest epoch of the remote with its tree, and the number of the next. */
int import_find_parent(struct import_job *j);
/* Makes the tree and, where it differs from the parent's, the epoch. */
int import_commit(struct import_job *j, bool *ret_unchanged);
/* What becomes an entry of the tree; its name and depth are not set. */
void import_entry(const struct import_job *j, size_t number, struct tree_entry *ret_entry);
/* Reads an epoch of the remote; either may be NULL. 0; -ENOENT, -EBADMSG, the errors of the remote, -ENOMEM. */
int import_load(struct import_job *j, uint64_t number, struct epoch_record *ret_record,
		struct tree **ret_tree);

/* ---- import_doubts.c ---- */

/* For a tree: what the epoch before had in doubt; each file, which may turn out to be torn; what is gone; then what the record says, and why it is not complete.
 * 0 or -ENOMEM; the second reads the remote where something may be gone, and keeps the doubt where that fails. */
int import_doubts_begin(struct import_job *j);
int import_doubts_file(struct import_job *j, size_t number, struct tree_entry *e);
int import_doubts_gone(struct import_job *j);
int import_doubts_end(struct import_job *j);
/* A name of the directory by its path; SIZE_MAX: there is none. It reads all names. */
size_t import_find_node(const struct import_job *j, const char *path);

/*
 * Looks for files that the doubts of the epoch before name, and that have been renamed since: where nothing has the name any
 * more, what has that content under a name that had not. Of several any may be meant: the doubt stays. 0 or -ENOMEM.
 */
int import_moved_find(struct import_job *j);
void import_moved_free(struct import_job *j);

#endif
