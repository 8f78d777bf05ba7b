/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All histories up to a length, the shortest first, or some of the longer ones, each beside a model.
 * tests/README.md says how it is used.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "tests/enumerate/run.h"

#define FOUND_MAX 200

struct enumeration {
	struct on *on;
	/* What is asked for. */
	unsigned length, all, batch, shard, shards;
	double seconds;
	uint64_t seed;
	bool slow, keep_going;
	unsigned names;
	/* Histories that are run together; their looks after a remount are. */
	struct run *runs;
	unsigned gathered, prepared_first, next_number;
	/* What came of it. */
	uint64_t considered, done, failed;
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
	return e->seconds > 0 && now() - e->start > e->seconds;
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
	if (!e->keep_going)
		e->stop = true;
}

/* ---- batches ---- */

static void check_batch(struct enumeration *e, unsigned count, uint64_t last, const char *when)
{
	for (unsigned i = 0; i < count; i++) {
		struct run *run = &e->runs[i];

		if (!run->wrong[0] && !run_check(e->on, run, last, when))
			found_one(e, run);
	}
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
		e->done++;
	}
	e->next_number += count;
	e->gathered = 0;
	if (e->stop)
		return;
	if (e->on->contract)
		last = e->on->seal(e->on);
	check_batch(e, count, last, "after all were closed");
	if (!e->on->remount)
		return;
	e->on->remount(e->on, false);
	check_batch(e, count, last, "after a remount");
	e->on->remount(e->on, true);
	check_batch(e, count, last, "after a mount with an empty cache");
}

