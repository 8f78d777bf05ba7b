/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ordinary directory becomes an epoch of a volume, without a mount: what `epochfs import` and `epochfs watch` call.
 *
 * An import holds the volume's lease, as a mount that writes does, from import_open to import_close. import_run lists the directory, reads what is not known, puts it
 * into packs, and creates the epoch's record last, only if it is absent: readers see all of the epoch or nothing. Nothing in the directory is changed.
 *
 * What is read. A file is read between two looks at its attributes; one that changes meanwhile is read again. Then the directory is listed once more, and what differs
 * is read again, until two listings are equal: what the epoch holds was in the directory all at one time. Logs (rules.h) are taken as they stand.
 *
 * What is not read. Of a file with the same inode, size, mtime and ctime as when this machine last imported it into this volume, the content is known; it is taken from
 * the epoch before, if that has it still. Not believed is a file that had changed within 2 s when it was read, or that somebody had open for writing; nor files
 * of another user, unless we are root (60 s then), or on file systems whose ctime cannot be relied on (all of networks).
 *
 * Killed in the middle, nothing is visible. The next import finds what is in the remote already: after each part of some contents an index object names them, and
 * of the part that was under way the same packs come again and are not put twice.
 *
 * Memory: the store's (store.h), and about 300 bytes a name.
 */
#ifndef EPOCHFS_IMPORT_IMPORT_H
#define EPOCHFS_IMPORT_IMPORT_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/format/record.h"
#include "lib/meta/options.h"
#include "lib/volume/volume.h"

struct import;

/*
 * The volume is made where the remote is empty. Of the options count: remote, cache_dir, limits, log, step_regex, node, run_id, message, on_epoch,
 * on_epoch_timeout_ns, catalog_db, lease_ns, take_over, give_up, patience_ns (how long a remote that is away is waited for, at least 10 s), threads.
 * SIGIO is ignored from now on, where it was not handled. The message and the errors are volume_open's (volume.h).
 */
int import_open(const struct volume_options *options, struct import **ret_import,
		char **ret_message);
/* Gives the lease back; waits a little until the epochs are announced. NULL is allowed. */
void import_close(struct import *imp);

struct import_how {
	const char *directory; /* nothing is read of it with `remove` */
	const char
		*remove; /* or NULL: the newest epoch without this path, instead of a directory */
	const char *tag, *message; /* or NULL */
	bool has_step;		   /* else the step is in names that changed, as with sealing */
	uint64_t step;
	/* What keeps changing is taken as it was read, and the epoch is not complete. Else -EAGAIN. */
	bool allow_changing;
	bool read_all; /* believe nothing of earlier imports */
	enum record_trigger trigger;
	/*
	 * 0: the directory as it is now, as said above. Else as it was then (wall clock), because somebody who watched it says that it was whole: a file that is
	 * open for writing is in the epoch as the epoch before has it, or not at all; -EAGAIN where something else changed since, before it was read.
	 */
	int64_t as_of_ns;
	int64_t opened_ns; /* wall clock of the first change; 0: not known */
	uint64_t save_ns;
	uint64_t part_len; /* 0: the default, 1 GiB */
};

struct import_result {
	bool unchanged;		    /* it equals the newest epoch: there is no new one */
	struct epoch_record record; /* of the epoch; the caller's */
	uint64_t bytes_read, files_read;
};

/*
 * One at a time. On failure one line is in `ret_message` (or NULL), and no epoch was made (but -ENOTCONN: it was, and its tag could not be set):
 *   -EAGAIN      the directory keeps changing
 *   -ENOENT      no such directory; `remove`: the newest epoch has no such path, or there is none
 *   -EEXIST      the tag is taken, or another writer has put an epoch of this number
 *   -EINVAL      the tag is no name
 *   -ESTALE      the lease is lost
 *   -ECANCELED   import_cancel
 *   -EHOSTUNREACH, -EACCES   of the remote; -EIO another error of the directory
 */
int import_run(struct import *imp, const struct import_how *how, struct import_result *ret_result,
	       char **ret_message);
/* Ends the import_run under way soon, and each later one, until import_resume. Any thread. */
void import_cancel(struct import *imp);
void import_resume(struct import *imp);

struct import_progress {
	uint64_t files, files_total; /* regular ones; total 0: it is being listed */
	uint64_t bytes, bytes_total; /* of those that are read */
	uint64_t stored;	     /* bytes put into the remote */
};
/* Any thread. */
void import_get_progress(struct import *imp, struct import_progress *ret_progress);
/* The remote's printable name; the folder of the local state. */
const char *import_remote_name(const struct import *imp);
const char *import_cache_path(const struct import *imp);

/* ---- watching a directory (watch.c) ---- */

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
