/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs by the rules of lib/saves: it tells them what happens in the live tree, and does what they say. */
#ifndef EPOCHFS_EPOCHS_DRIVER_H
#define EPOCHFS_EPOCHS_DRIVER_H

#include <jansson.h>
#include <sys/types.h>

#include "lib/epochs/resume.h"
#include "lib/epochs/seal.h"
#include "lib/live/observer.h"
#include "lib/saves/saves.h"
#include "lib/util/buf.h"

/*
 * Of a volume that was opened with the option `by_saves` (options.h), and is none of several nodes: vol->driver. Else that is NULL, and sealer_*.c and
 * doubts_*.c decide. All with the volume's lock, but where it says otherwise. Private to lib/epochs, and lib/upload.
 *
 * What is pending stays here: its record is uploaded once it is decided, or somebody waits for it (driver_holds_upload_locked). A record
 * that is in the remote never changes.
 */
struct driver;

/* vol->driver, before recovery: what happens until it is started is kept, and told then. 0 or -ENOMEM. */
int driver_new(struct volume *vol);
void driver_free(struct volume *vol); /* NULL is allowed */
/* After recovery, when the epochs are known: with what the mount before knew, and what it left. 0 or -errno. Without the lock. */
int driver_start(struct volume *vol);

/*
 * Seals where it is time: until when to wait then, monotonic; INT64_MAX: until something happens. What follows a broken save is done by
 * driver_go_back.
 */
int64_t driver_act_locked(struct volume *vol);
/* The mount is left in order: what is pending is whole where its writers have ended well. Without the lock. */
void driver_leave(struct volume *vol);
/*
 * Goes back to the newest whole epoch where it is time, and nobody is at it. Nothing that a close waits for waits for that: the kernel is told what
 * goes, which needs the lock of a directory, and who holds that may wait for the close. Without the lock.
 */
void driver_go_back(struct volume *vol);
/* The same at once, for who asks for it: also where nobody knows how a writer ended. As resume_now (resume.h). Without the lock. */
int driver_go_back_now(struct volume *vol, struct resumed *ret_done);

/* Whether a file stays as it is where the live tree goes back (saves_path_stays). */
bool driver_path_stays_locked(const struct volume *vol, const char *path);
/* Whether this epoch stays here for now, as it is pending; somebody waits until all up to this one are in the remote. Without a driver nothing stays. */
bool driver_holds_upload_locked(const struct volume *vol, uint64_t number);
void driver_upload_waited_locked(struct volume *vol, uint64_t number);

/* seal_begin_locked (seal.h) has begun: by which rule, and what the epoch is, goes into the job. 0 or -ENOMEM. */
int driver_judge_locked(struct volume *vol, const struct seal_how *how, struct seal_job *job);
/* It has taken its snapshot, and cannot fail any more: the rules are told, and what they know then goes into the job. */
void driver_sealed_locked(struct volume *vol, struct seal_job *job);

/* ---- for `status` (driver_status.c) ---- */

/* What an epoch of now would be, and what is pending. Free with driver_view_free. */
struct driver_view {
	bool held_up;		/* an epoch waits for that: */
	struct saves_hold hold; /* its path is `path` */
	char *path;		/* owned; NULL as the hold's */
	const char *rule;	/* by which it would not be whole ("J2"); NULL: it would be */
	struct buf why;
	uint64_t pending; /* the epoch that is; 0: none */
	bool goes_back;	  /* the live tree will */
	pid_t waits_for;  /* once that one has ended; 0: once nothing is open */
};
/* 0 or -ENOMEM. Who has ended meanwhile is told to the rules. */
int driver_look_locked(struct volume *vol, struct driver_view *ret_view);
void driver_view_free(struct driver_view *v);
/* As resume_status (resume.h). */
json_t *driver_back_status(struct volume *vol);

#endif
