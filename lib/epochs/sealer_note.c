/* SPDX-License-Identifier: Apache-2.0 */
/* What the live tree tells the sealer: changes, and what seals at once. */
#include "lib/epochs/seal.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/epochs/arrivals.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/fact_log.h"
#include "lib/epochs/resume.h"
#include "lib/epochs/sealer.h"
#include "lib/live/body.h"
#include "lib/live/observer.h"
#include "lib/meta/rules.h"
#include "lib/util/clock.h"

/* Files looked at below a renamed directory to see whether it is new. */
#define NEWS_MAX 1000

/* ---- names and the rules ---- */

bool sealer_rule_locked(struct volume *vol, name_rule rule, uint64_t parent, const char *name)
{
	cleanup_buf struct buf path = {0};

	if (!rules_want_path(vol->rules))
		return rule(vol->rules, name, NULL);
	if (sealer_path_locked(vol, parent, name, &path) != 0)
		return false;
	return rule(vol->rules, name, buf_str(&path));
}

bool sealer_inside_temporary_locked(struct volume *vol, uint64_t dir)
{
	cleanup_buf struct buf path = {0};
	char *name, *rest;

	if (dir == ROOT_INO)
		return false;
	volume_path_locked(vol, dir, &path);
	name = (char *)(uintptr_t)buf_str(&path);
	while ((name = strtok_r(name, "/", &rest))) {
		if (rules_temporary(vol->rules, name, NULL))
			return true;
		name = NULL;
	}
	return false;
}

/* ---- dirt ---- */

static void opened(struct volume *vol, int64_t now)
{
	struct pending *p = &vol->sealer->pending;

	if (p->opened_ns)
		return;
	p->opened_ns = clock_wall_ns();
	p->opened_mono_ns = now;
}

/* What the next mount could not find out by itself after a crash is written down at once, which is
 * once an epoch. */
static void note_unsealed(struct volume *vol, enum unsealed unsealed)
{
	struct pending *p = &vol->sealer->pending;

	if (p->noted < unsealed && state_set_meta_u64(vol->state, "unsealed", unsealed) == 0)
		p->noted = unsealed;
}

void sealer_rides_locked(struct volume *vol)
{
	note_unsealed(vol, UNSEALED_RIDES);
	vol->sealer->pending.rides = true;
}

void sealer_opens_locked(struct volume *vol)
{
	note_unsealed(vol, UNSEALED_OPENS);
	vol->sealer->pending.opens = true;
}

/* The directory that holds `dir`: 0 above the root. */
static uint64_t directory_above(struct volume *vol, uint64_t dir, struct state_file *ret_file)
{
	if (dir == ROOT_INO || state_file_get(vol->state, dir, ret_file) != 0)
		return 0;
	return ret_file->parent;
}

/* Something changed in this directory: temporary directories above it are still being worked on. */
static void touch_temporaries(struct volume *vol, uint64_t dir, int64_t now)
{
	struct pending *p = &vol->sealer->pending;
	struct state_file f;

	if (!p->new_names.temporaries)
		return;
	for (; dir && dir != ROOT_INO; dir = directory_above(vol, dir, &f))
		for (struct new_name *n = p->new_names.temporaries; n; n = n->next_temporary)
			if (n->ino == dir)
				n->changed_ns = now;
}

/* ---- sealing at once ---- */

struct others {
	struct volume *vol;
	uint64_t ino;
};

/* Another file that somebody began to save since the last epoch: it is new, or its content is being replaced. */
static int is_other_save(void *arg, struct body *b)
{
	const struct others *o = arg;
	struct state_version v;

	if (!b->staged || b->orphan || body_is_held(b) || b->is_output || b->ino == o->ino ||
	    b->opened_epoch != o->vol->next_epoch ||
	    state_version_get(o->vol->state, b->version, &v) != 0)
		return 0;
	return (v.kind == VERSION_NEW || v.kind == VERSION_REPLACE) &&
	       !sealer_is_scratch_locked(o->vol, b->ino);
}

static bool others_are_open(struct volume *vol, uint64_t ino)
{
	struct others o = {vol, ino};

	return bodies_each_writing_locked(vol, is_other_save, &o) != 0;
}

