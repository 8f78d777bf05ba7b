/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a history and compares. */
#include "tests/enumerate/run.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A history under way. */
struct going {
	struct on *on;
	struct run *run;
	struct model m;
	unsigned step;
	/* All that closed files ever were, in order: an epoch that came by itself holds one of these. */
	struct model_tree been[2 * HISTORY_MAX + HANDLES + 2];
	unsigned beens;
	/* What the commits gave. */
	struct run_epoch commit[HISTORY_MAX];
	unsigned commits;
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct run *run, const char *format, ...)
{
	size_t at = strlen(run->wrong);
	va_list args;

	va_start(args, format);
	vsnprintf(run->wrong + at, sizeof(run->wrong) - at, format, args);
	va_end(args);
	return false;
}

/* ---- comparing ---- */

static const char *text_of(const struct seen *seen, char text[LETTERS_MAX + 80])
{
	if (seen->error)
		snprintf(text, LETTERS_MAX + 80, "%s", strerror(seen->error));
	else
		snprintf(text, LETTERS_MAX + 80, "\"%.*s\"", seen->content.len,
			 seen->content.letter);
	return text;
}

static bool same_bytes(struct run *run, const struct seen *seen, const struct letters *want,
		       const char *what, unsigned unit)
{
	char found[LETTERS_MAX + 80];

	if (!seen->error && letters_same(&seen->content, want) &&
	    seen->size == (uint64_t)want->len * unit)
		return true;
	return wrong(run, "%s holds %s (%llu bytes), not \"%.*s\"", what, text_of(seen, found),
		     (unsigned long long)seen->size, want->len, want->letter);
}

static bool may_be(const struct seen *seen, const struct model_tree *want, unsigned name,
		   unsigned unit)
{
	for (unsigned i = 0; i < want->maybes[name]; i++)
		if (!seen->error && letters_same(&seen->content, &want->maybe[name][i]) &&
		    seen->size == (uint64_t)seen->content.len * unit)
			return true;
	return false;
}

static bool same_file(struct run *run, const struct seen *seen, const struct model_tree *want,
		      unsigned name, const char *what, unsigned unit)
{
	char found[LETTERS_MAX + 80], file[64];

	if (want->there[name] && may_be(seen, want, name, unit))
		return true;

	snprintf(file, sizeof(file), "%s%c", what, 'a' + name);
	if (want->there[name])
		return same_bytes(run, seen, &want->content[name], file, unit);
	return seen->error == ENOENT ||
	       wrong(run, "%s holds %s, and should not be there", file, text_of(seen, found));
}

static bool names_hold(struct on *on, struct run *run, const struct model_tree *want,
		       const char *what)
{
	struct seen seen;

	for (unsigned n = 0; n < NAMES; n++) {
		on->read_name(on, run->number, n, &seen);
		if (!same_file(run, &seen, want, n, what, on->unit))
			return false;
	}
	return true;
}

/* What it holds of what it may hold it holds for ever: `want` says which from then on. */
static bool epoch_holds(struct on *on, struct run *run, uint64_t epoch, struct model_tree *want)
{
	struct seen seen;
	char what[40];

	snprintf(what, sizeof(what), "epoch %llu: ", (unsigned long long)epoch);
	for (unsigned n = 0; n < NAMES; n++) {
		on->read_epoch(on, epoch, run->number, n, &seen);
		if (!same_file(run, &seen, want, n, what, on->unit))
			return false;
		if (want->maybes[n])
			want->content[n] = seen.content;
		want->maybes[n] = 0;
	}
	return true;
}

/* ---- after each step ---- */

static bool look_at_handle(struct going *g, unsigned i, bool bytes)
{
	const struct letters *want = &g->m.body[g->m.handle[i].body].now;
	unsigned unit = g->on->unit;
	struct seen seen;
	char what[32];

	snprintf(what, sizeof(what), "h%u", i);
	g->on->stat_handle(g->on, i, &seen);
	if (seen.error || seen.size != (uint64_t)want->len * unit)
		return wrong(g->run, "fstat of %s gives %llu (%s), not %u", what,
			     (unsigned long long)seen.size, strerror(seen.error), want->len * unit);
	if (!bytes || g->m.handle[i].op > OP_OPEN_WRITE)
		return true;
	g->on->read_handle(g->on, i, &seen);
	return same_bytes(g->run, &seen, want, what, unit);
}

