/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shutdown mark, how the last process left the local state of a volume: a note in the file `lock` of the cache
 * directory, behind the process's number, so that a full disk has no new block to find for it. It
 * says when a look at the whole database is worth its time (open_state.c).
 *
 *	closed SIZE MTIME	in order; state.db was so large and so old then
 *	running BOOT		in use, on this boot of the machine: the journal (WAL) is there
 *	unmounted BOOT		the same, but what is left to do is to end
 *	ending BOOT		being closed: SQLite may have removed the journal
 *	damaged			SQLite has met damage
 *
 * Of a mount that runs, a third line says "device 0:45 PATH", as in mountinfo, where it is mounted.
 */
#ifndef EPOCHFS_STATE_SHUTDOWN_MARK_H
#define EPOCHFS_STATE_SHUTDOWN_MARK_H

#include <stdbool.h>
#include <sys/types.h>
#include "lib/util/buf.h"
#include "lib/util/mountinfo.h"

enum last_shutdown {
	SHUTDOWN_UNKNOWN, /* a new cache, or one of an epochfs that left no note */
	SHUTDOWN_CLEAN,	  /* closed, and state.db is as it was then */
	SHUTDOWN_CHANGED, /* closed, but state.db is another now */
	SHUTDOWN_KILLED,  /* killed, on this boot of the machine; also after it was unmounted */
	SHUTDOWN_KILLED_CLOSING, /* the same, in its end */
	SHUTDOWN_REBOOTED,	 /* the machine ended while it was in use */
	SHUTDOWN_DAMAGED,
};

enum shutdown_mark { MARK_RUNNING, MARK_UNMOUNTED, MARK_CLOSING, MARK_CLEAN, MARK_DAMAGED };

/* Who holds the lock, as the text says; nothing of it need be true. */
struct shutdown_mark_holder {
	long pid;			   /* 0: none is named */
	bool ending;			   /* it is unmounted, or being closed */
	char device[MOUNTINFO_DEVICE_MAX]; /* "": none, or not known */
	char path[MOUNTINFO_PATH_MAX];	   /* where that is mounted, as mountinfo writes it */
};
void shutdown_mark_holder(const char *text, struct shutdown_mark_holder *ret_holder);

/* What the text of the file, which may hold anything, says of the state in the cache directory `cache_fd`. */
enum last_shutdown shutdown_mark_read(int cache_fd, const char *text);
/* The cache directory of a volume and the file `lock` in it. */
struct shutdown_mark_place {
	int cache_fd, lock_fd;
	const char *device,
		*mounted_at; /* of the mount, as mountinfo has them; device "": none, or not known */
};
/* Writes the note, and who holds the lock. 0 or -errno. */
int shutdown_mark_write(const struct shutdown_mark_place *place, enum shutdown_mark mark);
/* Whether process `pid` holds the lock in this directory and has noted that it is unmounted or being closed. */
bool shutdown_mark_is_ending(const char *cache, pid_t pid);
/* Appends the id of this boot of the machine, without a newline. */
int shutdown_mark_boot_id(struct buf *out);

#endif