static bool file_is_new(struct volume *vol, const struct state_file *f)
{
	struct state_version v;

	if (!S_ISREG(f->mode))
		return f->born == vol->next_epoch;
	return f->closed && state_version_get(vol->state, f->closed, &v) == 0 &&
	       v.born == vol->next_epoch;
}

/* Content that an epoch has got that name: by an exchange, what was saved before. */
static bool file_is_old(struct volume *vol, uint64_t ino)
{
	struct state_file f;

	return state_file_get(vol->state, ino, &f) == 0 && S_ISREG(f.mode) && f.closed &&
	       f.live == f.closed && !file_is_new(vol, &f);
}

/* Made before the one that is renamed: a scratch directory, or left by a save that was killed. Files may be renamed in any order. */
static bool is_aside(struct volume *vol, const struct new_name *n, int64_t made_ns)
{
	struct state_file f;

	return n->made_ns < made_ns &&
	       (n->left || (state_file_get(vol->state, n->ino, &f) == 0 && S_ISDIR(f.mode)));
}

/* Another temporary name in the same directory: more renames will follow. */
static bool others_are_temporary(struct volume *vol, uint64_t parent, int64_t made_ns)
{
	for (const struct new_name *n = vol->sealer->pending.new_names.temporaries; n;
	     n = n->next_temporary) {
		struct state_name name;

		if (n->parent == parent && !is_aside(vol, n, made_ns) &&
		    state_name_get(vol->state, n->parent, n->name, &name) == 0 &&
		    name.ino == n->ino && !file_is_old(vol, n->ino))
			return true;
	}
	return false;
}

struct news {
	struct volume *vol;
	unsigned looked;
};

static int look_for_news(void *arg, const struct state_name *n, const char *name,
			 const struct state_file *f)
{
	struct news *news = arg;

	(void)n;
	(void)name;
	if (!f || news->looked++ >= NEWS_MAX)
		return 0;
	if (file_is_new(news->vol, f))
		return 1;
	return S_ISDIR(f->mode) ? state_dir_list(news->vol->state, f->ino, 0, look_for_news, news)
				: 0;
}

static bool has_news_below(struct volume *vol, uint64_t dir)
{
	struct news news = {.vol = vol};
	struct state_file f;

	return state_file_get(vol->state, dir, &f) == 0 && S_ISDIR(f.mode) &&
	       state_dir_list(vol->state, dir, 0, look_for_news, &news) == 1;
}

/* Whether the file, or something in the directory, got its content since the last epoch. */
static bool has_news(struct volume *vol, uint64_t ino)
{
	struct state_file f;

	return state_file_get(vol->state, ino, &f) == 0 &&
	       (file_is_new(vol, &f) || has_news_below(vol, ino));
}

static void seal_now(struct volume *vol, enum record_trigger trigger, bool certain,
		     uint64_t renamed)
{
	struct seal_how how = {.trigger = trigger, .certain = certain, .renamed = renamed};
	struct sealer *s = vol->sealer;
	uint64_t number;

	if (s->retry_ns <= clock_mono_ns())
		seal_begin_locked(vol, &how, &number);
}

/* Contract 1.3.2: the marker. */
static bool seal_at_marker(struct volume *vol, uint64_t parent, const char *name, uint64_t ino)
{
	if (!sealer_rule_locked(vol, rules_marker, parent, name) || others_are_open(vol, ino))
		return false;
	seal_now(vol, RECORD_TRIGGER_MARKER, true, 0);
	return true;
}

/* ---- the last files of frameworks (rules.h) ---- */

/* A file with content is noted: one alone, which is written again and again, is no checkpoint. */
static void note_content(struct pending *p, uint64_t ino)
{
	p->several |= p->first_ino && p->first_ino != ino;
	if (!p->first_ino)
		p->first_ino = ino;
}

static bool has_new_partner(struct volume *vol, uint64_t parent, enum last_file kind)
{
	for (const char *const *name = last_file_partners(kind); *name; name++) {
		struct state_name n;
		struct state_file f;

		if (state_name_get(vol->state, parent, *name, &n) == 0 &&
		    state_file_get(vol->state, n.ino, &f) == 0 && file_is_new(vol, &f))
			return true;
	}
	return false;
}

