/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the last process left the local state of a volume: a note in the file `lock` of the cache
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
#ifndef EPOCHFS_STATE_LEFT_H
#define EPOCHFS_STATE_LEFT_H

#include <stdbool.h>
#include <sys/types.h>
#include "lib/util/buf.h"
#include "lib/util/mountinfo.h"

enum left_how {
	LEFT_UNKNOWN,  /* a new cache, or one of an epochfs that left no note */
	LEFT_IN_ORDER, /* closed, and state.db is as it was then */
	LEFT_CHANGED,  /* closed, but state.db is another now */
	LEFT_RUNNING,  /* killed, on this boot of the machine; also after it was unmounted */
	LEFT_ENDING,   /* the same, in its end */
	LEFT_REBOOTED, /* the machine ended while it was in use */
	LEFT_DAMAGED,
};

enum left_note { NOTE_RUNNING, NOTE_UNMOUNTED, NOTE_ENDING, NOTE_CLOSED, NOTE_DAMAGED };

/* Who holds the lock, as the text says; nothing of it need be true. */
struct left_holder {
	long pid;			   /* 0: none is named */
	bool ending;			   /* it is unmounted, or being closed */
	char device[MOUNTINFO_DEVICE_MAX]; /* "": none, or not known */
	char path[MOUNTINFO_PATH_MAX];	   /* where that is mounted, as mountinfo writes it */
};
void left_holder(const char *text, struct left_holder *ret_holder);

/* What the text of the file, which may hold anything, says of the state in the cache directory `cache_fd`. */
enum left_how left_read(int cache_fd, const char *text);
/* The cache directory of a volume and the file `lock` in it. */
struct left_place {
	int cache_fd, lock_fd;
	const char *device,
		*mounted_at; /* of the mount, as mountinfo has them; device "": none, or not known */
};
/* Writes the note, and who holds the lock. 0 or -errno. */
int left_note(const struct left_place *place, enum left_note note);
/* Whether process `pid` holds the lock in this directory and has noted that it is unmounted or being closed. */
bool left_is_ending(const char *cache, pid_t pid);
/* Appends the id of this boot of the machine, without a newline. */
int left_boot_id(struct buf *out);

#endif
