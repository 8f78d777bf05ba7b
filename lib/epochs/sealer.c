/* SPDX-License-Identifier: Apache-2.0 */
/* The sealer: its thread, its start after what the last mount left, what it waits for. */
#include "lib/epochs/sealer.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/driver.h"
#include "lib/epochs/fact_log.h"
#include "lib/epochs/resume.h"
#include "lib/epochs/seal.h"
#include "lib/live/body.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/thread.h"

/* ---- what it looks at ---- */

struct look {
	struct volume *vol;
	int64_t now_ns, wall_ns;
	struct settle_writer *writers;
	struct seal_view_writer *who;
	unsigned count;
};

/* Wall clock to monotonic; nothing is later than now. */
static int64_t look_mono(const struct look *look, int64_t wall_ns)
{
	return wall_ns < look->wall_ns ? look->now_ns - (look->wall_ns - wall_ns) : look->now_ns;
}

static int look_at_body(void *arg, struct body *b)
{
	struct look *look = arg;
	struct volume *vol = look->vol;
	struct state_version v;
	struct settle_writer *w;
	struct seal_view_writer *who;
	struct stat st;

	if (!b->staged || b->orphan || body_is_held(b) || b->fd < 0 || fstat(b->fd, &st) < 0 ||
	    state_version_get(vol->state, b->version, &v) != 0)
		return 0;
	w = reallocarray(look->writers, look->count + 1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	look->writers = w;
	who = reallocarray(look->who, look->count + 1, sizeof(*who));
	if (!who)
		return -ENOMEM;
	look->who = who;
	who[look->count] = (struct seal_view_writer){b->ino, body_opener_locked(b), b->opened_ns};
	w[look->count] = (struct settle_writer){
		.fresh = b->opened_epoch == vol->next_epoch,
		.log = body_is_output_locked(vol, b),
		.in_place = v.kind == VERSION_EDIT,
		.changed_ns = look_mono(look, clock_ns(st.st_ctim)),
	};
	look->count++;
	return 0;
}

/* Temporary names that are still what they were; a rename over one takes it out without a word. */
static unsigned look_at_temporaries(struct volume *vol, struct settle_temporary **ret_list)
{
	struct settle_temporary *list = NULL;
	unsigned count = 0;

	for (const struct new_name *n = vol->sealer->pending.new_names.temporaries; n;
	     n = n->next_temporary) {
		struct state_name name;
		struct settle_temporary *more;

		if ((n->left && n->over) ||
		    state_name_get(vol->state, n->parent, n->name, &name) != 0 ||
		    name.ino != n->ino)
			continue;
		more = reallocarray(list, count + 1, sizeof(*list));
		if (!more)
			break;
		list = more;
		list[count++] = (struct settle_temporary){n->changed_ns};
	}
	*ret_list = list;
	return count;
}

static bool is_dirty(const struct volume *vol)
{
	const struct pending *p = &vol->sealer->pending;

	if (!p->opens && !new_names_any(&p->new_names))
		return false;
	/* With settle=0 a close seals; names that are only made wait for one. */
	return vol->options.settle_ns > 0 || p->closed || p->killed;
}

int sealer_look_locked(struct volume *vol, struct settle_answer *ret_answer,
		       struct seal_view_writer **ret_writers)
{
	struct pending *p = &vol->sealer->pending;
	struct look look = {.vol = vol, .now_ns = clock_mono_ns(), .wall_ns = clock_wall_ns()};
	cleanup_free struct settle_temporary *temporaries = NULL;
	struct settle_view view = {
		.now_ns = look.now_ns,
		.dirty = is_dirty(vol),
		.activity_ns = p->activity_ns,
		.settle_ns = vol->options.settle_ns,
		.patience_ns = vol->options.patience_ns,
	};
	int error = bodies_each_writing_locked(vol, look_at_body, &look);

	if (!error) {
		view.temporary_count = look_at_temporaries(vol, &temporaries);
		view.temporaries = temporaries;
		view.writers = look.writers;
		view.writer_count = look.count;
		*ret_answer = settle_decide(&view);
	}
	free(look.writers);
	if (!error && ret_writers)
		*ret_writers = steal_ptr(look.who);
	free(look.who);
	return error;
}

int sealer_path_locked(struct volume *vol, uint64_t parent, const char *name, struct buf *out)
{
	if (parent != ROOT_INO) {
		volume_path_locked(vol, parent, out);
		buf_put_u8(out, '/');
	}
	buf_put(out, name, strlen(name));
	return buf_error(out);
}

/* ---- the thread ---- */

void sealer_wake_locked(struct volume *vol)
{
	pthread_cond_signal(&vol->sealer->wake);
}

void sealer_hurry_locked(struct volume *vol)
{
	vol->sealer->rest_ns = 0;
	sealer_wake_locked(vol);
}

static int is_unfinished(void *arg, struct body *b)
{
	const struct volume *vol = arg;

	return b->staged && !b->orphan && !body_is_held(b) && !b->is_output &&
	       b->opened_epoch == vol->next_epoch;
}

/* A writer was killed, and nothing is left of what it did, nor is another at work: the next epoch is
 * a matter of its own. */
static void forget_reason(struct volume *vol)
{
	struct pending *p = &vol->sealer->pending;

	if (!p->reason && !p->unknown && !p->killed)
		return;
	if (bodies_each_writing_locked(vol, is_unfinished, vol) != 0)
		return;
	if (p->reason)
		log_info("nothing changed since the last epoch, so none is sealed: %s", p->reason);
	free(steal_ptr(p->reason));
	p->unknown = p->killed = false;
}

static enum record_trigger trigger_of_quiet(const struct volume *vol)
{
	const struct pending *p = &vol->sealer->pending;

	if (p->killed)
		return RECORD_TRIGGER_KILLED;
	if (p->recovered)
		return RECORD_TRIGGER_RECOVERY;
	return vol->options.settle_ns ? RECORD_TRIGGER_QUIET : RECORD_TRIGGER_CLOSE;
}

/* A log that has not the name of one: whoever watches is to know before a kill makes what was saved beside it half a save. */
static void tell_held_up(struct volume *vol, const struct seal_view_writer *w)
{
	cleanup_buf struct buf path = {0};
	int64_t held_ns = clock_mono_ns() - w->opened_ns;
	const char *name;

	if (!vol->sealer->pending.closed || held_ns <= 2 * vol->options.patience_ns ||
	    vol->sealer->told_held == w->ino)
		return;
	vol->sealer->told_held = w->ino;
	volume_path_locked(vol, w->ino, &path);
	name = strrchr(buf_str(&path), '/');
	log_warn("%s: open and written for %" PRId64
		 " s, so that no epoch was sealed since; if it is a log, mount with -o log=%s",
		 buf_str(&path), held_ns / NS_PER_S, name ? name + 1 : buf_str(&path));
}

/* When what is left under a temporary name is looked at: while it can be told what it continues, but not after each of many files. */
static int64_t look_ns(const struct volume *vol)
{
	const struct pending *p = &vol->sealer->pending;
	int64_t quiet = vol->options.settle_ns, at_ns;

	if (!p->rewritten && (!p->temporary || !p->new_names.temporaries))
		return INT64_MAX;
	if (quiet < NS_PER_S && !p->rewritten)
		quiet = NS_PER_S;
	return __builtin_add_overflow(p->activity_ns, quiet, &at_ns) ? INT64_MAX : at_ns;
}

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
	return a_ns < b_ns ? a_ns : b_ns;
}

