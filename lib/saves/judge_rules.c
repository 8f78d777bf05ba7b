/* SPDX-License-Identifier: Apache-2.0 */
/* What an epoch is. */
#include "lib/saves/judge_rules.h"

#include <inttypes.h>
#include <string.h>

#include "lib/saves/saves_internal.h"
#include "lib/saves/seal_rules.h"
#include "lib/util/cleanup.h"

const char *verdict_name(enum verdict v)
{
	static const char *const names[] = {"whole", "pending", "part", "not whole", "unknown"};

	return names[v];
}

static bool found(struct judged *ret, const char *checkpoint, const char *path)
{
	ret->checkpoint = checkpoint;
	ret->path = path;
	return true;
}

/* The root and the newest checkpoint, which may be it: the save there, or NULL. */
static const struct save *save_at(const struct saves *s, unsigned i)
{
	return i == 0 ? find_save_of(s, "") : *s->newest ? find_save_of(s, s->newest) : NULL;
}

static const char root[] = "";
/* The checkpoint of what somebody chose: nobody knows which of them is half. */
static const char chosen[] = "";

bool is_chosen(const struct judged *j)
{
	return j->checkpoint == chosen;
}

/* `root` or the newest checkpoint, where the path is of one of them; NULL: of neither. */
static const char *newest_of(const struct saves *s, const char *path)
{
	struct checkpoint_place c = facts_checkpoint(s->options.rules, path, false);

	return checkpoint_is(&c, root) ? root : checkpoint_is(&c, s->newest) ? s->newest : NULL;
}

/* ---- J0 ---- */

static bool is_vouched(const struct saves *s, const struct judging *how, struct judged *ret)
{
	(void)s, (void)ret;
	return how->whole;
}

static void put_nothing(const struct saves *s, const struct judged *j, struct buf *out)
{
	(void)s, (void)j, (void)out;
}

/* ---- J1 ---- */

static bool is_torn(const struct saves *s, const struct judging *how, struct judged *ret)
{
	(void)how;
	if (!s->torn_count)
		return false;
	for (struct map_link *l = map_next(&s->names, NULL); l; l = map_next(&s->names, l)) {
		const struct name *n = map_item(l, struct name, link);
		bool counts =
			n->torn && !(n->left && facts_in_temporary(s->options.rules, n->path));
		const char *checkpoint = counts ? newest_of(s, n->path) : NULL;

		if (checkpoint)
			return found(ret, checkpoint, n->path);
	}
	return false;
}

static void put_torn(const struct saves *s, const struct judged *j, struct buf *out)
{
	(void)s;
	buf_printf(out, "%s is cut off, or a write of it was refused", j->path);
}

/* ---- J2 ---- */

static bool is_killed(const struct saves *s, const struct judging *how, struct judged *ret)
{
	(void)how;
	for (const struct broken *b = s->broken; b; b = b->next)
		if (!b->half && is_newest(s, b->checkpoint) && !is_void(s, b))
			return found(ret, b->checkpoint, b->path);
	return false;
}

/* "process 812"; "a process" where that is not known. */
static void put_process(uint64_t process, struct buf *out)
{
	if (save_process_pid(process))
		buf_printf(out, "process %" PRIu32, save_process_pid(process));
	else
		buf_printf(out, "a process");
}

static void put_killed(const struct saves *s, const struct judged *j, struct buf *out)
{
	const struct broken *b = s->broken;

	while (b && b->path != j->path)
		b = b->next;
	if (!b)
		return;
	if (b->how == SAVE_IS_KILLED) {
		put_process(b->process, out);
		buf_printf(out, " was killed while it wrote %s", b->path);
		return;
	}
	buf_printf(out, b->how == SAVE_IS_REFUSED ? "a write of " : "what ");
	put_process(b->process, out);
	buf_printf(out,
		   b->how == SAVE_IS_REFUSED ? " to %s was refused" : " wrote for %s is cut off",
		   b->path);
}

