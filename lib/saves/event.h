/* SPDX-License-Identifier: Apache-2.0 */
/* What happened in a directory that saves go to: one struct, printed as a line of text, and read back. */
#ifndef EPOCHFS_SAVES_EVENT_H
#define EPOCHFS_SAVES_EVENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"

/*
 * A line is the time in seconds, the kind, and the fields of that kind, in this order and no other:
 *
 *	12.5 opened process=812 handle=3 is=new path=/checkpoint-500/model.bin
 *	13 closed handle=3 size=4096 path=/checkpoint-500/model.bin
 *
 * A number has no more digits than it needs. A path is one from the root, with a '/' before it; in it '%', and what would end the word (all
 * bytes up to the space, and DEL), stands as %XX. So there is one line for an event, and one event for a line.
 */
enum save_event_kind {
	SAVE_MADE,	 /* a directory: process path */
	SAVE_OPENED,	 /* a file, for writing: process handle is path */
	SAVE_REFUSED,	 /* a write through it: handle */
	SAVE_CLOSED,	 /* what was written stands: handle size [is] [path] */
	SAVE_UNDONE,	 /* what was there before stands, or nothing: handle is [path] */
	SAVE_RENAMED,	 /* process size [is] path to */
	SAVE_EXCHANGED,	 /* process size path to */
	SAVE_LINKED,	 /* a name more, or a symbolic link: process size path */
	SAVE_REMOVED,	 /* [is] path */
	SAVE_ENDED,	 /* a process: process status [is] */
	SAVE_ASKED,	 /* somebody wants an epoch: [is] */
	SAVE_SEALED,	 /* there is one: epoch rule [is] */
	SAVE_BACK,	 /* the live tree is what this epoch was: epoch */
	SAVE_LOST,	 /* the machine, or the mount without its end */
	SAVE_TIME,	 /* nothing but that time passed */
	SAVE_EVENT_COUNT /* no kind */
};

/* Words of the field `is`. */
enum save_fact {
	SAVE_IS_NEW = 1 << 0,	  /* opened: there was no such file */
	SAVE_IS_REPLACE = 1 << 1, /* opened: with O_TRUNC over closed content */
	SAVE_IS_EDIT = 1 << 2,	  /* opened: in place */
	SAVE_IS_SHARED = 1 << 3,  /* closed: others have the same open still */
	SAVE_IS_SAME = 1 << 4,	  /* closed: with the bytes that it had before */
	SAVE_IS_GREW =
		1 << 5, /* closed: written in place, it has what it had before, and more behind */
	SAVE_IS_HAD =
		1 << 6, /* closed: what was written in place is in an epoch as it was before */
	SAVE_IS_KILLED = 1 << 7,     /* closed, undone: its writer was killed */
	SAVE_IS_TORN = 1 << 8,	     /* closed, undone: cut off, as its own format says */
	SAVE_IS_REFUSED = 1 << 9,    /* undone: a write of it was refused */
	SAVE_IS_OVER = 1 << 10,	     /* renamed: there was something of that name */
	SAVE_IS_DIRECTORY = 1 << 11, /* renamed, removed */
	SAVE_IS_UNKNOWN = 1 << 12,   /* ended: nobody knows how; the status says nothing */
	SAVE_IS_WHOLE = 1 << 13,     /* asked, sealed: somebody vouches for it */
};

/* So that whatever is added to a time is one. */
#define SAVE_TIME_MAX (INT64_MAX / 2)

/* What a kind has not is 0. */
struct save_event {
	enum save_event_kind kind;
	int64_t at_ns; /* of one clock; from 0 to SAVE_TIME_MAX */
	uint64_t
		process; /* one number a process, that no later one gets again (save_process_pid); 0: not seen (another pid namespace) */
	uint64_t handle; /* one number an open file description */
	uint64_t size;	 /* of the file, in bytes */
	uint64_t status; /* of a process, as a shell says it: 137 for SIGKILL */
	uint64_t epoch;
	uint64_t rule;	/* by which it was sealed: 4 is S4 */
	unsigned facts; /* enum save_fact */
	const char *path,
		*to; /* from the root, without a '/' before it; path is NULL where a file has no name any more */
};

/* Whether there can be such an event: of what its kind needs there is all, and nothing else. */
bool save_event_valid(const struct save_event *e);
/* Appends the line of a valid event, without an end of line. A failed allocation shows in the buffer. */
void save_event_print(struct buf *out, const struct save_event *e);
/* Reads a line, without an end of line. The paths of the event point into it, and it is changed. 0, or -EINVAL. */
int save_event_parse(char *line, struct save_event *ret_event);

/* What people know a process by: the low 32 bits; 0: nothing. */
static inline uint32_t save_process_pid(uint64_t process)
{
	return (uint32_t)process;
}

/* "opened" */
const char *save_event_name(enum save_event_kind kind);
/* "new", of one bit. */
const char *save_fact_name(unsigned fact);

/* Whether a path can be one: no empty part, no "." or "..". */
bool save_path_valid(const char *path);

#endif
