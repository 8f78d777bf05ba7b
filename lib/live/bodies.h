/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts of bodies and handles share: body.c (the table), handle*.c, edit.c (the first
 * change of closed content), commit.c and undo.c (the last close), deferred.c (what is done later),
 * pending_close.c and held_close.c (closes without a release), stale_retry.c (who was told ESTALE), recover.c. Private to them.
 */
#ifndef EPOCHFS_LIVE_BODIES_H
#define EPOCHFS_LIVE_BODIES_H

#include <stdatomic.h>
#include <sys/stat.h>
#include "lib/util/clock.h"
#include "lib/live/body.h"
#include "lib/cache/contents.h"
#include "lib/live/survivors.h"

/* A counted descriptor: a read that goes on without the lock keeps it open. */
struct backing {
	atomic_uint refs;
	int fd;
};

/* A process that sees and writes a pending body. */
struct member {
	struct member *next;
	pid_t tgid;
	unsigned handles;
};

/* A descriptor that handle_read_fd gave out. */
struct lent {
	struct lent *next;
	struct backing *backing;
	uint64_t version; /* 0: of a staged body */
	int64_t at_ns;
};

struct handle {
	struct volume *vol;
	struct body *body; /* fixed for the handle's life */
	struct handle *next;
	int flags;
	bool writes;
	pid_t tgid;   /* the process that opened it; 0: unknown */
	pid_t parent; /* where its flush told that it was killed, who had started it; 0: not known */
	int hold; /* process_hold of that, which has closed it and may still have it mapped for writing; -1: none */
	bool killed, closed; /* what the opener's last flush said */
	bool ended;   /* it was that of its death: nothing that it has open is closed any more */
	bool awaited; /* the release after that flush is to come, as far as is known */
	bool held; /* it does not come as long as who inherited the descriptor lives (held_close.c) */
	bool direct;	   /* the kernel was given the backing file */
	bool cancelled;	   /* nobody got it: its end is no close */
	pid_t tid;	   /* the thread that opened it; 0: unknown */
	bool told, looked; /* as of the opening (handle_open.c), for handle_retry */
	bool blind;	   /* handle_is_blind */
	bool emptied;	   /* its open truncated what was empty: nothing is staged */
	/* What was staged when it was opened, to tell at its close whether anything was written since (undo.c); size -1: nothing was, or
	 * it made or truncated the file, or nobody knows. */
	int64_t found_size, found_mtime_ns;
	unsigned long found_changes;
	bool found_racy; /* it was written just before */
	uint64_t number; /* of its event (events.h); 0: it is told no more */
	/* Of one that writes (output.c). */
	struct saver *saver;
	struct handle *saver_next, **saver_prev;
	uint64_t opened_at;
	struct lent *lent;	      /* what handle_read_fd gave out, newest first */
	struct handle_record *record; /* survivors.h; NULL: none is kept */
};

/* Threads that were just told ESTALE: the kernel opens once more, and then it must succeed. */
struct stale_retry {
	struct stale_retry *next;
	uint64_t ino;
	pid_t tid, tgid;
	int flags;			   /* of the open */
	struct stale_retry_record *record; /* survivors.h; it may be another's by now. NULL: none */
	int64_t at_ns;
	int64_t missed_ns; /* when the second walk found nothing under it; 0: it did not */
	struct body *led;  /* what the second walk led to, held until the open; NULL: nothing */
	uint64_t parent;   /* the name that the second walk looked up; 0: none yet */
	char name[256];
};

/* Ids and inodes are counted up: they are their own hashes. */
struct bodies {
	struct map by_id, by_ino;
	struct map savers; /* output.c: processes that have files open for writing */
	uint64_t numbers;  /* of handles, that were given (events.h) */
	struct stale_retry *told;
	size_t next_told_record;
	unsigned closing; /* bodies with closing_ns or releasing */
	unsigned pending; /* bodies that are pending */
	unsigned watched;
	unsigned comparing; /* closes that are looked at (same.c) */

	pthread_t deferred;
	bool deferred_runs, deferred_stops;
	bool deferred_asked;	      /* there is more to do than to look after closes */
	unsigned untold;	      /* bodies that are untold */
	pthread_cond_t deferred_wake; /* with the volume's lock */
};

