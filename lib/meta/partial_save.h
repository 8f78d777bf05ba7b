/* SPDX-License-Identifier: Apache-2.0 */
/* A partial save: what is in doubt in a tree that is half of one, where no doubt of a file says so. Pure: no I/O, no locks. */
#ifndef EPOCHFS_META_PARTIAL_SAVE_H
#define EPOCHFS_META_PARTIAL_SAVE_H

#include <stddef.h>
#include <stdint.h>
#include "lib/format/record.h"
#include "lib/meta/rules.h"

/*
 * An epoch is not complete, though no file of it counts as in doubt, where a later one continues it (contract 1.3.7), or where
 * its record gives another reason. A rollback brings its tree back, and what is saved then beside that must not make an epoch
 * that is complete. So the tree gets doubts as of killed writers (DOUBT_UNDONE in doubts.h), in the two cases
 *   - the rest of the save is known: each of its files, as if its writer had been killed, the newest PARTIAL_SAVE_REST_MAX of them;
 *     without companions none of them is in doubt, for the tree is as it was before that save;
 *   - else: the file that was changed last, of those with a step where there are some. It is a companion of its own.
 * Companions are the files of its unit that the save had changed. All else is as with other doubts: they are settled when the
 * file is saved, or all its companions are, and cost nothing once another unit is newer.
 */
#define PARTIAL_SAVE_REST_MAX 16

struct partial_save;

/* `rules` must stay. 0 or -ENOMEM, all of them. */
int partial_save_new(const struct rules *rules, struct partial_save **ret_save);
void partial_save_free(struct partial_save *s); /* NULL is allowed */
#define cleanup_partial_save CLEANUP(partial_save_free_at)
void partial_save_free_at(struct partial_save **s);

/* A file, no log, that the tree has, and the newest complete epoch before it has not, or with other content. */
int partial_save_add_changed(struct partial_save *s, const char *path, int64_t mtime_ns);
/* One of the rest of the save, which the tree has not. */
int partial_save_add_rest(struct partial_save *s, const char *path, int64_t mtime_ns);
/* The doubts of the tree of epoch `number`: free with record_doubts_free. */
int partial_save_doubts(const struct partial_save *s, uint64_t number,
			struct record_doubt **ret_doubts, size_t *ret_count);

#endif
