/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealing before the next save begins (contract 1.3.4). Saves that follow one another faster than quiet takes would all
 * be one epoch. That a save has ended is known when the next one begins: what it wrote is about to be replaced. The state
 * before that is sealed, for which the writer waits no longer than for any seal.
 *
 * It is told by names and counts, so what is no save must be told from one:
 *   - a small file that is written again and again is not most of what changed, nor is it a noteworthy part of the tree;
 *   - what is still open, or has a temporary name, is not a whole save; but what is open while others are saved again and again is of none,
 *     and counts as a log from then on (contract 1.2.5);
 *   - where a small file of the next save was replaced first, the best moment has passed: some file was closed once more
 *     than the one at hand. One that was closed twice more belongs to no save, or was tried again;
 *   - where the small file is removed and made anew, or has another name in each save, that is told by when it was made: of the
 *     next save it is where that was nearer to now than to the last close of the file at hand;
 *   - a save that fails between two files may be tried again, and what is replaced then is no whole save: a file beside it that was saved
 *     with what it replaced has not been saved again yet, or less often;
 *   - an epoch may have been sealed in the middle of a save (commit, quiet). Of the files that changed since, those that come
 *     later may be of the next save, though they were closed as often: what they replaced is newer than what the others did.
 */
#include "lib/epochs/seal.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include "lib/meta/doubts.h"
#include "lib/util/clock.h"
#include "lib/live/bodies.h"
#include "lib/live/body.h"
#include "lib/epochs/node_state.h"
#include "lib/epochs/sealer.h"

#define PAUSE_NS NS_PER_S
/* A text of this size may be a checkpoint, as XGBoost writes one. */
#define STATUS_BYTES 4096
/* So many names are looked at for what a save has not saved again yet. */
#define LEFT_MAX 1024

static struct changed *changed_of(const struct volume *vol)
{
	return &vol->sealer->pending.changed;
}

/* ---- whether it is time ---- */

static bool may_seal(struct volume *vol)
{
	const struct sealer *s = vol->sealer;
	int64_t now = clock_mono_ns();

	/* Where several nodes write, none knows what the others are at. */
	if (!s || vol->options.read_only || nodes_is_set(vol))
		return false;
	return !s->pending.changed.overflow && !s->first && now >= s->before_ns + PAUSE_NS &&
	       now >= s->retry_ns;
}

/* `other`: bytes that are of the next save already. */
static bool is_most(struct volume *vol, uint64_t size, uint64_t other)
{
	const struct sealer *s = vol->sealer;
	uint64_t bytes = s->pending.changed.bytes - other;

	return size && size >= bytes - size && size >= s->tree_bytes / SEAL_TREE_PART;
}

bool sealer_is_most_locked(struct volume *vol, uint64_t bytes)
{
	return is_most(vol, bytes, 0);
}

static int is_of_an_epoch(void *arg, const struct state_name *n, const char *name,
			  const struct state_file *f)
{
	const struct volume *vol = arg;

	(void)n, (void)name;
	return f && S_ISREG(f->mode) && f->closed && f->born < vol->next_epoch;
}

bool sealer_is_scratch_locked(struct volume *vol, uint64_t ino)
{
	uint64_t parent = 0;

	return state_names_of(vol->state, ino, sealer_parent_of, &parent) == 1 &&
	       sealer_inside_temporary_locked(vol, parent) &&
	       state_dir_list(vol->state, parent, 0, is_of_an_epoch, vol) == 1;
}

static int is_unfinished(void *arg, struct body *b)
{
	struct volume *vol = arg;

	return b->staged && !b->orphan && !body_is_held(b) && !body_is_output_locked(vol, b) &&
	       b->opened_epoch == vol->next_epoch && !sealer_is_scratch_locked(vol, b->ino);
}

/*
 * What was saved last was closed then. A temporary name that was made since is that of the rest; one from before may be a scratch directory, or left
 * by a save that was killed. `by`: what takes a name is of the next save, whatever it is called until then; 0: none does.
 */
static bool is_whole(struct volume *vol, int64_t closed_ns, uint64_t by)
{
	for (const struct new_name *n = vol->sealer->pending.new_names.temporaries; n;
	     n = n->next_temporary) {
		struct state_name name;

		if (n->ino != by && !n->left && n->made_ns > closed_ns &&
		    state_name_get(vol->state, n->parent, n->name, &name) == 0 &&
		    name.ino == n->ino)
			return false;
	}
	return bodies_each_writing_locked(vol, is_unfinished, vol) == 0;
}