/* A name that leads elsewhere now. */
struct after_entry {
	struct after_entry *next;
	uint64_t parent;
	char name[256];
};

/* What is left to do after the lock is dropped. Zero-initialise; after_run does and frees it. */
struct after {
	struct volume *vol;
	struct after_entry *entries;
	struct body *dead; /* bodies to destroy, by next_dead */
};
void after_entry(struct after *a, uint64_t parent, const char *name);
/* All names of a file. */
void after_names_locked(struct after *a, uint64_t ino);
void after_run(struct after *a);

static inline struct body *body_by_id(struct map_link *l)
{
	return l ? map_item(l, struct body, by_id) : NULL;
}

static inline struct body *body_by_ino(struct map_link *l)
{
	return l ? map_item(l, struct body, by_ino) : NULL;
}

/* All bodies, as map_next says it. */
static inline struct body *body_next_locked(const struct volume *vol, const struct body *b)
{
	return body_by_id(map_next(&vol->bodies->by_id, b ? &b->by_id : NULL));
}

/* Those of a file, the newest first. */
static inline struct body *body_of_ino_locked(const struct volume *vol, uint64_t ino)
{
	return body_by_ino(map_find(&vol->bodies->by_ino, ino));
}

static inline struct body *body_next_of_ino_locked(const struct body *b)
{
	return body_by_ino(map_find_next(&b->by_ino));
}

/* ---- body.c ---- */

/* A body of this id in the table, with nothing in it; NULL without memory. */
struct body *body_add_locked(struct volume *vol, uint64_t id, uint64_t ino);
/* A body in memory for what the file shows now (or finds it). */
int body_get_locked(struct volume *vol, const struct state_file *f, struct body **ret_body);
/* The file shows it, by its row as it stands: so what made it an orphan was undone (a transaction that failed). Not in a transaction. */
void body_is_shown_locked(struct body *b, const struct state_file *f);
/* A new one of a staged version whose backing file is open at `fd` (read-write; taken over on
 * success). */
int body_new_staged_locked(struct volume *vol, const struct state_version *v, int fd,
			   struct body **ret_body);
/* The body works on this descriptor from now on (taken over, also on failure): staged. */
int body_set_backing(struct body *b, int read_fd);
/* A version is staged no more: reads go to content. */
void body_unstage_locked(struct volume *vol, struct body *b);
/* Opens write_fd where it is not. */
int body_open_write_locked(struct body *b);
/* A body that nobody uses leaves the table and goes to `after`. */
void body_drop_locked(struct volume *vol, struct body *b, struct after *after);
void body_unpin_locked(struct volume *vol, struct body *b, struct after *after);
void body_set_pending_locked(struct volume *vol, struct body *b, bool pending);
struct member *body_member_locked(struct body *b, pid_t tgid, bool add);
struct backing *backing_ref(struct backing *b);
void backing_put(struct backing *b);
int64_t stat_mtime(const struct stat *st);
int64_t stat_ctime(const struct stat *st);
/* How many bytes of its size have no block. */
uint64_t stat_holes(const struct stat *st);
/* The unit of st_blocks. */
#define SECTOR 512

/* ---- handle.c ---- */
/* Whether the openers of all handles that write have closed a descriptor. */
bool body_writers_closed_locked(const struct body *b);
/* Whether a release of a writer is still to come after its flush, as far as is known. */
bool body_awaits_release_locked(const struct body *b);
/* This one, which is no writer any more, ended as its flush said: the body knows. */
void handle_writes_no_more_locked(struct handle *h);
/* Whether an fsync has made safe what the backing file is now. */
bool body_is_synced(const struct body *b, const struct stat *st);
/* The row says what the backing file is now, as a close promises it. */
int body_journal_locked(struct volume *vol, struct body *b, const struct stat *st);

/* ---- handle.c ---- */
/* The records of its handles say what it is now. */
void body_note_locked(const struct body *b);

/* ---- pending_close.c ---- */
/* Sets both fields and keeps count. */
void body_set_closing_locked(struct volume *vol, struct body *b, int64_t closing_ns,
			     unsigned releasing);

