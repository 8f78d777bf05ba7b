/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies: content lineages of the live tree that handles have open. For lib/ alone; see
 * handle.h for the rules. A body exists in memory from its first open to its last release (or while
 * a writable mapping is left after it); one that was replaced, or whose file has no name any more, for as long as
 * the kernel has a node of it. All fields are guarded by the volume's lock, but the
 * descriptor `fd`, which stays open and the same once it is set, for as long as the caller has a
 * handle or holds the lock.
 *
 * What the other parts must keep to:
 *   - Body ids come from object_new_id, for every file whose content is replaced as a whole.
 *   - A file whose last name goes keeps its row (nlink 0) while a body of it is open:
 *     body_file_unlinked_locked decides.
 *   - A rename over a committed file by one for which body_is_fragile_new_locked holds sets
 *     `covered` in the name and leaves the covered file's row and nlink as they are. Its commit
 *     drops what it covered (body_file_unlinked_locked where that was its last name), its undo
 *     points the name back. An epoch that is sealed in between takes the covered file.
 *   - close() is followed by RELEASE in the background. What must see the close (a lookup, an open,
 *     a rename, a change of size or times, or another close of that file, a seal, a look into .epochs) calls body_finish_closes_locked or
 *     bodies_finish_closes first.
 */
#ifndef EPOCHFS_LIVE_BODY_H
#define EPOCHFS_LIVE_BODY_H

#include "lib/cache/context.h"
#include "lib/live/live.h"
#include "lib/live/output.h"
#include "lib/util/map.h"
#include "lib/util/array.h"

struct body {
	uint64_t id;
	uint64_t ino;
	uint64_t version; /* what is being written, or the closed version that is read */
	bool staged;  /* `version` is VERSION_STAGED: fd is its backing file, sizes and times come
			 from fstat */
	bool pending; /* a replacement that only its writers see */
	bool orphan;  /* no longer what the file shows (replaced, unlinked, rolled back): its close
			 goes nowhere, or to torn/ */
	bool let_go; /* an orphan whose last writer has closed: row and file go with the last who reads it */
	bool tear;	 /* an orphan by a rollback: what its writers leave goes to torn/ */
	bool known;	 /* the kernel has a node of it, and may open it: it stays */
	bool shown;	 /* it was no orphan when a rollback began, which may make it one */
	char *torn_name; /* what it was called before the rollback; owned, NULL: unknown */
	bool is_output; /* contract 1.2.5, as it was last asked: body_is_output_locked (output.h) */
	bool append_only;      /* every writing handle has O_APPEND and not O_DIRECT */
	bool killed;	       /* an opener that wrote died, or was refused a write */
	bool closed_well;      /* an opener closed, and it was written while he had it open */
	unsigned long changes; /* writes that went through the daemon */
	bool fragile;	       /* a killed writer undoes it: as in the version's row (state.h) */
	unsigned handles, writers;
	unsigned held; /* handles whose descriptor others inherited: no writers (held_close.c) */
	uint64_t
		last_number; /* of the handle that closed last, until that is told (events.h); else 0 */
	pid_t closer;	     /* the process of the writer that closed last; 0: not known */
	pid_t closer_tid;	    /* its thread that had opened it; 0: not known */
	pid_t closer_parent;	    /* where it was killed, who had started it; 0: not known */
	int closer_hold;	    /* process_hold of it; -1: none */
	uint64_t opened_epoch;	    /* next_epoch when the first writer opened */
	int64_t opened_ns;	    /* monotonic */
	int fd;			    /* backing file while staged, read-only; else -1 */
	int write_fd;		    /* the same, for writing; -1 while no writer needs it */
	int64_t mtime_ns, ctime_ns; /* of the file, when this was replaced; 0: it was not */
	struct content *content;    /* reads of closed content; NULL when staged or not yet read */