static void seal_before(struct volume *vol)
{
	struct seal_how how = {.trigger = RECORD_TRIGGER_NEXT};
	uint64_t number;

	vol->sealer->before_ns = clock_mono_ns();
	seal_begin_locked(vol, &how, &number);
}

/* ---- a file is replaced ---- */

struct replacing {
	uint64_t ino;
	uint64_t by;   /* the file that takes its name; 0: new content */
	uint64_t rest; /* bytes of what was saved after it without a sign */
};

static bool has_temporary_name(struct volume *vol, uint64_t ino)
{
	cleanup_buf struct buf path = {0};

	volume_path_locked(vol, ino, &path);
	return doubt_unit_of(vol->rules, buf_str(&path)).temporary;
}

/* Where each file of a save was renamed into place, each may have an epoch of its own, of which the next continues the one before. */
static uint64_t save_of(void *arg, uint64_t epoch)
{
	const struct epoch_index *x = epochs_index_locked(arg);
	const struct epoch_brief *e = x ? epoch_index_find(x, epoch) : NULL;

	while (e && e->continues && !e->half && e->continues < epoch) {
		epoch = e->continues;
		e = epoch_index_find(x, epoch);
	}
	return x ? epoch_index_half_of(x, epoch) : epoch;
}

struct left {
	struct volume *vol;
	const struct replacing *r;
	const struct changed_file *f;
	uint64_t from; /* the save that had first what `f` has replaced */
	bool restored; /* what `f` has replaced, a rollback had brought back: what is beside it was there before */
	uint64_t
		part; /* of what was saved once: what is smaller than this part of `f` is no file of each save */
	unsigned looked;
	bool found;
};

/* Whether the last save of the one came without the other, as at most so many before it: who saves it again and again saves nothing else
 * each time. */
static bool is_behind(const struct changed_file *other, const struct changed_file *f)
{
	uint64_t count = other ? other->count : 0;

	return f->count > count && f->count - count <= CHANGED_TRIES &&
	       (!other || other->at < f->at);
}

/* Of the same save as what `f` has replaced, and large enough not to be a mere note of it. A step in its name says that it is saved once. */
static int look_for_left(void *arg, const struct state_name *n, const char *name,
			 const struct state_file *file)
{
	struct left *l = arg;
	const struct changed_file *other;
	struct state_version v;
	uint64_t from;

	(void)n;
	if (l->looked++ == LEFT_MAX) {
		l->found = true; /* quiet decides */
		return 1;
	}
	if (!file || !S_ISREG(file->mode) || !file->closed || file->ino == l->r->by ||
	    rules_log(l->vol->rules, name, NULL) || doubt_unit_of(l->vol->rules, name).len ||
	    state_version_get(l->vol->state, file->closed, &v) != 0)
		return 0;
	other = changed_find(changed_of(l->vol), file->ino);
	from = save_of(l->vol, other ? other->from : state_version_placed(&v));
	if (is_behind(other, l->f) && (from == l->from || (l->restored && from < l->from)))
		l->found = v.size && v.size >= l->f->size / (v.replaced ? CHANGED_PART : l->part);
	return l->found;
}

static bool is_tried_again(struct volume *vol, const struct replacing *r,
			   const struct changed_file *f, uint64_t part)
{
	const struct epoch_index *x = epochs_index_locked(vol);
	const struct epoch_brief *from = x ? epoch_index_find(x, f->from) : NULL;
	struct left l = {
		.vol = vol,
		.r = r,
		.f = f,
		.from = save_of(vol, f->from),
		.restored = from && from->restores,
		.part = part,
	};
	uint64_t parent = 0;

	if (!f->from || state_names_of(vol->state, r->ino, sealer_parent_of, &parent) != 1)
		return false;
	if (state_dir_list(vol->state, parent, 0, look_for_left, &l) < 0)
		l.found = true;
	if (l.found)
		vol->sealer->before_ns = clock_mono_ns();
	return l.found;
}

/* Where the tree has little else, it may be the checkpoint itself: that is saved each now and then. */
static bool is_all_there_is(struct volume *vol, const struct changed_file *f)
{
	const struct sealer *s = vol->sealer;

	return s->pending.opened_mono_ns &&
	       clock_mono_ns() - s->pending.opened_mono_ns > vol->options.patience_ns &&
	       f->size >= s->tree_bytes / 2;
}

