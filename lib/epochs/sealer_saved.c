/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What was saved since the last epoch (changed.h): which files were closed, how often and how much, and the newest name with a step. What
 * is open all the time beside saves is told from these here, too: it is a log (contract 1.2.5). sealer_before.c decides by it where a
 * save ends.
 */
#include "lib/epochs/seal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>
#include "lib/live/bodies.h"
#include "lib/live/body.h"
#include "lib/meta/doubts.h"
#include "lib/util/clock.h"
#include "lib/util/log.h"
#include "lib/epochs/resume.h"
#include "lib/epochs/sealer.h"

static struct changed *changed_of(const struct volume *vol)
{
	return &vol->sealer->pending.changed;
}

bool sealer_is_in_locked(struct volume *vol, uint64_t ino, uint64_t parent, uint64_t top)
{
	struct state_file f;

	if (ino == top)
		return true;
	for (; parent != top; parent = f.parent)
		if (parent == ROOT_INO || state_file_get(vol->state, parent, &f) != 0)
			return false;
	return true;
}

int sealer_parent_of(void *arg, const struct state_name *n, const char *name,
		     const struct state_file *f)
{
	(void)name;
	(void)f;
	*(uint64_t *)arg = n->parent;
	return 1;
}

/* ---- what is open all the time, as a log that has not the name of one ---- */

struct outlasting {
	struct volume *vol;
	uint64_t size;	   /* of what was saved twice */
	int64_t before_ns; /* monotonic; the end of the first of these saves */
	int64_t now_ns;
};

static int look_for_log(void *arg, struct body *b)
{
	const struct outlasting *o = arg;
	struct stat st;
	char name[256];

	/* Without a writer it was staged a moment ago. */
	if (!b->writers || !b->staged || b->orphan || b->is_output || !b->fragile ||
	    b->opened_ns >= o->before_ns ||
	    o->now_ns - b->opened_ns <= o->vol->options.patience_ns || b->fd < 0 ||
	    fstat(b->fd, &st) < 0 || (uint64_t)st.st_size > o->size / SEAL_LOG_PART)
		return 0;
	first_name_locked(o->vol, b->ino, name, NULL);
	if (name[0] && output_is_text(b->fd, name))
		output_mark_locked(o->vol, b, "while a larger save was made twice");
	return 0;
}

void sealer_saved_twice_locked(struct volume *vol, uint64_t size, int64_t before_ns)
{
	struct outlasting o = {vol, size, before_ns, clock_mono_ns()};

	if (size < vol->sealer->tree_bytes / SEAL_TREE_PART)
		return;
	map_hold(&vol->bodies->by_id);
	bodies_each_writing_locked(vol, look_for_log, &o);
	map_unhold(&vol->bodies->by_id);
}

static void note_size(struct volume *vol, uint64_t parent, uint64_t ino, uint64_t size)
{
	struct seal_step *step = &vol->sealer->pending.step;
	const struct changed_file *old = changed_find(changed_of(vol), ino);
	uint64_t before = old ? old->size : 0;
	int64_t now = clock_mono_ns(), closed_ns = old ? old->closed_ns : 0;

	if (step->ino && sealer_is_in_locked(vol, ino, parent, step->ino)) {
		step->bytes += size - before;
		step->closed_ns = now;
	}
	changed_add(changed_of(vol), ino, size, now);
	if (old && sealer_is_most_locked(vol, size))
		sealer_saved_twice_locked(vol, size, closed_ns);
}

bool sealer_closed_size_locked(struct volume *vol, uint64_t ino, uint64_t *ret_size)
{
	struct state_version v;
	struct state_file f;

	if (state_file_get(vol->state, ino, &f) != 0 || !S_ISREG(f.mode) || !f.closed ||
	    state_version_get(vol->state, f.closed, &v) != 0)
		return false;
	*ret_size = v.size;
	return true;
}

void sealer_saved_closed_locked(struct volume *vol, uint64_t parent, uint64_t ino)
{
	uint64_t size;

	if (sealer_closed_size_locked(vol, ino, &size))
		note_size(vol, parent, ino, size);
}

void sealer_saved_taken_locked(struct volume *vol, const struct body *b, uint64_t epoch)
{
	if (!vol->sealer || vol->options.read_only)
		return;
	changed_begins(changed_of(vol), b->ino, epoch, b->closer, b->opened_ns);
	if (epoch)
		sealer_saved_in_place_locked(vol, b->ino);
	resume_saved_locked(vol, b->ino, b->closer);
}

bool sealer_step_of_name_locked(struct volume *vol, uint64_t parent, const char *name,
				uint64_t *ret_step)
{
	cleanup_buf struct buf path = {0};
	struct step_place place;

	if (!strpbrk(name, "0123456789") || sealer_path_locked(vol, parent, name, &path) != 0 ||
	    !rules_step(vol->rules, buf_str(&path), &place))
		return false;
	if (place.end != path.len || place.kind < STEP_KIND_EPOCH ||
	    place.kind == STEP_KIND_DIRECTORY)
		return false;
	*ret_step = place.step;
	return true;
}

