/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Epochs of an open volume: sealing, listing, trees, tags, rollback, drop, waiting. What .epochs
 * shows and control.h asks for.
 */
#ifndef EPOCHFS_EPOCHS_EPOCHS_H
#define EPOCHFS_EPOCHS_EPOCHS_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/format/record.h"
#include "lib/format/tree.h"
#include "lib/meta/epoch_index.h"
#include "lib/state/state.h"
#include "lib/util/clock.h"

struct volume;

struct epochs_seal {
	const char *trigger;  /* "commit", "mkdir", "sync", "wait", "umount", "rollback", "rename",
				"marker", "quiet", "close", "next-save", "killed", "recovery", "import" */
	const char *tag;      /* or NULL */
	const char *message;  /* or NULL */
	const char *metadata; /* of a metadata writer (record_metadata.h), or NULL */
	bool has_step;
	uint64_t step;
	bool whole; /* all that is in doubt (doubts.h) is whole, by the word of who asks: makes an epoch where something is */
};

/*
 * Seals the live tree as it is closed now into a new epoch; writers are blocked only while the
 * snapshot begins. Where nothing changed since the last epoch (attribute changes count here; times that a close alone has changed do where a
 * person asks: commit, mkdir) the result is that epoch, tagged if asked; with the step, the message and the metadata where its upload has not begun and no person asked for it, else a
 * new one has them. The tag: -EEXIST if taken, -EINVAL if not a valid name.
 */
int epochs_seal(struct volume *vol, const struct epochs_seal *how, uint64_t *ret_number);

/*
 * It was pending, and is complete: its record says so. -EALREADY where that is in the remote, or on its way as somebody waits for it (`waited`):
 * a record there never changes. With the lock.
 */
int epochs_found_whole_locked(struct volume *vol, uint64_t number, bool waited);

int epochs_get(struct volume *vol, uint64_t number,
	       struct epoch_info *ret_info); /* -ENOENT, dropped too */
/* Ascending, without tombstones; from a copy: fn may call anything. Non-zero stops and is returned.
 */
int epochs_each(struct volume *vol, int (*fn)(void *arg, const struct epoch_info *e), void *arg);
/* Cheap forms for .epochs: numbers and seal times only. */
int epochs_numbers(struct volume *vol, uint64_t after,
		   int (*fn)(void *arg, uint64_t number, int64_t sealed_ns), void *arg);
int epochs_sealed_ns(struct volume *vol, uint64_t number, int64_t *ret_ns); /* -ENOENT */
/* 0 when there is none. */
uint64_t epochs_latest(struct volume *vol);  /* the newest complete one */
uint64_t epochs_current(struct volume *vol); /* the one that the live tree stands on */
/* The newest complete one of this step: -ENOENT. */
int epochs_of_step(struct volume *vol, uint64_t step, uint64_t *ret_number);
/* "42", "000042", "step=500", "latest", "current", a tag, "@2h": -ENOENT, -EINVAL. */
int epochs_resolve(struct volume *vol, const char *name, uint64_t *ret_number);

/* The tree, decoded and shared: tree_put gives the reference back. Fetched if not local. */
int epochs_tree(struct volume *vol, uint64_t number, struct tree **ret_tree);

int epochs_tag(struct volume *vol, const char *name, uint64_t number,
	       bool replace);				/* -EEXIST, -EINVAL, -ENOENT */
int epochs_untag(struct volume *vol, const char *name); /* -ENOENT */
int epochs_tag_get(struct volume *vol, const char *name, uint64_t *ret_number);
int epochs_tag_each(struct volume *vol, int (*fn)(void *arg, const char *name, uint64_t number),
		    void *arg);

/* Contract 1.1: seals what is pending, makes a new epoch with the old one's tree, and the live tree
 * and `current` follow. */
int epochs_rollback(struct volume *vol, uint64_t number, uint64_t *ret_new);
/* -EBUSY: tagged, current or the newest complete one. */
int epochs_drop(struct volume *vol, uint64_t number);
/* Whether a tag of this name may be made. */
bool epochs_tag_allowed(const char *name);
/*
 * Waits until this epoch (0: all that is closed now, sealing it) and all before it are durable:
 * -ETIMEDOUT (timeout_ns < 0: for ever), -EINTR, -ENOENT; -EBUSY where another writer has taken the
 * volume over, so that they never will be.
 */
int epochs_wait(struct volume *vol, uint64_t number, int64_t timeout_ns, interrupted_fn interrupted,
		void *arg);

/* What user.epochfs.{state,epoch,step} of a live file show: the state of its closed content, the
 * epoch that first held it. */
struct file_epoch {
	const char *state; /* "staged", "sealed", "uploading", "durable", "failed"; static */
	uint64_t epoch;	   /* 0: in none yet */
	bool has_step;
	uint64_t step;
};
int epochs_of_file(struct volume *vol, uint64_t ino, struct file_epoch *ret_info);

#endif
