/* SPDX-License-Identifier: Apache-2.0 */
/* Noting the doubts of an open volume: a writer was killed, or found to be gone after a crash; and what settles that before a seal. */
#include "lib/epochs/doubts_volume.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/util/process.h"
#include "lib/live/bodies.h"
#include "lib/epochs/resume.h"
#include "lib/epochs/seal.h"
#include "lib/epochs/sealer.h"

/* What has the name of a killed writer's file once that is undone, or left as it is. */
static void set_then(struct volume *vol, const struct body *b, bool undone, struct state_doubt *d)
{
	struct state_name n;
	struct state_file f;

	d->ino = b->ino;
	if (!undone) {
		d->version = b->version;
		return;
	}
	if (!b->pending && b->staged)
		d->ino = state_name_get(vol->state, d->parent, d->name, &n) == 0 ? n.covered : 0;
	if (d->ino && state_file_get(vol->state, d->ino, &f) == 0)
		d->version = f.closed;
}

/* It was fsynced, and so stays; but the save that it was for is half all the same, as where it is undone. */
static bool is_left_half(struct volume *vol, const struct body *b, const struct state_doubt *d)
{
	return !b->closed_well && !b->append_only && doubt_name_is_temporary(vol->rules, d->path) &&
	       !file_endures_kill(b->fd, d->name);
}

/* Others of the same parent may go on with that save, and who has closed a file torn (`by`) may save it under another name. */
static void note_killed_locked(struct volume *vol, uint64_t id, const struct state_doubt *d,
			       pid_t parent, pid_t by)
{
	struct seal_killed *k = vol->sealer ? &vol->sealer->killed : NULL;

	if (!k || (parent <= 1 && !by) || k->count == SEAL_KILLED || d->kind != DOUBT_UNDONE ||
	    !doubt_name_is_temporary(vol->rules, d->path))
		return;
	k->v[k->count++] = (struct killed){id, parent, by, d->at_ns};
}

static int note_locked(struct volume *vol, const struct state_doubt *d, pid_t parent, pid_t by)
{
	uint64_t id = 0;
	int error = state_begin(vol->state);

	if (!error)
		error = state_end(vol->state, state_doubt_add(vol->state, d, &id));
	if (!error && !vol->sealer && !vol->recovered_doubt)
		vol->recovered_doubt = id;
	if (!error)
		note_killed_locked(vol, id, d, parent, by);
	return error;
}

/* The epoch that has first what is there again, once the killed writer's file is undone; 0: nothing is. */
static uint64_t kept_since(struct volume *vol, uint64_t version)
{
	struct state_version v;

	if (!version || state_version_get(vol->state, version, &v) != 0)
		return 0;
	return state_version_epoch(&v);
}

static int is_of_earlier_try(void *arg, const struct state_doubt *other)
{
	const struct state_doubt *d = arg;

	return other->judged && other->kind == DOUBT_UNDONE && other->parent == d->parent &&
	       !strcmp(other->name, d->name);
}

/* The last epoch says of this file that its writer was killed: that save is over, and what it left is none of this one. */
static bool is_killed_again(struct volume *vol, const struct state_doubt *d)
{
	return state_doubt_each(vol->state, is_of_earlier_try, (void *)(uintptr_t)d) == 1;
}

/* A save that began before the last epoch, which is no whole one then. */
static uint64_t continued_by(struct volume *vol, const struct state_doubt *d, pid_t by)
{
	uint64_t epoch;

	if (is_killed_again(vol, d))
		return 0;
	/* What is left half under a temporary name is no file of the save before. */
	if (d->ino && !rules_temporary(vol->rules, d->name, NULL))
		return sealer_goes_on_in_place_locked(vol, d->ino, kept_since(vol, d->version));
	epoch = sealer_continued_locked(vol, d->parent, d->name, by);
	return epoch ? epoch : sealer_goes_on_by_rename_locked(vol, d->parent, d->name, by);
}

static uint64_t since_of(struct volume *vol, const struct state_doubt *d, pid_t by)
{
	uint64_t continued = continued_by(vol, d, by);

	return continued ? continued : d->since;
}

/* Who has closed it since the last epoch; 0: not known. */
static pid_t closer_of(struct volume *vol, uint64_t ino)
{
	const struct changed_file *f =
		vol->sealer ? changed_find(&vol->sealer->pending.changed, ino) : NULL;

	return f ? f->by : 0;
}

