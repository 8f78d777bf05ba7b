/* SPDX-License-Identifier: Apache-2.0 */
/* When an epoch is sealed. */
#include "lib/saves/seal_rules.h"

#include "lib/saves/saves_internal.h"

/* Epochs before changes, and those by the rename of a file, are so far apart at least. */
#define BETWEEN_NS INT64_C(1000000000)

static bool is_asked(const struct saves *s, const struct save_event *e)
{
	(void)e;
	return s->asked;
}

/* ---- S2 ---- */

/* A save of the root or of the newest checkpoint lacks some of what those before it had. */
static bool is_any_part(const struct saves *s)
{
	for (const struct save *save = s->newest_save; save; save = save->next)
		if (is_newest(s, save->checkpoint) && is_part(s, save))
			return true;
	return false;
}

static bool is_sign(const struct saves *s, const struct save_event *e)
{
	const struct save *save = s->final_save;
	bool renamed = s->final_rename && s->now_ns - s->signed_ns >= BETWEEN_NS;

	(void)e;
	if (is_unfinished(s, s->now_ns, NULL))
		return false;
	if (s->final_directory || (save && s->final_marker))
		return true;
	return save && (renamed || s->final_last_file) && is_full(s, save) && !is_any_part(s);
}

/* ---- S3 ---- */

/* Whether a file of it, no note, was saved more than once since the last seal: then nobody knows where its save began. */
static bool is_mixed(const struct save *save)
{
	for (const struct name *n = save->names; n; n = n->next)
		if (n->times && n->times_in_all > 1 && !is_note(n))
			return true;
	return false;
}

/* Whether the file was saved with those. Under a name that nobody knows to be temporary it would teach that saves have that, too. */
static bool is_of(const struct saves *s, const struct save *save, const char *path)
{
	const struct name *n = path ? find_name(s, path) : NULL;

	return n && n->times && n->save == save;
}

/* `by`: the name of what takes its place, temporary or not; NULL: none. */
static bool ends_by_replacing(const struct saves *s, int64_t now_ns, const char *path,
			      const char *by)
{
	const struct name *n = find_name(s, path);
	struct core core;

	if (!n || !n->times || is_unfinished(s, now_ns, by))
		return false;
	core = core_of(s, n->save);
	if (core_known(&core))
		return core_within(&core, &n->save->shape);
	return !is_note(n) && !is_mixed(n->save) && !is_of(s, n->save, by);
}

static bool has_other_of_kind(const struct saves *s, const char *checkpoint)
{
	for (const struct save *save = s->newest_save; save; save = save->next)
		if (*save->checkpoint && facts_same_kind(save->checkpoint, checkpoint))
			return true;
	return false;
}

/* The name of the next step, where there is a save of the kind: that one is over. */
static bool ends_by_directory(const struct saves *s, int64_t now_ns, const char *path)
{
	cleanup_buf struct buf final = {0}, text = {0};
	struct checkpoint_place c;

	if (is_unfinished(s, now_ns, NULL) || !(saves_dirty(s) || s->pending.epoch))
		return false;
	facts_stands_for(path, &final);
	c = facts_checkpoint(s->options.rules, buf_str(&final), true);
	checkpoint_put(&c, &text);
	if (buf_error(&final) != 0 || buf_error(&text) != 0 || !text.len)
		return false;
	return !find_save(s, &c) && has_other_of_kind(s, buf_str(&text));
}

/* A file of the save has its name, numbers aside, as often as saves have it: the next one's is about to be made. */
static bool ends_by_file(const struct saves *s, int64_t now_ns, const char *path, const char *by)
{
	cleanup_buf struct buf final = {0}, name = {0};
	struct checkpoint_place c;
	const struct save *save;
	struct core core;

	facts_stands_for(path, &final);
	c = facts_checkpoint(s->options.rules, buf_str(&final), false);
	save = find_save(s, &c);
	if (!save || !save->file_count || is_unfinished(s, now_ns, by))
		return false;
	facts_shape_name(buf_str(&final), save->checkpoint, &name);
	core = core_of(s, save);
	return buf_error(&final) == 0 && buf_error(&name) == 0 &&
	       core_times(&core, buf_str(&name)) > 0 && core_within(&core, &save->shape) &&
	       shape_times(&save->shape, buf_str(&name)) >= core_most(&core, buf_str(&name));
}

