/* SPDX-License-Identifier: Apache-2.0 */
/* -o resume: after a killed or torn save the live tree goes back to the newest complete epoch by itself. */
#ifndef EPOCHFS_EPOCHS_RESUME_H
#define EPOCHFS_EPOCHS_RESUME_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * Contract 1.3. For lib/ alone. Code that resumes from whatever lies in its directory must not meet half a save. So
 * the live tree goes back
 *   - when the volume is opened;
 *   - while it is open, when what is in doubt loses its temporary name, and as soon as the last file that is open for writing
 *     in the unit (doubts.h) of a killed or torn file has been closed, and any other file that somebody has begun to write, logs apart: for the whole tree goes back. Where a
 *     process that lives has saved a file since the last epoch, it may be between two files of its save: then it goes back
 *     once that process has ended, or there is quiet for `settle`, and after `patience` at the latest. Who lives and has closed a torn
 *     file, or was refused a write, may save that once more: his end is waited for in any case, or that the file is saved again; but not where
 *     he, or somebody else, is about to read (resume_before_reading). The
 *     thread that takes in that close does it before the close counts as taken in, and the mount lets no lookup, open or
 *     listing that comes later overtake it (fs/loop.h). So whoever is started when the killed process is gone, and nobody
 *     else writes, sees the old tree: the kernel keeps no names that may go then (resume_may_remove_locked), and asks for the way to the
 *     killed file. Of other names it is told right after: for a moment it may still answer stat, by itself, of one that it knows, and
 *     lead to a file that was removed and that somebody has open.
 *
 * Others may go on with a save that was taken back. What a process that had saved something here before the kill saves in that unit within
 * `patience` puts the killed or torn file in doubt again, and the tree goes back once more (resume_others.c). Where another had read, and who had
 * closed the torn file saves that again, what he had saved with it is in doubt.
 *
 * A file that was closed empty, whose name says that it cannot be, may be written by another open, or by another program. So it goes back for that
 * file alone only before somebody reads: himself, or others once he has ended (resume_before_reading).
 *
 * What only the seal of an epoch finds in doubt makes it go back then: a killed writer's file to which others were saved later, a part of a save by
 * its number, content that its new name says is torn.
 *
 * What was there is sealed first, as an epoch that is not complete. A directory with a step that a killed save has just made,
 * and that is empty, is removed. Logs stay as they are (rollback.h). Nothing happens where nothing counts as in doubt but
 * databases that a killed writer left, where there is no such epoch, or where several nodes write: there each attempt
 * begins from the newest complete epoch anyway.
 *
 * It goes back to the newest epoch that is complete or of which it is not known: an epoch whose writers could not be seen may
 * hold a whole save, and what is in doubt does not. What fails is tried again by the sealer's thread, after a pause.
 *
 * After a rollback by hand to an epoch that is not complete, the tree stays there until something changes.
 */
struct volume;
struct opening_message;
struct state_file;

#define RESUME_PATHS_MAX 16

/* A file that was killed or is torn. */
struct resume_file {
	char *path; /* owned */
	/* Who may save it again, and when that process was started: it has closed the torn file, or was refused. 0: nobody, he was killed. */
	pid_t by;
	uint64_t started;
	bool refused; /* he may make room, and try again */
	/* The version that is there again, as the refused one was undone: that is no new save; 0: none. */
	uint64_t undone_to;
	/* The largest other file of the unit that `by` has saved, or the one that he has renamed, which sealed, and that he may not save again; owned;
	 * NULL: none but notes. */
	char *with;
	pid_t killed; /* whose save was killed; 0: not known, or none was */
	/* Of an empty one: which it is, and whether another program may be to write it, as it is new, and its path carries no step. */
	uint64_t ino;
	bool made;
	bool empty;   /* `by` has closed it empty: it goes back only before somebody reads */
	bool goes_on; /* `by` has saved `with` again since: what he reads at once says nothing, but where it is this file */
	bool anew; /* `by` reads what is there after the tree went back: he does not go on with that save */
	/* Who had saved something before it was killed or closed may go on with that save; monotonic; 0: nobody. */
	int64_t before_ns;
};

#define RESUME_ABOVE_MAX 32