static bool has_step(struct volume *vol, uint64_t dir)
{
	cleanup_buf struct buf path = {0};
	struct step_place place;

	if (dir == ROOT_INO)
		return false;
	volume_path_locked(vol, dir, &path);
	return rules_step(vol->rules, buf_str(&path), &place);
}

static bool is_last(struct volume *vol, uint64_t parent, const char *name, bool renamed)
{
	enum last_file kind = last_file_kind(name);
	bool several = vol->sealer->pending.several;

	switch (kind) {
	case LAST_FILE_ANY:
		return several;
	case LAST_FILE_RENAMED:
		return renamed;
	case LAST_FILE_DEEPSPEED:
		return several && !renamed && !has_step(vol, parent);
	case LAST_FILE_STATE:
	case LAST_FILE_RNG:
		return !renamed && has_new_partner(vol, parent, kind);
	case LAST_FILE_NONE:
		break;
	}
	return false;
}

/* `mv last.ckpt prev.ckpt` makes room for the save that begins now. */
static bool is_backup(const char *old_name, const char *name)
{
	return old_name && last_file_kind(old_name) == LAST_FILE_RENAMED &&
	       last_file_kind(name) == LAST_FILE_RENAMED;
}

static bool seal_at_last_file(struct volume *vol, uint64_t parent, const char *name, uint64_t ino,
			      bool renamed)
{
	struct state_file f;
	uint64_t size;

	if (vol->options.no_last_files || !is_last(vol, parent, name, renamed) ||
	    state_file_get(vol->state, ino, &f) != 0 || !S_ISREG(f.mode) || !file_is_new(vol, &f))
		return false;
	/* Who was interrupted between opening and writing it closes it empty. */
	if (!sealer_closed_size_locked(vol, ino, &size) || !size)
		return false;
	if (sealer_rule_locked(vol, rules_temporary, parent, name) ||
	    sealer_inside_temporary_locked(vol, parent) || others_are_open(vol, ino) ||
	    others_are_temporary(vol, parent, 0) || sealer_goes_on_locked(vol, parent, name))
		return false;
	seal_now(vol, RECORD_TRIGGER_MARKER, true, ino);
	return true;
}

/* Contract 1.3.2: a temporary name that became final. */
static bool seal_at_rename(struct volume *vol, uint64_t parent, const char *old_name,
			   int64_t made_ns, const char *name, uint64_t ino)
{
	struct state_file f;
	bool directory;

	if (!old_name || !sealer_rule_locked(vol, rules_temporary, parent, old_name) ||
	    sealer_rule_locked(vol, rules_temporary, parent, name) ||
	    sealer_inside_temporary_locked(vol, parent))
		return false;
	if (!has_news(vol, ino) || others_are_open(vol, ino) ||
	    others_are_temporary(vol, parent, made_ns))
		return false;
	/* After a file another may be renamed. */
	if (sealer_goes_on_locked(vol, parent, name))
		return false;
	if (sealer_is_status_again_locked(vol, ino)) {
		sealer_rename_goes_on_locked(vol, ino);
		return false;
	}
	directory = state_file_get(vol->state, ino, &f) == 0 && S_ISDIR(f.mode);
	seal_now(vol, RECORD_TRIGGER_RENAME, directory, directory ? 0 : ino);
	return true;
}

/* settle=0: the last close seals. */
static void seal_at_close(struct volume *vol)
{
	struct settle_answer answer;

	if (vol->options.settle_ns == 0 && sealer_look_locked(vol, &answer, NULL) == 0 &&
	    answer.verdict == SETTLE_SEAL)
		seal_now(vol, RECORD_TRIGGER_CLOSE, false, 0);
}

/* ---- what restarts the quiet ---- */

static void note_activity(struct pending *p, uint64_t ino, int64_t now)
{
	if (ino != p->activity_ino) {
		p->others_ns = p->activity_ns;
		p->activity_ino = ino;
	}
	p->activity_ns = now;
}

/* A small file that is saved again and again, as a status file is, beside what is saved now and then; together with all that are. */
static bool is_heartbeat(const struct pending *p, uint64_t ino)
{
	const struct changed_file *f = changed_find(&p->changed, ino);

	return f && f->count > CHANGED_TRIES && f->size < p->changed.bytes / CHANGED_PART &&
	       p->changed.often < p->changed.bytes / CHANGED_PART;
}