/* ---- J3 ---- */

/* Whether the path is that of a file of the save with an addition: the journal of a database. */
static bool is_journal(const struct save *save, const char *path)
{
	for (const struct name *n = save->names; n; n = n->next)
		if (n->times && facts_belongs_to(path, n->path) && !facts_same_kind(path, n->path))
			return true;
	return false;
}

/* `save`: of that checkpoint; NULL: there is none. */
static bool is_open_of(const struct saves *s, const char *checkpoint, const struct save *save,
		       struct judged *ret)
{
	bool full = save && is_full(s, save);

	for (struct map_link *l = map_next(&s->handles, NULL); l; l = map_next(&s->handles, l)) {
		const struct handle *h = map_item(l, struct handle, link);

		if (h->path && is_fresh(s, h) && newest_of(s, h->path) == checkpoint &&
		    !facts_in_temporary(s->options.rules, h->path) &&
		    !(full && !is_journal(save, h->path)))
			return found(ret, checkpoint, h->path);
	}
	return false;
}

static bool is_open(const struct saves *s, const struct judging *how, struct judged *ret)
{
	(void)how;
	if (map_next(&s->handles, NULL) == NULL)
		return false;
	return is_open_of(s, root, save_at(s, 0), ret) ||
	       (*s->newest && is_open_of(s, s->newest, save_at(s, 1), ret));
}

static void put_open(const struct saves *s, const struct judged *j, struct buf *out)
{
	(void)s;
	buf_printf(out, "%s is being written", j->path);
}

/* ---- J4 to J6 ---- */

static bool is_half(const struct saves *s, const struct judging *how, struct judged *ret)
{
	(void)how;
	for (unsigned i = 0; i < 2; i++) {
		const struct save *save = save_at(s, i);

		if (save && ended_badly(s, save->writer, save->writer_count, false) &&
		    is_part(s, save))
			return found(ret, save->checkpoint, NULL);
	}
	for (const struct broken *b = s->broken; b; b = b->next)
		if (b->half && is_newest(s, b->checkpoint) && !is_void(s, b))
			return found(ret, b->checkpoint, NULL);
	return s->chosen && !any_full(s) && found(ret, chosen, NULL);
}

static bool has_unseen(const struct save *save)
{
	for (size_t w = 0; w < save->writer_count; w++)
		if (!save->writer[w])
			return true;
	return false;
}

static bool is_unseen(const struct saves *s, const struct judging *how, struct judged *ret)
{
	for (unsigned i = 0; i < 2 && !how->sign; i++) {
		const struct save *save = save_at(s, i);

		/* A full one is evidence by itself. */
		if (save && has_unseen(save) && !is_full(s, save))
			return found(ret, save->checkpoint, NULL);
	}
	return false;
}

static bool is_pending(const struct saves *s, const struct judging *how, struct judged *ret)
{
	for (unsigned i = 0; i < 2 && !how->sign; i++) {
		const struct save *save = save_at(s, i);

		if (save && is_part(s, save))
			return found(ret, save->checkpoint, NULL);
	}
	return false;
}

static const char *title(const char *checkpoint)
{
	return *checkpoint ? checkpoint : "the save";
}

static void put_lacking_of(const struct core *core, const struct shape *shape,
			   const struct judged *j, struct buf *out)
{
	buf_printf(out, "%s has no ", title(j->checkpoint));
	core_put_lacking(core, shape, out);
	buf_printf(out, ", which the saves before it had");
}

/* Of a half save that an epoch has. */
static void put_half(const struct saves *s, const struct judged *j, struct buf *out)
{
	const struct broken *half = half_of(s, j->checkpoint);
	cleanup_buf struct buf name = {0};
	const struct shape none = {0};
	struct shape shape = {0};
	struct core core;

	for (const struct beside *f = half ? half->beside : NULL; f; f = f->next) {
		buf_reset(&name);
		facts_shape_name(f->path, j->checkpoint, &name);
		/* Without memory it seems to lack more. */
		if (!buf_error(&name))
			shape_add(&shape, buf_str(&name), 1);
	}
	core = shapes_core(&s->shapes, j->checkpoint, &shape, &none);
	if (shape.count && core_known(&core) && !core_within(&core, &shape))
		put_lacking_of(&core, &shape, j, out);
	else
		buf_printf(out, "%s is half", title(j->checkpoint));
	shape_free(&shape);
}

