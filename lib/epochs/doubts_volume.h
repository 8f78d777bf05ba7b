/* SPDX-License-Identifier: Apache-2.0 */
/* The doubts of an open volume: noting them, judging them at a seal, taking over those of an epoch. */
#ifndef EPOCHFS_EPOCHS_DOUBTS_VOLUME_H
#define EPOCHFS_EPOCHS_DOUBTS_VOLUME_H

#include <jansson.h>
#include "lib/format/record.h"
#include "lib/meta/doubts.h"
#include "lib/cache/context.h"

/*
 * For lib/ alone. What is torn is marked on versions (state_version.torn) and entries of trees (TREE_TORN), and needs
 * nothing more. Kills are rows of the state (state_doubt), which the judgement at a seal removes or keeps; the record of each
 * epoch names all doubts, so that who takes over its tree (rollback, another machine) takes over its doubts.
 *
 * Functions that return nothing log what fails: a doubt that cannot be noted holds up no close.
 */
struct body;

/* The last writer of this body was killed, or a write to it refused; before it is undone (`undone`) or committed. */
void doubts_killed_locked(struct volume *vol, const struct body *b, bool undone, const char *why);
/* The epoch that this save began in, which is the open one, or an earlier one that the open one continues then. In no transaction. */
uint64_t doubts_since_locked(struct volume *vol, const struct state_doubt *d);
/*
 * Around the snapshot of an epoch: what is being replaced or made as it is sealed, since the epoch before, the epoch has as it was, or not at
 * all. There it is in doubt as if its writer had been killed by then; in the live tree it is not. `end` in any case.
 */
struct doubts_open {
	uint64_t *ids; /* owned */
	size_t count;
};
int doubts_open_begin_locked(struct volume *vol, struct doubts_open *ret_open);
void doubts_open_end_locked(struct volume *vol, struct doubts_open *o);
/* As soon as there is a sealer: which epochs those saves began with whose writers recovery found to be gone. */
int doubts_recovered_locked(struct volume *vol);
/*
 * The file got new content in place of this version; also by a rename over it. It is saved again after those kills that came before
 * its writer began: a commit or a rename may come after the kill of a writer beside it, in the same save. `began` is the version that
 * was staged then: kills are numbered among the versions (state_doubt_add), so that no clock is asked. In a transaction.
 */
int doubts_saved_locked(struct volume *vol, uint64_t ino, uint64_t old_version, uint64_t began);
/*
 * The file got version `version` in place of that one, and was changed in part only, or not at all: that saves nothing again, and what had
 * content of a killed save stays a companion. In a transaction. 0 or -errno.
 */
int doubts_changed_locked(struct volume *vol, uint64_t ino, uint64_t old_version, uint64_t version);
/* The newest complete epoch from before this kill, and before this number; 0: there is none. May be in a transaction. */
uint64_t doubts_base_locked(struct volume *vol, const struct state_doubt *d, uint64_t number);
/*
 * What has this name, written since version `began`, gets the name `to`: the file of that name whose writer was killed before was saved
 * again, though it will not be there at the seal. What has a temporary name is saved once it gets a final one. In a transaction.
 */
int doubts_renamed_locked(struct volume *vol, uint64_t parent, const char *name, const char *to,
			  uint64_t began);

/* This doubt of a file that was closed torn under a temporary name is noted now. */
void doubts_torn_locked(struct volume *vol, const struct state_doubt *d);
/*
 * Process `by` has renamed a file in this directory from a temporary name to a final one: that of another one there, which it had closed torn
 * under a temporary name that tells no final one, is done again. In no transaction.
 */
void doubts_tried_again_locked(struct volume *vol, uint64_t parent, pid_t by);

/* In the place of a file that was saved after a kill, before an epoch is judged: doubts_kill.until. */
#define DOUBT_GOES_ON 0
/* In the place of the epoch that had the content of such a file: it was changed in part only, or not at all, and stays a companion. */
#define DOUBT_IN_PART 0
/*
 * Process `by` (0: not known) has closed this file, or renamed it into place. Where it carries no step, it is of the same save as a file that was
 * killed in place, if `by` lived then, or that cannot be told; and as one that was killed under a temporary name at most `patience` ago, where `by` is a child of
 * the same process, and the two names are the same but for their numbers, as those of ranks are. In no transaction.
 */
void doubts_goes_on_locked(struct volume *vol, uint64_t ino, pid_t by);
/* This process (0: not known) could not open this name to write it, for lack of room, and the file is as it was, or not there: as after a kill, what
 * was saved with it is half, until it is saved. In no transaction. */
void doubts_refused_locked(struct volume *vol, uint64_t parent, const char *name, pid_t by);
/* This process opens a file for writing: it may have ended when that is closed. */
void doubts_writer_locked(struct volume *vol, pid_t pid);

/*
 * A new file was closed, or got this name, by process `by` (0: not known): where that was started after the kill of a writer whose file was
 * not there before, in the same directory and with a name that carries no step and is the same but for its numbers, the next save has this
 * in its place, and that will never be saved again. In no transaction.
 */
void doubts_next_saved_locked(struct volume *vol, uint64_t parent, const char *name, pid_t by);

/* A judge that knows the kills of this snapshot, for an epoch of this number, and what was the newest unit of its parent, or of the epoch
 * that it restores (0: none). Without the lock. */
int doubts_of_snapshot(struct volume *vol, struct state *snapshot, uint64_t number, uint64_t parent,
		       uint64_t restores, struct doubts **ret_doubts);
