/* SPDX-License-Identifier: Apache-2.0 */
/* What an epoch's record says of its tree and of who made it. For lib/ alone. */
#ifndef EPOCHFS_EPOCHS_RECORD_FILL_H
#define EPOCHFS_EPOCHS_RECORD_FILL_H

#include "lib/format/record.h"
#include "lib/meta/rules.h"
#include "lib/cache/context.h"

struct record_source {
	const struct volume *vol; /* uuid, host, run id, and the message where none is given */
	const struct rules *rules;
	struct tree *before; /* of the epoch before; NULL: there is none */
	struct tree *tree;
	const char *message;  /* or NULL */
	const char *metadata; /* record_metadata.h, or NULL */
	bool has_step; /* else changed names have one, but for an epoch that restores another */
	uint64_t step;
};

/*
 * Sets the volume, the counts, what was added, changed and removed, message, host, run id, user and step. `ret_inline_new` (may be NULL)
 * is what the tree holds of contents itself that the one before did not. Without the lock. 0 or -ENOMEM.
 */
int record_fill(const struct record_source *from, struct epoch_record *r, uint64_t *ret_inline_new);

/* A copy; nothing for NULL or "". 0 or -ENOMEM. */
int record_set_text(char **ret_text, const char *text);

/* A tree with the same root and nothing else: what is before the first epoch. */
int tree_empty_like(const struct tree *tree, struct tree **ret_tree);

/*
 * A name came below a directory that the epoch before made, sealed by itself; with `in_chain`: that one of those made which that one continues. Does the epoch complete it?
 * Steps that differ say that they are two checkpoints; of a chain, the same step must say that they are one.
 */
bool record_continues(bool both_have_steps, bool same_step, bool in_chain);

#endif