/* What was done to it restarts no quiet, also under a temporary name. */
static void forget_heartbeat(struct pending *p, uint64_t ino)
{
	if (p->activity_ino == ino && is_heartbeat(p, ino))
		p->activity_ns = p->others_ns;
}

/* ---- the kinds of change ---- */

static void note_create(struct volume *vol, uint64_t parent, const char *name, uint64_t ino,
			int64_t now)
{
	struct pending *p = &vol->sealer->pending;
	struct state_file f;
	bool known = state_file_get(vol->state, ino, &f) == 0;

	if (known && S_ISREG(f.mode) && sealer_rule_locked(vol, rules_log, parent, name)) {
		sealer_rides_locked(vol);
		return;
	}
	new_names_add(&p->new_names, parent, name, ino,
		      sealer_rule_locked(vol, rules_temporary, parent, name), now);
	note_unsealed(vol, UNSEALED_NAMES);
	sealer_made_locked(vol, parent, name, ino,
			   new_names_find(&p->new_names, parent, name, ino));
	sealer_saved_named_locked(vol, parent, name, ino, known && S_ISREG(f.mode) && f.nlink > 1);
	note_activity(p, ino, now);
	/* A symlink or a hard link is whole at once; sealed by the thread, for this may be inside a
	 * transaction. */
	if (known && (S_ISLNK(f.mode) || (S_ISREG(f.mode) && f.nlink > 1)))
		p->closed = true;
}

static void note_goes_on(struct volume *vol, uint64_t ino)
{
	const struct changed_file *f = changed_find(&vol->sealer->pending.changed, ino);

	doubts_goes_on_locked(vol, ino, f ? f->by : 0);
}

/* A file that took the place of none. */
static void note_new_file(struct volume *vol, uint64_t parent, const char *name, uint64_t ino)
{
	const struct changed_file *f = changed_find(&vol->sealer->pending.changed, ino);

	if (f && !f->from)
		doubts_next_saved_locked(vol, parent, name, f->by);
}

bool sealer_has_final_locked(struct volume *vol, uint64_t parent, const char *name)
{
	char finals[DOUBT_FINAL_NAMES][NAME_MAX + 1];
	unsigned count = doubt_final_names(vol->rules, name, finals);
	struct state_name n;

	for (unsigned i = 0; i < count; i++)
		if (state_name_get(vol->state, parent, finals[i], &n) == 0)
			return true;
	return false;
}

/* What a killed writer has left another may take over. */
static void note_saved_again(struct volume *vol, struct new_name *n)
{
	const struct changed_file *f = changed_find(&vol->sealer->pending.changed, n->ino);

	if (n->left && f && f->by != n->left_by)
		n->left = false;
}

static void note_close(struct volume *vol, uint64_t parent, const char *name, uint64_t ino,
		       int64_t now)
{
	struct pending *p = &vol->sealer->pending;
	struct new_name *n = name ? new_names_find(&p->new_names, parent, name, ino) : NULL;

	if (name && sealer_rule_locked(vol, rules_log, parent, name)) {
		sealer_rides_locked(vol);
		return;
	}
	if (n)
		n->changed_ns = now;
	else
		sealer_opens_locked(vol);
	p->closed = true;
	p->temporary |= n && n->temporary;
	if (!n && name && sealer_rule_locked(vol, rules_temporary, parent, name)) {
		/* An epoch has what a killed save left under that name; it is to be renamed as a new one is. */
		if (sealer_has_final_locked(vol, parent, name))
			new_names_add(&p->new_names, parent, name, ino, true, now);
		p->rewritten = true;
	}
	p->content_ns = now;
	note_activity(p, ino, now);
	note_content(p, ino);
	sealer_saved_closed_locked(vol, parent, ino);
	forget_heartbeat(p, ino);
	if (n)
		note_saved_again(vol, n);
	if (name)
		note_new_file(vol, parent, name, ino);
	note_goes_on(vol, ino);
	if (!name || (!seal_at_marker(vol, parent, name, ino) &&
		      !seal_at_last_file(vol, parent, name, ino, false)))
		seal_at_close(vol);
}

