/* SPDX-License-Identifier: Apache-2.0 */
/* The facts of a mount: what happened last, for `epochfs explain`. */
#ifndef EPOCHFS_EPOCHS_FACT_LOG_H
#define EPOCHFS_EPOCHS_FACT_LOG_H

#include <jansson.h>
#include <stdint.h>
#include "lib/saves/event.h"

struct volume;

/* So many are kept, and no more than this many bytes of paths; the oldest go first. */
#define FACTS_MAX	(1 << 13)
#define FACTS_BYTES_MAX (1 << 20)

struct fact_log;

/* NULL: no memory. */
struct fact_log *fact_log_new(void);
void fact_log_free(struct fact_log *log); /* NULL is allowed */

/* Keeps a copy. Without memory it is left out. With the volume's lock; nothing where the volume keeps none. */
void fact_log_note_locked(struct volume *vol, const struct save_event *e);
/* An epoch began, by this word of record.h; by which rules it was sealed, and is what it is ("S2", "J7"; NULL: by none). Static strings. Likewise. */
void fact_log_sealed_locked(struct volume *vol, uint64_t epoch, const char *trigger,
			    const char *rule, const char *judged);

/*
 * All of them, the oldest first: {"at_ns": wall clock, "what": "closed", "process", "command", "handle", "size", "epoch", "trigger", "facts": ["shared"],
 * "path", "to", "status", "rule", "judged"}, each key where there is something to say. "command" is what the process was called when it was seen first. The caller's reference;
 * NULL: no memory. Without the lock, which it takes for moments: what happens meanwhile may be among them.
 */
json_t *fact_log_json(struct volume *vol);

#endif