static void put_lacking(const struct saves *s, const struct judged *j, struct buf *out)
{
	const struct save *save = find_save_of(s, j->checkpoint);
	struct core core;

	if (is_chosen(j)) {
		buf_printf(out, "what was gone back to is not whole");
		return;
	}
	if (half_of(s, j->checkpoint) || !save) {
		put_half(s, j, out);
		return;
	}
	core = core_of(s, save);
	put_lacking_of(&core, &save->shape, j, out);
}

static void put_unseen(const struct saves *s, const struct judged *j, struct buf *out)
{
	(void)s;
	buf_printf(out, "a process that wrote %s cannot be seen from here", title(j->checkpoint));
}

static bool always(const struct saves *s, const struct judging *how, struct judged *ret)
{
	(void)s, (void)how, (void)ret;
	return true;
}

const struct judge_rule judge_rules[JUDGE_RULES] = {
	{"J0", "vouched", VERDICT_WHOLE, false, false, false, false, is_vouched, put_nothing,
	 "Somebody says commit --whole."},
	{"J1", "torn", VERDICT_NOT_WHOLE, false, false, true, false, is_torn, put_torn,
	 "A file is cut off, as its own format says, or a write to it was refused, for as long as that content is there."},
	{"J2", "killed", VERDICT_NOT_WHOLE, false, false, true, false, is_killed, put_killed,
	 "The writer of a file, no output, was killed or refused a write while it was open, or closed a replacement cut off: the file was changed in place; "
	 "or it was undone, and its save has saved or removed others, or has made its checkpoint, which is empty."},
	{"J3", "open", VERDICT_NOT_WHOLE, true, true, false, false, is_open, put_open,
	 "A file was opened since the last epoch, to be made or replaced, and is still being written; and its save is not full, or it is the journal of a "
	 "file of that save."},
	{"J4", "half", VERDICT_NOT_WHOLE, false, true, true, true, is_half, put_lacking,
	 "The save is part, and its writers have all ended: one at least badly, or nobody knows how."},
	{"J5", "unseen", VERDICT_UNKNOWN, false, false, false, false, is_unseen, put_unseen,
	 "A writer is in another pid namespace, the save is not full, and neither S2 nor S3 sealed the epoch."},
	{"J6", "pending", VERDICT_PENDING, true, true, false, false, is_pending, put_lacking,
	 "The save is part, its writers live or have ended with 0, and neither S2 nor S3 sealed the epoch."},
	{"J7", "whole", VERDICT_WHOLE, false, false, false, false, always, put_nothing,
	 "None of these holds."},
};

const struct judge_rule *judge_rule_of(const char *id)
{
	for (const struct judge_rule *j = judge_rules; j < judge_rules + JUDGE_RULES; j++)
		if (!strcmp(j->id, id))
			return j;
	return NULL;
}

enum verdict judged_verdict(const struct judged *j)
{
	return j->rule->verdict;
}

struct judged judge_first(const struct saves *s, const struct judging *how)
{
	struct judged j = {NULL, NULL, NULL};

	for (j.rule = judge_rules; !j.rule->holds(s, how, &j); j.rule++)
		;
	return j;
}

struct judged saves_judge(const struct saves *s, const struct seal_rule *rule, bool whole)
{
	struct judging how = {.whole = whole, .sign = rule->sign};

	return judge_first(s, &how);
}

void saves_put_reason(const struct saves *s, const struct judged *j, struct buf *out)
{
	j->rule->put_reason(s, j, out);
}
