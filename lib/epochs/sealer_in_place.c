/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A save over files that are there goes on (contract 1.3.7) where it pauses for longer than quiet takes, or where each close or a rename
 * makes an epoch: the epochs since its beginning were sealed by themselves in the middle of it. No name tells so, as in a new directory (sealer_continues.c). But
 * each version knows what it took the place of, and files that were saved together last time are saved together this time: where a
 * file is saved, or killed in that, and another has been saved since the save that this one's last content is of, and had replaced
 * content of that save as well, it is the same save. Of a file that its program saves more often, the content that was replaced is newer.
 */
#include "lib/epochs/seal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/util/array.h"
#include "lib/live/bodies.h"
#include "lib/epochs/node_state.h"
#include "lib/epochs/sealer.h"
#include "lib/meta/doubts.h"
#include "lib/util/clock.h"

/* So many files are looked at. */
#define FILES_MAX 1024
/* Of epochs that were dropped it is not known what sealed them: so many are taken for those of one save. */
#define DROPPED_MAX 16

struct search {
	struct volume *vol;
	const struct epoch_index *x;
	uint64_t ino;
	struct buf path;
	struct doubt_unit unit;
	int64_t now_ns;
	uint64_t first; /* the first epoch that has such a file; 0: none yet */
	uint64_t every; /* so many epochs at least between two saves of such a file; 0: any */
	/* The first epoch of the save that the file's content is of, as far as epochs that continue others say. */
	uint64_t from;
	uint64_t over; /* find_over */
	bool renamed;  /* such a file was renamed into place, which sealed the last epoch */
	bool late;     /* for another file, that was opened before, there may be one */
};

static bool is_recent(const struct search *s, uint64_t number)
{
	const struct epoch_brief *e = epoch_index_find(s->x, number);

	/* It was dropped, or is not frozen yet. */
	if (!e)
		e = epoch_index_after(s->x, number);
	return !e || s->now_ns - e->sealed_ns <= s->vol->options.patience_ns;
}

static int look(void *arg, const struct state_version *v)
{
	struct search *s = arg;
	cleanup_buf struct buf path = {0};
	uint64_t epoch = state_version_epoch(v);
	bool renamed = v->ino == s->vol->sealer->last.renamed;
	struct doubt_unit unit;

	if (v->ino == s->ino || (s->first && s->first <= epoch && !renamed) ||
	    (s->every && epoch - v->replaced < s->every))
		return 0;
	/* That both were of one save is a guess then. */
	if (v->replaced < s->from && epoch <= s->over)
		return 0;
	if (!is_recent(s, epoch)) {
		s->late = true;
		return 0;
	}
	volume_path_locked(s->vol, v->ino, &path);
	if (!path.len || file_is_log_locked(s->vol, v->ino))
		return 0;
	unit = doubt_unit_of_again(s->vol->rules, buf_str(&path));
	/* What lies between may be whole epochs of other steps. */
	if (!doubt_unit_same(buf_str(&path), &unit, buf_str(&s->path), &s->unit) ||
	    (unit.len && epoch != s->vol->sealer->last.number))
		return 0;
	if (!s->first || epoch < s->first)
		s->first = epoch;
	s->renamed |= renamed;
	return 0;
}

static uint64_t first_of(const struct epoch_brief *e)
{
	return e->continues_from ? e->continues_from : e->continues;
}

/* The epochs that the save which has `epoch` first was sealed in, as later ones continue it. */
static void find_save(const struct epoch_index *x, uint64_t epoch, uint64_t *ret_from,
		      uint64_t *ret_to)
{
	const struct epoch_brief *e = epoch_index_find(x, epoch), *end = x->epochs + x->count;

	*ret_from = e && first_of(e) ? first_of(e) : epoch;
	*ret_to = epoch;
	for (e = epoch_index_after(x, epoch); e && e < end; e++) {
		if (!first_of(e) || first_of(e) > *ret_to)
			continue;
		*ret_to = e->number;
		if (first_of(e) < *ret_from)
			*ret_from = first_of(e);
	}
}

