/* SPDX-License-Identifier: Apache-2.0 */
/* What renames have brought to units of the live tree: which one was changed last (doubts.h). For lib/ alone. */
#ifndef EPOCHFS_EPOCHS_ARRIVALS_H
#define EPOCHFS_EPOCHS_ARRIVALS_H

#include "lib/cache/context.h"

/*
 * What renames have brought to units, from a temporary name or another step: a unit is changed by that, though no content is
 * (contract 1.3.8). A value of the state has the newest of them since the last epoch that is frozen.
 */
#define ARRIVALS_MAX 16
struct arrivals {
	struct arrival {
		uint64_t epoch; /* that was open then */
		uint64_t ino;	/* of the file, or the directory */
		uint64_t order; /* as doubts_file.came */
	} list[ARRIVALS_MAX];
	unsigned count;
};
/* Before the names change, in the transaction of the rename. 0 or -errno. */
int arrivals_note_locked(struct volume *vol, const struct state_file *f, uint64_t parent,
			 const char *name, uint64_t new_parent, const char *new_name);
/* Those since this epoch, by the state or the snapshot of a later one. */
void arrivals_since(struct state *s, uint64_t parent, struct arrivals *ret);
/* `came` of what has this number, or lies in it, where what is above it has `above`. */
uint64_t arrivals_came(const struct arrivals *a, uint64_t ino, uint64_t above);

#endif