/* Seals where it is time; else says until when to wait. */
static int64_t act_locked(struct volume *vol)
{
	struct sealer *s = vol->sealer;
	struct settle_answer answer;
	cleanup_free struct seal_view_writer *writers = NULL;
	struct seal_how how = {0};
	int64_t now = clock_mono_ns();
	uint64_t number;

	if (s->retry_ns > now)
		return s->retry_ns;
	if (sealer_look_locked(vol, &answer, &writers) != 0)
		return now + NS_PER_S;
	if (answer.verdict == SETTLE_WAIT && answer.hold == SETTLE_HOLD_WRITER)
		tell_held_up(vol, &writers[answer.index]);
	if (answer.verdict == SETTLE_WAIT)
		return earlier(look_ns(vol), answer.until_ns);
	if (answer.verdict == SETTLE_IDLE) {
		if (!s->pending.opens && !new_names_any(&s->pending.new_names) &&
		    now >= s->pending.activity_ns + vol->options.settle_ns)
			forget_reason(vol);
		return s->pending.reason || s->pending.unknown || s->pending.killed ? now + NS_PER_S
										    : INT64_MAX;
	}
	how.trigger = trigger_of_quiet(vol);
	if (seal_begin_locked(vol, &how, &number) != 0)
		s->retry_ns = now + vol->options.patience_ns;
	return now;
}