void doubts_torn_locked(struct volume *vol, const struct state_doubt *d)
{
	note_killed_locked(vol, d->id, d, 0, closer_of(vol, d->ino));
}

uint64_t doubts_since_locked(struct volume *vol, const struct state_doubt *d)
{
	return since_of(vol, d, closer_of(vol, d->ino));
}

/* Its names and its path, which stays the caller's. False: it has none. */
static bool set_place(struct volume *vol, const struct body *b, struct buf *path,
		      struct state_doubt *d)
{
	first_name_locked(vol, b->ino, d->name, &d->parent);
	if (!d->name[0])
		return false;
	volume_path_locked(vol, b->ino, path);
	d->path = (char *)(uintptr_t)buf_str(path);
	return true;
}

/* Its writer may live, and try again. */
static bool was_refused(const struct body *b)
{
	return b->cramped || b->refused_from < b->refused_to;
}

void doubts_killed_locked(struct volume *vol, const struct body *b, bool undone, const char *why)
{
	cleanup_buf struct buf path = {0};
	struct state_doubt d = {
		.since = vol->next_epoch,
		.at_ns = clock_wall_ns(),
		.why = (char *)(uintptr_t)why,
	};
	int64_t at_ns = b->closing_ns ? b->closing_ns : clock_mono_ns();
	bool over;
	int error;

	if (!set_place(vol, b, &path, &d))
		return;
	d.kind = undone || is_left_half(vol, b, &d) ? DOUBT_UNDONE : DOUBT_LEFT;
	set_then(vol, b, undone, &d);
	if (was_refused(b))
		resume_due_locked(vol, d.path, b->closer, undone ? d.version : 0, at_ns);
	else
		resume_killed_locked(vol, d.path, b->closer, b->closer_parent, at_ns);
	if (d.kind == DOUBT_UNDONE)
		d.since = since_of(vol, &d, b->closer);
	/* What was sealed is half, which the next epoch says: nothing that is left under that name is waited for. Who was refused may save it again. */
	over = d.since < vol->next_epoch;
	if (!undone && (over || !was_refused(b)))
		sealer_left_locked(vol, d.parent, d.name, b->ino, b->closer, over);
	error = note_locked(vol, &d, b->closer_parent, 0);
	if (error)
		log_warn("%s: %s, and that could not be noted: %s", d.path, why, strerror(-error));
	vol->doubts = DOUBTS_SOME;
}

static bool tells_no_final_name(struct volume *vol, const char *path)
{
	char finals[DOUBT_FINAL_NAMES][NAME_MAX + 1];

	return doubt_name_is_temporary(vol->rules, path) &&
	       !doubt_final_names(vol->rules, path, finals);
}

struct tried {
	struct volume *vol;
	const struct state_doubt *d;
	uint64_t id;
};

static int is_same_try(void *arg, const struct state_doubt *other)
{
	const struct tried *t = arg;

	return other->id == t->id && !other->judged && other->parent == t->d->parent &&
	       tells_no_final_name(t->vol, other->path);
}

/* Under another temporary name each time, that tells no final one: one doubt says it all. */
static bool is_one_more_try(struct volume *vol, const struct state_doubt *d, pid_t by)
{
	const struct seal_killed *k = vol->sealer ? &vol->sealer->killed : NULL;

	if (!by || !k || !tells_no_final_name(vol, d->path))
		return false;
	for (unsigned i = 0; i < k->count; i++) {
		struct tried t = {vol, d, k->v[i].id};

		if (k->v[i].by == by && state_doubt_each(vol->state, is_same_try, &t) == 1)
			return true;
	}
	return false;
}