static const char *const who_text[OUTSIDER + 1] = {"p0", "p1", "an outsider"};

/* Where a file has several names, the kernel is told after the answer that those which it looked up before lead elsewhere
 * for this process. */
#define NAMES_MS 2000

static bool look_at_name(struct going *g, unsigned who, unsigned name)
{
	unsigned links, unit = g->on->unit;
	const struct letters *want = model_sees(&g->m, who, name, &links);
	struct seen seen;

	for (unsigned i = 0; i == 0 || (want && links > 1 && i < NAMES_MS); i++) {
		if (i)
			usleep(1000);
		g->on->stat_name(g->on, who, name, &seen);
		if (!want && seen.error == ENOENT)
			return true;
		if (want && !seen.error && seen.size == (uint64_t)want->len * unit &&
		    seen.links == links)
			return true;
	}
	return wrong(g->run, "stat of %c by %s gives %llu, %llu links (%s), not %d, %u links",
		     'a' + name, who_text[who], (unsigned long long)seen.size,
		     (unsigned long long)seen.links, strerror(seen.error),
		     want ? (int)(want->len * unit) : -1, links);
}

static bool has_handles(const struct model *m, unsigned who)
{
	for (unsigned i = 0; i < HANDLES; i++)
		if (m->handle[i].descriptors && m->handle[i].who == who)
			return true;
	return who == OUTSIDER;
}

static bool look(struct going *g, bool bytes)
{
	for (unsigned i = 0; i < HANDLES; i++)
		if (g->m.handle[i].descriptors && !look_at_handle(g, i, bytes))
			return false;
	for (unsigned who = 0; who <= OUTSIDER; who++)
		for (unsigned n = 0; has_handles(&g->m, who) && n < NAMES; n++)
			if (!look_at_name(g, who, n))
				return false;
	return true;
}

static void remember(struct going *g)
{
	struct model_tree now;

	model_closed(&g->m, &now);
	if (!g->beens || !model_tree_same(&now, &g->been[g->beens - 1]))
		g->been[g->beens++] = now;
}

static bool note_commit(struct going *g, uint64_t epoch, const struct model_tree *tree)
{
	struct run_epoch *e = &g->commit[g->commits++];
	bool open = false;

	*e = (struct run_epoch){epoch, *tree};
	for (unsigned n = 0; n < NAMES; n++)
		open = open || tree->maybes[n];
	return !open || epoch_holds(g->on, g->run, epoch, &e->tree);
}

/* What the kernel writes by itself is told by the file's times alone, whose clock goes on by ticks. */
static void await_tick(void)
{
	struct timespec now, clock;

	clock_gettime(CLOCK_REALTIME, &now);
	do {
		usleep(1000);
		clock_gettime(CLOCK_REALTIME_COARSE, &clock);
	} while (clock.tv_sec < now.tv_sec ||
		 (clock.tv_sec == now.tv_sec && clock.tv_nsec <= now.tv_nsec));
}

static bool step(struct going *g, const struct step *s)
{
	struct model_result want;
	struct model_tree before;
	struct seen seen;

	model_closed(&g->m, &before);
	model_do(&g->m, s, g->step, &want);
	remember(g);
	if (want.joins && g->on->contract)
		await_tick();
	g->on->act(g->on, s, g->step, &seen);
	if (seen.skipped)
		return !(g->run->skipped = true);
	if (seen.error != want.error)
		return wrong(g->run, "it gives %s, not %s", strerror(seen.error),
			     strerror(want.error));
	if (s->op == OP_READ && !same_bytes(g->run, &seen, &want.read, "it", g->on->unit))
		return false;
	if (s->op == OP_COMMIT && !note_commit(g, seen.epoch, &before))
		return false;
	return look(g, false);
}

/* ---- the end ---- */

/* What an outsider reads. */
static bool names_show(struct going *g)
{
	struct model_tree want = {0};
	unsigned links;

	for (unsigned n = 0; n < NAMES; n++) {
		const struct letters *c = model_sees(&g->m, OUTSIDER, n, &links);

		want.there[n] = c != NULL;
		if (c)
			want.content[n] = *c;
	}
	return names_hold(g->on, g->run, &want, "");
}