static void *sealer_main(void *arg)
{
	struct volume *vol = arg;
	struct sealer *s = vol->sealer;

	mutex_lock(&vol->lock);
	while (!s->stops) {
		int64_t resume_ns;

		if (s->first && s->rest_ns > clock_mono_ns()) {
			s->looking_ns = s->rest_ns;
			cond_wait_until(&s->wake, &vol->lock, s->rest_ns);
			continue;
		}
		if (s->first) {
			mutex_unlock(&vol->lock);
			seal_finish_until(vol, INT64_MAX);
			mutex_lock(&vol->lock);
			continue;
		}
		if (look_ns(vol) <= clock_mono_ns()) {
			mutex_unlock(&vol->lock);
			doubts_look_at_temporaries(vol);
			mutex_lock(&vol->lock);
			continue;
		}
		if (vol->driver) {
			mutex_unlock(&vol->lock);
			driver_go_back(vol);
			mutex_lock(&vol->lock);
		}
		resume_ns = resume_retry_locked(vol);
		s->looking_ns =
			earlier(vol->driver ? driver_act_locked(vol) : act_locked(vol), resume_ns);
		if (s->first || s->stops || s->looking_ns <= clock_mono_ns())
			continue;
		if (s->looking_ns == INT64_MAX)
			cond_wait(&s->wake, &vol->lock);
		else
			cond_wait_until(&s->wake, &vol->lock, s->looking_ns);
	}
	mutex_unlock(&vol->lock);
	return NULL;
}

/* ---- start: what the last mount left ---- */

struct rows {
	uint64_t newest;     /* the greatest number that has a record or a tombstone */
	uint64_t unfinished; /* the smallest that began and was not frozen; 0: none */
};

static int look_at_row(void *arg, const struct state_epoch *e)
{
	struct rows *rows = arg;

	if (e->state == EPOCH_SEALED && !e->record) {
		if (!rows->unfinished)
			rows->unfinished = e->number;
	} else {
		rows->newest = e->number;
	}
	return 0;
}

static uint64_t meta_or_zero(struct volume *vol, const char *key)
{
	uint64_t value = 0;

	state_get_meta_u64(vol->state, key, &value);
	return value;
}

/* Sets next_epoch and current_epoch, and takes back what began and was not frozen. */
static int restore_numbers(struct volume *vol, bool *ret_unfinished)
{
	struct rows rows = {0};
	uint64_t next = meta_or_zero(vol, "next_epoch");
	int error = state_epoch_each(vol->state, look_at_row, &rows);

	if (error)
		return error;
	if (next <= rows.newest)
		next = rows.newest + 1;
	if (rows.unfinished) {
		next = rows.unfinished > rows.newest ? rows.unfinished : rows.newest + 1;
		error = state_epochs_rewind(vol->state, next);
	}
	if (!error && !vol->options.read_only)
		error = state_set_meta_u64(vol->state, "next_epoch", next);
	vol->next_epoch = next;
	vol->current_epoch = meta_or_zero(vol, "current");
	*ret_unfinished = rows.unfinished != 0;
	return error;
}