static void gather(struct enumeration *e, const struct history *h)
{
	e->runs[e->gathered++].history = *h;
	if (e->gathered == e->batch)
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

/* A descriptor of a writer is closed while another is left, and then somebody asks: a volume without
 * processes that have it open waits for the release that does not come. */
static bool wanted(const struct enumeration *e, const struct model *m, const struct history *h)
{
	return needs_two(h) && (e->slow || !e->on->waits_for_shared || !m->shared);
}

static bool offered(const struct enumeration *e, const struct model *m, const struct step *s)
{
	return model_offers(m, s) && (e->on->evicts || s->op != OP_EVICT) &&
	       (e->names > 1 || !s->name);
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
		if (h->length < length && !result.error)
			go_on(e, &after, h, length);
		else if (h->length == length && wanted(e, &after, h) &&
			 e->considered++ % e->shards == e->shard)
			gather(e, h);
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
	unsigned span = e->length - e->all;
	unsigned length = e->all + 1 + (unsigned)draw(&e->seed) % span, n, offers;
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

static void enumerate(struct enumeration *e)
{
	struct model m;

	model_start(&m, e->on->contract);
	for (unsigned length = 1; length <= e->all && !e->stop; length++) {
		struct history h = {0};
		uint64_t before = e->considered;

		go_on(e, &m, &h, length);
		if (!e->stop)
			run_batch(e);
		printf("length %u%s: %llu histories, %.1f s\n", length, e->stop ? " (some)" : "",
		       (unsigned long long)(e->considered - before), now() - e->start);
		fflush(stdout);
	}
	while (e->length > e->all && e->seconds > 0 && !e->stop) {
		struct history h;

		if (draw_history(e, &h))
			gather(e, &h);
	}
	run_batch(e);
}

/* ---- replaying ---- */

static void replay(struct enumeration *e, const char *text)
{
	struct history h;

	if (history_parse(text, &h))
		give_up("this is no history: %s", text);
	for (unsigned at = 0; at < e->batch && !e->stop; at++)
		e->runs[e->gathered++].history = h;
	run_batch(e);
}

/* ---- the command ---- */

static const char usage[] =
	"usage: enumerate --on volume|mount|directory [options] DIR\n"
	"  --all N          all histories of up to N steps (default 3)\n"
	"  --length N       with --seconds: some of up to N steps, when these are done\n"
	"  --seconds S      at most; --seed N: which ones are drawn\n"
	"  --shard I/N      of all histories, each N-th from the I-th (0 is the first)\n"
	"  --names 1        without the second name\n"
	"  --slow           with duplicated descriptors of writers on a volume, half a second each\n"
	"  --keep-going     do not end at the first that fails\n"
	"  --replay TEXT    this one; --times N: so many\n"
	"  --batch N        so many histories between two remounts\n"
	"  --unit BYTES     that a letter stands for (default 1024)\n"
	"  --passthrough on|off, --durable on|off    of a volume\n"
	"  --remounts       of a mount: see on.h\n";

struct command {
	const char *where, *dir, *script;
	bool passthrough, durable, remounts;
	unsigned unit;
};

static bool is_on(const char *text)
{
	return !strcmp(text, "on");
}

static void shard_of(struct enumeration *e, const char *text)
{
	if (sscanf(text, "%u/%u", &e->shard, &e->shards) != 2 || e->shard >= e->shards)
		give_up("--shard is I/N, I from 0: %s", text);
}

static const struct option options[] = {
	{"on", required_argument, NULL, 'o'},	  {"all", required_argument, NULL, 'a'},
	{"length", required_argument, NULL, 'l'}, {"seconds", required_argument, NULL, 's'},
	{"seed", required_argument, NULL, 'e'},	  {"shard", required_argument, NULL, 'h'},
	{"names", required_argument, NULL, 'n'},  {"slow", no_argument, NULL, 'w'},
	{"keep-going", no_argument, NULL, 'k'},	  {"replay", required_argument, NULL, 'r'},
	{"batch", required_argument, NULL, 'b'},  {"times", required_argument, NULL, 'b'},
	{"unit", required_argument, NULL, 'u'},	  {"passthrough", required_argument, NULL, 'p'},
	{"durable", required_argument, NULL, 'd'}, {"remounts", no_argument, NULL, 'm'}, {0},
};

static void take_option(struct enumeration *e, struct command *c, int option)
{
	unsigned number = optarg ? (unsigned)strtoul(optarg, NULL, 10) : 0;

	switch (option) {
	case 'o':
		c->where = optarg;
		break;
	case 'a':
		e->all = number;
		break;
	case 'l':
		e->length = number;
		break;
	case 's':
		e->seconds = strtod(optarg, NULL);
		break;
	case 'e':
		e->seed = strtoull(optarg, NULL, 10);
		break;
	case 'h':
		shard_of(e, optarg);
		break;
	case 'n':
		e->names = number;
		break;
	case 'w':
		e->slow = true;
		break;
	case 'k':
		e->keep_going = true;
		break;
	case 'r':
		c->script = optarg;
		break;
	case 'b':
		e->batch = number;
		break;
	case 'u':
		c->unit = number;
		break;
	case 'p':
		c->passthrough = is_on(optarg);
		break;
	case 'm':
		c->remounts = true;
		break;
	case 'd':
		c->durable = is_on(optarg);
		break;
	default:
		give_up("%s", usage);
	}
}

static struct on *place(const struct command *c)
{
	if (c->where && !strcmp(c->where, "volume"))
		return on_volume(c->dir, c->passthrough, c->durable, c->unit);
	if (c->where && (!strcmp(c->where, "mount") || !strcmp(c->where, "directory")))
		return on_directory(c->dir, !strcmp(c->where, "mount"), c->remounts, c->unit);
	give_up("%s", usage);
}

int main(int argc, char **argv)
{
	struct enumeration e = {.all = 3, .batch = 30, .shards = 1, .names = NAMES};
	struct command c = {.passthrough = true, .unit = 1024};
	int option;

	e.seed = (uint64_t)time(NULL);
	while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0)
		take_option(&e, &c, option);
	if (optind + 1 != argc || e.all > HISTORY_MAX || e.length > HISTORY_MAX || !e.batch ||
	    !c.unit || c.unit > UNIT_MAX)
		give_up("%s", usage);
	c.dir = argv[optind];
	e.runs = calloc(e.batch, sizeof(*e.runs));
	e.on = place(&c);
	e.start = now();
	if (e.length > e.all && !c.script)
		printf("--seed %llu\n", (unsigned long long)e.seed);
	if (c.script)
		replay(&e, c.script);
	else
		enumerate(&e);
	printf("%llu histories, %llu not as they must be, %.0f a second\n",
	       (unsigned long long)e.done, (unsigned long long)e.failed,
	       (double)e.done / (now() - e.start));
	e.on->close(e.on);
	free(e.runs);
	return e.failed != 0;
}
