/* SPDX-License-Identifier: Apache-2.0 */
/* Which epoch the next one continues: that was sealed too early, in the middle of a save (contract 1.3.7). */
#include "lib/epochs/seal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/epochs/epochs.h"
#include "lib/epochs/node_state.h"
#include "lib/epochs/sealer.h"
#include "lib/live/bodies.h"
#include "lib/meta/doubts.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/hash.h"

/* How many directories of a path are of its unit, where that is a directory. */
static unsigned directories_of_unit(const char *path, const struct doubt_unit *unit)
{
	unsigned count = 0;

	for (const char *at = path + unit->len; (at = strchr(at, '/')); at++)
		count++;
	return count;
}

/* ---- names of one directory that carry one step ---- */

static bool is_soon_enough(const struct volume *vol)
{
	return clock_mono_ns() - vol->sealer->last.begun_ns <= vol->options.patience_ns;
}

static bool is_in_chain(const struct seal_last *last, uint64_t born)
{
	return born && born >= last->chain && born <= last->number;
}

/* Which epoch was open as the first name with this step was made, where that is the step of the last such name there; else 0. */
static uint64_t unit_born(const struct volume *vol, uint64_t dir, uint64_t step)
{
	const struct seal_unit *u = &vol->sealer->unit;
	struct state_file f;

	if (u->parent != dir || u->step != step)
		return 0;
	/* What was undone, or taken back, and is made again begins anew. */
	return state_file_get(vol->state, u->ino, &f) == 0 && f.nlink ? u->born : 0;
}

/* The next save has it in place of this file: the step of both is that of the training's epoch, say. */
static bool is_next_in_step(struct volume *vol, uint64_t ino, const char *name)
{
	char first[256], finals[DOUBT_FINAL_NAMES][NAME_MAX + 1];
	unsigned count;

	first_name_locked(vol, ino, first, NULL);
	if (!first[0])
		return false;
	count = doubt_final_names(vol->rules, name, finals);
	for (unsigned i = 0; i < count; i++)
		if (doubt_is_next_in_step(first, finals[i]))
			return true;
	return doubt_is_next_in_step(first, name);
}

/* A model in one file that was renamed into place is whole: what another process leaves beside it is no part of that. */
static bool is_anothers(struct volume *vol, pid_t by)
{
	const struct seal_last *last = &vol->sealer->last;
	char name[256];

	if (!last->renamed || !by || !last->by || by == last->by)
		return false;
	first_name_locked(vol, last->renamed, name, NULL);
	return last_file_kind(name) == LAST_FILE_RENAMED;
}

/* `by`: the killed process; 0: not known. */
static bool is_beside_last(struct volume *vol, uint64_t dir, const char *name, uint64_t step,
			   pid_t by)
{
	return is_soon_enough(vol) && is_in_chain(&vol->sealer->last, unit_born(vol, dir, step)) &&
	       !is_next_in_step(vol, vol->sealer->unit.ino, name) && !is_anothers(vol, by);
}

/*
 * Whether the file belongs to what an epoch of the last chain made: to a directory, or to names beside it, that have its step, or, where
 * there is no step, to its own directory, soon after.
 */
static bool is_of_last(struct volume *vol, uint64_t dir, const char *name, pid_t by)
{
	const struct seal_last *last = &vol->sealer->last;
	cleanup_buf struct buf path = {0};
	/* What only says nothing of a save with a step is of no chain of another one. */
	uint64_t chain = last->half == last->number ? last->chain : last->number;
	struct doubt_unit unit;
	unsigned levels = 1;
	struct state_file f;

	if (sealer_path_locked(vol, dir, name, &path) != 0)
		return false;
	unit = doubt_unit_of_kill(vol->rules, buf_str(&path));
	if (unit.len && !unit.file) {
		levels = directories_of_unit(buf_str(&path), &unit);
		chain = last->chain;
	} else if (unit.file && is_beside_last(vol, dir, name, unit.step, by)) {
		return true;
	} else if (!is_soon_enough(vol) || doubt_name_is_temporary(vol->rules, buf_str(&path))) {
		return false;
	}
	for (; levels-- && dir && dir != ROOT_INO; dir = f.parent) {
		if (state_file_get(vol->state, dir, &f) != 0)
			return false;
		if (f.born >= chain && f.born <= last->number)
			return true;
	}
	return unit.len && !unit.file && is_beside_last(vol, dir, name, unit.step, by);
}

