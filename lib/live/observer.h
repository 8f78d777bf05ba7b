/* SPDX-License-Identifier: Apache-2.0 */
/* Who is notified of what happens in the live tree, so that epochs are made of it: the seal thread, doubts, resume. */
#ifndef EPOCHFS_LIVE_OBSERVER_H
#define EPOCHFS_LIVE_OBSERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include "lib/live/handle.h"

struct body;
struct save_event;
struct state_file;
struct volume;

enum activity {
	ACTIVITY_CREATE,  /* a name was made (file, directory, symlink, link): opens an epoch */
	ACTIVITY_CLOSE,	  /* new content was committed: opens an epoch */
	ACTIVITY_RENAME,  /* opens an epoch */
	ACTIVITY_REPLACE, /* a rename to a name that an epoch has: likewise */
	ACTIVITY_WRITE,	  /* a write was seen: restarts the quiet, opens none */
	ACTIVITY_REMOVE,  /* rides in the next epoch; commit and unmount seal it */
	ACTIVITY_ATTR,	  /* chmod, utimens, xattr: likewise, and does not restart the quiet */
	ACTIVITY_EMPTIED, /* an empty file was emptied and closed: likewise, but a marker seals */
	ACTIVITY_TIMES, /* a close left the bytes that were there: rides, but commit alone seals it */
};

/*
 * vol->observer, set before the live tree is used. Members that end in _locked are called with the volume's lock.
 *
 * note_locked comes AFTER the transaction of the change is committed (a snapshot may begin there, and sees only what is
 * committed). `parent` is the directory that holds the name now (of a rename: the new one), `name` the name made, removed or
 * closed, `old_name` that before a rename; NULL where there is none. `ino` is the file's. A removal names the file that it removed.
 *
 * A rename that makes a temporary name final, a marker closed or renamed into place, and with settle=0 a close, seal here and now:
 * the snapshot begins before note_locked returns, so that what follows belongs to the next epoch.
 */
struct live_observer {
	/* What happened (events.h). Its time is not set. The paths last as long as the call. */
	void (*event_locked)(struct volume *vol, const struct save_event *e);
	/* It is about to happen, as far as it may begin another save: a directory, a new file or a replacement is made, or something is renamed or exchanged. In no
	 * transaction; the lock may be dropped. NULL: nobody asks. */
	void (*before_event_locked)(struct volume *vol, const struct save_event *e);
	void (*note_locked)(struct volume *vol, enum activity what, uint64_t parent,
			    const char *old_name, const char *name, uint64_t ino);
	/*
	 * Contract 1.3.4: a file's content is about to be replaced; a name that is not there is about to be made, for what is new, or
	 * for this file (`ino`), which has another; a rename is about to be done. Where that begins another save, the state before it
	 * is sealed. Not in a transaction; a close that is on its way is taken in first, for which the lock may be dropped.
	 */
	void (*before_replace_locked)(struct volume *vol, uint64_t ino);
	void (*before_name_locked)(struct volume *vol, uint64_t parent, const char *name,
				   uint64_t ino);
	void (*before_rename_locked)(struct volume *vol, uint64_t parent, const char *name,
				     uint64_t new_parent, const char *new_name);
	/* The same of an exchange of two names. True: it is as if the second were renamed to the first. */
	bool (*before_exchange_locked)(struct volume *vol, uint64_t parent, const char *name,
				       uint64_t new_parent, const char *new_name);
	/* A close of this body has replaced content that this epoch has first (0: none): before note_locked
	 * says so. */
	void (*before_taken_locked)(struct volume *vol, const struct body *b, uint64_t epoch);
	/* The next epoch is not complete, for this reason. */
	void (*incomplete_locked)(struct volume *vol, const char *reason);
	/* This process opens a file to write it. */
	void (*writer_locked)(struct volume *vol, pid_t pid);
	/* A request came without a pid from a writer: the next epoch is complete=unknown. */
	void (*unknown_locked)(struct volume *vol);
	/* The last writer of this body was killed, or a write to it refused, for this reason; before it is undone (`undone`) or
	 * committed. */
	void (*doubt_locked)(struct volume *vol, const struct body *b, bool undone,
			     const char *why);
	/* Nobody could open this name to write it, for there is no room: the save that it is for may be half. `by`: who tried; 0: not known. */
	void (*refused_locked)(struct volume *vol, uint64_t parent, const char *name, pid_t by);
	/* A writer was killed: what changed is sealed by quiet. */
	void (*killed_locked)(struct volume *vol);
	/* doubts_saved_locked, doubts_changed_locked, doubts_renamed_locked (doubts_volume.h). In a transaction. */
	int (*saved_locked)(struct volume *vol, uint64_t ino, uint64_t old_version, uint64_t began);
	int (*changed_locked)(struct volume *vol, uint64_t ino, uint64_t old_version,
			      uint64_t version);
	int (*renamed_locked)(struct volume *vol, uint64_t parent, const char *name, const char *to,
			      uint64_t began);
	/* arrivals_note_locked (arrivals.h): a name is about to change. In a transaction. */
	int (*moves_locked)(struct volume *vol, const struct state_file *f, uint64_t parent,
			    const char *name, uint64_t new_parent, const char *new_name);
	/* Whether this epoch is not complete, and none after it is. May be in a transaction. */
	bool (*is_try_locked)(struct volume *vol, uint64_t epoch);
	/* Whether the last epoch took this log, while it was open, as it is now. */
	bool (*has_log_locked)(const struct volume *vol, uint64_t ino, const struct stat *st);
	/* Whether going back to a whole save may remove this name (resume.h). */
	bool (*may_remove_locked)(struct volume *vol, const struct state_file *f);
	/* resume_before_reading, resume_for_reader (resume.h): somebody is about to open a file or to list a directory. Without the lock. */
	bool (*before_reading)(struct volume *vol, uint64_t ino, int flags, pid_t tid);
	bool (*for_reader)(struct volume *vol, uint64_t ino, int flags, pid_t tid);
	/* Waits until no epoch that has begun waits for a copy of this log, for at most a second. Drops the lock. */
	void (*await_log_locked)(struct volume *vol, uint64_t ino);
	/* A close of this file, by this process (0: not known) at this time (monotonic), was taken in. Without the lock. */
	void (*closed)(struct volume *vol, uint64_t ino, pid_t by, int64_t at_ns);
	/* Seals what is closed, and waits until it is durable: epochs_wait. Without the lock. */
	int (*wait_durable)(struct volume *vol, int64_t timeout_ns, interrupted_fn interrupted,
			    void *arg);
};

#endif
