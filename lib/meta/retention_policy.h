/* SPDX-License-Identifier: Apache-2.0 */
/* Which epochs stay: a retention policy, and what it makes of a list of epochs. Pure: no I/O, no clock. */
#ifndef EPOCHFS_META_RETENTION_POLICY_H
#define EPOCHFS_META_RETENTION_POLICY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/format/record.h"
#include "lib/util/buf.h"

/*
 * A policy is a list of rules, separated by commas: "last:10,hourly:24,daily:7,every:1000,tagged". Each rule
 * is given once, its number is from 1. An epoch stays where one rule at least wants it, or where it stays
 * always; the rules do not know of each other.
 *
 *   last:N      the N newest
 *   hourly:N    the newest of each of the N newest hours in which there is one; daily:N, weekly:N,
 *   daily:N ... monthly:N, yearly:N likewise. Hours, days, weeks (from Monday), months and years are
 *               those of the calendar in UTC; what counts is when the epoch was sealed. An hour without
 *               an epoch counts for nothing, so that a pause drops nothing.
 *   every:N     of each step that is a multiple of N, the newest
 *   tagged      nothing more: what is tagged stays anyway
 *
 * Only epochs that are whole fill the places of rules: complete ones, and those of which it is not known (a writer
 * in another pid namespace). Else ten killed saves would push out ten good ones. The rules are asked twice, and what either keeps stays: of all
 * that are whole, and of those that stay so. What a later epoch may continue yet is not complete any more then: what is `recent`, or of the
 * newest `save`, so takes no place from the others. And what has less than a RETENTION_PART of an epoch's new bytes takes no
 * place from that: pictures push out no checkpoint. So last:N leaves N of what is large, and up to N of each kind of what is much smaller and newer.
 *
 * Always stay: the newest that is complete and durable, and, where it is not known of newer ones, the newest of
 * those; likewise of those that stay whole; what is `recent`, and of the newest save the newest that has its step, for it tells that the others are
 * of that save; what is tagged; what the live tree stands on; what is not durable yet; and what is not whole for as long as
 * no whole and durable epoch came after it. And what the newest rollback left, until a whole and
 * durable epoch that restores none came after that: to undo it.
 *
 * Deciding after each new epoch leaves what deciding once at the end would leave, as long as the clock does not step back.
 */
enum retention_rule {
	RETENTION_LAST,
	RETENTION_HOURLY,
	RETENTION_DAILY,
	RETENTION_WEEKLY,
	RETENTION_MONTHLY,
	RETENTION_YEARLY,
	RETENTION_EVERY,
	RETENTION_TAGGED,
	RETENTION_RULES,
};

struct retention_policy {
	uint64_t n[RETENTION_RULES]; /* 0: no such rule */
};

/* Why an epoch stays: bits, 1u << rule, and these. */
#define RETENTION_NEWEST     (1u << RETENTION_RULES)
#define RETENTION_CURRENT    (1u << (RETENTION_RULES + 1))
#define RETENTION_PENDING    (1u << (RETENTION_RULES + 2))
#define RETENTION_UNFINISHED (1u << (RETENTION_RULES + 3))
#define RETENTION_BEFORE     (1u << (RETENTION_RULES + 4))
#define RETENTION_UNDO	     (1u << (RETENTION_RULES + 5))
#define RETENTION_RECENT     (1u << (RETENTION_RULES + 6))

#define RETENTION_PART 16

#define RETENTION_WHY_MAX 256

/* 0 or -EINVAL, with what is wrong in one line in `ret_why`. Blanks around a rule are allowed. */
int retention_parse(const char *text, struct retention_policy *ret_policy,
		    char ret_why[RETENTION_WHY_MAX]);
/*
 * In a list of mount options, whose commas part these too: whether `option` begins a policy ("keep=last:3"), and `next`, which
 * follows its comma, goes on with it: it is a rule, or looks like one, and no option.
 */
bool retention_goes_on(const char *option, const char *next);

struct retention_epoch {
	uint64_t number;
	int64_t sealed_ns;
	uint64_t step;
	bool has_step;
	bool complete; /* as `latest` understands it */
	bool unknown;  /* not complete, but nothing says that it is not */
	bool durable;
	bool tagged;
	bool current; /* the live tree stands on it */
	bool recent;  /* sealed by itself, and lately: a later one may continue it yet */
	uint64_t bytes_new;
	uint64_t save;	 /* the first epoch of the save that it may be in a pause of; 0: none */
	bool restores;	 /* a rollback made it */
	uint64_t parent; /* the one that it came after; 0: none, or not known */
	/* What retention_find_saves and retention_untold look at, as in the record; retention_decide does not. */
	enum record_trigger trigger;
	uint64_t continues, half;
	unsigned reasons; /* what retention_decide finds; 0: it is let go */
};

/*
 * Sets `save` of each: what goes on in a directory of its step continues it, however late (contract 1.3.7). Of several nodes each epoch is put
 * together from parts that say they are whole: there is none.
 */
void retention_find_saves(struct retention_epoch *epochs, size_t count);
/* The place of the first epoch from which on all were sealed by themselves: what came before them, and they were not, nothing continues. */
size_t retention_untold(const struct retention_epoch *epochs, size_t count);
/* Sets `reasons` of each. The epochs ascend by number. 0 or -ENOMEM. */
int retention_decide(const struct retention_policy *policy, struct retention_epoch *epochs,
		     size_t count);
/* The word for each reason in turn, from i = 0; NULL after the last. "last", "daily", "newest", "not durable", ... */
const char *retention_reason(unsigned reasons, unsigned i);

#endif