/* A status file is no save, also where there is nothing else yet. */
static bool is_status(struct volume *vol, const struct changed_file *f)
{
	static const char *const endings[] = {".json", ".txt", ".yaml", ".yml", ".csv",
					      ".toml", ".md",  ".html", NULL};
	char name[256];

	if (f->size >= STATUS_BYTES)
		return false;
	first_name_locked(vol, f->ino, name, NULL);
	for (const char *const *e = endings; *e; e++)
		if (strlen(name) > strlen(*e) && !strcasecmp(name + strlen(name) - strlen(*e), *e))
			return !is_all_there_is(vol, f);
	return false;
}

bool sealer_is_status_again_locked(struct volume *vol, uint64_t ino)
{
	const struct changed_file *f = changed_find(changed_of(vol), ino);

	return f && f->from && changed_of(vol)->files.count == 1 && !changed_of(vol)->overflow &&
	       is_status(vol, f);
}

static bool is_most_of_save(struct volume *vol, const struct replacing *r)
{
	const struct changed_file *f, *by;

	if (!may_seal(vol))
		return false;
	f = changed_find(changed_of(vol), r->ino);
	by = r->by ? changed_find(changed_of(vol), r->by) : NULL;
	return f && is_most(vol, f->size + r->rest, by ? by->size : 0) && !is_status(vol, f);
}

static bool ends_a_save(struct volume *vol, const struct replacing *r)
{
	const struct changed_file *f = changed_find(changed_of(vol), r->ino);

	return vol->sealer->pending.closed && !changed_any_ahead(changed_of(vol), f, r->by) &&
	       !changed_any_shifted(changed_of(vol), f->count, f->at, f->from, save_of, vol) &&
	       !changed_any_made(changed_of(vol), f->closed_ns, clock_mono_ns(), r->by) &&
	       !has_temporary_name(vol, r->ino) && !is_tried_again(vol, r, f, CHANGED_PART);
}

/* ---- the rest of a save, which seals nothing ---- */

/* So many times as long as the rest of a save took is a pause after it. */
#define PAUSE_OF_RESTS 2

struct rest {
	struct volume *vol;
	uint64_t by;	   /* as in struct replacing */
	int64_t closed_ns; /* its last close */
	uint64_t bytes;
	bool mixed;			    /* something else changed, too */
	const struct changed_file *largest; /* of what was */
};

/* Of the save that ended with the last epoch, which may be several, one by the rename of each file. */
static bool is_of_last_save(struct volume *vol, uint64_t epoch)
{
	const struct seal_last *last = &vol->sealer->last;

	return epoch && (epoch >= last->run || save_of(vol, epoch) >= save_of(vol, last->number));
}

static bool look_at_rest(void *arg, const struct changed_file *f)
{
	struct rest *rest = arg;
	const struct seal_last *last = &rest->vol->sealer->last;
	cleanup_buf struct buf path = {0};

	if (f->ino == rest->by || sealer_is_scratch_locked(rest->vol, f->ino))
		return false;
	volume_path_locked(rest->vol, f->ino, &path);
	/* What that save has saved already is saved again. */
	rest->mixed = f->ino == last->renamed || is_of_last_save(rest->vol, f->from) ||
		      f->count != 1 || f->by != last->by || !path.len ||
		      !sealer_is_beside_renamed_locked(rest->vol, buf_str(&path));
	if (f->closed_ns > rest->closed_ns)
		rest->closed_ns = f->closed_ns;
	rest->bytes += f->size;
	if (f->from && (!rest->largest || f->size > rest->largest->size))
		rest->largest = f;
	return rest->mixed;
}

/* A save of which each file is renamed into place begins with one of a new name, say. */
static bool begins_next(const struct seal_last *last, const struct rest *rest)
{
	return !rest->largest && last->run < last->number;
}

