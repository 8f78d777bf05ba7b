/* SPDX-License-Identifier: Apache-2.0 */
/* When an epoch is sealed: a table, of which the first row that holds counts. */
#ifndef EPOCHFS_SAVES_SEAL_RULES_H
#define EPOCHFS_SAVES_SEAL_RULES_H

#include "lib/saves/saves.h"

struct seal_rule {
	const char *id, *name;
	bool before; /* it holds before an event; else after all that was told */
	bool sign;   /* the program has shown that its save is over */
	/* `e`: what is about to happen; NULL: nothing is. */
	bool (*holds)(const struct saves *s, const struct save_event *e);
	const char *text; /* one sentence, which epochfs-saves(7) has word for word */
};

#define SEAL_RULES 5
/* Numbers of rules (seal_rule_of) that a driver seals by. */
#define SEAL_ASKED 1
#define SEAL_QUIET 4
extern const struct seal_rule seal_rules[SEAL_RULES];

/* That of an event's field `rule`; NULL: there is none. */
const struct seal_rule *seal_rule_of(uint64_t number);
/* The other way. */
uint64_t seal_rule_number(const struct seal_rule *rule);

#endif