/* The mapping last, so that it is seen without descriptors. */
static bool close_all(struct going *g)
{
	for (unsigned i = 0; i < HANDLES; i++)
		while (g->m.handle[i].descriptors) {
			const struct step s = {.op = OP_CLOSE, .handle = (uint8_t)i};

			if (!step(g, &s))
				return false;
		}
	return names_show(g) && (!g->m.mapping.there || step(g, &(struct step){.op = OP_UNMAP})) &&
	       names_show(g);
}

/* An epoch that a commit gave, or that came by itself. */
static bool look_at_epoch(struct going *g, uint64_t epoch)
{
	struct run *run = g->run;
	struct model_tree tree;
	bool asked = false;
	unsigned i;

	for (i = 0; i < g->commits; i++) {
		if (g->commit[i].number != epoch)
			continue;
		asked = true;
		if (!epoch_holds(g->on, run, epoch, &g->commit[i].tree))
			return false;
	}
	for (i = 0; !asked && i < g->beens; i++) {
		run->wrong[0] = '\0';
		tree = g->been[i];
		if (epoch_holds(g->on, run, epoch, &tree))
			break;
	}
	if (!asked && i == g->beens)
		return wrong(run, "; and none of %u other states", g->beens - 1);
	run->wrong[0] = '\0';
	run->epoch[run->epochs].number = epoch;
	for (unsigned c = 0; asked && c < g->commits; c++)
		if (g->commit[c].number == epoch)
			run->epoch[run->epochs].tree = g->commit[c].tree;
	if (!asked)
		run->epoch[run->epochs].tree = tree;
	run->epochs++;
	return true;
}

static bool look_at_epochs(struct going *g)
{
	uint64_t epoch = g->on->base(g->on);
	struct model_tree first = g->been[0];

	if (!epoch_holds(g->on, g->run, epoch, &first))
		return false;
	while ((epoch = g->on->next_epoch(g->on, epoch)) && g->run->epochs < EPOCHS_MAX)
		if (!look_at_epoch(g, epoch))
			return false;
	return true;
}

static bool run_steps(struct going *g)
{
	const struct history *h = &g->run->history;

	remember(g);
	for (g->step = 0; g->step < h->length; g->step++)
		if (!step(g, &h->step[g->step]))
			return g->run->skipped || wrong(g->run, ", after step %u", g->step + 1);
	if (!look(g, true) || !names_show(g))
		return wrong(g->run, ", after the last step");
	if (!close_all(g))
		return wrong(g->run, ", as the rest is closed");
	if (g->on->contract && !look_at_epochs(g))
		return wrong(g->run, ", at the end");
	model_closed(&g->m, &g->run->closed);
	memset(g->run->closed.maybes, 0, sizeof(g->run->closed.maybes));
	return true;
}

bool run_history(struct on *on, struct run *run)
{
	struct going g = {.on = on, .run = run};
	bool rolls_back = false, right;

	run->mapped = run->skipped = false;
	for (unsigned i = 0; i < run->history.length; i++) {
		rolls_back = rolls_back || run->history.step[i].op == OP_ROLLBACK;
		run->mapped = run->mapped || run->history.step[i].op == OP_MAP_KEEP;
	}
	run->epochs = 0;
	run->wrong[0] = '\0';
	model_start(&g.m, on->contract);
	on->begin(on, run->number, rolls_back);
	right = run_steps(&g);
	on->end(on);
	return right;
}

bool run_is_in(struct on *on, struct run *run, uint64_t epoch)
{
	bool right = epoch_holds(on, run, epoch, &run->closed);

	run->wrong[0] = '\0';
	return right;
}

bool run_check_epoch(struct on *on, struct run *run, uint64_t epoch, const char *when)
{
	return epoch_holds(on, run, epoch, &run->closed) || wrong(run, ", %s", when);
}

bool run_check(struct on *on, struct run *run, uint64_t last, const char *when)
{
	bool right = names_hold(on, run, &run->closed, "") &&
		     (!last || epoch_holds(on, run, last, &run->closed));

	for (unsigned i = 0; right && i < run->epochs; i++)
		right = epoch_holds(on, run, run->epoch[i].number, &run->epoch[i].tree);
	return right || wrong(run, ", %s", when);
}