/* The record of an epoch; empty where it is not here. Without the lock. */
int doubts_record_of(struct volume *vol, uint64_t number, struct epoch_record *ret_record);
/* Tells a judge what the record of the epoch before says: which unit was the newest, and which torn files are parts. 0 or -ENOMEM. */
int doubts_tell_record(struct doubts *d, const struct epoch_record *before);
/* The same, where that is here. Without the lock. */
int doubts_tell_before(struct volume *vol, uint64_t number, struct doubts *d);
/* The path of one of its names; -ENOENT where it has none. */
int doubts_path_of(struct state *s, uint64_t ino, struct buf *out);
/*
 * The record's "newest", after the decision. Its step, where its paths voted for one that is in doubt and does not count, becomes that of
 * the newest unit. 0 or -ENOMEM.
 */
int doubts_newest_to_record(const struct doubts *d, const struct rules *rules,
			    struct epoch_record *r);
/* Once the judge knows all files of the snapshot: tells it what is gone since the epochs before the kills. Without the lock. */
int doubts_find_gone(struct volume *vol, struct state *snapshot, struct doubts *d);
/* After the decision: what is settled goes, what stands keeps its companions. In a transaction. */
int doubts_judged_locked(struct volume *vol, const struct doubts *d);

/* Those noted before this epoch's snapshot go, by the word of somebody who knows. In a transaction. */
int doubts_clear_locked(struct volume *vol, uint64_t number);

/* Doubts become those of the record, the live tree being its tree now. In a transaction. */
int doubts_take_over_locked(struct volume *vol, const struct epoch_record *record);
/* The same of an epoch by its number; none where it has no record here. */
int doubts_of_epoch_locked(struct volume *vol, uint64_t number);
/* Whether this record names nothing torn: then what has no mark in its tree was whole, or called so. */
bool doubts_none_torn(const struct epoch_record *record);
/* The same of an epoch; false where it has no record here. 0 or -errno. */
int doubts_none_torn_locked(struct volume *vol, uint64_t number, bool *ret_none);
/* These come on top. In a transaction. */
int doubts_add_locked(struct volume *vol, const struct record_doubt *list, size_t count);

/* A file whose killed save was taken back is in doubt as if that was killed now: the rest of the save came. In no transaction. */
int doubts_again_locked(struct volume *vol, const char *path, const char *why);

/* The record's "doubts"; `before` (may be NULL) says why, and since when, torn files are. 0 or -ENOMEM. */
int doubts_to_record(const struct doubts *d, const struct epoch_record *before,
		     struct epoch_record *r);
/* A file whose name is temporary (doubt_name_is_temporary), and whose content, new in the epoch `number`, is torn. */
struct torn_temporary {
	char *path; /* owned by the list */
	uint64_t ino, version;
	const char *why;
};
/* Those met in a walk of the tree; free with torn_temporaries_free. Zero-initialised it is empty. */
struct torn_temporaries {
	struct torn_temporary *v;
	size_t count, cap;
};
/* Adds the file, which is new, if it is torn and has such a name. 0 or -ENOMEM. */
int torn_temporaries_add(struct torn_temporaries *list, const struct rules *rules,
			 const struct doubts_file *f);
void torn_temporaries_free(struct torn_temporaries *list);
/* The saves that they were for are half, as where their writers had been killed: noted, and added to what is judged, unless that has
 * them already. Before the files, so that the tree is walked once more. `continues`: the epoch that this one continues; 0: none, or
 * `number` is not sealed yet. Without the lock. 0 or -errno. */
int doubts_add_torn_temporaries(struct volume *vol, struct state *snapshot, uint64_t number,
				uint64_t continues, const struct torn_temporaries *list,
				struct doubts *d);

/* Adds to a reason which files are in doubt, of those that count. */
void doubts_reason(const struct doubts *d, const struct epoch_record *before, struct buf *reason);

/* For `status`: a list as in the record, with "settled_by"; NULL: none. It looks at the whole tree, but only where the state
 * has changed since the last time, and for a tenth of the time at most. (doubts_status.c) */
json_t *doubts_status(struct volume *vol);
void doubts_survey_free(struct volume *vol);
#define DOUBTS_FOUND_MAX 16
/*
 * Whether an epoch sealed now would not be complete because of a file that is torn or was undone, and the first of them, with
 * why, appended to `why`. Databases that a killed writer left do not count: they recover. `tails`: looks also at the tails of
 * what no epoch has yet, and notes what is torn under a temporary name; else only at what is known to be torn.
 * Without the lock.
 */
struct doubts_found {
	bool doubtful;
	/* The first of them: owned, doubts_found_free. When it was noted, wall clock; 0: not known. */
	struct {
		char *path;
		int64_t at_ns;
	} files[DOUBTS_FOUND_MAX];
	unsigned count;
	bool alone; /* none of them was saved with other files: an empty directory may be all that is left */
	bool temporary; /* something under a temporary name is in doubt, and may count once that is renamed */
};
int doubts_look(struct volume *vol, bool tails, struct doubts_found *ret_found, struct buf *why);
void doubts_found_free(struct doubts_found *found);
/* Notes what was closed torn under a temporary name since the last time, before an epoch is sealed: then it can be told which epoch that
 * save began in. Without the lock. */
void doubts_look_at_temporaries(struct volume *vol);
/* Whether something is in doubt. */
bool doubts_any_locked(struct volume *vol);

#endif