static bool follows_a_rest(struct volume *vol, const struct replacing *r, uint64_t *ret_bytes)
{
	const struct seal_last *last = &vol->sealer->last;
	const struct changed_file *by = r->by ? changed_find(changed_of(vol), r->by) : NULL;
	struct rest rest = {.vol = vol, .by = r->by};
	int64_t begun_ns, pause_ns;

	if (!vol->sealer->pending.closed || (r->by && !(by && by->made_ns)) ||
	    changed_of(vol)->files.count > LEFT_MAX ||
	    changed_any(changed_of(vol), look_at_rest, &rest) || !rest.closed_ns ||
	    begins_next(last, &rest))
		return false;
	begun_ns = by ? by->made_ns : clock_mono_ns();
	pause_ns = begun_ns - rest.closed_ns;
	*ret_bytes = rest.bytes;
	return pause_ns >= CHANGED_LULL_NS &&
	       pause_ns >= PAUSE_OF_RESTS * (rest.closed_ns - last->begun_ns) &&
	       is_whole(vol, rest.closed_ns, r->by) &&
	       !(rest.largest && is_tried_again(vol, r, rest.largest, SEAL_LOG_PART));
}

/* A small one may be written for anything. */
static bool is_large_beside(struct volume *vol, uint64_t ino, uint64_t size)
{
	cleanup_buf struct buf path = {0};

	if (ino == vol->sealer->last.renamed)
		return true;
	volume_path_locked(vol, ino, &path);
	return size && size >= vol->sealer->tree_bytes / SEAL_TREE_PART && path.len &&
	       sealer_is_beside_renamed_locked(vol, buf_str(&path));
}

/* Of the save whose first file was renamed into place, which sealed it. */
static bool is_of_renamed(struct volume *vol, uint64_t ino)
{
	const struct seal_last *last = &vol->sealer->last;
	const struct pending *p = &vol->sealer->pending;
	struct state_version v;
	struct state_file f;

	/* After a kill the pause is that before another try. */
	if (p->killed || vol->sealer->killed.count ||
	    (p->continues && (p->continues != last->number || p->continues_chain)))
		return false;
	return may_seal(vol) && last->by && last->trigger == RECORD_TRIGGER_RENAME &&
	       !last->certain && !changed_find(changed_of(vol), ino) &&
	       state_file_get(vol->state, ino, &f) == 0 && f.closed &&
	       state_version_get(vol->state, f.closed, &v) == 0 &&
	       state_version_placed(&v) == last->number && is_large_beside(vol, ino, v.size);
}

/* What is written once after a save is a mere note; what is written after each is of it, however small. */
static void learn_rest(struct volume *vol, uint64_t bytes)
{
	struct sealer *s = vol->sealer;
	uint64_t path = sealer_path_hash_locked(vol, s->last.renamed), size;

	s->last.went_on = true;
	if (path == s->rest_of || !sealer_closed_size_locked(vol, s->last.renamed, &size) ||
	    bytes >= size / CHANGED_PART)
		sealer_rename_goes_on_locked(vol, s->last.renamed);
	s->rest_of = path;
}

/*
 * A save whose first file was renamed into place, which sealed that, may go on at once with files that are written in place, or whose renames are no
 * sign any more. No name tells so, but a pause before the first file is saved again. Then that epoch came too early, and what is there now is the
 * whole save.
 */
static bool rest_has_come(struct volume *vol, const struct replacing *r)
{
	struct seal_last *last = &vol->sealer->last;
	uint64_t bytes;

	if (!is_of_renamed(vol, r->ino))
		return false;
	body_finish_closes_locked(vol, 0);
	if (!is_of_renamed(vol, r->ino) || !follows_a_rest(vol, r, &bytes))
		return false;
	sealer_continue_locked(vol, last->number, false);
	learn_rest(vol, bytes);
	return true;
}

static bool before_replace(struct volume *vol, const struct replacing *r)
{
	if (rest_has_come(vol, r)) {
		seal_before(vol);
		return true;
	}
	if (!is_most_of_save(vol, r))
		return false;
	/* A close that is on its way ends the save that this one follows. */
	body_finish_closes_locked(vol, 0);
	if (!is_most_of_save(vol, r) || !ends_a_save(vol, r) ||
	    !is_whole(vol, changed_find(changed_of(vol), r->ino)->closed_ns, r->by))
		return false;
	seal_before(vol);
	return true;
}

void sealer_before_replace_locked(struct volume *vol, uint64_t ino)
{
	const struct replacing r = {.ino = ino};

	before_replace(vol, &r);
}

/* ---- a name is made ---- */

/* Who numbers his saves from the newest on moves ckpt_1 to ckpt_2, and then saves ckpt_1: the state between has no newest one. */
static bool may_follow(const struct seal_step *last, uint64_t step)
{
	return step > last->step || (step < last->step && !last->moved);
}