/* Saves that were killed or are torn; whether that means something is still to be found out. */
struct resume_due {
	bool any;
	bool tails; /* that a file is torn is to be seen from its tail only */
	bool all;   /* of more files than the list holds: it waits for all writers */
	unsigned count;
	struct resume_file files[RESUME_PATHS_MAX];
	int64_t since_ns; /* monotonic; the first of them */
	/* The processes that started those that were killed: as long as they have written mere notes they take no part in the save. */
	unsigned above_count;
	pid_t above[RESUME_ABOVE_MAX];
};

/* A killed or torn file whose save was taken back. */
struct resume_taken {
	char *path;	   /* owned */
	int64_t before_ns; /* as in resume_file */
	pid_t by;	   /* as in resume_file */
	uint64_t started;
	bool anew;  /* but not `by` */
	char *with; /* as in resume_file; owned */
	/* Since the tree went back last `by` has saved this one, and that. */
	bool again, with_again;
	int64_t until_ns; /* monotonic */
};

#define RESUME_SAVERS_MAX 256

/* A process that has saved something here. */
struct resume_saver {
	pid_t pid;
	uint64_t started;	   /* when it was started, by which a pid is not another's */
	int64_t first_ns, seen_ns; /* monotonic; when it saved first, and last */
};

struct resume_rest {
	unsigned count;
	struct resume_taken files[RESUME_PATHS_MAX];
	/* A ring: the oldest is forgotten. */
	struct resume_saver savers[RESUME_SAVERS_MAX];
	unsigned next_saver;
};

/* Guarded by the volume's lock. */
struct resume {
	struct resume_due due;
	struct resume_rest rest;
	bool running;	 /* a thread is at it */
	bool for_reader; /* somebody who reads has begun that, and others wait */
	bool postponed; /* what was found in doubt last has a temporary name: it may count once that is renamed */
	/* It failed, and `due` holds what is due still; 0: it did not. */
	int error;
	int64_t retry_ns; /* monotonic; the sealer's thread tries again then; 0: it does not */
	int64_t pause_ns; /* the last one */
	/* What was done last; to 0: nothing yet. */
	uint64_t left, to, as;
	int64_t at_ns;
	char *why;	 /* owned */
	uint64_t no_way; /* the epoch for which there was no complete one to go back to; 0: none */
	/* Who lives and may save again, or go on with a save, when it was looked last, and until when at most that is waited for; monotonic,
	 * INT64_MAX: until he ends. 0: nobody is waited for. */
	pid_t waits_for;
	int64_t waits_until_ns;
};

/* vol->resume: 0 or -ENOMEM. */
int resume_new(struct volume *vol);
/* NULL is allowed. */
void resume_free(struct volume *vol);

/* This process closed the file torn, or was refused a write to it, at this time (monotonic). `undone_to`: the version that is there again, 0:
 * none. Nothing without the option. */
void resume_due_locked(struct volume *vol, const char *path, pid_t by, uint64_t undone_to,
		       int64_t at_ns);
/* The same of one whose writer `pid` was killed, whom `parent` had started (0: not known). */
void resume_killed_locked(struct volume *vol, const char *path, pid_t pid, pid_t parent,
			  int64_t at_ns);
/* This file's save was taken back, and some of the rest came. The sealer's thread looks at once: no close may follow. */
void resume_due_again_locked(struct volume *vol, const char *path);
/* This process has saved the file, or it was renamed since: it may be the rest of what was taken back. Logs are none. In no transaction. */
void resume_saved_locked(struct volume *vol, uint64_t ino, pid_t by);
/* A close of this file by this process was taken in: looks at its tail, and goes back where it is time. Without the lock. Nothing without the option. */
void resume_after_close(struct volume *vol, uint64_t ino, pid_t by, int64_t at_ns);
/* Whether going back may remove this directory, or this file that is being written: the kernel is to ask before it answers by its name. False
 * without the option. */
bool resume_may_remove_locked(struct volume *vol, const struct state_file *f);
/* An epoch was sealed that is not complete because of a file that is torn or was undone: what a close did not tell. The sealer's thread looks at
 * once. Nothing without the option, nor while the tree goes back. */