/*
 * The first of the epochs up to this one that may be of one save: they were sealed by themselves, one soon after the other. It is not known
 * yet where a save begins.
 */
static uint64_t find_run(const struct search *s, uint64_t epoch)
{
	const struct epoch_brief *last = epoch_index_find(s->x, epoch);
	uint64_t least = epoch > DROPPED_MAX ? epoch - DROPPED_MAX : 1;

	if (last && !record_trigger_automatic(last->trigger))
		return epoch;
	if (!last)
		last = epoch_index_after(s->x, epoch);
	for (size_t i = s->x->count; i-- > 0;) {
		const struct epoch_brief *e = &s->x->epochs[i];

		if (e->number > epoch)
			continue;
		if (e->number < least)
			break;
		if (!record_trigger_automatic(e->trigger) || e->restores ||
		    (last && last->sealed_ns - e->sealed_ns > s->vol->options.patience_ns))
			return e->number + 1;
	}
	return least;
}

/* The newest epoch after which all were sealed by themselves. */
static uint64_t find_told(const struct search *s)
{
	for (size_t i = s->x->count; i-- > 0;)
		if (!record_trigger_automatic(s->x->epochs[i].trigger) || s->x->epochs[i].restores)
			return s->x->epochs[i].number;
	return 0;
}

static bool may_go_on(const struct volume *vol, uint64_t epoch)
{
	const struct sealer *s = vol->sealer;

	return s && !vol->options.read_only && !nodes_is_set(vol) && epoch &&
	       epoch < s->last.number && record_trigger_automatic(s->last.trigger);
}

/* ---- a save that is over, because the next one was begun ---- */

struct over {
	struct volume *vol;
	const struct epoch_index *x;
	uint64_t last; /* the last epoch of such a save; 0: there is none */
};

static void add_over(struct over *over, uint64_t epoch)
{
	uint64_t from, to;

	if (!epoch)
		return;
	find_save(over->x, epoch, &from, &to);
	if (to > over->last)
		over->last = to;
}

static int look_at_killed(void *arg, const struct state_doubt *d)
{
	struct over *over = arg;
	struct state_version v;

	if (d->judged && d->kind == DOUBT_UNDONE && d->version &&
	    state_version_get(over->vol->state, d->version, &v) == 0)
		add_over(over, state_version_epoch(&v));
	return 0;
}

static int look_at_torn(void *arg, const struct state_version *v)
{
	struct over *over = arg;

	if (v->torn && state_version_epoch(v) <= over->vol->sealer->last.number)
		add_over(over, v->replaced);
	return 0;
}

/*
 * Of an epoch that is not complete because a file of it is torn, or its writer was killed: the save that the content before is of was
 * over then. What only the time says to be of that save does not go on with it now.
 */
static uint64_t find_over(struct volume *vol, const struct epoch_index *x)
{
	const struct epoch_brief *e = epoch_index_find(x, vol->sealer->last.number);
	struct over over = {vol, x, 0};

	if (!e || e->unknown || epoch_brief_complete(e) ||
	    state_doubt_each(vol->state, look_at_killed, &over) != 0 ||
	    state_version_each_replacing(vol->state, 1, e->number, 0, vol->next_epoch, FILES_MAX,
					 look_at_torn, &over) < 0)
		return 0;
	return over.last;
}

static int find_first(struct search *s, uint64_t epoch)
{
	uint64_t to, told = find_told(s);

	find_save(s->x, epoch, &s->from, &to);
	s->over = find_over(s->vol, s->x);
	return state_version_each_replacing(s->vol->state, find_run(s, s->from), to,
					    told > to ? told : to, s->vol->next_epoch, FILES_MAX,
					    look, s);
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
	return a && a < b ? a : b;
}

