/* SPDX-License-Identifier: Apache-2.0 */
/* The sealer: notices what happens in the live tree, decides when an epoch is whole, seals it. */
#ifndef EPOCHFS_EPOCHS_SEALER_H
#define EPOCHFS_EPOCHS_SEALER_H

#include "lib/cache/context.h"
#include "lib/live/observer.h"

/*
 * Contract 1.3. What names mean is in rules.h, the decision to seal in settle.h, both pure. Private
 * to lib/epochs.
 *
 * Sealing has two halves. seal_begin_locked (seal.h) takes the number, and a snapshot of the state,
 * in one critical section. The rest (walk, tree, tails, record) needs no lock; it is done by the
 * sealer's thread or by who asked for the epoch, one epoch after the other in the order of numbers.
 *
 * Between the two, the epoch has a row of state SEALED whose record is NULL. So
 * state_epoch_pending_in() holds for it: content that it needs is neither reclaimed nor edited
 * without a clone. Who uploads or lists skips such a row; after a crash its number is used again.
 */
/* What vol->observer is. */
extern const struct live_observer epochs_observer;
/* The same, where the rules of lib/saves decide (driver.h). */
extern const struct live_observer driver_observer;

/* Reads what the last mount left (epochs begun and not frozen, changes not sealed).
 * recovered_killed: something was open for writing when the last mount ended without order. 0 or
 * -errno. */
int sealer_start(struct volume *vol, bool recovered_killed);
/* Starts the thread (none where the volume is read-only), after the uploader, which it wakes. 0 or
 * -errno. */
int sealer_run(struct volume *vol);
/* Before sealer_start: whether the last mount left changes that are in no epoch: 1, 0 or -errno. */
int sealer_left_changes_locked(struct volume *vol);
/* Finishes what was begun, stops the thread; seals nothing. What it knows stays until sealer_free, when nobody else works on
 * the volume any more. */
void sealer_stop(struct volume *vol);
void sealer_free(struct volume *vol);

/* What the live tree tells, by vol->observer (observer.h). Nothing before sealer_start: recovery notes nothing. */
void sealer_note_locked(struct volume *vol, enum activity what, uint64_t parent,
			const char *old_name, const char *name, uint64_t ino);
void sealer_before_replace_locked(struct volume *vol, uint64_t ino);
void sealer_before_name_locked(struct volume *vol, uint64_t parent, const char *name, uint64_t ino);
void sealer_before_rename_locked(struct volume *vol, uint64_t parent, const char *name,
				 uint64_t new_parent, const char *new_name);
bool sealer_before_exchange_locked(struct volume *vol, uint64_t parent, const char *name,
				   uint64_t new_parent, const char *new_name);
void sealer_saved_taken_locked(struct volume *vol, const struct body *b, uint64_t epoch);
/* The next epoch is complete=false with this reason, whatever else is in doubt (doubts_volume.h), and is sealed by quiet.
 * Where nothing changed, there is none, and the reason is forgotten. */
void sealer_incomplete_locked(struct volume *vol, const char *reason);
/* As the observer's. */
int sealer_wait_durable(struct volume *vol, int64_t timeout_ns, interrupted_fn interrupted,
			void *arg);
/* A writer was killed: what changed is sealed by quiet. */
void sealer_killed_locked(struct volume *vol);
/* A writer was killed (`by`; 0: not known) in a file of this name that is new, before that is undone: the epoch that its directory
 * came with, where that was sealed by itself and so came too early (one of the file's step; without a step, of its own directory and
 * not older than `patience`), or that renamed another file of its save into place; 0: none, or its save was over (sealer_over.c). The next epoch continues it then, even if
 * nothing is left. */
uint64_t sealer_continued_locked(struct volume *vol, uint64_t dir, const char *name, pid_t by);
/*
 * A writer was killed as he saved this file in place, and `epoch` has first what is there again. Where files that were saved together
 * with that are in epochs since, which were sealed by themselves, those came too early: the first of them, at most `patience` old;
 * else 0. The next epoch continues them then (sealer_in_place.c).
 */
uint64_t sealer_goes_on_in_place_locked(struct volume *vol, uint64_t ino, uint64_t epoch);
/* The same where it was to be renamed into place, and has this temporary name still. Where that tells no file that is there, it is one
 * of those beside it that was saved together with the last, as far as `by`, the killed process, saved that (0: not known). */
uint64_t sealer_goes_on_by_rename_locked(struct volume *vol, uint64_t parent, const char *name,
					 pid_t by);
/* The same of a file whose content was replaced, and that is closed, or was renamed. */
void sealer_saved_in_place_locked(struct volume *vol, uint64_t ino);
/* A writer was killed (`by`; 0: not known) and left this temporary name, which keeps no rename from sealing until another saves it. `over`: an
 * epoch has the half of that save, and quiet does not wait for it. */
void sealer_left_locked(struct volume *vol, uint64_t parent, const char *name, uint64_t ino,
			pid_t by, bool over);
/* Whether this epoch is not complete, and none after it is: what it has is one try of a save. (sealer_in_place.c) */
bool sealer_is_try_locked(struct volume *vol, uint64_t epoch);
/* A request came without a pid from a writer: the next epoch is complete=unknown. */
void sealer_unknown_locked(struct volume *vol);
/* Whether the last epoch took this log, while it was open, as it is now. */
bool sealer_has_log_locked(const struct volume *vol, uint64_t ino, const struct stat *st);

#endif