/* Whether anything below this directory is newer than the last epoch. */
static int find_news(void *arg, const struct state_name *n, const char *name,
		     const struct state_file *f)
{
	struct volume *vol = arg;
	struct state_version v;

	(void)n;
	(void)name;
	if (!f)
		return 0;
	if (f->born >= vol->next_epoch)
		return 1;
	if (S_ISDIR(f->mode))
		return state_dir_list(vol->state, f->ino, 0, find_news, vol);
	return f->closed && state_version_get(vol->state, f->closed, &v) == 0 &&
	       v.born >= vol->next_epoch;
}

int sealer_left_changes_locked(struct volume *vol)
{
	if (meta_or_zero(vol, "unsealed"))
		return 1;
	return meta_or_zero(vol, "sealer_running")
		       ? state_dir_list(vol->state, ROOT_INO, 0, find_news, vol)
		       : 0;
}

/* Of an epoch that was not frozen, what it continued counts: its number is used again. */
static void restore_continues(struct volume *vol, bool unfinished)
{
	struct pending *p = &vol->sealer->pending;

	p->continues = p->kept = meta_or_zero(vol, unfinished ? "continues_begun" : "continues");
	p->continues_chain = p->kept_chain =
		meta_or_zero(vol, unfinished ? "continues_begun_chain" : "continues_chain") != 0;
	if (p->continues)
		p->continues_from =
			meta_or_zero(vol, unfinished ? "continues_begun_from" : "continues_from");
	if (unfinished && !vol->options.read_only)
		sealer_note_continues_locked(vol);
}

/* "sealer_running": the last mount did not stop the sealer, so what was only in memory must be found
 * out. */
static int restore_pending(struct volume *vol, bool unfinished, bool killed)
{
	struct sealer *s = vol->sealer;
	uint64_t unsealed = meta_or_zero(vol, "unsealed");
	bool crashed = meta_or_zero(vol, "sealer_running") != 0;
	int found = 0;

	s->pending.activity_ns = clock_mono_ns();
	s->pending.rides = unsealed > UNSEALED_NOTHING;
	s->pending.opens = unsealed >= UNSEALED_OPENS || unfinished;
	if ((crashed || unsealed == UNSEALED_NAMES) && !s->pending.opens) {
		found = state_dir_list(vol->state, ROOT_INO, 0, find_news, vol);
		if (found < 0)
			return found;
		s->pending.opens = found > 0;
	}
	/* Which files were saved before the mount is not known. What replaces them tells by its count and its order (sealer_before.c). */
	s->pending.closed = s->pending.opens;
	/* What was closed torn under a temporary name may not have been looked at. */
	s->pending.recovered = s->pending.rewritten = crashed && s->pending.opens;
	if (s->pending.rides || s->pending.opens) {
		s->pending.opened_ns = clock_wall_ns();
		s->pending.opened_mono_ns = s->pending.activity_ns;
	}
	s->pending.killed = killed && s->pending.opens;
	restore_continues(vol, unfinished);
	return vol->options.read_only ? 0 : state_set_meta_u64(vol->state, "sealer_running", 1);
}

/* How much the last epoch holds. */
static void restore_bytes(struct volume *vol, uint64_t number)
{
	cleanup_record struct epoch_record record = {0};
	struct state_epoch row = {0};

	if (state_epoch_get(vol->state, number, &row) == 0 && row.record &&
	    record_decode(row.record, strlen(row.record), &record) == 0)
		vol->sealer->tree_bytes = record.bytes;
	state_epoch_free(&row);
}

