/* SPDX-License-Identifier: Apache-2.0 */
/* Which epoch the next one continues: that was sealed too early, in the middle of a save (contract 1.3.7). */
#include "lib/volume/seal.h"

#include <string.h>
#include "lib/meta/doubts.h"
#include "lib/util/clock.h"
#include "lib/volume/sealer.h"

/* How many directories of a path are of its unit, where that is a directory. */
static unsigned directories_of_unit(const char *path, const struct doubt_unit *unit)
{
	unsigned count = 0;

	for (const char *at = path + unit->len; (at = strchr(at, '/')); at++)
		count++;
	return count;
}

/*
 * Whether the file belongs to what an epoch of the last chain made: to a directory that has its step, or, where there is no step,
 * to its own directory, soon after.
 */
static bool is_of_last(struct volume *vol, uint64_t dir, const char *name)
{
	const struct seal_last *last = &vol->sealer->last;
	cleanup_buf struct buf path = {0};
	struct doubt_unit unit;
	unsigned levels = 1;
	struct state_file f;

	if (sealer_path_locked(vol, dir, name, &path) != 0)
		return false;
	unit = doubt_unit_of_kill(vol->sealer->rules, buf_str(&path));
	if (unit.len && !unit.file)
		levels = directories_of_unit(buf_str(&path), &unit);
	else if (clock_mono_ns() - last->begun_ns > vol->options.patience_ns ||
		 doubt_name_is_temporary(vol->sealer->rules, buf_str(&path)))
		return false;
	for (; levels-- && dir && dir != ROOT_INO; dir = f.parent) {
		if (state_file_get(vol->state, dir, &f) != 0)
			return false;
		if (f.born >= last->chain && f.born <= last->number)
			return true;
	}
	return false;
}

/*
 * Files of a save may be renamed into place one by one, each of which seals. To what the file belongs that such a temporary name is
 * that of: to the save whose beginning the last epochs are, to the next, as it is in one of them already, or, where it is not there
 * yet, maybe to neither.
 */
enum belongs {
	BELONGS_NOWHERE,
	BELONGS_TO_LAST,
	BELONGS_TO_NEXT,
};

static enum belongs content_belongs(struct volume *vol, uint64_t dir, const char *name)
{
	struct state_name n;
	struct state_file f;
	struct state_version v;

	if (state_name_get(vol->state, dir, name, &n) != 0 ||
	    state_file_get(vol->state, n.ino, &f) != 0 || !f.closed ||
	    state_version_get(vol->state, f.closed, &v) != 0)
		return BELONGS_NOWHERE;
	return v.born < vol->sealer->last.run ? BELONGS_TO_LAST : BELONGS_TO_NEXT;
}

static enum belongs temporary_belongs(struct volume *vol, uint64_t dir, const char *name)
{
	char finals[DOUBT_FINAL_NAMES][NAME_MAX + 1];
	cleanup_buf struct buf path = {0};
	enum belongs belongs = BELONGS_NOWHERE;
	unsigned count;

	if (sealer_path_locked(vol, dir, name, &path) != 0)
		return belongs;
	count = doubt_final_names(vol->sealer->rules, buf_str(&path), finals);
	for (unsigned i = 0; !belongs && i < count; i++)
		belongs = content_belongs(vol, dir, finals[i]);
	return belongs;
}

static bool renamed_a_file(const struct seal_last *last)
{
	return last->trigger == RECORD_TRIGGER_RENAME && !last->certain;
}

uint64_t sealer_continued_locked(struct volume *vol, uint64_t dir, const char *name)
{
	struct sealer *s = vol->sealer;

	if (!s || vol->options.read_only || !s->pending.continues ||
	    sealer_inside_temporary_locked(vol, dir) ||
	    (!is_of_last(vol, dir, name) &&
	     (!renamed_a_file(&s->last) || temporary_belongs(vol, dir, name) != BELONGS_TO_LAST)))
		return 0;
	/* A temporary name may be that of anything. */
	if (s->last.certain && sealer_rule_locked(vol, rules_temporary, dir, name))
		return 0;
	sealer_opens_locked(vol);
	/* Also where its step cannot tell, for nothing is left that has one. */
	sealer_continue_locked(vol, s->pending.continues, false);
	return s->pending.continues;
}

void sealer_continue_locked(struct volume *vol, uint64_t number, bool chain)
{
	struct pending *p = &vol->sealer->pending;

	p->continues = number;
	p->continues_chain = chain;
	state_set_meta_u64(vol->state, "continues", number);
	state_set_meta_u64(vol->state, "continues_chain", chain);
}

/* A temporary name was made at once after another file was renamed: the save may go on, and then that epoch came too early. */
static void note_run(struct volume *vol, uint64_t dir, const char *name)
{
	struct sealer *s = vol->sealer;
	enum belongs belongs;

	if (!renamed_a_file(&s->last) ||
	    clock_mono_ns() - s->last.begun_ns >= vol->options.settle_ns ||
	    !sealer_rule_locked(vol, rules_temporary, dir, name))
		return;
	belongs = temporary_belongs(vol, dir, name);
	s->pending.run_goes_on = belongs != BELONGS_TO_NEXT;
	if (belongs == BELONGS_TO_LAST)
		sealer_continue_locked(vol, s->last.number, false);
}

/* A name was made in this directory. Did the last epoch, sealed by itself, make the directory or one
 * above it? Then it came too early. */
static void note_continues(struct volume *vol, uint64_t dir)
{
	struct sealer *s = vol->sealer;
	struct pending *p = &s->pending;
	uint64_t first = dir;
	struct state_file f;

	if ((p->continues && !p->continues_chain) || !record_trigger_automatic(s->last.trigger) ||
	    p->unrelated == dir)
		return;
	for (; dir != ROOT_INO; dir = f.parent) {
		if (state_file_get(vol->state, dir, &f) != 0)
			return;
		if (f.born < s->last.chain || f.born > s->last.number)
			continue;
		sealer_continue_locked(vol, s->last.number, f.born != s->last.number);
		if (!p->continues_chain)
			return;
	}
	p->unrelated = first;
}

void sealer_made_locked(struct volume *vol, uint64_t dir, const char *name)
{
	note_continues(vol, dir);
	note_run(vol, dir, name);
}

void sealer_led_locked(struct volume *vol, uint64_t dir)
{
	note_continues(vol, dir);
}