static void go_on(struct search *s)
{
	struct pending *p = &s->vol->sealer->pending;
	struct seal_last *last = &s->vol->sealer->last;
	uint64_t kept = p->kept, from = p->continues_from;
	bool chain = p->kept_chain, learned = s->renamed && !last->went_on;

	sealer_opens_locked(s->vol);
	/* Also of what was to be continued before. */
	s->first = least_of(p->continues, s->first);
	p->continues_from =
		least_of(from, least_of(epoch_index_same_half(s->x, last->number), s->first));
	sealer_continue_locked(s->vol, last->number, false);
	sealer_note_continues_locked(s->vol);
	p->in_place.kept = kept;
	p->in_place.from = from;
	p->in_place.chain = chain;
	p->in_place.learned = learned;
	p->in_place.note = false;
	/* For the next time. */
	if (learned) {
		last->went_on = true;
		sealer_rename_goes_on_locked(s->vol, last->renamed);
	}
}

/* When the file was opened for writing: a save goes on for as long as that is written. */
static int64_t begun_ns(struct volume *vol, uint64_t ino)
{
	int64_t now_ns = clock_mono_ns(), opened_ns = 0;

	for (const struct body *b = body_of_ino_locked(vol, ino); b; b = body_next_of_ino_locked(b))
		if (b->opened_ns > opened_ns)
			opened_ns = b->opened_ns;
	return clock_wall_ns() - (opened_ns ? now_ns - opened_ns : 0);
}

/* `ino` has, or had, what is of this epoch; it is `written` that takes its place. `every` as in struct search. */
static uint64_t goes_on(struct volume *vol, uint64_t ino, uint64_t epoch, uint64_t written,
			uint64_t every)
{
	struct search s = {.vol = vol, .ino = ino, .every = every};

	if (!may_go_on(vol, epoch) || vol->sealer->pending.alone == epoch)
		return 0;
	s.now_ns = begun_ns(vol, written);
	s.x = epochs_index_locked(vol);
	volume_path_locked(vol, ino, &s.path);
	if (s.x && s.path.len) {
		s.unit = doubt_unit_of_again(vol->rules, buf_str(&s.path));
		if (!s.unit.temporary && find_first(&s, epoch) == 0 && s.first)
			go_on(&s);
		else if (!s.unit.len && !s.late)
			vol->sealer->pending.alone = epoch;
	}
	buf_free(&s.path);
	return s.first;
}

uint64_t sealer_goes_on_in_place_locked(struct volume *vol, uint64_t ino, uint64_t epoch)
{
	return goes_on(vol, ino, epoch, ino, 0);
}

/*
 * `as_often`: a file that each save has under another name is not saved again, and one that only some saves have, as the best so far, need not
 * be: it counts where it replaced one itself, as long before as the other was saved before.
 */
static uint64_t goes_on_for(struct volume *vol, const struct state_file *f, uint64_t written,
			    bool as_often)
{
	struct state_version v;
	uint64_t epoch;

	if (!f->closed || state_version_get(vol->state, f->closed, &v) != 0)
		return 0;
	epoch = state_version_epoch(&v);
	if (as_often && (!v.replaced || v.replaced >= epoch))
		return 0;
	return goes_on(vol, f->ino, epoch, written, as_often ? epoch - v.replaced : 0);
}

/* ---- a temporary name that tells no final one, as those of mkstemp ---- */

struct waiting {
	uint64_t written, bytes; /* the file of that name, and how much is in it */
	struct state_file *files;
	size_t count, cap;
};

static uint64_t bytes_of(struct volume *vol, uint64_t ino)
{
	struct state_version v;
	struct state_file f;
	struct stat st;

	for (const struct body *b = body_of_ino_locked(vol, ino); b; b = body_next_of_ino_locked(b))
		if (b->staged && b->fd >= 0 && fstat(b->fd, &st) == 0)
			return (uint64_t)st.st_size;
	if (state_file_get(vol->state, ino, &f) != 0 ||
	    state_version_get(vol->state, f.live ? f.live : f.closed, &v) != 0)
		return 0;
	return v.size > v.flushed_size ? v.size : v.flushed_size;
}

/* What is much smaller than that, as a configuration that was saved once, is not what it was to be. */
static int add_waiting(void *arg, const struct state_name *n, const char *name,
		       const struct state_file *f)
{
	struct waiting *w = arg;

	(void)n, (void)name;
	if (!f || !S_ISREG(f->mode) || f->ino == w->written || !f->closed || f->size < w->bytes)
		return 0;
	if (array_reserve((void **)&w->files, &w->cap, w->count, sizeof(*w->files)))
		return -ENOMEM;
	w->files[w->count++] = *f;
	return w->count == FILES_MAX;
}