static bool is_next_step(struct volume *vol, uint64_t parent, const char *name)
{
	const struct seal_step *last;
	uint64_t step;

	if (!may_seal(vol))
		return false;
	last = &vol->sealer->pending.step;
	return last->ino && last->parent == parent && doubt_same_shape(last->name, name) &&
	       sealer_step_of_name_locked(vol, parent, name, &step) && may_follow(last, step);
}

/* What changed in a directory that has, or gets, the name of a step. */
struct within {
	struct volume *vol;
	uint64_t dir;
	int64_t after_ns; /* what was made later, elsewhere, is of the next save */
	uint64_t bytes;	  /* of what is in it */
};

static bool is_within(struct within *w, const struct changed_file *f, uint64_t *ret_parent)
{
	*ret_parent = 0;
	return state_names_of(w->vol->state, f->ino, sealer_parent_of, ret_parent) == 1 &&
	       sealer_is_in_locked(w->vol, f->ino, *ret_parent, w->dir);
}

static bool add_within(void *arg, const struct changed_file *f)
{
	struct within *w = arg;
	uint64_t parent;

	w->bytes += is_within(w, f, &parent) ? f->size : 0;
	return false;
}

/* Whether the next save has begun outside. Adds what is inside. */
static bool look_within(void *arg, const struct changed_file *f)
{
	struct within *w = arg;
	uint64_t parent;

	if (is_within(w, f, &parent))
		w->bytes += f->size;
	else if (!parent || !sealer_inside_temporary_locked(w->vol, parent))
		return f->count == 2 || (f->count && f->made_ns > w->after_ns);
	return false;
}

/* Of what got its name as a directory with files in it only this counts what was saved before. */
static uint64_t bytes_of(struct volume *vol, const struct seal_step *step)
{
	struct within w = {.vol = vol, .dir = step->ino};

	if (!step->led)
		return step->bytes;
	changed_any(changed_of(vol), add_within, &w);
	return w.bytes;
}

/* Or its name alone changed, as what it has was sealed under another one, and little else but what is of the next save. */
static bool is_most_of_step(struct volume *vol, const struct seal_step *step, uint64_t other)
{
	return is_most(vol, bytes_of(vol, step), other) ||
	       (step->led && other >= changed_of(vol)->bytes - other);
}

/*
 * A directory that is about to get the name has files of the next save, under another name still. A file that is linked is of the next save,
 * too; what is renamed is not taken off, as others may have come before it.
 */
static bool is_last_alone(struct volume *vol, const struct seal_step *last, uint64_t by,
			  bool linked)
{
	const struct changed_file once = {.count = 1};
	int64_t now = clock_mono_ns();
	struct within w = {
		.vol = vol,
		.dir = by,
		.after_ns = changed_made_after(last->closed_ns, now),
	};
	const struct changed_file *file = linked ? changed_find(changed_of(vol), by) : NULL;
	struct state_file f;

	if (!by || state_file_get(vol->state, by, &f) != 0 || !S_ISDIR(f.mode))
		return is_most_of_step(vol, last, file ? file->size : 0) &&
		       !changed_any_ahead(changed_of(vol), &once, by) &&
		       !changed_any_made(changed_of(vol), last->closed_ns, now, by);
	return !changed_any(changed_of(vol), look_within, &w) &&
	       is_most_of_step(vol, last, w.bytes);
}

static bool ends_last_step(struct volume *vol, uint64_t parent, uint64_t by, bool linked)
{
	const struct seal_step *last = &vol->sealer->pending.step;
	struct state_name n;

	if (!vol->sealer->pending.closed || !is_last_alone(vol, last, by, linked) ||
	    changed_any_shifted(changed_of(vol), 1, 0, last->from, save_of, vol))
		return false;
	return state_name_get(vol->state, parent, last->name, &n) == 0 && n.ino == last->ino &&
	       !has_temporary_name(vol, last->ino);
}

/*
 * Also by its temporary name, where that tells the final one: then nothing of the next save is there yet. But a lower one is what is moved aside,
 * to be removed.
 */