/* Those whose release has not come for some time. Drops the lock. */
void bodies_finish_late_closes_locked(struct volume *vol);

/* ---- held_close.c ---- */
/*
 * The openers of all that write the body have closed it, and none of them has another descriptor, or a mapping: what is there is
 * committed, or undone, though no release has come. Nothing where that would not be right. The body is pinned. Drops the lock.
 */
void body_take_held_locked(struct volume *vol, struct body *b, struct after *after);
/* Its opener closes another descriptor of it, which /proc did not show: it is a writer again. */
void handle_unhold_locked(struct handle *h);
/* Tells the observer of closes that were taken in so. Drops the lock. */
void bodies_tell_held_locked(struct volume *vol);

/* ---- stale_retry.c ---- */
int stale_retry_add_locked(struct volume *vol, const struct stale_retry *what);
/* Of an open that is undone and tried again. */
void stale_retry_again_locked(struct handle *h);
/* What the process before told, where it is not too long ago. */
void stale_retry_revive_locked(struct volume *vol);
/* Whether this body is a replacement that somebody was sent to lately, also in the process before: by `ret_tgid`. */
bool stale_retry_leads_locked(const struct volume *vol, uint64_t body, pid_t *ret_tgid);
/* What this thread was told lately, or NULL. */
struct stale_retry *stale_retry_find_locked(struct volume *vol, pid_t tid);
/* The thread's second walk led to the file: what this shows to all stays as it is now until the open that follows, though others may
 * replace and remove it before. Not in a transaction. */
void stale_retry_lead_locked(struct volume *vol, struct stale_retry *t, const struct state_file *f,
			     struct after *after);
/* Whether this thread was told lately; forgets it. `ret_looked`: it has looked the name up since. */
bool stale_retry_take_locked(struct volume *vol, uint64_t ino, pid_t tid, bool *ret_looked,
			     struct after *after);
/* The thread's open ended in another way: nothing that it was told counts any more. */
void stale_retry_forget_locked(struct volume *vol, pid_t tid, struct after *after);
/* Of threads whose open has not come in time; or of `all`. */
void stale_retry_expire_locked(struct volume *vol, bool all, struct after *after);
/* Whether another thread of this process was told of the file lately. */
bool stale_retry_other_locked(const struct volume *vol, uint64_t ino, pid_t tid, pid_t tgid);

/* ---- handle_io.c ---- */

/* A reference to the closed content that the body shows; NULL where it is staged. The body must be
 * held by a handle or a pin. Without the lock. */
int body_content(struct volume *vol, struct body *b, struct content **ret_content);
void lent_free(struct lent *l);
/* What is cut off need not be there, whether it was refused or not. */
void body_note_truncated_locked(struct body *b, uint64_t size);

/* ---- edit.c ---- */

/*
 * Makes a body's content changeable: afterwards it is staged with its write_fd open. `keep` is how
 * much of the content from the start is wanted (UINT64_MAX: all of it; a truncation wants less).
 * The caller has the body pinned or a handle on it. Without the lock; may fetch and copy.
 */
int edit_begin(struct volume *vol, struct body *b, uint64_t keep, interrupted_fn interrupted,
	       void *arg);

/* ---- commit.c ---- */

/* The last writer of a staged body closed: commits it, undoes it, or lets it go. */
void body_finish_locked(struct volume *vol, struct body *b, struct after *after);
/*
 * The same where descriptors are left that other processes inherited: what is committed is a copy, which those cannot change. Where that cannot be
 * recorded now, it is tried again (`uncommitted`). The body is pinned. Drops the lock.
 */
void body_finish_held_locked(struct volume *vol, struct body *b, struct after *after);
/* Whether something was stored since the last close, as far as times tell. */
bool body_is_stored_since_close(const struct body *b);
/* Whether it is an edit of what a killed writer left half, say, and still has some of that; but where what was cut off was brought. */
bool body_is_half_locked(struct volume *vol, const struct body *b, const struct stat *st);
/* Other bodies of the file are what it was before. */
void body_orphan_others_locked(struct volume *vol, struct body *b);
/* Whether body_finish_locked would commit it: not an orphan, nothing to undo. */
bool body_commits_locked(struct volume *vol, struct body *b);

