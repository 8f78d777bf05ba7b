/* SPDX-License-Identifier: Apache-2.0 */
/* One history beside its model. */
#ifndef EPOCHFS_TESTS_RUN_H
#define EPOCHFS_TESTS_RUN_H

#include "tests/enumerate/on.h"

#define EPOCHS_MAX (3 * HISTORY_MAX)
#define WRONG_MAX  600

struct run_epoch {
	uint64_t number;
	struct model_tree tree;
};

/* What a history left, for looks after a remount. */
struct run {
	struct history history;
	unsigned number;
	struct model_tree closed;
	bool skipped; /* on.h: it was not run to its end, and left nothing to look at */
	bool mapped;  /* what was stored last is in an epoch a moment after the mapping's end */
	unsigned epochs;
	struct run_epoch epoch[EPOCHS_MAX];
	char wrong[WRONG_MAX]; /* "": it was as the model says */
};

/* run->history and number are given: false, with run->wrong, where something was not as it must be. */
bool run_history(struct on *on, struct run *run);
/* What was left is in this epoch. */
bool run_check_epoch(struct on *on, struct run *run, uint64_t epoch, const char *when);
/* Whether this epoch holds what was left: false is no failure yet where run->mapped. */
bool run_is_in(struct on *on, struct run *run, uint64_t epoch);
/* Live files and epochs, with the one that holds the last state (0: none). `when` for run->wrong. */
bool run_check(struct on *on, struct run *run, uint64_t last, const char *when);

#endif