static bool has_next_step(struct volume *vol, uint64_t parent, const char *name)
{
	const struct seal_step *last = &vol->sealer->pending.step;
	char finals[DOUBT_FINAL_NAMES][NAME_MAX + 1];
	unsigned count = 0;
	uint64_t step;

	if (!last->ino || last->parent != parent || !may_seal(vol))
		return false;
	if (sealer_rule_locked(vol, rules_temporary, parent, name))
		count = doubt_final_names(vol->rules, name, finals);
	for (unsigned i = 0; i < count; i++)
		if (sealer_step_of_name_locked(vol, parent, finals[i], &step) &&
		    step > last->step && is_next_step(vol, parent, finals[i]))
			return true;
	return is_next_step(vol, parent, name);
}

/* A file that is linked is saved already, in place perhaps: with others, it is half of the next save. */
static bool is_step_alone(struct volume *vol, uint64_t by)
{
	const struct seal_step *last = &vol->sealer->pending.step;
	const struct changed_file *f = changed_find(changed_of(vol), last->ino);

	return f && sealer_saved_alone_locked(vol, last->parent, f, by);
}

/* `by`: what gets the name, 0: it is new; `linked`: it keeps another one. */
static void before_name(struct volume *vol, uint64_t parent, const char *name, uint64_t by,
			bool linked)
{
	if (!has_next_step(vol, parent, name))
		return;
	/* As above. */
	body_finish_closes_locked(vol, 0);
	if (has_next_step(vol, parent, name) && ends_last_step(vol, parent, by, linked) &&
	    is_whole(vol, vol->sealer->pending.step.closed_ns, by) &&
	    (!linked || is_step_alone(vol, by)))
		seal_before(vol);
}

struct later {
	struct volume *vol;
	const struct changed_file *than;
	uint64_t bytes;
};

static bool add_after(void *arg, const struct changed_file *f)
{
	struct later *a = arg;

	if (f->at > a->than->at && f->by == a->than->by && !has_temporary_name(a->vol, f->ino))
		a->bytes += f->size;
	/* It is a note of what came after it. */
	return a->bytes / CHANGED_PART > a->than->size;
}

/* How much of the last save came after this file without a sign. What is saved after a status file is no rest of that. */
static uint64_t rest_of(struct volume *vol, const struct changed_file *f)
{
	struct later a = {.vol = vol, .than = f};

	if (!may_seal(vol) || changed_of(vol)->files.count > LEFT_MAX || is_status(vol, f) ||
	    changed_any(changed_of(vol), add_after, &a))
		return 0;
	return a.bytes;
}

/*
 * By its temporary name, where that tells the final one: what is sealed then has nothing yet of the next save, if that begins with it. A file
 * after whose rename a save goes on seals where the rest has come, whose last rename would have sealed, but for that it was written in place, or
 * differs by numbers only.
 */
static void before_temporary(struct volume *vol, uint64_t parent, const char *name)
{
	char finals[DOUBT_FINAL_NAMES][NAME_MAX + 1];
	unsigned count = doubt_final_names(vol->rules, name, finals);
	const struct changed_file *f;
	struct replacing r;
	struct state_name n;

	while (count && state_name_get(vol->state, parent, finals[count - 1], &n) != 0)
		count--;
	if (!count)
		return;
	f = changed_find(changed_of(vol), n.ino);
	if (f && !sealer_goes_on_locked(vol, parent, finals[count - 1]))
		return;
	r = (struct replacing){.ino = n.ino, .rest = f ? rest_of(vol, f) : 0};
	if (!f || r.rest)
		before_replace(vol, &r);
}

void sealer_before_name_locked(struct volume *vol, uint64_t parent, const char *name, uint64_t ino)
{
	if (!vol->sealer || vol->options.read_only)
		return;
	before_name(vol, parent, name, ino, ino != 0);
	if (!ino && sealer_rule_locked(vol, rules_temporary, parent, name))
		before_temporary(vol, parent, name);
}

static void note_replaces(struct volume *vol, uint64_t ino, uint64_t replaced)
{
	const struct changed_file *old, *now;
	int64_t closed_ns;
	struct state_version v = {0};
	struct state_file f;
	int error = state_file_get(vol->state, replaced, &f);

	if (!error && f.closed)
		error = state_version_get(vol->state, f.closed, &v);
	/* Of which epoch it was is not known: where a save ends is not to be guessed from it. */
	if (error && error != -ENOENT)
		changed_of(vol)->overflow = true;
	old = changed_find(changed_of(vol), replaced);
	closed_ns = old ? old->closed_ns : 0;
	changed_replaces(changed_of(vol), ino, replaced, state_version_placed(&v));
	now = changed_find(changed_of(vol), ino);
	if (closed_ns && now && sealer_is_most_locked(vol, now->size))
		sealer_saved_twice_locked(vol, now->size, closed_ns);
}