/* Whether nothing was written since the edit began, as far as times tell. */
bool same_as_base(const struct body *b, const struct stat *st);

/* ---- same.c ---- */

/*
 * The last writer of a pinned body has closed it: looks whether an edit has left the bytes that were there, and sets `same`. Reads both, and
 * drops the lock for that: whoever comes meanwhile may open it, or finish it.
 */
void body_compare_locked(struct volume *vol, struct body *b);
/* Whether what a body holds now is what the file has already. Without the lock; reads both. */
bool body_is_same(struct volume *vol, uint64_t id);
/* Waits until no close is compared; drops the lock. */
void bodies_finish_comparing_locked(struct volume *vol);

/* ---- undo.c ---- */

/*
 * The rule that undoes a killed write (contract 1.2.4): the last close of new content that replaces, or makes, a file undoes it where its
 * writer was killed or a write to it refused, unless the file is a log.
 */
bool body_is_undone_locked(struct volume *vol, struct body *b);
/*
 * Its last writer has closed it. A replacement of a whole file that its own format says is cut off (tails.h), as Ctrl-C in the middle of a save leaves
 * it, is undone, too, where the rules of saves decide (options.h: by_saves); that a new file is so, they are told. Drops the lock while it reads.
 */
void body_look_cut_off_locked(struct volume *vol, struct body *b);
/* Whether a later write may leave this time as it is. */
bool time_may_stay(int64_t mtime_ns);
/* At the open and at the close in order of a writer: whether it vouches for the content, since that was written meanwhile, by it or by
 * another beside it (the kernel does not tell whose write it passed through). */
void handle_find_locked(struct handle *h);
bool handle_vouches_locked(const struct handle *h);
/* Process `by` (0: unknown) has set the time of what is staged, which was `before`, and wrote nothing by that. */
void handles_found_time_locked(struct body *b, const struct stat *before, int64_t mtime_ns,
			       pid_t by);
/* Contract 1.2.4 for a replacement or a fragile new file; its bytes go to torn/. */
int body_undo_locked(struct volume *vol, struct body *b, struct after *after);
/* A staged version that goes nowhere: row and backing file, in a transaction of its own. */
int body_discard_locked(struct volume *vol, struct body *b);
/* The row of a staged version says that it replaces nothing, so that it does not after a crash either. */
int body_replaces_nothing_locked(struct volume *vol, const struct body *b);
/* body_discard_locked once the last handle is gone that reads it: a worker that takes the handles over finds it. */
int body_let_go_locked(struct volume *vol, struct body *b);
/* The epoch that a version which takes the place of this one is to name (`replaced` in state.h). What a killed save has left is one try of the
 * save that replaces it. */
uint64_t version_replaced_by_next(struct volume *vol, const struct state_version *before);
/* The names of a file that was never committed go, or lead to what they covered. In a transaction. */
int file_unname_locked(struct volume *vol, struct state_file *f, struct after *after);
/* What a rename of this file covered is gone for good. In a transaction. */
int covered_drop_locked(struct volume *vol, uint64_t ino);
/* The file's first name, for messages: "" where it has none. */
void first_name_locked(struct volume *vol, uint64_t ino, char ret_name[256], uint64_t *ret_parent);

/* ---- deferred.c ---- */
int deferred_start(struct volume *vol);
/* Also does what is left to do. */
void deferred_stop(struct volume *vol);
/* Whether the deferred-work thread tries to finish this body until it can. */
void body_watch_locked(struct volume *vol, struct body *b, bool watch);
/* Commits what could not be committed at its last close: -EIO where something still cannot. */
int deferred_commit_left(struct volume *vol);
/* The epoch that is begun now lacks it, where there is one, and says so. (pending_close.c) */
void bodies_tell_uncommitted_locked(struct volume *vol);
/* One of those, or NULL. */
struct body *body_uncommitted_locked(struct volume *vol);
/* Whether nobody has the backing file open or mapped for writing; may wait some milliseconds. */
bool backing_is_quiet(int read_fd, bool wait);
/* Whether somebody has the backing file of a staged body without writers mapped, or open, for writing. Closes write_fd where no
 * handle needs it. */
bool body_is_mapped_locked(struct body *b);

#endif
