/* SPDX-License-Identifier: Apache-2.0 */
/* Which histories there are, and what comes of them. */
#include "tests/enumerate/enumerate.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include "tests/enumerate/run.h"

#define FOUND_MAX	200
#define MAPPING_S	60
#define MAPPING_STEP_US 50000

struct enumeration {
	struct enumerate_options want;
	struct on *on;
	uint64_t seed;
	/* Histories that are run together; their looks after a remount are. */
	struct run *runs;
	unsigned gathered, next_number;
	/* What came of it. */
	uint64_t beginnings, considered, done, failed;
	struct history found[FOUND_MAX];
	unsigned founds;
	double start;
	bool stop;
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static bool out_of_time(const struct enumeration *e)
{
	return e->want.seconds > 0 && now() - e->start > e->want.seconds;
}

/* ---- what fails ---- */

static void found_one(struct enumeration *e, const struct run *run)
{
	char text[HISTORY_TEXT_MAX];

	e->failed++;
	for (unsigned i = 0; i < e->founds; i++)
		if (history_contains(&run->history, &e->found[i]))
			return;
	if (e->founds < FOUND_MAX)
		e->found[e->founds++] = run->history;
	history_text(&run->history, text);
	printf("--replay '%s'\n    %s\n", text, run->wrong);
	fflush(stdout);
	if (!e->want.keep_going)
		e->stop = true;
}

/* ---- batches ---- */

typedef bool (*check_fn)(struct on *on, struct run *run, uint64_t last, const char *when);

static void check_batch(struct enumeration *e, unsigned count, uint64_t last, check_fn check,
			const char *when)
{
	for (unsigned i = 0; i < count; i++) {
		struct run *run = &e->runs[i];

		if (!run->wrong[0] && !run->skipped && !check(e->on, run, last, when))
			found_one(e, run);
	}
}

static bool all_are_in(const struct enumeration *e, unsigned count, uint64_t epoch)
{
	for (unsigned i = 0; i < count; i++)
		if (e->runs[i].mapped && !e->runs[i].skipped && !e->runs[i].wrong[0] &&
		    !run_is_in(e->on, &e->runs[i], epoch))
			return false;
	return true;
}

/* What was stored in a mapping is closed a moment after it is gone. */
static uint64_t seal_all(const struct enumeration *e, unsigned count)
{
	uint64_t last = e->on->seal(e->on);

	for (double end = now() + MAPPING_S; now() < end && !all_are_in(e, count, last);) {
		usleep(MAPPING_STEP_US);
		last = e->on->seal(e->on);
	}
	return last;
}

/* The epoch after all of them, a remount, and a mount with an empty cache. */
static void run_batch(struct enumeration *e)
{
	unsigned count = e->gathered;
	uint64_t last = 0;

	if (!count)
		return;
	e->on->prepare(e->on, e->next_number, count);
	for (unsigned i = 0; i < count && !e->stop; i++) {
		e->runs[i].number = e->next_number + i;
		if (!run_history(e->on, &e->runs[i]))
			found_one(e, &e->runs[i]);
		e->done += !e->runs[i].skipped;
	}
	e->next_number += count;
	e->gathered = 0;
	if (e->stop)
		return;
	if (e->on->contract)
		last = seal_all(e, count);
	/* All else was looked at as each history ended, and is again. */
	if (last)
		check_batch(e, count, last, run_check_epoch, "after all were closed");
	if (e->on->remount) {
		e->on->remount(e->on, false);
		check_batch(e, count, last, run_check, "after a remount");
		e->on->remount(e->on, true);
		check_batch(e, count, last, run_check, "after a mount with an empty cache");
	}
	e->on->clean(e->on, e->next_number - count, count);
}

static void gather(struct enumeration *e, const struct history *h)
{
	e->runs[e->gathered++].history = *h;
	if (e->gathered == e->want.batch)
		run_batch(e);
	if (out_of_time(e))
		e->stop = true;
}

/* ---- which histories ---- */

/* Processes differ by what they replace, and by who is killed; else one is like two. */
static bool needs_two(const struct history *h)
{
	bool two = false, differ = false;

	for (unsigned i = 0; i < h->length; i++) {
		two = two || (op_opens(h->step[i].op) && h->step[i].who);
		differ = differ || h->step[i].op == OP_OPEN_TRUNCATE || h->step[i].op == OP_KILL;
	}
	return !two || differ;
}

static bool is_extended(const struct history *h)
{
	for (unsigned i = 0; i < h->length; i++)
		if (EXTENDED_OPS & 1u << h->step[i].op)
			return true;
	return false;
}

/* A descriptor of a writer is closed while another is left, and then somebody asks: a volume without
 * processes that have it open waits for the release that does not come. */
static bool wanted(const struct enumeration *e, const struct model *m, const struct history *h)
{
	return needs_two(h) && (!e->want.extended || is_extended(h)) &&
	       (e->want.slow || !e->on->waits_for_shared || !m->shared);
}

static bool offered(const struct enumeration *e, const struct model *m, const struct step *s)
{
	return e->want.ops & 1u << s->op && model_offers(m, s) &&
	       (e->on->evicts || s->op != OP_EVICT) && (e->on->asynchronous || s->op != OP_ASYNC) &&
	       (e->want.names > 1 || (!s->name && s->op != OP_COPY));
}

/* All but the last two steps are one beginning: whoever has a shard need not look behind the others'. */
static bool is_others(struct enumeration *e, const struct history *h, unsigned length)
{
	return h->length == (length > 2 ? length - 2 : length) &&
	       e->beginnings++ % e->want.shards != e->want.shard;
}

static void take(struct enumeration *e, const struct history *h)
{
	e->considered++;
	if (!e->want.count)
		gather(e, h);
}

/* What fails changes nothing, so nothing comes after it. */
static void go_on(struct enumeration *e, const struct model *m, struct history *h, unsigned length)
{
	struct step all[STEPS_MAX];
	unsigned n = step_all(all);

	for (unsigned i = 0; i < n && !e->stop; i++) {
		struct model_result result;
		struct model after = *m;

		if (!offered(e, m, &all[i]))
			continue;
		h->step[h->length++] = all[i];
		model_do(&after, &all[i], h->length - 1, &result);
		if (is_others(e, h, length)) {
			h->length--;
			continue;
		}
		if (h->length < length && !result.error)
			go_on(e, &after, h, length);
		else if (h->length == length && wanted(e, &after, h))
			take(e, h);
		h->length--;
	}
}

static uint64_t draw(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005u + 1442695040888963407u;
	return *seed >> 33;
}

/* One of the longer ones. */
static bool draw_history(struct enumeration *e, struct history *ret_history)
{
	unsigned span = e->want.length - e->want.all;
	unsigned length = e->want.all + 1 + (unsigned)draw(&e->seed) % span, n, offers;
	struct step all[STEPS_MAX], some[STEPS_MAX];
	struct model_result result = {0};
	struct model m;

	n = step_all(all);
	model_start(&m, e->on->contract);
	ret_history->length = 0;
	while (ret_history->length < length && !result.error) {
		offers = 0;
		for (unsigned i = 0; i < n; i++)
			if (offered(e, &m, &all[i]))
				some[offers++] = all[i];
		if (!offers)
			return false;
		ret_history->step[ret_history->length] = some[draw(&e->seed) % offers];
		model_do(&m, &ret_history->step[ret_history->length], ret_history->length, &result);
		ret_history->length++;
	}
	return ret_history->length == length && wanted(e, &m, ret_history);
}

static void all_of_them(struct enumeration *e)
{
	struct model m;

	model_start(&m, e->on->contract);
	for (unsigned length = 1; length <= e->want.all && !e->stop; length++) {
		struct history h = {0};
		uint64_t before = e->considered;

		go_on(e, &m, &h, length);
		if (!e->stop)
			run_batch(e);
		printf("length %u%s: %llu histories, %.1f s\n", length, e->stop ? " (some)" : "",
		       (unsigned long long)(e->considered - before), now() - e->start);
		fflush(stdout);
	}
}

static void some_longer_ones(struct enumeration *e)
{
	uint64_t before = e->done;
	unsigned drawn = 0;

	if (e->want.length <= e->want.all || (e->want.seconds <= 0 && !e->want.draw) || e->stop)
		return;
	printf("--seed %llu\n", (unsigned long long)e->want.seed);
	while (!e->stop && !(e->want.draw && drawn == e->want.draw)) {
		struct history h;

		if (!draw_history(e, &h))
			continue;
		gather(e, &h);
		drawn++;
	}
	run_batch(e);
	printf("up to length %u: %llu histories\n", e->want.length,
	       (unsigned long long)(e->done - before));
}

/* ---- what is asked for ---- */

static void replay(struct enumeration *e)
{
	for (unsigned i = 0; i < e->want.batch; i++)
		e->runs[e->gathered++].history = *e->want.replay;
	run_batch(e);
}

uint64_t enumerate(struct on *on, const struct enumerate_options *want)
{
	struct enumeration *e = calloc(1, sizeof(*e));
	uint64_t failed;

	if (e)
		*e = (struct enumeration){
			.want = *want, .on = on, .seed = want->seed, .start = now()};
	on->patient = want->slow;
	if (e && !e->want.ops)
		e->want.ops = want->extended ? ~0u : ~EXTENDED_OPS;
	if (e)
		e->runs = calloc(want->batch, sizeof(*e->runs));
	if (!e || !e->runs)
		abort();
	if (want->replay) {
		replay(e);
	} else {
		all_of_them(e);
		some_longer_ones(e);
	}
	printf("%llu histories, %llu not as they must be, %.0f a second\n",
	       (unsigned long long)e->done, (unsigned long long)e->failed,
	       (double)e->done / (now() - e->start));
	fflush(stdout);
	failed = e->failed;
	free(e->runs);
	free(e);
	return failed;
}