	/* The rest is private to what includes bodies.h. */
	struct map_link by_id, by_ino; /* of struct bodies */
	struct body *next_dead;	       /* of struct after */
	struct backing *backing;       /* counted; holds fd */
	struct member *members;	       /* processes that write, or were told ESTALE to come here */
	struct handle *open_handles;
	/* Operations that work on it without the lock, and threads that were led here (stale_retry.c). */
	unsigned pins;
	uint64_t base;	    /* the closed version that an edit or a replacement follows, or 0 */
	bool base_compares; /* times of the backing file tell whether it differs from `base` */
	bool copied;	    /* `base` is a copy, made under a mapping that may still write */
	bool same;	    /* its last writer left the bytes of `base` in it (same.c) */
	unsigned long
		opens; /* how often it was opened for writing, or truncated without a handle */
	int64_t base_mtime_ns, base_ctime_ns;
	uint64_t base_size;
	uint64_t journaled_size; /* what the version's row has of the last flush */
	int64_t journaled_ctime_ns;
	uint64_t synced_size;	 /* at the last fsync: what it covered */
	int64_t synced_ctime_ns; /* 0: none */
	int64_t closing_ns; /* monotonic; its writers closed, a release is on its way; else 0 */
	unsigned releasing; /* releases of writers under way */
	bool taking;	    /* its closes are taken in, without the lock: wait for `changed` */
	bool untold; /* one was, and the observer is to hear of it: the deferred-work thread does that */
	bool preparing; /* an edit begins, without the lock: wait for `changed` */
	bool watched; /* the deferred-work thread commits it: a writable mapping is left, or a commit failed */
	bool uncommitted; /* the latter: its last close is not recorded yet */
	bool discarded;	  /* its version is gone; the descriptor still reads */
	int64_t made_ns;  /* monotonic */
	/* Bytes whose writing was refused (no space, a failing disk) and that no later write covered: from >= to: none. */
	uint64_t refused_from, refused_to;
	int refused_error; /* and why, the last time: -errno */
	/* So much from its beginning on was written since, as of one that is saved anew on the same descriptor. */
	uint64_t redone;
	atomic_bool was_refused; /* one ever was; read without the lock */
	bool cut_off;		 /* as body_look_cut_off_locked found: it is undone */
	bool ends_torn;		 /* likewise: it is new, and committed */
	bool cramped; /* the kernel wrote it by itself while its disk had no room: a write may have been refused (cramped.h) */
	int64_t emptied_ns; /* wall clock: when it was last cut to nothing; 0: never */
	_Atomic uint64_t
		lowest; /* of an edit: no write that the daemon saw began before; read and set without the lock */
	bool passed; /* of an edit: the kernel may have written by itself */
	/* Of an edit: what it has written of the content before, as far as the daemon saw it, and how much of that it may still have. */
	struct spans written;
	uint64_t kept_size;
	atomic_bool is_followed; /* somebody will ask for that; read without the lock */
	bool half; /* the content before is torn: so is this until it is written whole (body_is_half) */
	uint64_t
		cut_size; /* that was torn because it is shorter than its format says: its size; else UINT64_MAX */
};

/* Sets vol->bodies, vol->uses_version_locked. */
int bodies_new(struct volume *vol);
void bodies_free(struct bodies *b);

struct body *body_find_locked(struct volume *vol, uint64_t id);
/* The body of the file that all see, if it is open: NULL if not. */
struct body *body_of_file_locked(struct volume *vol, const struct state_file *f);
/* The newest pending replacement of this file: NULL if none. */
struct body *body_pending_locked(struct volume *vol, uint64_t ino);
/* The pending replacement that a lookup by this thread's process resolves to (it writes it, or was
 * just told ESTALE for it): NULL if none. */
struct body *body_pending_for_locked(struct volume *vol, uint64_t ino, pid_t pid);
/* A lookup by this thread led to this file (NULL: to none). Where the thread was just told ESTALE by an open, that
 * open goes on here: what it is to find is made, also where a rename gave the name to another file. Before the answer is made. True
 * where the lock was dropped: look again. */
bool body_looked_up_locked(struct volume *vol, pid_t tid, uint64_t parent, const char *name,
			   const struct state_file *f);
/*
 * What the kernel knows it may open at any moment: so content that is replaced, and a file whose last name goes, is kept for as
 * long as the kernel has a node of it (volume_set_known). Before the row of the file changes; `f` is as it was. In a transaction.
 */