/*
 * Files of a save may be renamed into place one by one, each of which seals. To what the file belongs that such a temporary name is
 * that of: to the save whose beginning the last epochs are; to the next, as it is in one of them already; or, where it is not there
 * yet, to the last, as far as its unit tells, or maybe to neither.
 */
enum belongs {
	BELONGS_NOWHERE,
	BELONGS_BESIDE_LAST,
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
	return state_version_placed(&v) < vol->sealer->last.run ? BELONGS_TO_LAST : BELONGS_TO_NEXT;
}

bool sealer_is_beside_renamed_locked(struct volume *vol, const char *path)
{
	const struct rules *rules = vol->rules;
	cleanup_buf struct buf renamed = {0};
	struct doubt_unit unit = doubt_unit_of_kill(rules, path), last;

	if (!vol->sealer->last.renamed)
		return false;
	volume_path_locked(vol, vol->sealer->last.renamed, &renamed);
	if (!renamed.len)
		return false;
	last = doubt_unit_of(rules, buf_str(&renamed));
	return doubt_unit_same(path, &unit, buf_str(&renamed), &last);
}

static enum belongs temporary_belongs(struct volume *vol, uint64_t dir, const char *name)
{
	char finals[DOUBT_FINAL_NAMES][NAME_MAX + 1];
	cleanup_buf struct buf path = {0};
	enum belongs belongs = BELONGS_NOWHERE;
	unsigned count;

	if (sealer_path_locked(vol, dir, name, &path) != 0)
		return belongs;
	count = doubt_final_names(vol->rules, buf_str(&path), finals);
	for (unsigned i = 0; !belongs && i < count; i++)
		belongs = content_belongs(vol, dir, finals[i]);
	/* It may be that of the same file as the last two. */
	if (!belongs && vol->sealer->last.again)
		return BELONGS_TO_NEXT;
	if (!belongs && doubt_unit_of_kill(vol->rules, buf_str(&path)).file &&
	    is_next_in_step(vol, vol->sealer->last.renamed, name))
		return BELONGS_TO_NEXT;
	return !belongs && sealer_is_beside_renamed_locked(vol, buf_str(&path))
		       ? BELONGS_BESIDE_LAST
		       : belongs;
}

static bool renamed_a_file(const struct seal_last *last)
{
	return last->trigger == RECORD_TRIGGER_RENAME && !last->certain;
}

/* ---- what it is continued for ---- */

void sealer_note_continues_locked(struct volume *vol)
{
	const struct pending *p = &vol->sealer->pending;

	state_set_meta_u64(vol->state, "continues", p->continues);
	state_set_meta_u64(vol->state, "continues_chain", p->continues_chain);
	state_set_meta_u64(vol->state, "continues_from", p->continues_from);
}

static uint64_t continued_by(const struct seal_last *last, bool chain)
{
	return chain ? last->half : last->number;
}

static void decide(struct volume *vol)
{
	struct pending *p = &vol->sealer->pending;
	uint64_t number = p->kept;
	bool chain = p->kept_chain;

	if (!number && (p->joined[JOINS_LAST] || p->joined[JOINS_CHAIN])) {
		number = continued_by(&vol->sealer->last, !p->joined[JOINS_LAST]);
		chain = true;
	}
	if (p->joined[JOINS_LAST])
		chain = false;
	if (number == p->continues && chain == p->continues_chain)
		return;
	p->continues = number;
	p->continues_chain = chain;
	sealer_note_continues_locked(vol);
}

void sealer_continue_locked(struct volume *vol, uint64_t number, bool chain)
{
	struct pending *p = &vol->sealer->pending;

	p->kept = number;
	p->kept_chain = chain;
	p->in_place.ino = 0;
	decide(vol);
}