void resume_sealed_in_doubt_locked(struct volume *vol);
/* Something was renamed: what was in doubt under a temporary name may count now. The sealer's thread looks at once. */
void resume_renamed_locked(struct volume *vol);
/* For the sealer's thread: tries again what failed, where it is time. Until when to wait; monotonic, INT64_MAX: for nothing. Drops
 * the lock meanwhile. */
int64_t resume_retry_locked(struct volume *vol);
/* The last step of volume_open: 0, or -errno with a message where the half cannot be taken away. */
int resume_at_open(struct volume *vol, struct opening_message *m);

/*
 * Before this thread opens a file with these flags, or lists a directory: true where the tree is to go back for it, by resume_for_reader, as what
 * is read would be mixed, or torn. So it is
 *   - where its process has closed a file torn, and now reads or lists anything but logs; where it was refused a write, and reads a file of the same
 *     unit: to make room it may list; and where it has closed a file empty, and reads that;
 *   - where its process was started since, and reads or lists anything but logs, and nobody lives who was refused, or has closed a file empty, nor
 *     is that new, without a step in its path: another program may be to write it;
 *   - once nothing has happened for `settle`, where another one opens such a file, or who was started since opens or lists anything but logs.
 * An empty file counts as read where it is opened to read only. Without the lock. False without the option.
 */
bool resume_before_reading(struct volume *vol, uint64_t ino, int flags, pid_t tid);
/* The tree goes back for this reader, or another one has begun that and is waited for, for some seconds. True: it did, and what leads to the
 * file is to be looked up again. Without the lock, nor one of the kernel's in the live tree. */
bool resume_for_reader(struct volume *vol, uint64_t ino, int flags, pid_t tid);

/* Who is about to read. */
struct resume_reader {
	pid_t pid; /* of those who may save again; 0: it is another */
	/* Nothing has happened for `settle`: nobody who lives is in a save. Else those who may save again are in none, or this one. */
	bool quiet;
};
/* Whether that ends the wait for who may save again: as resume_before_reading. Private to resume*.c, as what follows. */
bool resume_reads_locked(struct volume *vol, uint64_t ino, int flags, pid_t tid,
			 struct resume_reader *ret_reader);
/* Forgets what was closed empty and is gone, or is not empty any more. */
void resume_forget_empty_locked(struct volume *vol);
/* Whether all that is torn was closed empty. */
bool resume_is_empty(const struct resume_due *due);
/* What `by` has saved with the file since the last epoch; owned; NULL: nothing, or nobody did. */
char *resume_saved_with_locked(struct volume *vol, const struct resume_file *f);
/* Where the tree goes back now, what this process saves after that is a new save; 0: of none is that so. */
void resume_begins_anew(struct resume_due *due, pid_t pid);
/* Whether an open with these flags reads what was there. Logs are as they are. */
bool resume_is_reader_locked(struct volume *vol, uint64_t ino, int flags);
/* Whether somebody writes, or lives and may go on with the save; then the sealer's thread looks again. `reader`: for the sake of whom; NULL: of nobody. */
bool resume_waits_locked(struct volume *vol, const struct resume_reader *reader);
/* Whether this process has started one that was killed, or one above it. */
bool resume_is_above(const struct resume_due *due, pid_t pid);
/* Whether a path is of the unit of this killed or torn file. */
bool resume_is_of_unit(const struct volume *vol, const char *path, const char *of);
/* The tree is about to go back for the sake of these. */
void resume_rest_begin_locked(struct volume *vol, const struct resume_due *due);
/* This file was saved again, or killed or torn once more. */
void resume_rest_forget(struct resume_rest *rest, const char *path);
void resume_rest_clear(struct resume_rest *rest);

struct resumed {
	uint64_t left, to,
		as; /* as 0: it stays where it is; then left is 0, or an epoch that is in doubt without a complete one */
};
/* The same now, with or without the option (`epochfs run --resume`): 0 or -errno. Where it was done before, and the live tree
 * stands there still, that is told. */
int resume_now(struct volume *vol, struct resumed *ret_done);

/* For `status`: what was done last, and how to undo it; or that it failed; NULL: nothing. */
json_t *resume_status(struct volume *vol);
/* For `status`: which process the live tree waits for before it goes back, and for how long at most where there is a limit; NULL: for none. */
json_t *resume_waits_status(struct volume *vol);

#endif