static void restore_last(struct volume *vol)
{
	struct epoch_index *x = epochs_index_locked(vol);
	const struct epoch_brief *e = x ? epoch_index_find(x, epoch_index_newest(x)) : NULL;
	struct seal_last *last = &vol->sealer->last;
	uint64_t first;

	if (!e)
		return;
	restore_bytes(vol, e->number);
	*last = (struct seal_last){
		.number = e->number,
		.trigger = e->trigger,
		.certain = e->trigger == RECORD_TRIGGER_MARKER,
		.begun_ns = clock_mono_ns() - (clock_wall_ns() - e->sealed_ns),
		.half = e->half && !e->continues ? e->half : e->number,
		.run = e->number,
		.renamed = meta_or_zero(vol, "renamed"),
	};
	last->chain = e->half ? e->half : e->number;
	/* A half that was told with what is continued is where the save began. */
	first = e->continues ? e->half : 0;
	e = epoch_index_find(x, last->half);
	if (e && e->trigger == RECORD_TRIGGER_MARKER)
		vol->sealer->over.number = e->number;
	/* Downwards only: a record that was made to lead in a circle ends it. */
	while (e && e->continues && e->continues < e->number && e->continues >= first) {
		last->chain = e->continues < last->chain ? e->continues : last->chain;
		if (last->half == last->number)
			last->run = e->continues;
		e = epoch_index_find(x, e->continues);
	}
}

static int restore(struct volume *vol, bool killed)
{
	bool unfinished = false;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = restore_numbers(vol, &unfinished);
	if (error)
		return error;
	restore_last(vol);
	sealer_renames_load(vol);
	error = restore_pending(vol, unfinished, killed);
	return error ? error : doubts_recovered_locked(vol);
}

void sealer_free(struct volume *vol)
{
	struct sealer *s = steal_ptr(vol->sealer);

	pending_clear(&s->pending);
	free(s->last.logs);
	epoch_index_free(&s->index);
	pthread_cond_destroy(&s->wake);
	mutex_destroy(&s->finishing);
	free(s);
	fact_log_free(steal_ptr(vol->facts));
}

int sealer_start(struct volume *vol, bool recovered_killed)
{
	struct sealer *s = calloc(1, sizeof(*s));
	int error;

	if (!s)
		return -ENOMEM;
	error = cond_init_mono(&s->wake);
	if (error) {
		free(s);
		return error;
	}
	mutex_init(&s->finishing, LOCK_SEALER_FINISHING);
	vol->sealer = s;
	/* Without memory none are kept. */
	vol->facts = vol->options.read_only ? NULL : fact_log_new();
	error = restore(vol, recovered_killed);
	if (!error && vol->driver)
		error = driver_start(vol);
	if (error)
		sealer_free(vol);
	return error;
}

int sealer_run(struct volume *vol)
{
	struct sealer *s = vol->sealer;
	int error;

	if (vol->options.read_only)
		return 0;
	/* The thread asks whether it runs. */
	mutex_lock(&vol->lock);
	error = thread_start(&s->thread, NULL, sealer_main, vol);
	s->runs = !error;
	mutex_unlock(&vol->lock);
	return error;
}

/* Everything that is only in memory, for the next mount. */
static void keep_pending_locked(struct volume *vol)
{
	const struct pending *p = &vol->sealer->pending;
	enum unsealed unsealed = p->opens || new_names_any(&p->new_names) ? UNSEALED_OPENS
				 : p->rides				  ? UNSEALED_RIDES
									  : UNSEALED_NOTHING;

	if (state_set_meta_u64(vol->state, "unsealed", unsealed) == 0)
		state_set_meta_u64(vol->state, "sealer_running", 0);
}

void sealer_stop(struct volume *vol)
{
	struct sealer *s = vol->sealer;

	if (!s->runs)
		return;
	mutex_lock(&vol->lock);
	s->stops = true;
	sealer_wake_locked(vol);
	mutex_unlock(&vol->lock);
	pthread_join(s->thread, NULL);
	seal_finish_until(vol, INT64_MAX);
	mutex_lock(&vol->lock);
	keep_pending_locked(vol);
	mutex_unlock(&vol->lock);
}