void body_replaced_locked(struct volume *vol, const struct state_file *f);
/* Size, blocks, mtime and ctime of an open staged body from its backing file, put over `attr`. */
void body_attr_locked(const struct body *b, struct live_attr *attr);
/* Whether a kill leaves this content as good as it was: a database that recovers by itself. `name` is the file's. */
bool file_endures_kill(int fd, const char *name);
/* All open bodies that are staged or have writers, for the sealer and status. fn runs with the
 * lock. Non-zero stops. */
int bodies_each_writing_locked(struct volume *vol, int (*fn)(void *arg, struct body *b), void *arg);
/* A thread of which process holds it open (the opener's pid), 0: unknown. */
pid_t body_opener_locked(const struct body *b);
/* The file's content is replaced or gone (unlink of the last name, rollback): its bodies become orphans. */
void body_orphan_locked(struct volume *vol, uint64_t ino);
/*
 * Rollback, in its transaction: the rows of replacements that are still open say that these replace nothing, so that none does
 * after a crash either.
 */
int body_replacements_end_locked(struct volume *vol, uint64_t ino);
/* Rollback, before names change: keeps what the files that are written are called. keep_logs: logs are no matter of it. */
void bodies_keep_names_locked(struct volume *vol, bool keep_logs);
/* Rollback: writers across it go to torn/ when they close. */
void bodies_tear_writers_locked(struct volume *vol);

/* Bytes of it were refused, or may have been, and no later write covered them. */
static inline bool body_is_refused(const struct body *b)
{
	return b->cramped || b->refused_from < b->refused_to;
}

/* All that is left of its writers are descriptors that other processes inherited: what was closed is committed. */
static inline bool body_is_held(const struct body *b)
{
	return b->held && !b->writers;
}

/*
 * Takes in the closes of this file (ino 0: of any) that have no release yet: waits for one that is on its way, and commits a copy
 * where another process has inherited the descriptor (held_close.c); once a close. True where it waited: the lock was dropped, so look
 * again at what was read before. Costs nothing where no such close is there.
 */
bool body_finish_closes_locked(struct volume *vol, uint64_t ino);
/* The same of the closes of this one's file but its own, before it is closed: releases come in any order, and the last close counts.
 */
void body_finish_other_closes_locked(struct volume *vol, const struct body *but);
/* The same for all, without the lock. Also tries closes again that could not be recorded: -EIO where one
 * still cannot; an epoch would lack it. */
int bodies_finish_closes(struct volume *vol);

/* The edit of truncate(2) and of live_setattr's size, without a handle: size, pid and interrupted of `change`. Called without the lock. */
int body_truncate(struct volume *vol, uint64_t ino, uint64_t body,
		  const struct live_change *change);
/* The last name of a file is gone (nlink 0, names removed, row not stored yet): frees file and
 * versions now, or when the last handle goes. In a transaction, with the lock. */
int body_file_unlinked_locked(struct volume *vol, struct state_file *f);
/* A rename put an open, new, uncommitted file over a committed one: `covered` stays until the
 * writer closes (then its version is reclaimed) or is killed (back under its name). */
bool body_is_fragile_new_locked(struct volume *vol, const struct state_file *f);
/* Gives a new file (mknod) its empty, closed content: sets live, closed and body of `f`, which has
 * its ino and which the caller stores. In a transaction. */
int body_empty_file_locked(struct volume *vol, struct state_file *f);
/*
 * Commits a copy of what a staged body holds now as the file's closed content, while it stays open:
 * how the sealer takes a log as it stands (before it takes the lock to seal), and what stands in
 * for a file with a writable mapping left. Without the lock. Nothing where the copy would be what is
 * closed already; -ENOENT where the body is gone; -EINTR where `interrupted` (may be NULL) ended the wait for space.
 */
int body_commit_copy(struct volume *vol, uint64_t id, interrupted_fn interrupted, void *arg);
/* The same of a pinned body, with the lock, which it drops. Where it fails, that is logged, and tried again (`uncommitted`). */
void body_commit_copy_locked(struct volume *vol, struct body *b, interrupted_fn interrupted,
			     void *arg);

/* After a crash or a power loss: commits, undoes or tears what was open (contract 1.2.4, 1.4).
 * At volume_open, before any thread. */
int recover(struct volume *vol, bool *ret_killed);

#endif
