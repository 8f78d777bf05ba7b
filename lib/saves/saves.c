/* SPDX-License-Identifier: Apache-2.0 */
/* The fold over what happened. */
#include "lib/saves/saves.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/saves/judge_rules.h"
#include "lib/saves/saves_internal.h"
#include "lib/saves/seal_rules.h"

/* Before all that may happen, so that the first epoch waits for none. */
#define LONG_AGO (-SAVE_TIME_MAX)

int saves_new(const struct saves_options *options, struct saves **ret_saves)
{
	struct saves *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->options = *options;
	s->sealed_ns = s->signed_ns = LONG_AGO;
	s->newest = strdup("");
	if (!s->newest) {
		free(s);
		return -ENOMEM;
	}
	*ret_saves = s;
	return 0;
}

void saves_free(struct saves *s)
{
	if (!s)
		return;
	apply_lost(s);
	shapes_free(&s->shapes);
	map_free(&s->names);
	map_free(&s->saves);
	map_free(&s->handles);
	map_free(&s->ended);
	buf_free(&s->text[0]);
	buf_free(&s->text[1]);
	free(s->newest);
	free(s);
}

/* ---- what is told, and what follows from it ---- */

static void pass_time(struct saves *s, int64_t at_ns)
{
	if (at_ns > s->now_ns)
		s->now_ns = at_ns;
}

/* What is pending is whole when nothing came for patience, and half when nobody is left to go on with it. */
static int settle_pending(struct saves *s)
{
	const struct save *save = s->pending.save;
	int r, error;

	if (!s->pending.epoch)
		return 0;
	if (!is_written(s) && ended_badly(s, save->writer, save->writer_count, false)) {
		error = keep_half(s, save);
		r = decide(s, VERDICT_NOT_WHOLE);
		return error ? error : r;
	}
	if (s->now_ns - s->pending.changed_ns >= s->options.patience_ns)
		return decide(s, VERDICT_WHOLE);
	return 0;
}

static bool ended_well(const struct saves *s, const struct save *save)
{
	for (size_t i = 0; i < save->writer_count; i++) {
		const struct ended *e = find_ended(s, save->writer[i]);

		if (!e || e->badly || e->unknown)
			return false;
	}
	return true;
}

int saves_leave(struct saves *s)
{
	s->decided.epoch = 0;
	return s->pending.epoch && ended_well(s, s->pending.save) ? decide(s, VERDICT_WHOLE) : 0;
}

int saves_apply(struct saves *s, const struct save_event *e)
{
	int r, error = 0;

	if (!save_event_valid(e) ||
	    (e->kind == SAVE_SEALED && (!e->epoch || !seal_rule_of(e->rule))))
		return -EINVAL;
	s->decided.epoch = 0;
	s->final_marker = s->final_last_file = s->final_rename = s->final_directory = false;
	s->final_save = NULL;
	pass_time(s, e->at_ns);
	r = apply_event(s, e);
	if (!s->decided.epoch)
		error = settle_pending(s);
	return r ? r : error;
}

int64_t saves_next_ns(const struct saves *s)
{
	int64_t next = NEVER, patience = patience_end(s);

	if (saves_dirty(s))
		next = patience != NEVER ? patience : s->activity_ns + s->options.settle_ns;
	if (s->pending.epoch && s->pending.changed_ns + s->options.patience_ns < next)
		next = s->pending.changed_ns + s->options.patience_ns;
	return next > s->now_ns ? next : s->now_ns;
}

/* ---- what holds quiet up ---- */

/* The unfinished file that S5 ends; NULL: there is none. */
static const struct handle *handle_until(const struct saves *s, int64_t end)
{
	for (struct map_link *l = map_next(&s->handles, NULL); l; l = map_next(&s->handles, l)) {
		const struct handle *h = map_item(l, struct handle, link);

		if (h->path && h->opened_ns + s->options.patience_ns == end && is_fresh(s, h))
			return h;
	}
	return NULL;
}

bool saves_held_up(const struct saves *s, struct saves_hold *ret_hold)
{
	int64_t end = patience_end(s);
	const struct handle *h = handle_until(s, end);
	const struct name *n = s->temporaries;

	*ret_hold = (struct saves_hold){.until_ns = end != NEVER ? end : saves_next_ns(s)};
	if (!saves_dirty(s) && end == NEVER)
		return false;
	while (n && n->temporary_ns + s->options.patience_ns != end)
		n = n->next_temporary;
	if (h) {
		ret_hold->path = h->path;
		ret_hold->process = h->process;
		ret_hold->open = true;
	} else if (n) {
		ret_hold->path = n->path;
	}
	return true;
}

bool saves_dirty(const struct saves *s)
{
	return s->changed || s->fresh_count;
}

void saves_found_changed(struct saves *s)
{
	set_changed(s);
}

int saves_found_broken(struct saves *s, const char *path, bool torn)
{
	return note_broken(s, path, torn);
}

int saves_found_pending(struct saves *s)
{
	return note_half(s, s->newest);
}

void saves_found_chosen(struct saves *s)
{
	s->chosen = true;
}

/* ---- going back ---- */

/* A process that had to do with what is there of the checkpoint and lives; NULL: none. */
static const uint64_t *writer_left(const struct saves *s, const struct judged *j)
{
	const struct save *save = find_save_of(s, j->checkpoint);
	const struct name *n = j->path ? find_name(s, j->path) : NULL;
	const uint64_t *left = NULL;

	if (save)
		left = one_that_lives(s, save->writer, save->writer_count);
	if (!left && n && n->torn)
		left = one_that_lives(s, &n->process, 1);
	for (const struct broken *b = s->broken; b && !left; b = b->next)
		if (!strcmp(b->checkpoint, j->checkpoint))
			left = one_that_lives(s, b->writer, b->writer_count);
	return left;
}

/* Of a half save of the checkpoint: a writer is known to have ended badly. */
static bool is_end_known(const struct saves *s, const char *checkpoint)
{
	const struct save *save = find_save_of(s, checkpoint);
	const struct broken *half = half_of(s, checkpoint);

	return (save && ended_badly(s, save->writer, save->writer_count, true)) ||
	       (half && ended_badly(s, half->writer, half->writer_count, true));
}

/* What of the live tree is not whole; the rule is NULL where it does not go back for it. */
static struct judged reason_to_go_back(const struct saves *s, enum resume_when when)
{
	/* As after a sign: that a save is pending is no reason, and costs a look at all its names. */
	static const struct judging how = {.sign = true};
	struct judged j = judge_first(s, &how);

	if (!j.rule->goes_back || is_chosen(&j) ||
	    (j.rule->known_end && when != RESUME_ALWAYS && !is_end_known(s, j.checkpoint)))
		j.rule = NULL;
	return j;
}

enum saves_back saves_back_when(const struct saves *s, enum resume_when when)
{
	struct judged j;

	if (when == RESUME_OFF)
		return BACK_NOT;
	j = reason_to_go_back(s, when);
	if (!j.rule)
		return BACK_NOT;
	return is_written(s) || writer_left(s, &j) ? BACK_LATER : BACK_NOW;
}

enum saves_back saves_back(const struct saves *s)
{
	return saves_back_when(s, s->options.resume);
}

uint64_t saves_back_waits(const struct saves *s)
{
	struct judged j = reason_to_go_back(s, s->options.resume);
	const uint64_t *left = j.rule && saves_back(s) == BACK_LATER ? writer_left(s, &j) : NULL;

	return left ? *left : 0;
}