/* Since the last epoch nothing else was saved but these two, which are of one save each. */
static bool are_all(struct volume *vol, const struct replacing *r)
{
	return changed_of(vol)->files.count == 2 && changed_find(changed_of(vol), r->ino) &&
	       changed_find(changed_of(vol), r->by);
}

/*
 * A temporary name gets a final one after which a save goes on: where the rest of the last save had come, its last rename would have sealed. But
 * who saves this file again and again saves nothing else each time. Sets r->rest, for where it is none.
 */
static bool is_half(struct volume *vol, struct replacing *r, const struct state_name *from,
		    const char *name, uint64_t new_parent, const char *new_name)
{
	const struct changed_file *f = changed_find(changed_of(vol), r->ino);

	if (!sealer_rule_locked(vol, rules_temporary, from->parent, name) ||
	    !sealer_goes_on_locked(vol, new_parent, new_name))
		return false;
	if (f && f->count > CHANGED_TRIES && are_all(vol, r) && !is_status(vol, f)) {
		sealer_rename_ends_locked(vol, r->ino);
		return false;
	}
	r->rest = f ? rest_of(vol, f) : 0;
	return !r->rest;
}

/* What is sealed has the next save's first file under its temporary name, but that is saved with what follows. */
static void before_rename_over(struct volume *vol, const struct replacing *r)
{
	const struct changed_file *f = changed_find(changed_of(vol), r->by);
	struct changed_file by = f ? *f : (struct changed_file){0};

	if (before_replace(vol, r) && f && !changed_find(changed_of(vol), r->by))
		changed_again(changed_of(vol), &by);
}

void sealer_before_rename_locked(struct volume *vol, uint64_t parent, const char *name,
				 uint64_t new_parent, const char *new_name)
{
	struct state_name from, to;
	struct replacing r;

	if (!vol->sealer || vol->options.read_only ||
	    state_name_get(vol->state, parent, name, &from) != 0)
		return;
	/* What is closed and renamed at once is to be known. */
	body_finish_closes_locked(vol, from.ino);
	if (state_name_get(vol->state, parent, name, &from) != 0)
		return;
	sealer_before_final_locked(vol, &from, name, new_parent, new_name);
	if (state_name_get(vol->state, new_parent, new_name, &to) != 0) {
		before_name(vol, new_parent, new_name, from.ino, false);
		return;
	}
	if (from.ino == to.ino)
		return;
	r = (struct replacing){.ino = to.ino, .by = from.ino};
	if (!is_half(vol, &r, &from, name, new_parent, new_name))
		before_rename_over(vol, &r);
	note_replaces(vol, from.ino, to.ino);
}

/* ---- two names are exchanged ---- */

/* Whether `by` takes the place of the other, not the other way round: it has the temporary name, or was closed later. Else, as by a rename. */
static bool is_replaced_by(struct volume *vol, uint64_t ino, uint64_t by)
{
	bool temporary = has_temporary_name(vol, ino);
	const struct changed_file *old = changed_find(changed_of(vol), ino);
	const struct changed_file *new = changed_find(changed_of(vol), by);

	if (temporary != has_temporary_name(vol, by))
		return !temporary;
	return !old || !new || old->at < new->at;
}

bool sealer_before_exchange_locked(struct volume *vol, uint64_t parent, const char *name,
				   uint64_t new_parent, const char *new_name)
{
	struct replacing r = {0};
	struct state_name from, to;

	if (!vol->sealer || vol->options.read_only ||
	    state_name_get(vol->state, parent, name, &from) != 0 ||
	    state_name_get(vol->state, new_parent, new_name, &to) != 0 || from.ino == to.ino)
		return false;
	r.ino = is_replaced_by(vol, to.ino, from.ino) ? to.ino : from.ino;
	r.by = r.ino == to.ino ? from.ino : to.ino;
	/* It may seal once it is done, too. What was replaced keeps a name, and would be taken for content of the save that seals then. */
	if (!before_replace(vol, &r))
		note_replaces(vol, r.by, r.ino);
	return r.ino == from.ino;
}