/* The name says so as long as it is there; one that is not kept says so until the seal. */
static void join(struct volume *vol, struct new_name *n, enum joins joins)
{
	struct pending *p = &vol->sealer->pending;

	if (joins == JOINS_NOTHING || (n && n->joins >= joins))
		return;
	if (!n) {
		sealer_continue_locked(vol, continued_by(&vol->sealer->last, joins == JOINS_CHAIN),
				       joins == JOINS_CHAIN);
		return;
	}
	if (n->joins)
		p->joined[n->joins]--;
	p->joined[joins]++;
	n->joins = joins;
	decide(vol);
}

enum joins sealer_gone_locked(struct volume *vol, const struct new_name *n)
{
	enum joins joins = n->joins;

	if (joins) {
		vol->sealer->pending.joined[joins]--;
		decide(vol);
	}
	return joins;
}

/* ---- a name is made ---- */

/* Did the last epoch, sealed by itself, make this directory or one above it? Then it came too early. What is under a temporary name is of no
 * save until it is renamed. */
static enum joins find_joins(struct volume *vol, uint64_t dir)
{
	const struct seal_last *last = &vol->sealer->last;
	enum joins joins = JOINS_NOTHING;
	struct state_file f;
	bool automatic = record_trigger_automatic(last->trigger);

	if (sealer_inside_temporary_locked(vol, dir))
		return JOINS_NOTHING;
	for (; dir != ROOT_INO; dir = f.parent) {
		if (state_file_get(vol->state, dir, &f) != 0)
			return JOINS_NOTHING;
		if (f.born == last->number && automatic)
			return JOINS_LAST;
		if (f.born >= last->chain && f.born < last->number)
			joins = JOINS_CHAIN;
	}
	return joins;
}

static enum joins directory_joins(struct volume *vol, uint64_t dir)
{
	const struct seal_last *last = &vol->sealer->last;
	struct pending *p = &vol->sealer->pending;

	if (!record_trigger_automatic(last->trigger) && last->half == last->number)
		return JOINS_NOTHING;
	if (p->looked_at != dir) {
		p->looked_at = dir;
		p->found = find_joins(vol, dir);
	}
	return p->found;
}

/* Did the last epoch, sealed by itself, have the first names there with the step of this one? Then it may have come too early. */
static enum joins unit_joins(struct volume *vol, uint64_t dir, const char *name, uint64_t ino)
{
	const struct seal_last *last = &vol->sealer->last;
	struct doubt_unit unit = {0};
	uint64_t born;

	/* Where a directory above has the same step, that says the same. */
	if (strpbrk(name, "0123456789"))
		unit = doubt_unit_of_kill(vol->rules, name);
	if (!unit.len)
		return JOINS_NOTHING;
	born = unit_born(vol, dir, unit.step);
	if (born && is_next_in_step(vol, vol->sealer->unit.ino, name))
		born = 0;
	if (!born)
		vol->sealer->unit = (struct seal_unit){dir, unit.step, ino, vol->next_epoch};
	if (!born || !is_in_chain(last, born) || !is_soon_enough(vol))
		return JOINS_NOTHING;
	return born < last->number			 ? JOINS_CHAIN
	       : record_trigger_automatic(last->trigger) ? JOINS_LAST
							 : JOINS_NOTHING;
}

static bool is_soon(const struct volume *vol)
{
	return clock_mono_ns() - vol->sealer->last.begun_ns < vol->options.settle_ns;
}

static bool follows_a_rename(const struct volume *vol)
{
	return renamed_a_file(&vol->sealer->last) && is_soon(vol);
}

/* A temporary name was made at once after another file was renamed: the save may go on, and then that epoch came too early. */
static void note_run(struct volume *vol, struct new_name *n, enum belongs belongs)
{
	struct sealer *s = vol->sealer;

	if (!follows_a_rename(vol))
		return;
	s->pending.run_goes_on = belongs != BELONGS_TO_NEXT;
	if (belongs == BELONGS_TO_LAST)
		sealer_continue_locked(vol, s->last.number, false);
	else if (belongs == BELONGS_BESIDE_LAST)
		join(vol, n, JOINS_LAST);
}

