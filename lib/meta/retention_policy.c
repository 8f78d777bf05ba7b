/* SPDX-License-Identifier: Apache-2.0 */
/* Retention: parsing a policy, and deciding. */
#include "lib/meta/retention_policy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "lib/util/clock.h"
#include "lib/util/parse.h"

#define RULE_TEXT_MAX 64
#define HOUR_S	      3600
#define DAY_S	      (24 * HOUR_S)
/* 1970-01-01 was a Thursday: so many days into its week. */
#define EPOCH_WEEKDAY 3

static const char *const rule_names[RETENTION_RULES] = {
	[RETENTION_LAST] = "last",	 [RETENTION_HOURLY] = "hourly",
	[RETENTION_DAILY] = "daily",	 [RETENTION_WEEKLY] = "weekly",
	[RETENTION_MONTHLY] = "monthly", [RETENTION_YEARLY] = "yearly",
	[RETENTION_EVERY] = "every",	 [RETENTION_TAGGED] = "tagged",
};

/* ---- the policy's text ---- */

static int wrong(char why[RETENTION_WHY_MAX], const char *rule, const char *what)
{
	snprintf(
		why, RETENTION_WHY_MAX,
		"rules such as last:10,hourly:24,daily:7,weekly:4,monthly:12,yearly:2,every:1000,tagged: "
		"'%s' %s",
		rule, what);
	return -EINVAL;
}

static int parse_rule(char *text, struct retention_policy *p, char why[RETENTION_WHY_MAX])
{
	char *colon = strchr(text, ':'), whole[RULE_TEXT_MAX];
	uint64_t n = 1;
	unsigned rule = 0;

	snprintf(whole, sizeof(whole), "%s", text);
	if (colon)
		*colon = '\0';
	while (rule < RETENTION_RULES && strcmp(rule_names[rule], text) != 0)
		rule++;
	if (rule == RETENTION_RULES)
		return wrong(why, whole, *whole ? "is none" : "is empty");
	if (rule == RETENTION_TAGGED && colon)
		return wrong(why, whole, "takes no number");
	if (rule != RETENTION_TAGGED && (!colon || parse_u64(colon + 1, &n) || !n))
		return wrong(why, whole, "needs a number from 1");
	if (p->n[rule])
		return wrong(why, whole, "comes twice");
	p->n[rule] = n;
	return 0;
}

/* Without the blanks around it; false where it is too long for any rule. */
static bool copy_rule(const char *text, size_t len, char out[RULE_TEXT_MAX])
{
	while (len && text[0] == ' ') {
		text++;
		len--;
	}
	while (len && text[len - 1] == ' ')
		len--;
	snprintf(out, RULE_TEXT_MAX, "%.*s", (int)(len < RULE_TEXT_MAX ? len : RULE_TEXT_MAX - 1),
		 text);
	return len < RULE_TEXT_MAX;
}

int retention_parse(const char *text, struct retention_policy *ret_policy,
		    char ret_why[RETENTION_WHY_MAX])
{
	struct retention_policy policy = {0};

	for (;;) {
		char rule[RULE_TEXT_MAX];
		size_t len = strcspn(text, ",");
		int error = copy_rule(text, len, rule) ? parse_rule(rule, &policy, ret_why)
						       : wrong(ret_why, rule, "is too long");

		if (error)
			return error;
		if (!text[len])
			break;
		text += len + 1;
	}
	*ret_policy = policy;
	return 0;
}

bool retention_goes_on(const char *option, const char *next)
{
	const char *tagged = rule_names[RETENTION_TAGGED];
	size_t len = strcspn(next, ",");

	if (strncmp(option, "keep=", strlen("keep=")) != 0)
		return false;
	if (len == strlen(tagged) && !memcmp(next, tagged, len))
		return true;
	return memchr(next, ':', len) && !memchr(next, '=', len);
}

/* ---- deciding ---- */

static bool is_whole(const struct retention_epoch *e)
{
	return e->complete || e->unknown;
}

static int64_t floor_div(int64_t a, int64_t b)
{
	return a / b - (a % b < 0);
}