static bool is_there(struct volume *vol, uint64_t ino)
{
	struct state_file f;

	return state_file_get(vol->state, ino, &f) == 0 && f.nlink;
}

/* Another file of the same save. Or what a kill took back is made again: then it is the first once more. */
static bool is_same_step(struct volume *vol, uint64_t parent, uint64_t step)
{
	const struct seal_step *last = &vol->sealer->pending.step;

	return last->ino && last->parent == parent && last->step == step &&
	       is_there(vol, last->ino);
}

static void note_step(struct volume *vol, struct seal_step *step)
{
	struct seal_step *last = &vol->sealer->pending.step;
	bool again = last->ino && last->parent == step->parent && last->step == step->step;
	uint64_t size;

	if (last->before_ns && !again)
		sealer_saved_twice_locked(vol, last->bytes, last->before_ns);
	step->before_ns = again ? last->before_ns : last->ino ? last->closed_ns : 0;
	step->from = last->ino ? last->from : vol->sealer->step_epoch;
	if (sealer_closed_size_locked(vol, step->ino, &size))
		step->bytes = size;
	vol->sealer->step_epoch = vol->next_epoch;
	*last = *step;
}

void sealer_saved_named_locked(struct volume *vol, uint64_t parent, const char *name, uint64_t ino,
			       bool moved)
{
	struct seal_step step = {.parent = parent, .ino = ino, .moved = moved};
	uint64_t size;

	/* A file that comes under another name is a change, though it was closed before. */
	if (!changed_find(changed_of(vol), ino) && sealer_closed_size_locked(vol, ino, &size))
		note_size(vol, parent, ino, size);
	if (!sealer_step_of_name_locked(vol, parent, name, &step.step) ||
	    sealer_rule_locked(vol, rules_temporary, parent, name) ||
	    is_same_step(vol, parent, step.step))
		return;
	step.closed_ns = clock_mono_ns();
	step.led = state_dir_empty(vol->state, ino) == -ENOTEMPTY;
	snprintf(step.name, sizeof(step.name), "%s", name);
	note_step(vol, &step);
}

void sealer_saved_removed_locked(struct volume *vol, uint64_t ino)
{
	struct state_file f;

	if (state_file_get(vol->state, ino, &f) != 0 || !f.nlink)
		changed_remove(changed_of(vol), ino);
}

/* ---- what is saved alone ---- */

/* So many names beside a file are looked at, and files that changed. */
#define ALONE_MAX 1024

struct alone {
	struct volume *vol;
	const struct changed_file *f;
	uint64_t by;
	unsigned looked;
	bool is_step; /* some name is one of the steps */
};

/* A second one may count the parts of a save. */
static bool has_one_number(const char *name)
{
	const char *digits = "0123456789";

	name += strcspn(name, digits);
	name += strspn(name, digits);
	return !name[strcspn(name, digits)];
}

static int look_for_step(void *arg, const struct state_name *n, const char *name,
			 const struct state_file *f)
{
	struct alone *a = arg;
	const struct seal_step *s = &a->vol->sealer->pending.step;
	uint64_t step;

	(void)f;
	a->is_step = n->parent == s->parent && has_one_number(name) &&
		     doubt_same_shape(s->name, name) &&
		     sealer_step_of_name_locked(a->vol, n->parent, name, &step) && step != s->step;
	return a->is_step;
}

/* As the names that earlier saves have beside: checkpoint-1 beside last. */
static bool has_name_of_steps(struct alone *a, uint64_t ino)
{
	a->is_step = false;
	return state_names_of(a->vol->state, ino, look_for_step, a) >= 0 && a->is_step;
}

static bool is_note_beside(const struct alone *a, uint64_t size)
{
	return size < a->f->size / CHANGED_PART;
}

static bool changed_beside(void *arg, const struct changed_file *f)
{
	struct alone *a = arg;

	if (f->ino == a->f->ino || f->ino == a->by)
		return false;
	return f->at > a->f->at || !(is_note_beside(a, f->size) || has_name_of_steps(a, f->ino));
}

static int lies_beside(void *arg, const struct state_name *n, const char *name,
		       const struct state_file *f)
{
	struct alone *a = arg;
	uint64_t size;

	(void)n;
	if (a->looked++ == ALONE_MAX || !f || S_ISDIR(f->mode))
		return 1;
	if (f->ino == a->f->ino || f->ino == a->by || rules_log(a->vol->rules, name, NULL) ||
	    !sealer_closed_size_locked(a->vol, f->ino, &size) || is_note_beside(a, size))
		return 0;
	return !has_name_of_steps(a, f->ino);
}

bool sealer_saved_alone_locked(struct volume *vol, uint64_t parent, const struct changed_file *f,
			       uint64_t by)
{
	struct alone a = {.vol = vol, .f = f, .by = by};

	return changed_of(vol)->files.count <= ALONE_MAX &&
	       !changed_any(changed_of(vol), changed_beside, &a) &&
	       state_dir_list(vol->state, parent, 0, lies_beside, &a) == 0;
}