/* For the next time. What is made must be of that save: the next one may begin as soon. */
static void learn(struct volume *vol, uint64_t dir, const char *name)
{
	cleanup_buf struct buf path = {0};
	struct seal_last *last = &vol->sealer->last;
	const struct pending *p = &vol->sealer->pending;

	if (!last->renamed || last->went_on || p->continues != last->number || p->continues_chain ||
	    sealer_path_locked(vol, dir, name, &path) != 0 ||
	    !sealer_is_beside_renamed_locked(vol, buf_str(&path)))
		return;
	last->went_on = true;
	sealer_rename_goes_on_locked(vol, last->renamed);
}

static bool is_directory(struct volume *vol, uint64_t ino)
{
	struct state_file f;

	return state_file_get(vol->state, ino, &f) == 0 && S_ISDIR(f.mode);
}

/* As those of Python's tempfile, or x.tmp: what it is that of is only known when it is renamed. */
static bool tells_no_file(struct volume *vol, uint64_t dir, const char *name)
{
	char finals[DOUBT_FINAL_NAMES][NAME_MAX + 1];
	cleanup_buf struct buf path = {0};
	struct state_name n;
	unsigned count;

	if (sealer_path_locked(vol, dir, name, &path) != 0)
		return false;
	count = doubt_final_names(vol->rules, buf_str(&path), finals);
	while (count && state_name_get(vol->state, dir, finals[count - 1], &n) != 0)
		count--;
	return !count;
}

/* It has a step, and the last epoch another one: it begins a save. A mere number may be that of a part of one. */
static bool has_another_step(struct volume *vol, uint64_t dir, const char *name)
{
	const struct epoch_index *x = nodes_is_set(vol) ? NULL : epochs_index_locked(vol);
	const struct epoch_brief *e = x ? epoch_index_find(x, vol->sealer->last.number) : NULL;
	cleanup_buf struct buf path = {0};
	struct step_place place;

	return e && e->has_step && sealer_path_locked(vol, dir, name, &path) == 0 &&
	       rules_step(vol->rules, buf_str(&path), &place) && place.kind >= STEP_KIND_EPOCH &&
	       place.kind != STEP_KIND_DIRECTORY && place.step != e->step;
}

void sealer_made_locked(struct volume *vol, uint64_t dir, const char *name, uint64_t ino,
			struct new_name *n)
{
	enum joins joins = directory_joins(vol, dir), beside = unit_joins(vol, dir, name, ino);
	bool directory = is_directory(vol, ino), guess = false;
	enum belongs belongs = BELONGS_NOWHERE;

	if (joins && has_another_step(vol, dir, name))
		joins = JOINS_NOTHING;
	if (beside > joins)
		joins = beside;
	if (sealer_rule_locked(vol, rules_temporary, dir, name)) {
		belongs = temporary_belongs(vol, dir, name);
		guess = directory || tells_no_file(vol, dir, name);
		/* A scratch directory, as far as can be told. */
		if (belongs == BELONGS_BESIDE_LAST && directory && !beside &&
		    !sealer_has_final_locked(vol, dir, name))
			belongs = BELONGS_NOWHERE;
		note_run(vol, n, belongs);
	}
	/* What is to take the place of a file that is there adds nothing. */
	if (belongs <= BELONGS_BESIDE_LAST)
		join(vol, n, joins);
	if (!guess && is_soon(vol))
		learn(vol, dir, name);
}

/* The name stays there, with another file: that the save of the last epoch went on stays so. */
static void keep_joins(struct volume *vol, uint64_t dir, const char *name)
{
	const struct new_name *n = NULL;
	struct state_name old;

	if (state_name_get(vol->state, dir, name, &old) == 0)
		n = new_names_find(&vol->sealer->pending.new_names, dir, name, old.ino);
	if (n && n->joins == JOINS_LAST && vol->sealer->last.went_on)
		join(vol, NULL, n->joins);
}