/* Whoever wrote a file renames it. */
static void note_who_renamed(struct volume *vol, uint64_t ino)
{
	const struct changed_file *f = changed_find(&vol->sealer->pending.changed, ino);

	if (f)
		resume_saved_locked(vol, ino, f->by);
}

static void note_tried_again(struct volume *vol, uint64_t parent, const char *old_name,
			     const char *name, uint64_t ino)
{
	const struct changed_file *f = changed_find(&vol->sealer->pending.changed, ino);

	if (!vol->sealer->killed.count || !f || !old_name)
		return;
	if (sealer_rule_locked(vol, rules_temporary, parent, old_name) &&
	    !sealer_rule_locked(vol, rules_temporary, parent, name))
		doubts_tried_again_locked(vol, parent, f->by);
}

/* A directory in which something was made under its temporary name: that is of a save now. */
static bool becomes_final(struct volume *vol, uint64_t parent, const char *old_name, uint64_t ino)
{
	return old_name && sealer_rule_locked(vol, rules_temporary, parent, old_name) &&
	       has_news_below(vol, ino);
}

static void note_rename(struct volume *vol, uint64_t parent, const char *old_name, const char *name,
			uint64_t ino, bool replaces, int64_t now)
{
	struct pending *p = &vol->sealer->pending;
	struct new_name *old = old_name ? new_names_find(&p->new_names, 0, old_name, ino) : NULL;
	enum joins joins = JOINS_NOTHING;
	int64_t made_ns = old ? old->made_ns : 0;

	if (old) {
		touch_temporaries(vol, old->parent, now);
		joins = sealer_gone_locked(vol, old);
		new_names_remove(&p->new_names, old);
	}
	if (old_name && sealer_rule_locked(vol, rules_log, parent, old_name) &&
	    sealer_rule_locked(vol, rules_log, parent, name)) {
		sealer_rides_locked(vol);
		return;
	}
	new_names_add(&p->new_names, parent, name, ino,
		      sealer_rule_locked(vol, rules_temporary, parent, name), now);
	sealer_opens_locked(vol);
	note_who_renamed(vol, ino);
	note_goes_on(vol, ino);
	note_tried_again(vol, parent, old_name, name, ino);
	/* What was found of a directory may be otherwise under its new name. */
	p->looked_at = 0;
	if (!replaces) {
		note_new_file(vol, parent, name, ino);
		sealer_led_locked(vol, becomes_final(vol, parent, old_name, ino) ? ino : parent,
				  new_names_find(&p->new_names, parent, name, ino), joins);
	} else if (has_news(vol, ino)) {
		sealer_saved_in_place_locked(vol, ino);
	}
	sealer_unit_renamed_locked(vol, parent, name, ino);
	sealer_saved_named_locked(
		vol, parent, name, ino,
		old_name && !sealer_rule_locked(vol, rules_temporary, parent, old_name));
	p->closed = true;
	note_activity(p, ino, now);
	forget_heartbeat(p, ino);
	note_content(p, ino);
	if (!seal_at_marker(vol, parent, name, ino) &&
	    !seal_at_rename(vol, parent, old_name, made_ns, name, ino) &&
	    (is_backup(old_name, name) || !seal_at_last_file(vol, parent, name, ino, true)))
		seal_at_close(vol);
	resume_renamed_locked(vol);
}

static void note_remove(struct volume *vol, uint64_t parent, const char *name, uint64_t ino,
			int64_t now)
{
	struct pending *p = &vol->sealer->pending;
	struct new_name *n = name ? new_names_find(&p->new_names, parent, name, ino) : NULL;

	if (n) {
		sealer_gone_locked(vol, n);
		new_names_remove(&p->new_names, n);
	} else {
		sealer_rides_locked(vol);
	}
	if (!is_heartbeat(p, ino) && (!name || !sealer_rule_locked(vol, rules_log, parent, name)))
		note_activity(p, ino, now);
	sealer_saved_removed_locked(vol, ino);
	if (!p->rides && !p->opens && !new_names_any(&p->new_names))
		p->opened_ns = 0;
}

