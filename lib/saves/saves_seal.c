/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs that were sealed: what they teach, what of them is pending, and what is over with them. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/saves/judge_rules.h"
#include "lib/saves/saves_internal.h"
#include "lib/saves/seal_rules.h"

/* ---- shapes ---- */

static bool has_core(const struct saves *s, const struct save *save)
{
	struct core core = core_of(s, save);

	for (size_t i = 0; core_known(&core) && i < core.older->count; i++)
		if (core_times(&core, core.older->name[i].text) > 0)
			return true;
	return false;
}

/* Of a save whose kind has no core nobody knows how often it was begun: each file counts once. */
static int count_once(struct saves *s, const struct save *save, struct shape *ret_shape)
{
	for (const struct name *n = save->names; n; n = n->next) {
		if (!n->times_in_all)
			continue;
		buf_reset(&s->text[1]);
		facts_shape_name(n->path, save->checkpoint, &s->text[1]);
		if (buf_error(&s->text[1]) != 0 ||
		    shape_add(ret_shape, buf_str(&s->text[1]), 1) != 0)
			return -ENOMEM;
	}
	return 0;
}

/* What its files are, beside their names. */
static int learn_shape(struct saves *s, const struct save *save, struct shape *shape)
{
	for (const struct name *n = save->names; n; n = n->next)
		if (n->times && shape_add_file(shape, n->path) != 0)
			return -ENOMEM;
	return shapes_add(&s->shapes, save->checkpoint, shape);
}

static int learn(struct saves *s, struct save *save)
{
	struct shape once = {.first = save->shape.first};
	int r = 0;

	if (!save->file_count || save->broken)
		return 0;
	if (has_core(s, save))
		return learn_shape(s, save, &save->shape);
	/* Nobody knows whether it was all. */
	if (ended_badly(s, save->writer, save->writer_count, true))
		return 0;
	r = count_once(s, save, &once);
	if (r == 0)
		r = learn_shape(s, save, &once);
	shape_free(&once);
	return r;
}

/* All saves but the one there. */
static int learn_all(struct saves *s, const char *but)
{
	int error = 0;

	for (struct save *save = s->newest_save; save; save = save->next)
		if ((!but || strcmp(save->checkpoint, but) != 0) && learn(s, save) != 0)
			error = -ENOMEM;
	return error;
}

/* ---- what was pending ---- */

int decide(struct saves *s, enum verdict verdict)
{
	struct save *save = s->pending.save;
	int error = 0;

	s->decided.epoch = s->pending.epoch;
	s->decided.verdict = verdict;
	s->pending.epoch = 0;
	s->pending.save = NULL;
	if (verdict == VERDICT_PART) {
		set_changed(s);
		return 0;
	}
	if (verdict == VERDICT_WHOLE)
		error = learn_shape(s, save, &save->shape);
	free_save(s, save);
	return error;
}

bool saves_decided(const struct saves *s, uint64_t *ret_epoch, enum verdict *ret_verdict)
{
	if (!s->decided.epoch)
		return false;
	*ret_epoch = s->decided.epoch;
	*ret_verdict = s->decided.verdict;
	return true;
}

/* ---- what is over ---- */

static void drop_saves(struct saves *s)
{
	for (struct save *save = s->newest_save, *next; save; save = next) {
		next = save->next;
		if (save != s->pending.save)
			free_save(s, save);
	}
}

/* What is known of names since the last seal. */
static void drop_names(struct saves *s)
{
	for (struct map_link *l = map_next(&s->names, NULL), *next; l; l = next) {
		struct name *n = map_item(l, struct name, link);

		next = map_next(&s->names, l);
		set_temporary(s, n, NEVER);
		set_fresh(s, n, false);
		n->changed = n->made = false;
		tidy_name(s, n);
	}
}

static void drop_broken(struct saves *s, bool all)
{
	for (struct broken *b = s->broken, *next; b; b = next) {
		next = b->next;
		if (all || is_void(s, b))
			free_broken(s, b);
	}
	if (all || any_full(s))
		s->chosen = false;
}

static void drop_ended(struct saves *s)
{
	for (struct map_link *l = map_next(&s->ended, NULL), *next; l; l = next) {
		struct ended *e = map_item(l, struct ended, link);

		next = map_next(&s->ended, l);
		if (is_process_named(s, e->process))
			continue;
		map_remove(&s->ended, l);
		free(e);
	}
}

static void drop_all(struct saves *s)
{
	s->changed = s->asked = false;
	s->final_marker = s->final_last_file = s->final_rename = s->final_directory = false;
	s->final_save = NULL;
	drop_saves(s);
	drop_names(s);
	drop_ended(s);
}

int apply_sealed(struct saves *s, const struct save_event *e)
{
	bool whole = e->facts & SAVE_IS_WHOLE;
	struct judged j = saves_judge(s, seal_rule_of(e->rule), whole);
	enum verdict verdict = judged_verdict(&j);
	struct save *save = j.checkpoint ? find_save_of(s, j.checkpoint) : NULL;
	int error = 0;

	/* With the next epoch, where its checkpoint did not go on. */
	if (s->pending.epoch && (j.rule->goes_on || verdict == VERDICT_WHOLE))
		error = decide(s, save == s->pending.save ||
						  !strcmp(s->newest, s->pending.save->checkpoint)
					  ? VERDICT_PART
					  : VERDICT_WHOLE);
	drop_broken(s, whole);
	if (!s->pending.epoch)
		s->pending.save = NULL;
	if (j.rule->goes_on) {
		s->pending.epoch = verdict == VERDICT_PENDING ? e->epoch : 0;
		s->pending.save = save;
		s->pending.changed_ns = save ? save->changed_ns : s->now_ns;
	}
	if (verdict == VERDICT_NOT_WHOLE && j.rule->incomplete && !j.rule->goes_on && save &&
	    is_part(s, save) && keep_half(s, save) != 0)
		error = -ENOMEM;
	/* What has no core yet teaches what it has: else a file that stays open would let none be learned. */
	if (learn_all(s, save && j.rule->incomplete && !(j.rule->goes_on && !has_core(s, save))
				 ? save->checkpoint
				 : NULL) != 0)
		error = -ENOMEM;
	s->sealed_ns = s->now_ns;
	if (seal_rule_of(e->rule)->sign && !seal_rule_of(e->rule)->before)
		s->signed_ns = s->now_ns;
	s->seals++;
	drop_all(s);
	return error;
}

void apply_back(struct saves *s)
{
	if (s->pending.epoch)
		decide(s, VERDICT_NOT_WHOLE);
	s->pending.save = NULL;
	drop_broken(s, true);
	for (struct map_link *l = map_next(&s->names, NULL); l; l = map_next(&s->names, l))
		set_torn(s, map_item(l, struct name, link), false);
	drop_all(s);
}

void apply_lost(struct saves *s)
{
	for (struct map_link *l = map_next(&s->handles, NULL), *next; l; l = next) {
		next = map_next(&s->handles, l);
		free_handle(s, map_item(l, struct handle, link));
	}
	apply_back(s);
	for (struct map_link *l = map_next(&s->names, NULL), *next; l; l = next) {
		next = map_next(&s->names, l);
		free_name(s, map_item(l, struct name, link));
	}
}