/* The number of the hour, day, ... that a moment lies in; they rise with time. */
static int64_t bucket_of(enum retention_rule rule, int64_t ns)
{
	time_t s = (time_t)floor_div(ns, NS_PER_S);
	struct tm tm;

	switch (rule) {
	case RETENTION_HOURLY:
		return floor_div(s, HOUR_S);
	case RETENTION_DAILY:
		return floor_div(s, DAY_S);
	case RETENTION_WEEKLY:
		return floor_div(floor_div(s, DAY_S) + EPOCH_WEEKDAY, 7);
	case RETENTION_MONTHLY:
		gmtime_r(&s, &tm);
		return (int64_t)tm.tm_year * 12 + tm.tm_mon;
	default:
		gmtime_r(&s, &tm);
		return tm.tm_year;
	}
}

static int newest_first(const void *a, const void *b)
{
	const struct retention_epoch *x = *(struct retention_epoch *const *)a;
	const struct retention_epoch *y = *(struct retention_epoch *const *)b;

	if (x->sealed_ns != y->sealed_ns)
		return x->sealed_ns < y->sealed_ns ? 1 : -1;
	return x->number < y->number ? 1 : x->number > y->number ? -1 : 0;
}

static int by_step_newest_first(const void *a, const void *b)
{
	const struct retention_epoch *x = *(struct retention_epoch *const *)a;
	const struct retention_epoch *y = *(struct retention_epoch *const *)b;

	if (x->step != y->step)
		return x->step < y->step ? 1 : -1;
	return x->number < y->number ? 1 : x->number > y->number ? -1 : 0;
}

/* An unmount, or a wait until all is durable, seals what there is; nobody meant it as a checkpoint. */
static bool is_asked_for(const struct retention_epoch *e)
{
	return record_trigger_by_hand(e->trigger) && e->trigger != RECORD_TRIGGER_UMOUNT &&
	       e->trigger != RECORD_TRIGGER_WAIT;
}

/* What came after it by itself, and is so much less, takes no place from it. What somebody asked for does: what was removed is to go. */
static bool is_part(const struct retention_epoch *e, const struct retention_epoch *of)
{
	return !is_asked_for(e) && e->bytes_new < of->bytes_new / RETENTION_PART;
}

/*
 * Of each bucket that an epoch lies in the newest, of the `n` newest buckets; as if there were none of what is a mere part of it. `order`
 * is by bucket, the newest first.
 */
static bool has_place(struct retention_epoch **order, const int64_t *buckets, size_t at, uint64_t n)
{
	int64_t last = 0;
	uint64_t taken = 0;

	for (size_t i = 0; i < at; i++) {
		if (is_part(order[i], order[at]))
			continue;
		if (buckets[i] == buckets[at])
			return false;
		if (taken && buckets[i] == last)
			continue;
		last = buckets[i];
		if (++taken == n)
			return false;
	}
	return true;
}

static void keep_buckets(struct retention_epoch **order, const int64_t *buckets, size_t count,
			 enum retention_rule rule, uint64_t n)
{
	for (size_t i = 0; i < count && n; i++)
		if (has_place(order, buckets, i, n))
			order[i]->reasons |= 1u << rule;
}

/* `order` is from the newest number down, and by time afterwards. */
static void keep_by_rules(const struct retention_policy *policy, struct retention_epoch **order,
			  int64_t *buckets, size_t count)
{
	for (size_t i = 0; i < count; i++)
		buckets[i] = (int64_t)i;
	keep_buckets(order, buckets, count, RETENTION_LAST, policy->n[RETENTION_LAST]);
	qsort(order, count, sizeof(*order), newest_first);
	for (enum retention_rule rule = RETENTION_HOURLY; rule <= RETENTION_YEARLY; rule++) {
		for (size_t i = 0; i < count && policy->n[rule]; i++)
			buckets[i] = bucket_of(rule, order[i]->sealed_ns);
		keep_buckets(order, buckets, count, rule, policy->n[rule]);
	}
}

/* Makes another list of `order`. */
static void keep_steps(struct retention_epoch **order, size_t count, uint64_t n)
{
	size_t steps = 0, first = 0;

	for (size_t i = 0; i < count && n; i++)
		if (order[i]->has_step && order[i]->step % n == 0)
			order[steps++] = order[i];
	qsort(order, steps, sizeof(*order), by_step_newest_first);
	for (size_t i = 0; i < steps; i++) {
		size_t newer;

		first = order[i]->step == order[first]->step ? first : i;
		newer = first;
		while (newer < i && is_part(order[newer], order[i]))
			newer++;
		if (newer == i)
			order[i]->reasons |= 1u << RETENTION_EVERY;
	}
}