void doubts_refused_locked(struct volume *vol, uint64_t parent, const char *name, pid_t by)
{
	static const char why[] = "it could not be opened to be written, for lack of room";
	cleanup_buf struct buf path = {0};
	struct state_doubt d = {
		.kind = DOUBT_UNDONE,
		.parent = parent,
		.since = vol->next_epoch,
		.at_ns = clock_wall_ns(),
		.why = (char *)(uintptr_t)why,
	};
	struct state_name n;
	struct state_file f;
	int error;

	if (strlen(name) >= sizeof(d.name) || sealer_path_locked(vol, parent, name, &path) != 0 ||
	    rules_log(vol->rules, name, buf_str(&path)))
		return;
	snprintf(d.name, sizeof(d.name), "%s", name);
	d.path = (char *)(uintptr_t)buf_str(&path);
	if (is_one_more_try(vol, &d, by))
		return;
	if (state_name_get(vol->state, parent, name, &n) == 0 &&
	    state_file_get(vol->state, n.ino, &f) == 0) {
		d.ino = f.ino;
		d.version = f.closed;
	}
	resume_due_locked(vol, d.path, by, d.version, clock_mono_ns());
	d.since = since_of(vol, &d, by);
	error = note_locked(vol, &d, 0, by);
	if (error)
		log_warn("%s: %s, and that could not be noted: %s", d.path, why, strerror(-error));
	vol->doubts = DOUBTS_SOME;
}

/* ---- what is saved again before a seal has judged ---- */

struct saved {
	struct volume *vol;
	uint64_t ino, born, began;
	bool any; /* not judged yet */
};

static int note_saved(void *arg, const struct state_doubt *d)
{
	struct saved *s = arg;

	if (d->judged || d->kind != DOUBT_UNDONE)
		return 0;
	s->any = true;
	if (s->began < d->id)
		return 0;
	return state_doubt_file_add(s->vol->state, d->id, s->ino, s->born);
}

int doubts_saved_locked(struct volume *vol, uint64_t ino, uint64_t old_version, uint64_t began)
{
	struct saved s = {.vol = vol, .ino = ino, .began = began};
	struct state_version v;
	int error;

	if (vol->doubts == DOUBTS_NONE || !old_version)
		return 0;
	error = state_version_get(vol->state, old_version, &v);
	if (error)
		return error == -ENOENT ? 0 : error;
	s.born = state_version_epoch(&v);
	error = state_doubt_each(vol->state, note_saved, &s);
	if (!error)
		vol->doubts = s.any ? DOUBTS_SOME : DOUBTS_NONE;
	return error;
}

static int note_changed(void *arg, const struct state_doubt *d)
{
	const struct saved *s = arg;

	if (d->judged || d->kind != DOUBT_UNDONE || s->began > d->id ||
	    s->born <= doubts_base_locked(s->vol, d, s->vol->next_epoch))
		return 0;
	return state_doubt_file_add(s->vol->state, d->id, s->ino, DOUBT_IN_PART);
}

int doubts_changed_locked(struct volume *vol, uint64_t ino, uint64_t old_version, uint64_t version)
{
	struct saved s = {.vol = vol, .ino = ino, .began = old_version};
	struct state_version v;
	int error = state_doubts_same_content(vol->state, ino, old_version, version);

	if (error || vol->doubts == DOUBTS_NONE)
		return error;
	error = state_version_get(vol->state, old_version, &v);
	if (error)
		return error == -ENOENT ? 0 : error;
	s.born = state_version_epoch(&v);
	return state_doubt_each(vol->state, note_changed, &s);
}

/* ---- what is saved again and renamed ---- */

struct renamed {
	struct volume *vol;
	uint64_t parent, began;
	const char *name;
};

static int settle_renamed(void *arg, const struct state_doubt *d)
{
	const struct renamed *r = arg;

	if (d->kind != DOUBT_UNDONE || d->parent != r->parent || r->began < d->id ||
	    strcmp(d->name, r->name) != 0)
		return 0;
	r->vol->doubts = DOUBTS_UNKNOWN;
	return state_doubt_remove(r->vol->state, d->id);
}

int doubts_renamed_locked(struct volume *vol, uint64_t parent, const char *name, const char *to,
			  uint64_t began)
{
	struct renamed r = {vol, parent, began, name};

	if (rules_temporary(vol->rules, name, NULL) && rules_temporary(vol->rules, to, NULL))
		return 0;
	return state_doubt_each(vol->state, settle_renamed, &r);
}

/* ---- who goes on ---- */

struct going_on {
	struct volume *vol;
	const char *name; /* of the file that was saved */
	uint64_t id, version;
};

/* rank_1.pt goes on with the save that .rank_0.pt.tmp was killed in: what only happens to be saved beside it may never be saved again. */
static bool is_rank_of(const struct going_on *g, const struct state_doubt *d)
{
	char finals[DOUBT_FINAL_NAMES][NAME_MAX + 1];
	unsigned count = doubt_final_names(g->vol->rules, d->path, finals);

	for (unsigned i = 0; i < count; i++)
		if (strcmp(finals[i], g->name) != 0 && doubt_same_shape(finals[i], g->name))
			return true;
	return false;
}