void sealer_note_locked(struct volume *vol, enum activity what, uint64_t parent,
			const char *old_name, const char *name, uint64_t ino)
{
	struct sealer *s = vol->sealer;
	int64_t now = clock_mono_ns();

	if (!s || vol->options.read_only || what == ACTIVITY_WRITE)
		return; /* writes are seen by the times of open files (sealer_look_locked) */
	if (what != ACTIVITY_TIMES)
		opened(vol, now);
	touch_temporaries(vol, parent, now);
	switch (what) {
	case ACTIVITY_CREATE:
		note_create(vol, parent, name, ino, now);
		break;
	case ACTIVITY_CLOSE:
		note_close(vol, parent, name, ino, now);
		break;
	case ACTIVITY_RENAME:
	case ACTIVITY_REPLACE:
		note_rename(vol, parent, old_name, name, ino, what == ACTIVITY_REPLACE, now);
		break;
	case ACTIVITY_REMOVE:
		note_remove(vol, parent, name, ino, now);
		break;
	case ACTIVITY_ATTR:
		sealer_rides_locked(vol);
		break;
	case ACTIVITY_TIMES:
		s->pending.times = true;
		break;
	case ACTIVITY_EMPTIED:
		sealer_rides_locked(vol);
		seal_at_marker(vol, parent, name, ino);
		break;
	case ACTIVITY_WRITE:
		break;
	}
	if (s->looking_ns > now + vol->options.settle_ns)
		sealer_wake_locked(vol);
}

void sealer_killed_locked(struct volume *vol)
{
	struct sealer *s = vol->sealer;

	if (!s || vol->options.read_only)
		return;
	s->pending.killed = true;
	s->pending.activity_ns = clock_mono_ns();
	s->pending.activity_ino = 0;
	sealer_wake_locked(vol);
}

void sealer_left_locked(struct volume *vol, uint64_t parent, const char *name, uint64_t ino,
			pid_t by, bool over)
{
	struct new_name *n = NULL;

	if (vol->sealer)
		n = new_names_find(&vol->sealer->pending.new_names, parent, name, ino);
	if (n) {
		n->left = true;
		n->left_by = by;
		n->over = over;
	}
	sealer_killed_locked(vol);
}

void sealer_incomplete_locked(struct volume *vol, const char *reason)
{
	if (vol->sealer && !vol->options.read_only)
		pending_add_reason(&vol->sealer->pending, reason);
	sealer_killed_locked(vol);
}

void sealer_unknown_locked(struct volume *vol)
{
	if (vol->sealer && !vol->options.read_only)
		vol->sealer->pending.unknown = true;
}

/* ---- what live calls (lib/live/observer.h) ---- */

int sealer_wait_durable(struct volume *vol, int64_t timeout_ns, interrupted_fn interrupted,
			void *arg)
{
	/* A close says nothing of whether its save is over. */
	const struct epochs_seal how = {.trigger = "close"};
	uint64_t number;
	int error = epochs_seal(vol, &how, &number);

	if (error || !number)
		return error;
	return epochs_wait(vol, number, timeout_ns, interrupted, arg);
}

const struct live_observer epochs_observer = {
	.event_locked = fact_log_note_locked,
	.note_locked = sealer_note_locked,
	.before_replace_locked = sealer_before_replace_locked,
	.before_name_locked = sealer_before_name_locked,
	.before_rename_locked = sealer_before_rename_locked,
	.before_exchange_locked = sealer_before_exchange_locked,
	.moves_locked = arrivals_note_locked,
	.before_taken_locked = sealer_saved_taken_locked,
	.incomplete_locked = sealer_incomplete_locked,
	.writer_locked = doubts_writer_locked,
	.unknown_locked = sealer_unknown_locked,
	.doubt_locked = doubts_killed_locked,
	.refused_locked = doubts_refused_locked,
	.killed_locked = sealer_killed_locked,
	.saved_locked = doubts_saved_locked,
	.changed_locked = doubts_changed_locked,
	.renamed_locked = doubts_renamed_locked,
	.is_try_locked = sealer_is_try_locked,
	.has_log_locked = sealer_has_log_locked,
	.may_remove_locked = resume_may_remove_locked,
	.before_reading = resume_before_reading,
	.for_reader = resume_for_reader,
	.await_log_locked = seal_await_log_locked,
	.closed = resume_after_close,
	.wait_durable = sealer_wait_durable,
};
