/* SPDX-License-Identifier: Apache-2.0 */
/* The sealer: notices what happens in the live tree, decides when an epoch is whole, seals it. */
#ifndef EPOCHFS_VOLUME_SEALER_H
#define EPOCHFS_VOLUME_SEALER_H

#include "lib/volume/internal.h"

/*
 * Contract 1.3. What names mean is in rules.h, the decision to seal in settle.h, both pure. Private
 * to lib/volume.
 *
 * Sealing has two halves. seal_begin_locked (seal.h) takes the number, and a snapshot of the state,
 * in one critical section. The rest (walk, tree, tails, record) needs no lock; it is done by the
 * sealer's thread or by who asked for the epoch, one epoch after the other in the order of numbers.
 *
 * Between the two, the epoch has a row of state SEALED whose record is NULL. So
 * state_epoch_pending_in() holds for it: content that it needs is neither buried nor edited
 * without a clone. Who uploads or lists skips such a row; after a crash its number is used again.
 */
enum activity {
	ACTIVITY_CREATE,  /* a name was made (file, directory, symlink, link): opens an epoch */
	ACTIVITY_CLOSE,	  /* new content was committed: opens an epoch */
	ACTIVITY_RENAME,  /* opens an epoch */
	ACTIVITY_REPLACE, /* a rename to a name that an epoch has: likewise */
	ACTIVITY_WRITE,	  /* a write was seen: restarts the quiet, opens none */
	ACTIVITY_REMOVE,  /* rides in the next epoch; commit and unmount seal it */
	ACTIVITY_ATTR,	  /* chmod, utimens, xattr: likewise, and does not restart the quiet */
	ACTIVITY_EMPTIED, /* an empty file was emptied and closed: likewise, but a marker seals */
};

/* Reads what the last mount left (epochs begun and not frozen, changes not sealed).
 * recovered_killed: something was open for writing when the last mount ended without order. 0 or
 * -errno. */
int sealer_start(struct volume *vol, bool recovered_killed);
/* Starts the thread (none where the volume is read-only), after the uploader, which it wakes. 0 or
 * -errno. */
int sealer_run(struct volume *vol);
/* Before sealer_start: whether the last mount left changes that are in no epoch: 1, 0 or -errno. */
int sealer_left_changes_locked(struct volume *vol);
/* Finishes what was begun, stops the thread; seals nothing. What it knows stays until sealer_free, when nobody else works on
 * the volume any more. */
void sealer_stop(struct volume *vol);
void sealer_free(struct volume *vol);

/*
 * With the lock held, AFTER the transaction of the change is committed (a snapshot may begin here,
 * and sees only what is committed). `parent` is the directory that holds the name now (of a rename:
 * the new one), `name` the name made, removed or closed, old_name that before a rename; NULL where
 * there is none. `ino` is the file's. A removal names the file that it removed.
 *
 * A rename that makes a temporary name final, a marker closed or renamed into place, and with
 * settle=0 a close, seal here and now: the snapshot begins before this returns, so that what follows
 * belongs to the next epoch. Does nothing before sealer_start (recovery notes nothing).
 */
void sealer_note_locked(struct volume *vol, enum activity what, uint64_t parent,
			const char *old_name, const char *name, uint64_t ino);
/*
 * Contract 1.3.4: a file's content is about to be replaced; a name that is not there is about to be made; a rename is
 * about to be done. Where that begins another save, the state before it is sealed. Not in a transaction; a close that is on
 * its way is taken in first, for which the lock may be dropped.
 */
void sealer_before_replace_locked(struct volume *vol, uint64_t ino);
void sealer_before_name_locked(struct volume *vol, uint64_t parent, const char *name);
void sealer_before_rename_locked(struct volume *vol, uint64_t parent, const char *name,
				 uint64_t new_parent, const char *new_name);
/* A close, by this process (0: not known), has replaced content that this epoch has first (0: none): before sealer_note_locked
 * says so. */
void sealer_before_taken_locked(struct volume *vol, uint64_t ino, uint64_t epoch, pid_t by);
/* The next epoch is complete=false with this reason, whatever else is in doubt (doubts_volume.h), and is sealed by quiet.
 * Where nothing changed, there is none, and the reason is forgotten. */
void sealer_incomplete_locked(struct volume *vol, const char *reason);
/* A writer was killed: what changed is sealed by quiet. */
void sealer_killed_locked(struct volume *vol);
/* A writer was killed (`by`; 0: not known) in a file of this name that is new, before that is undone: the epoch that its directory
 * came with, where that was sealed by itself and so came too early (one of the file's step; without a step, of its own directory and
 * not older than `patience`), or that renamed another file of its save into place; 0: none. The next epoch continues it then, even if
 * nothing is left. */
uint64_t sealer_continued_locked(struct volume *vol, uint64_t dir, const char *name, pid_t by);
/* A request came without a pid from a writer: the next epoch is complete=unknown. */
void sealer_unknown_locked(struct volume *vol);
/* Whether the file name is that of a log (the built-in ones and the options' globs without '/'). */
bool sealer_is_log(const struct volume *vol, const char *name);
/* Whether the last epoch took this log, while it was open, as it is now. */
bool sealer_has_log_locked(const struct volume *vol, uint64_t ino, const struct stat *st);

#endif
