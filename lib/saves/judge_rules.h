/* SPDX-License-Identifier: Apache-2.0 */
/* What an epoch is: a table, of which the first row that holds counts. */
#ifndef EPOCHFS_SAVES_JUDGE_RULES_H
#define EPOCHFS_SAVES_JUDGE_RULES_H

#include "lib/saves/saves.h"

/* How the epoch comes about. */
struct judging {
	bool whole; /* somebody vouches for it */
	bool sign;  /* the program has shown that its save is over */
};

struct judge_rule {
	const char *id, *name;
	enum verdict verdict;
	bool goes_on;	 /* the save there may have more to come */
	bool incomplete; /* the save there has not all: it teaches no shape */
	bool goes_back;	 /* the live tree does, as soon as it may */
	bool known_end;	 /* but of itself only where a writer is known to have ended badly */
	/* Whether it holds of the root or of the newest checkpoint; what of, in *ret. */
	bool (*holds)(const struct saves *s, const struct judging *how, struct judged *ret);
	/* Appends the evidence. */
	void (*put_reason)(const struct saves *s, const struct judged *j, struct buf *out);
	const char *text; /* as of seal_rules.h */
};

#define JUDGE_RULES 8
extern const struct judge_rule judge_rules[JUDGE_RULES];

/* By its id ("J4"); NULL: there is none. */
const struct judge_rule *judge_rule_of(const char *id);
/* By the first row that holds: the last one always does. */
struct judged judge_first(const struct saves *s, const struct judging *how);

#endif