static bool is_next_save(const struct saves *s, const struct save_event *e)
{
	int64_t now_ns = e->at_ns > s->now_ns ? e->at_ns : s->now_ns;

	if (now_ns - s->sealed_ns < BETWEEN_NS)
		return false;
	switch (e->kind) {
	case SAVE_MADE:
		return ends_by_directory(s, now_ns, e->path);
	case SAVE_OPENED:
		if (e->facts & SAVE_IS_NEW)
			return ends_by_file(s, now_ns, e->path, NULL);
		return e->facts & SAVE_IS_REPLACE && ends_by_replacing(s, now_ns, e->path, NULL);
	case SAVE_RENAMED:
		if (e->facts & SAVE_IS_OVER && !(e->facts & SAVE_IS_DIRECTORY))
			return ends_by_replacing(s, now_ns, e->to, e->path);
		if (e->facts & SAVE_IS_DIRECTORY)
			return ends_by_directory(s, now_ns, e->to);
		return !only_moves(s, e) && ends_by_file(s, now_ns, e->to, e->path);
	case SAVE_EXCHANGED:
		return ends_by_replacing(s, now_ns, e->path, e->to) ||
		       ends_by_replacing(s, now_ns, e->to, e->path);
	default:
		return false;
	}
}

/* ---- S4, S5 ---- */

static bool is_quiet(const struct saves *s, const struct save_event *e)
{
	(void)e;
	return saves_dirty(s) && s->now_ns - s->activity_ns >= s->options.settle_ns &&
	       !is_unfinished(s, s->now_ns, NULL);
}

static bool patience_ended(const struct saves *s, const struct save_event *e)
{
	(void)e;
	return is_overdue(s);
}

const struct seal_rule seal_rules[SEAL_RULES] = {
	{"S1", "asked", false, false, is_asked,
	 "Somebody asks: commit, mkdir .epochs/NAME, sync, wait, an unmount, a rollback, or a close with durability=remote."},
	{"S2", "sign", false, true, is_sign,
	 "Nothing is unfinished, and the program shows that its save is over: a temporary directory gets its final name, or a marker is closed or renamed "
	 "into place; or the save is full, none beside it is part, and a last file is closed or renamed into place, or another file, at most once a second, "
	 "gets its final name by a rename."},
	{"S3", "next save", true, true, is_next_save,
	 "Nothing is unfinished, the last epoch is at least a second old, and the next save is about to begin: a file of a full save is to be replaced, or "
	 "one that differs from it only in numbers to be made; or a file, no note, of a save without a core is to be replaced, by no other file of it, and none was saved twice; or "
	 "the directory of another step is to be made, after a save of its kind."},
	{"S4", "quiet", false, false, is_quiet,
	 "Nothing is unfinished, something has changed, and nothing was closed, made, renamed or removed for the time of settle."},
	{"S5", "overdue", false, false, patience_ended,
	 "Something has changed, and patience has passed since the oldest unfinished file was opened, or its temporary name made."},
};

const struct seal_rule *seal_rule_of(uint64_t number)
{
	return number >= 1 && number <= SEAL_RULES ? &seal_rules[number - 1] : NULL;
}

uint64_t seal_rule_number(const struct seal_rule *rule)
{
	return (uint64_t)(rule - seal_rules) + 1;
}

static const struct seal_rule *first(const struct saves *s, const struct save_event *e)
{
	for (size_t i = 0; i < SEAL_RULES; i++)
		if (seal_rules[i].before == (e != NULL) && seal_rules[i].holds(s, e))
			return &seal_rules[i];
	return NULL;
}

const struct seal_rule *saves_seal_before(const struct saves *s, const struct save_event *e)
{
	return save_event_valid(e) ? first(s, e) : NULL;
}

const struct seal_rule *saves_seal_now(const struct saves *s)
{
	return first(s, NULL);
}