static void keep_always(struct retention_epoch *epochs, size_t count)
{
	bool newest_found = false, whole_found = false;

	for (size_t i = count; i-- > 0;) {
		struct retention_epoch *e = &epochs[i];

		e->reasons = 0;
		if (e->tagged)
			e->reasons |= 1u << RETENTION_TAGGED;
		if (e->current)
			e->reasons |= RETENTION_CURRENT;
		if (!e->durable)
			e->reasons |= RETENTION_PENDING;
		if (e->durable && ((e->complete && !newest_found) || (e->unknown && !whole_found)))
			e->reasons |= RETENTION_NEWEST;
		if (!is_whole(e) && !whole_found)
			e->reasons |= RETENTION_UNFINISHED;
		newest_found |= e->complete && e->durable;
		whole_found |= is_whole(e) && e->durable;
	}
}

/* The save of the newest that is whole and durable: all of that may be half of it yet. */
static uint64_t newest_save(const struct retention_epoch *epochs, size_t count)
{
	for (size_t i = count; i-- > 0;)
		if (is_whole(&epochs[i]) && epochs[i].durable)
			return epochs[i].save;
	return 0;
}

/* Nothing that comes later takes it back. */
static bool stays_whole(const struct retention_epoch *e, uint64_t save)
{
	return is_whole(e) && !e->recent && !(save && e->save == save);
}

static void keep_what_may_go_back(struct retention_epoch *epochs, size_t count, uint64_t save)
{
	bool whole_found = false, complete_found = false, step_found = false;

	for (size_t i = count; i-- > 0;) {
		struct retention_epoch *e = &epochs[i];

		if (!e->durable || !is_whole(e))
			continue;
		if (e->recent || (save && e->save == save && e->has_step && !step_found))
			e->reasons |= RETENTION_RECENT;
		step_found |= e->has_step;
		if (!stays_whole(e, save))
			continue;
		if (!complete_found && (e->complete || !whole_found) &&
		    !(e->reasons & RETENTION_NEWEST))
			e->reasons |= RETENTION_BEFORE;
		whole_found = true;
		complete_found |= e->complete;
	}
}

static void keep_to_undo(struct retention_epoch *epochs, size_t count)
{
	uint64_t left = 0;

	for (size_t i = count; i-- > 0;) {
		if (left && epochs[i].number == left)
			epochs[i].reasons |= RETENTION_UNDO;
		if (left)
			continue;
		if (epochs[i].restores)
			left = epochs[i].parent;
		else if (is_whole(&epochs[i]) && epochs[i].durable)
			return;
	}
}

int retention_decide(const struct retention_policy *policy, struct retention_epoch *epochs,
		     size_t count)
{
	struct retention_epoch **order = calloc(count + 1, sizeof(struct retention_epoch *));
	int64_t *buckets = calloc(count + 1, sizeof(*buckets));
	uint64_t save = newest_save(epochs, count);

	if (order && buckets) {
		keep_always(epochs, count);
		keep_what_may_go_back(epochs, count, save);
		keep_to_undo(epochs, count);
		/* What may yet be taken back takes no place, and none is taken from it: it may stay. */
		for (int staying = 0; staying < 2; staying++) {
			size_t filling = 0;

			for (size_t i = count; i-- > 0;)
				if (staying ? stays_whole(&epochs[i], save) : is_whole(&epochs[i]))
					order[filling++] = &epochs[i];
			keep_by_rules(policy, order, buckets, filling);
			keep_steps(order, filling, policy->n[RETENTION_EVERY]);
		}
	}
	free(buckets);
	free(order);
	return order && buckets ? 0 : -ENOMEM;
}

const char *retention_reason(unsigned reasons, unsigned i)
{
	static const char *const always[] = {"newest", "current", "not durable", "unfinished",
					     "before", "undo",	  "recent"};

	for (unsigned bit = 0; bit < RETENTION_RULES + sizeof(always) / sizeof(*always); bit++)
		if ((reasons & 1u << bit) && !i--)
			return bit < RETENTION_RULES ? rule_names[bit]
						     : always[bit - RETENTION_RULES];
	return NULL;
}
