/* SPDX-License-Identifier: Apache-2.0 */
/* What happens in the live tree, as one record of facts: each is an event (lib/saves/event.h), told to vol->observer->event_locked. */
#ifndef EPOCHFS_LIVE_EVENTS_H
#define EPOCHFS_LIVE_EVENTS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct body;
struct handle;
struct state_file;
struct volume;

/*
 * All with the volume's lock, after the transaction of what happened, so that whoever is told sees it. Order is what counts: a handle is opened before it
 * is closed or undone, and both are told once. Whoever has a file open by several handles closes it with the last; the others are `shared`.
 *
 * A `tid` is that of a thread of the process that did it; 0: not known. Nothing is told where there is no memory.
 */

/* A handle that writes is attached to its body, or writes again. */
void event_opened_locked(struct handle *h);
/* truncate(2) by a name, of a file that nobody writes: as if that thread had it open until the edit is taken in. */
void event_truncated_locked(struct volume *vol, struct body *b, pid_t tid);
/* It writes no more: it is told at once that it is closed where others write the body, else once its content is taken in. */
void event_released_locked(struct handle *h);
/* What a close of this body is beside the content that the file has now, before it is taken in: enum save_fact. */
unsigned event_close_facts_locked(struct volume *vol, const struct body *b, uint64_t size);
/* The last writer's content was taken in, or there was none (SAVE_IS_SAME). */
void event_closed_locked(struct volume *vol, struct body *b, uint64_t size, unsigned facts);
/* It was undone; `path` is the name that it had, "" for none. */
void event_undone_locked(struct volume *vol, struct body *b, const char *path);

/* They are about to be done (before_event_locked); the lock may be dropped. A file that is made or replaced by an open. */
void event_before_made_locked(struct volume *vol, uint64_t parent, const char *name);
void event_before_created_locked(struct volume *vol, uint64_t parent, const char *name);
void event_before_replaced_locked(struct volume *vol, uint64_t ino);
void event_before_renamed_locked(struct volume *vol, uint64_t parent, const char *name,
				 uint64_t new_parent, const char *new_name);
void event_before_exchanged_locked(struct volume *vol, uint64_t parent, const char *name,
				   uint64_t other_parent, const char *other_name);

void event_made_locked(struct volume *vol, uint64_t parent, const char *name, pid_t tid);
/* `f`: what is under the new name; `over`: there was something before. */
void event_renamed_locked(struct volume *vol, uint64_t parent, const char *name,
			  uint64_t new_parent, const char *new_name, const struct state_file *f,
			  bool over, pid_t tid);
/* `f`: what is under the first name now. */
void event_exchanged_locked(struct volume *vol, uint64_t parent, const char *name,
			    uint64_t other_parent, const char *other_name,
			    const struct state_file *f, pid_t tid);
/* A name more for a file; or a symbolic link, which is as good as a file. */
void event_linked_locked(struct volume *vol, uint64_t parent, const char *name,
			 const struct state_file *f, pid_t tid);
void event_removed_locked(struct volume *vol, uint64_t parent, const char *name,
			  const struct state_file *f);

#endif