static int add_going_on(void *arg, const struct state_doubt *d)
{
	const struct going_on *g = arg;

	return d->id != g->id || d->judged || !is_rank_of(g, d)
		       ? 0
		       : state_doubt_file_add(g->vol->state, d->id, DOUBT_GOES_ON, g->version);
}

static void goes_on_with_locked(struct volume *vol, const struct going_on *g)
{
	int error = state_begin(vol->state);

	if (!error)
		error = state_end(vol->state,
				  state_doubt_each(vol->state, add_going_on, (void *)(uintptr_t)g));
	if (error)
		log_warn("a save that goes on could not be noted: %s", strerror(-error));
}

/* Beside a temporary name: a rank of the same job. */
static void rank_goes_on_locked(struct volume *vol, uint64_t ino, uint64_t version,
				int64_t started_ns, pid_t by)
{
	const struct seal_killed *k = &vol->sealer->killed;
	int64_t recent_ns = clock_wall_ns() - vol->options.patience_ns;
	pid_t parent = k->count ? process_parent(by) : 0;
	char name[256];

	if (!parent)
		return;
	first_name_locked(vol, ino, name, NULL);
	for (unsigned i = 0; i < k->count; i++)
		if (k->v[i].parent == parent && started_ns < k->v[i].at_ns &&
		    k->v[i].at_ns >= recent_ns)
			goes_on_with_locked(vol,
					    &(struct going_on){vol, name, k->v[i].id, version});
}

/* The kernel counts the starts of processes in ticks, and a trainer may be started again at once. */
#define STARTED_SLACK_NS (50 * NS_PER_MS)

struct living {
	struct volume *vol;
	uint64_t version;
	int64_t started_ns; /* its writer; 0: not known, so he may have lived */
};

static int add_living(void *arg, const struct state_doubt *d)
{
	struct living *l = arg;

	if (d->judged || d->kind != DOUBT_UNDONE ||
	    doubt_name_is_temporary(l->vol->rules, d->path) ||
	    (l->started_ns && l->started_ns + STARTED_SLACK_NS > d->at_ns))
		return 0;
	return state_doubt_file_add(l->vol->state, d->id, DOUBT_GOES_ON, l->version);
}

/* Beside a file in place: whoever lived at the kill. */
static void living_goes_on_locked(struct volume *vol, uint64_t version, int64_t started_ns)
{
	struct living l = {.vol = vol, .version = version, .started_ns = started_ns};
	int error = state_begin(vol->state);

	if (!error)
		error = state_end(vol->state, state_doubt_each(vol->state, add_living, &l));
	if (error)
		log_warn("a save that goes on could not be noted: %s", strerror(-error));
}

static int is_to_be_judged(void *arg, const struct state_doubt *d)
{
	(void)arg;
	return !d->judged && d->kind == DOUBT_UNDONE;
}

static bool any_to_be_judged_locked(struct volume *vol)
{
	if (vol->doubts == DOUBTS_UNKNOWN)
		vol->doubts = state_doubt_each(vol->state, is_to_be_judged, NULL) ? DOUBTS_SOME
										  : DOUBTS_NONE;
	return vol->doubts == DOUBTS_SOME;
}

void doubts_writer_locked(struct volume *vol, pid_t pid)
{
	struct seal_writers *w = vol->sealer ? &vol->sealer->writers : NULL;
	unsigned at = w ? w->next : 0;

	if (!w || !any_to_be_judged_locked(vol))
		return;
	for (unsigned i = 0; i < SEAL_WRITERS; i++)
		if (w->v[i].pid == pid)
			at = i;
	w->v[at].pid = pid;
	w->v[at].started_ns = process_started_ns(pid);
	if (at == w->next)
		w->next = (at + 1) % SEAL_WRITERS;
}

/* Of one that was there as it opened the file, that is known still. */
static int64_t started_of(const struct volume *vol, pid_t by)
{
	const struct seal_writers *w = &vol->sealer->writers;

	for (unsigned i = 0; by && i < SEAL_WRITERS; i++)
		if (w->v[i].pid == by)
			return w->v[i].started_ns;
	return by ? process_started_ns(by) : 0;
}

