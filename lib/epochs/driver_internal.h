/* SPDX-License-Identifier: Apache-2.0 */
/* What driver*.c share. */
#ifndef EPOCHFS_EPOCHS_DRIVER_INTERNAL_H
#define EPOCHFS_EPOCHS_DRIVER_INTERNAL_H

#include "lib/epochs/driver.h"
#include "lib/epochs/writers.h"

/* How often it looks whether writers have ended, where something waits for that: whoever reads, or goes on, looks anyway. */
#define DRIVER_LOOK_NS NS_PER_S

struct driver {
	struct saves *saves; /* NULL: not started */
	struct buf before;   /* what happened until then, as lines of events */
	struct writers *writers;
	uint64_t pending; /* the epoch that is; 0: none */
	uint64_t waited;  /* epochs up to this one are uploaded as they are */
	uint64_t
		again; /* the remote has it as pending, and it is whole: it is made once more; 0: none */
	uint64_t lost;	  /* so many handles were made up at the start */
	bool lost_lives;  /* whoever wrote to them may */
	bool is_broken;	  /* some save is, or a file is torn */
	struct buf kept;  /* what was put down of that last */
	bool going_back;  /* a thread is at it */
	int64_t retry_ns; /* monotonic; after a failure it does not go back before */
	/* Where it went back last, and when, wall clock; 0: it did not. */
	struct resumed back;
	int64_t back_ns;
	int error; /* of the last try; 0: it went back */
};

/* ---- driver.c ---- */

/* Else what happens is kept. */
bool driver_is_started(const struct volume *vol);
/* As times of events are. */
int64_t driver_now_ns(void);
/* Tells the rules, and notes what was decided by that. */
void driver_apply_locked(struct volume *vol, const struct save_event *e);
/* Whoever wrote here and has ended since. */
void driver_tell_ended_locked(struct volume *vol);
/* Seals by this rule; `e`: what happened last, or is about to; NULL: nothing but time. */
void driver_seal_locked(struct volume *vol, const struct seal_rule *rule,
			const struct save_event *e);
/* Where a rule says so after all that was told. */
void driver_seal_now_locked(struct volume *vol, const struct save_event *e);
/* It is now: who has ended is told, and what is due by time is sealed. */
void driver_pass_time_locked(struct volume *vol);

/* ---- driver_back.c ---- */

bool driver_is_back_due_locked(const struct volume *vol);
/* As the observer's. */
bool driver_before_reading(struct volume *vol, uint64_t ino, int flags, pid_t tid);
bool driver_for_reader(struct volume *vol, uint64_t ino, int flags, pid_t tid);

/* ---- driver_start.c ---- */

/* What is known is put down for the next mount, though no epoch has it yet. */
void driver_keep_known_locked(struct volume *vol);

/* Not started: it happened. One that cannot be kept is one of those that happened unseen. */
void driver_keep_event(struct driver *d, const struct save_event *e);
/* Whoever wrote before the start lives no more. */
void driver_tell_lost_ended_locked(struct volume *vol);
/* As the observer's: while it is not started. */
void driver_doubt_locked(struct volume *vol, const struct body *b, bool undone, const char *why);

#endif
