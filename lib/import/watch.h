/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watches an ordinary directory, with all below it, and says when a checkpoint in it is whole: by the rules by which a mount seals (contract 1.3), as far as
 * they can be known from outside. What `epochfs watch` stands on.
 *
 * Events come from inotify; new directories are watched, and then looked through for what came before. Where the kernel drops events (its queue is bounded), all is
 * looked through. Where inotify is refused, or the limit of watches is reached, and where it is asked for, the directory is listed every `poll` instead: then renames
 * seal nothing at once; markers and quiet do. Whether somebody has a file open for writing is asked of the kernel too (io_writers).
 *
 * One thread.
 */
#ifndef EPOCHFS_IMPORT_WATCH_H
#define EPOCHFS_IMPORT_WATCH_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/format/record.h"
#include "lib/meta/options.h"
#include "lib/volume/volume.h"

struct watch;

struct watch_options {
	const char *directory;
	/* temporary, marker, log, settle_ns and patience_ns count; must stay. */
	const struct volume_options *volume;
	int64_t poll_ns; /* 0: inotify, and where it cannot be had every second */
};

/* 0 or -errno, with a line in `ret_message` (or NULL). What is there counts as changed: it is settled, and then is a checkpoint. */
int watch_open(const struct watch_options *options, struct watch **ret_watch, char **ret_message);
void watch_close(struct watch *w); /* NULL is allowed */

/* True where it lists instead of being told; then why, static ("": it was asked for). */
bool watch_polls(const struct watch *w, const char **ret_why);

/* For poll(2): readable when there is something for watch_turn. -1: none. */
int watch_fd(const struct watch *w);

struct watch_moment {
	bool ready; /* it is time: call watch_taken and then import as of now */
	enum record_trigger trigger;
	int64_t opened_ns; /* wall clock: the first change */
	uint64_t save_ns;
	int64_t until_ns; /* monotonic: else look again then, or when there is something to read */
};

/* Takes in what happened. -ENOENT: the directory itself is gone, or its path leads to another; else -errno. */
int watch_turn(struct watch *w, struct watch_moment *ret_moment);
/* Where it polls, the next watch_turn lists, however long ago it last did. */
void watch_list_now(struct watch *w);
/* Whether there is anything that no epoch has. */
bool watch_dirty(const struct watch *w);
/* An import begins: what is known up to now is its own. */
void watch_taken(struct watch *w);
/* It did not come to be: all of it is to be imported once it is quiet again. */
void watch_again(struct watch *w);

#endif