void sealer_before_final_locked(struct volume *vol, const struct state_name *from,
				const char *temporary, uint64_t dir, const char *name)
{
	struct pending *p = &vol->sealer->pending;
	struct new_name *n = new_names_find(&p->new_names, from->parent, temporary, from->ino);

	keep_joins(vol, dir, name);
	if (!n || n->joins != JOINS_LAST || !renamed_a_file(&vol->sealer->last) ||
	    sealer_rule_locked(vol, rules_temporary, dir, name) ||
	    !(is_directory(vol, from->ino) || tells_no_file(vol, from->parent, temporary)))
		return;
	if (content_belongs(vol, dir, name) != BELONGS_TO_NEXT &&
	    !has_another_step(vol, dir, name)) {
		learn(vol, dir, name);
		return;
	}
	p->run_goes_on = false;
	p->joined[n->joins]--;
	n->joins = JOINS_NOTHING;
	decide(vol);
}

void sealer_unit_renamed_locked(struct volume *vol, uint64_t dir, const char *name, uint64_t ino)
{
	struct seal_unit *u = &vol->sealer->unit;
	struct doubt_unit unit;
	struct state_file f;

	if (u->parent != dir || (state_file_get(vol->state, u->ino, &f) == 0 && f.nlink))
		return;
	unit = doubt_unit_of(vol->rules, name);
	if (unit.len && !unit.temporary && unit.step == u->step)
		u->ino = ino;
}

void sealer_led_locked(struct volume *vol, uint64_t dir, struct new_name *n, enum joins before)
{
	enum joins joins = directory_joins(vol, dir);

	join(vol, n, joins > before ? joins : before);
}

/* ---- a writer was killed ---- */

struct replaced {
	uint64_t since, bytes;
};

static bool add_replaced(void *arg, const struct changed_file *f)
{
	struct replaced *r = arg;

	if (f->from && f->from >= r->since)
		r->bytes += f->size;
	return false;
}

/* Most of what changed since has taken the place of what the last chain saved: that save is over. */
static bool next_has_begun(struct volume *vol)
{
	struct replaced r = {.since = vol->sealer->last.chain};

	changed_any(&vol->sealer->pending.changed, add_replaced, &r);
	return sealer_is_most_locked(vol, r.bytes);
}

static bool is_rest_of_renamed(struct volume *vol, uint64_t dir, const char *name, pid_t by)
{
	const struct seal_last *last = &vol->sealer->last;

	if (!renamed_a_file(last))
		return false;
	switch (temporary_belongs(vol, dir, name)) {
	case BELONGS_TO_LAST:
		return true;
	case BELONGS_BESIDE_LAST:
		return !by || !last->by || by == last->by;
	default:
		return false;
	}
}

uint64_t sealer_continued_locked(struct volume *vol, uint64_t dir, const char *name, pid_t by)
{
	struct sealer *s = vol->sealer;

	if (!s || vol->options.read_only || !s->pending.continues ||
	    sealer_inside_temporary_locked(vol, dir) || next_has_begun(vol) ||
	    (!is_of_last(vol, dir, name, by) && !is_rest_of_renamed(vol, dir, name, by)) ||
	    sealer_is_over_locked(vol, dir, name, by))
		return 0;
	/* A temporary name may be that of anything. */
	if (s->last.certain && sealer_rule_locked(vol, rules_temporary, dir, name))
		return 0;
	sealer_opens_locked(vol);
	/* Also where its step cannot tell, for nothing is left that has one. */
	sealer_continue_locked(vol, s->pending.continues, false);
	/* Where one that says nothing of the save is continued for something else, the save began before it. */
	return s->last.chain < s->pending.continues ? s->last.chain : s->pending.continues;
}

/*
 * Signs that end no save. The first of several files that are renamed into place one by one seals (contract 1.3.2), and what it seals
 * is half until the rest has come. That it was is known then: the next rename of such a name seals nothing by itself. So it is with the
 * last file of a framework (rules.h) that is one of several in a larger save.
 */

#define META "renames_go_on"