void doubts_goes_on_locked(struct volume *vol, uint64_t ino, pid_t by)
{
	cleanup_buf struct buf path = {0};
	struct state_file f;
	int64_t started_ns;

	if (!any_to_be_judged_locked(vol) || state_file_get(vol->state, ino, &f) != 0 || !f.closed)
		return;
	started_ns = started_of(vol, by);
	if (started_ns)
		rank_goes_on_locked(vol, ino, f.closed, started_ns, by);
	volume_path_locked(vol, ino, &path);
	if (path.len && !doubt_unit_of_again(vol->rules, buf_str(&path)).len)
		living_goes_on_locked(vol, f.closed, started_ns);
}

/* ---- who tries again ---- */

struct trying {
	struct volume *vol;
	uint64_t parent, id;
};

static int settle_tried(void *arg, const struct state_doubt *d)
{
	char finals[DOUBT_FINAL_NAMES][NAME_MAX + 1];
	const struct trying *t = arg;

	if (d->id != t->id || d->parent != t->parent ||
	    doubt_final_names(t->vol->rules, d->path, finals))
		return 0;
	t->vol->doubts = DOUBTS_UNKNOWN;
	return state_doubt_remove(t->vol->state, d->id);
}

void doubts_tried_again_locked(struct volume *vol, uint64_t parent, pid_t by)
{
	const struct seal_killed *k = &vol->sealer->killed;
	int error = 0;

	for (unsigned i = 0; by && !error && i < k->count; i++) {
		struct trying t = {vol, parent, k->v[i].id};

		if (k->v[i].by != by)
			continue;
		error = state_begin(vol->state);
		if (!error)
			error = state_end(vol->state,
					  state_doubt_each(vol->state, settle_tried, &t));
	}
	if (error)
		log_warn("what a save settles could not be noted: %s", strerror(-error));
}

/* ---- what the next save has in the place of a file that never comes again ---- */

struct next_saved {
	struct volume *vol;
	uint64_t parent;
	const char *name;
	int64_t started_ns; /* its writer */
};

/* Under a temporary name it is the final one that counts. */
static bool is_in_place_of(const struct next_saved *n, const struct state_doubt *d)
{
	char finals[DOUBT_FINAL_NAMES][NAME_MAX + 1];
	unsigned count = doubt_final_names(n->vol->rules, d->path, finals);

	if (!rules_temporary(n->vol->rules, d->name, NULL))
		return !d->ino && doubt_is_of_another_save(d->name, n->name);
	for (unsigned i = 0; i < count; i++)
		if (doubt_is_of_another_save(finals[i], n->name))
			return true;
	return false;
}

static int settle_next(void *arg, const struct state_doubt *d)
{
	const struct next_saved *n = arg;

	/* Who lived at the kill goes on with the same save, as the other ranks do. */
	if (d->kind != DOUBT_UNDONE || d->parent != n->parent || d->at_ns >= n->started_ns ||
	    !is_in_place_of(n, d) || doubt_unit_of_kill(n->vol->rules, d->path).len)
		return 0;
	n->vol->doubts = DOUBTS_UNKNOWN;
	return state_doubt_remove(n->vol->state, d->id);
}

static int any_row(void *arg, const struct state_doubt *d)
{
	(void)arg;
	return d->kind == DOUBT_UNDONE;
}

void doubts_next_saved_locked(struct volume *vol, uint64_t parent, const char *name, pid_t by)
{
	struct next_saved n = {.vol = vol, .parent = parent, .name = name};
	int error;

	/* Mostly nothing is in doubt, and files with numbers are many. */
	if (!by || !strpbrk(name, "0123456789") || rules_temporary(vol->rules, name, NULL) ||
	    state_doubt_each(vol->state, any_row, NULL) != 1)
		return;
	n.started_ns = process_started_ns(by);
	if (n.started_ns)
		n.started_ns += STARTED_SLACK_NS;
	error = n.started_ns ? state_begin(vol->state) : -ESRCH;
	if (!error)
		error = state_end(vol->state, state_doubt_each(vol->state, settle_next, &n));
	if (error && error != -ESRCH)
		log_warn("%s: what it settles could not be noted: %s", name, strerror(-error));
}

/* ---- what is open as an epoch is sealed ---- */

struct opened {
	struct volume *vol;
	struct doubts_open *list;
	int64_t now_ns;
	bool begun; /* a transaction */
};

