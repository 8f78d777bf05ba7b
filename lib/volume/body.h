/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies: content lineages of the live tree that handles have open. Private to lib/volume; see
 * handle.h for the rules. A body exists in memory from its first open to its last release (or while
 * a writable mapping is left after it). All fields are guarded by the volume's lock, but the
 * descriptor, which stays open and the same for the body's life.
 */
#ifndef EPOCHFS_VOLUME_BODY_H
#define EPOCHFS_VOLUME_BODY_H

#include "lib/volume/internal.h"

struct body {
	uint64_t id;
	uint64_t ino;
	uint64_t version; /* what is being written, or the closed version that is read */
	bool staged;  /* `version` is VERSION_STAGED: fd is its backing file, sizes and times come
			 from fstat */
	bool pending; /* a replacement that only its writers see */
	bool orphan;  /* no longer what the file shows (replaced, unlinked, rolled back): its close
			 goes nowhere, or to torn/ */
	bool is_log; /* contract 1.2 rule 5: name matches, or O_APPEND held for longer than patience
		      */
	bool append_only; /* every writing handle has O_APPEND and not O_DIRECT */
	bool killed;	  /* an opener that wrote died */
	unsigned handles, writers;
	uint64_t opened_epoch;	 /* next_epoch when the first writer opened */
	int64_t opened_ns;	 /* monotonic */
	int fd;			 /* backing file, read-write; -1 while content serves */
	struct content *content; /* closed content: reads go here; NULL when staged */
				 /* ... more is body.c's and handle.c's own */
};

int bodies_new(struct bodies **ret_bodies);
void bodies_free(struct bodies *b);

struct body *body_find_locked(struct volume *vol, uint64_t id);
/* The newest pending replacement of this file: NULL if none. */
struct body *body_pending_locked(struct volume *vol, uint64_t ino);
/* The pending replacement that a lookup by this thread's process resolves to (it writes it, or was
 * just told ESTALE for it): NULL if none. */
struct body *body_pending_for_locked(struct volume *vol, uint64_t ino, pid_t pid);
/* Size, blocks, mtime and ctime of an open staged body from its backing file, put over `attr`. */
void body_attr_locked(const struct body *b, struct live_attr *attr);
/* All open bodies that are staged or have writers, for the sealer and status. fn runs with the
 * lock. Non-zero stops. */
int bodies_each_writing_locked(struct volume *vol, int (*fn)(void *arg, struct body *b), void *arg);
/* A thread of which process holds it open (the opener's pid), 0: unknown. */
pid_t body_opener_locked(const struct body *b);
/* The file's content is replaced or gone (unlink of the last name, rollback): open bodies of it
 * become orphans. */
void body_orphan_locked(struct volume *vol, uint64_t ino);
/* Rollback: writers across it go to torn/ when they close. */
void bodies_tear_writers_locked(struct volume *vol);

/* The edit of truncate(2) and of live_setattr's size, without a handle. Called without the lock. */
int body_truncate(struct volume *vol, uint64_t ino, uint64_t body, uint64_t size);
/* The last name of a file is gone: frees file and versions now, or when the last handle goes. In a
 * transaction, with the lock. */
int body_file_unlinked_locked(struct volume *vol, struct state_file *f);
/* A rename put an open, new, uncommitted file over a committed one: `covered` stays until the
 * writer closes (bury) or is killed (back under its name). */
bool body_is_fragile_new_locked(struct volume *vol, const struct state_file *f);

/* After a crash or a power loss: commits, undoes or tears what was open (contract 1.2 rule 4, 1.4).
 * At volume_open, before any thread. */
int recover(struct volume *vol, bool *ret_killed);

#endif