/* Of the path, where runs of digits are all the same, as the step is another each time; never 0. */
static uint64_t hash_path(const char *path)
{
	uint64_t h = FNV1A_BEGIN;

	for (; *path; path++) {
		bool digit = isdigit((unsigned char)*path);

		if (digit && isdigit((unsigned char)path[1]))
			continue;
		h = fnv1a(h, digit ? '#' : (uint8_t)*path);
	}
	return h ? h : 1;
}

uint64_t sealer_path_hash_locked(struct volume *vol, uint64_t ino)
{
	cleanup_buf struct buf path = {0};
	uint64_t h = FNV1A_BEGIN;

	volume_path_locked(vol, ino, &path);
	for (const char *at = buf_str(&path); *at; at++)
		h = fnv1a(h, (uint8_t)*at);
	return path.len ? h : 0;
}

static bool is_known(const struct seal_renames *r, uint64_t hash)
{
	for (unsigned i = 0; i < SEAL_RENAMES; i++)
		if (r->hash[i] == hash)
			return true;
	return false;
}

void sealer_renames_text_locked(struct volume *vol, char ret_text[SEAL_RENAMES_TEXT])
{
	const struct seal_renames *r = &vol->sealer->renames;
	size_t len = 0;

	ret_text[0] = '\0';
	for (unsigned i = 0; i < SEAL_RENAMES && r->hash[i]; i++)
		len += (size_t)snprintf(ret_text + len, SEAL_RENAMES_TEXT - len, "%s%016" PRIx64,
					len ? " " : "", r->hash[i]);
}

static void keep(struct volume *vol)
{
	char text[SEAL_RENAMES_TEXT];

	sealer_renames_text_locked(vol, text);
	state_set_meta(vol->state, META, text);
}

void sealer_renames_adopt_locked(struct volume *vol, const char *text)
{
	if (text && strlen(text) < SEAL_RENAMES_TEXT && !text[strspn(text, "0123456789abcdef ")])
		state_set_meta(vol->state, META, text);
}

void sealer_renames_load(struct volume *vol)
{
	struct seal_renames *r = &vol->sealer->renames;
	cleanup_buf struct buf text = {0};
	const char *at;
	char *end;

	if (state_get_meta(vol->state, META, &text) != 0)
		return;
	at = buf_str(&text);
	for (unsigned i = 0; i < SEAL_RENAMES; i++, at = end) {
		r->hash[i] = strtoull(at, &end, 16);
		if (end == at)
			break;
	}
}

void sealer_rename_goes_on_locked(struct volume *vol, uint64_t ino)
{
	struct seal_renames *r = &vol->sealer->renames;
	cleanup_buf struct buf path = {0};
	uint64_t hash;

	volume_path_locked(vol, ino, &path);
	hash = hash_path(buf_str(&path));
	if (!path.len || is_known(r, hash))
		return;
	/* The newest first; the oldest goes. */
	for (unsigned i = SEAL_RENAMES - 1; i > 0; i--)
		r->hash[i] = r->hash[i - 1];
	r->hash[0] = hash;
	keep(vol);
}

void sealer_rename_ends_locked(struct volume *vol, uint64_t ino)
{
	struct seal_renames *r = &vol->sealer->renames;
	cleanup_buf struct buf path = {0};
	unsigned kept = 0;
	uint64_t hash;

	volume_path_locked(vol, ino, &path);
	hash = hash_path(buf_str(&path));
	if (!path.len || !is_known(r, hash))
		return;
	for (unsigned i = 0; i < SEAL_RENAMES; i++)
		if (r->hash[i] != hash)
			r->hash[kept++] = r->hash[i];
	r->hash[kept] = 0;
	keep(vol);
}

bool sealer_goes_on_locked(struct volume *vol, uint64_t parent, const char *name)
{
	cleanup_buf struct buf path = {0};

	return vol->sealer->renames.hash[0] && sealer_path_locked(vol, parent, name, &path) == 0 &&
	       is_known(&vol->sealer->renames, hash_path(buf_str(&path)));
}