/* It was never closed, so that no epoch has it: HDF5 opens what it makes for reading, too. A database is as whole as it was. */
static bool is_new(struct volume *vol, const struct body *b)
{
	struct state_file f;
	char name[256];

	if (state_file_get(vol->state, b->ino, &f) != 0 || f.closed)
		return false;
	first_name_locked(vol, b->ino, name, NULL);
	return !file_endures_kill(b->fd, name);
}

/* What holds quiet up (settle.h), and a kill would undo, or leave torn. */
static bool is_being_saved(struct volume *vol, struct body *b)
{
	return b->writers && b->staged && !b->orphan && !b->append_only &&
	       b->opened_epoch == vol->next_epoch && (b->fragile || is_new(vol, b)) &&
	       !body_is_output_locked(vol, b);
}

static pid_t writer_of(const struct body *b)
{
	for (const struct handle *h = b->open_handles; h; h = h->next)
		if (h->writes)
			return h->tgid;
	return 0;
}

static int note_open(void *arg, struct body *b)
{
	struct opened *o = arg;
	cleanup_buf struct buf path = {0};
	struct state_doubt d = {
		.kind = DOUBT_UNDONE,
		.since = o->vol->next_epoch,
		.at_ns = o->now_ns,
		.why = (char *)(uintptr_t) "it was open for writing",
	};
	uint64_t *grown;
	int error;

	if (!is_being_saved(o->vol, b) || !set_place(o->vol, b, &path, &d))
		return 0;
	error = o->begun ? 0 : state_begin(o->vol->state);
	if (error)
		return error;
	o->begun = true;
	grown = reallocarray(o->list->ids, o->list->count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	o->list->ids = grown;
	set_then(o->vol, b, true, &d);
	d.since = since_of(o->vol, &d, writer_of(b));
	/* A kill there before is of another save, and may be settled at this seal; else it stands in the live tree, too. */
	error = state_doubt_add_beside(o->vol->state, &d, &grown[o->list->count]);
	if (!error)
		o->list->count++;
	return error;
}

int doubts_open_begin_locked(struct volume *vol, struct doubts_open *ret_open)
{
	struct opened o = {vol, ret_open, clock_wall_ns(), false};
	int error;

	*ret_open = (struct doubts_open){0};
	error = bodies_each_writing_locked(vol, note_open, &o);
	return o.begun ? state_end(vol->state, error) : error;
}

void doubts_open_end_locked(struct volume *vol, struct doubts_open *o)
{
	int error = o->count ? state_begin(vol->state) : 0;

	for (size_t i = 0; !error && i < o->count; i++) {
		error = state_doubt_remove(vol->state, o->ids[i]);
		if (error == -ENOENT) /* it was not stored */
			error = 0;
	}
	if (o->count)
		error = state_end(vol->state, error);
	if (error)
		log_warn("what is open now stays in doubt until it is saved: %s", strerror(-error));
	free(o->ids);
	*o = (struct doubts_open){0};
}

/* ---- what recovery has noted, before there was a sealer to say which epoch the save began with ---- */

struct recovered_list {
	struct volume *vol;
	struct state_doubt *v; /* without texts */
	size_t count;
};

static int collect_recovered(void *arg, const struct state_doubt *d)
{
	struct recovered_list *l = arg;
	struct state_doubt *grown;

	if (d->id < l->vol->recovered_doubt || d->judged || d->kind != DOUBT_UNDONE)
		return 0;
	grown = reallocarray(l->v, l->count + 1, sizeof(*grown));
	if (!grown)
		return -ENOMEM;
	l->v = grown;
	l->v[l->count] = *d;
	l->v[l->count].path = l->v[l->count].why = NULL;
	l->count++;
	return 0;
}

int doubts_recovered_locked(struct volume *vol)
{
	struct recovered_list l = {.vol = vol};
	int error = 0;

	if (!vol->recovered_doubt)
		return 0;
	error = state_doubt_each(vol->state, collect_recovered, &l);
	for (size_t i = 0; !error && i < l.count; i++) {
		uint64_t continued = continued_by(vol, &l.v[i], 0);

		if (continued)
			error = state_doubt_since(vol->state, l.v[i].id, continued);
	}
	free(l.v);
	vol->recovered_doubt = 0;
	return error;
}