/*
 * It may be that of each file beside it. But where one was saved together with the last one, and has not been saved since, it is that:
 * a program that saves both does not begin the next save before.
 */
static uint64_t goes_on_unnamed(struct volume *vol, uint64_t parent, uint64_t written, pid_t by)
{
	struct waiting w = {.written = written, .bytes = bytes_of(vol, written)};
	const struct seal_last *last = &vol->sealer->last;
	uint64_t first = 0;

	if (by && last->by && by != last->by)
		return 0;
	if (w.bytes && state_dir_list(vol->state, parent, 0, add_waiting, &w) >= 0)
		for (size_t i = 0; !first && i < w.count; i++)
			first = goes_on_for(vol, &w.files[i], written, true);
	free(w.files);
	return first;
}

uint64_t sealer_goes_on_by_rename_locked(struct volume *vol, uint64_t parent, const char *name,
					 pid_t by)
{
	char finals[DOUBT_FINAL_NAMES][NAME_MAX + 1];
	cleanup_buf struct buf path = {0};
	struct state_name temporary, n;
	struct state_file f;
	bool is_known = false;
	uint64_t first = 0;
	unsigned count;

	if (!vol->sealer || sealer_path_locked(vol, parent, name, &path) != 0 ||
	    state_name_get(vol->state, parent, name, &temporary) != 0)
		return 0;
	count = doubt_final_names(vol->rules, buf_str(&path), finals);
	for (unsigned i = 0; !first && i < count; i++)
		if (state_name_get(vol->state, parent, finals[i], &n) == 0 &&
		    state_file_get(vol->state, n.ino, &f) == 0) {
			is_known = true;
			first = goes_on_for(vol, &f, temporary.ino, false);
		}
	if (is_known || !sealer_rule_locked(vol, rules_temporary, parent, name))
		return first;
	return goes_on_unnamed(vol, parent, temporary.ino, by);
}

bool sealer_is_try_locked(struct volume *vol, uint64_t epoch)
{
	const struct epoch_index *x = epochs_index_locked(vol);
	const struct epoch_brief *e = x ? epoch_index_find(x, epoch) : NULL;

	return e && !e->unknown && !epoch_brief_complete(e) && epoch > epoch_index_latest(x);
}

/*
 * A small note that is written again and again, while nothing else is saved, is none of the save before. Once it was of the same epoch, as when a
 * kill took back what was written since. A large file may be saved in several goes.
 */
static bool is_note(struct volume *vol, uint64_t ino)
{
	struct pending *p = &vol->sealer->pending;
	const struct changed_file *f;

	if (p->in_place.ino != ino)
		return false;
	f = changed_find(&p->changed, ino);
	if (p->in_place.note || p->changed.overflow || p->changed.files.count != 1 || !f ||
	    f->count < CHANGED_TRIES || f->size > vol->sealer->tree_bytes / CHANGED_PART)
		return p->in_place.note;
	p->continues_from = p->in_place.from;
	if (p->in_place.learned) {
		vol->sealer->last.went_on = false;
		sealer_rename_ends_locked(vol, vol->sealer->last.renamed);
	}
	sealer_continue_locked(vol, p->in_place.kept, p->in_place.chain);
	sealer_note_continues_locked(vol);
	p->in_place.ino = ino;
	return p->in_place.note = true;
}

void sealer_saved_in_place_locked(struct volume *vol, uint64_t ino)
{
	struct state_version v;
	struct state_file f;

	/* It is known that the save goes on. */
	if (is_note(vol, ino) || vol->sealer->pending.continues_from)
		return;
	if (state_file_get(vol->state, ino, &f) == 0 && f.closed &&
	    state_version_get(vol->state, f.closed, &v) == 0 &&
	    sealer_goes_on_in_place_locked(vol, ino, v.replaced))
		vol->sealer->pending.in_place.ino = ino;
}
