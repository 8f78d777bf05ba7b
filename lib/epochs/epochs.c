/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs of an open volume: sealing on request, listing, trees, names. */
#include "lib/epochs/epochs.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "lib/cache/trees.h"
#include "lib/cache/uploads.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/driver.h"
#include "lib/epochs/node_state.h"
#include "lib/epochs/record_fill.h"
#include "lib/epochs/seal.h"
#include "lib/format/names.h"
#include "lib/live/body.h"
#include "lib/live/live_internal.h"
#include "lib/meta/nodes_decide.h"
#include "lib/meta/record_metadata.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

uint64_t epochs_current_locked(const struct volume *vol)
{
	return nodes_is_set(vol) ? nodes_current_locked(vol) : vol->current_epoch;
}

/* ---- the index ---- */

static int index_row(void *arg, const struct state_epoch *e)
{
	cleanup_record struct epoch_record record = {0};
	int error;

	if (!e->record || e->state == EPOCH_DROPPED || nodes_is_part(e->number))
		return 0;
	error = record_decode(e->record, strlen(e->record), &record);
	if (error) {
		log_error("epoch %llu: its record in the local state is damaged",
			  (unsigned long long)e->number);
		return error == -ENOMEM ? error : 0;
	}
	return epoch_index_add(arg, &record, e->superseded);
}

int epochs_index_load_locked(struct volume *vol, struct epoch_index *x)
{
	int error = state_epoch_each(vol->state, index_row, x);

	if (error)
		epoch_index_free(x);
	return error;
}

struct epoch_index *epochs_index_locked(struct volume *vol)
{
	struct sealer *s = vol->sealer;
	int error;

	if (!s)
		return NULL;
	if (s->index_loaded)
		return &s->index;
	error = epochs_index_load_locked(vol, &s->index);
	if (error) {
		log_error("cannot list the epochs: %s", strerror(-error));
		return NULL;
	}
	s->index_loaded = true;
	return &s->index;
}

void epochs_index_put_locked(struct volume *vol, const struct epoch_record *record, bool superseded)
{
	struct sealer *s = vol->sealer;

	if (s->index_loaded && epoch_index_add(&s->index, record, superseded) != 0) {
		epoch_index_free(&s->index);
		s->index_loaded = false;
	}
}

/* ---- what is continued ---- */

static int mark_superseded_locked(struct volume *vol, const struct state_epoch *e)
{
	struct state_epoch row = *e;

	row.superseded = true;
	return e->superseded ? 0 : state_epoch_set(vol->state, &row);
}

struct continued {
	struct volume *vol;
	uint64_t number, half;
	struct epoch_brief by;
};

static bool is_in_save(const struct continued *c, const struct epoch_record *r)
{
	const struct epoch_brief e = {
		.number = r->number,
		.restores = r->restores,
		.trigger = r->trigger,
	};

	return r->half == c->half || epoch_brief_is_in_save(&e, &c->by);
}

static int supersede_row(void *arg, const struct state_epoch *e)
{
	const struct continued *c = arg;
	cleanup_record struct epoch_record record = {0};

	if (e->number != c->number && e->number != c->half &&
	    (!e->record || nodes_is_part(e->number) ||
	     record_decode(e->record, strlen(e->record), &record) != 0 || !is_in_save(c, &record)))
		return 0;
	return mark_superseded_locked(c->vol, e);
}

/* As epoch_index_half_of. */
static int half_of_row(struct volume *vol, uint64_t number, uint64_t *ret_half)
{
	cleanup_record struct epoch_record record = {0};
	struct state_epoch row;
	int error = state_epoch_get(vol->state, number, &row);

	*ret_half = number;
	if (error)
		return error == -ENOENT ? 0 : error;
	if (row.record && record_decode(row.record, strlen(row.record), &record) == 0 &&
	    record.continues && record.half)
		*ret_half = record.half;
	state_epoch_free(&row);
	return 0;
}

int epochs_supersede_locked(struct volume *vol, uint64_t continued, uint64_t from, uint64_t by)
{
	struct continued c = {
		.vol = vol,
		.number = continued,
		.half = continued,
		.by = {.number = by, .continues_from = from < continued ? from : 0},
	};
	int error = half_of_row(vol, continued, &c.half);
	uint64_t first =
		c.by.continues_from && c.by.continues_from < c.half ? c.by.continues_from : c.half;

	return error ? error : state_epoch_each_between(vol->state, first, by, supersede_row, &c);
}

/* ---- sealing on request ---- */

static enum record_trigger trigger_of(const char *text)
{
	enum record_trigger trigger = text ? record_trigger_parse(text) : RECORD_TRIGGER_COMMIT;

	return trigger == RECORD_TRIGGER_UNKNOWN ? RECORD_TRIGGER_COMMIT : trigger;
}

/* A person asks for an epoch: so a volume without any gets an empty one, and mere times of files are sealed. */
static bool is_asked_for(enum record_trigger trigger)
{
	return trigger == RECORD_TRIGGER_COMMIT || trigger == RECORD_TRIGGER_MKDIR;
}

bool epochs_tag_allowed(const char *name)
{
	return tag_name_valid(name) && !tag_name_is_step(name);
}

static int check_how(const struct epochs_seal *how)
{
	if (how->tag && !epochs_tag_allowed(how->tag))
		return -EINVAL;
	if (how->message && strlen(how->message) > RECORD_TEXT_MAX)
		return -EINVAL;
	return how->has_step && how->step > INT64_MAX ? -EINVAL : 0;
}

static struct seal_how seal_how_of(const struct epochs_seal *how)
{
	return (struct seal_how){
		.trigger = trigger_of(how->trigger),
		.tag = how->tag,
		.message = how->message,
		.metadata = how->metadata,
		.has_step = how->has_step,
		.step = how->step,
		.whole = how->whole,
	};
}

/* Whether somebody who says that all is whole says something new. */
static bool is_vouched_for_locked(struct volume *vol, uint64_t newest)
{
	const struct epoch_index *x = vol->driver ? epochs_index_locked(vol) : NULL;

	if (!vol->driver)
		return doubts_any_locked(vol);
	return newest && x && epoch_index_whole(x) != newest;
}

/* ret_begun: the tag is the new epoch's, given when it is frozen. */
static int seal_or_newest_locked(struct volume *vol, const struct epochs_seal *how,
				 uint64_t *ret_number, bool *ret_begun)
{
	struct seal_how seal = seal_how_of(how);
	uint64_t taken, newest = vol->sealer->last.number;

	if (how->tag && state_tag_get(vol->state, how->tag, &taken) == 0)
		return -EEXIST;
	if (newest < vol->current_epoch)
		newest = vol->current_epoch;
	if (seal_needed_locked(vol) || (how->whole && is_vouched_for_locked(vol, newest)) ||
	    ((!newest || vol->sealer->pending.times) && is_asked_for(seal.trigger)) ||
	    (nodes_is_set(vol) && how->has_step && !nodes_has_step_locked(vol, how->step))) {
		*ret_begun = true;
		return seal_begin_locked(vol, &seal, ret_number);
	}
	*ret_begun = false;
	*ret_number = newest;
	return 0;
}

/* Whether the record says already what the caller wants it to say. */
static bool says(const struct epoch_record *r, const struct epochs_seal *how)
{
	if (how->has_step && (!r->has_step || r->step != how->step))
		return false;
	if (!metadata_said(r, how->metadata))
		return false;
	return !how->message || (r->message && !strcmp(r->message, how->message));
}

static int say(struct epoch_record *r, const struct epochs_seal *how)
{
	if (how->has_step) {
		r->has_step = true;
		r->step = how->step;
		free(r->step_name);
		r->step_name = NULL;
	}
	if (metadata_set(r, how->metadata))
		return -ENOMEM;
	return how->message ? record_set_text(&r->message, how->message) : 0;
}

/* Not once its upload has begun; and what a person said of an epoch stays. */
static bool may_amend(const struct state_epoch *row, const struct epoch_record *r)
{
	return row->state == EPOCH_SEALED && r->trigger != RECORD_TRIGGER_COMMIT &&
	       r->trigger != RECORD_TRIGGER_MKDIR;
}

static int put_amended_locked(struct volume *vol, struct state_epoch *row,
			      const struct epoch_record *r)
{
	cleanup_buf struct buf json = {0};
	int error = record_encode(r, &json);

	if (error)
		return error;
	free(row->record);
	row->record = strdup(buf_str(&json));
	error = row->record ? state_epoch_set(vol->state, row) : -ENOMEM;
	if (!error)
		epochs_index_put_locked(vol, r, row->superseded);
	return error;
}

/* That of saves which nothing speaks against (judge_rules.h). */
static const char whole_rule[] = "J7";

static int put_whole_locked(struct volume *vol, struct state_epoch *row)
{
	cleanup_record struct epoch_record r = {0};
	int error = row->record ? record_decode(row->record, strlen(row->record), &r) : -ENOENT;

	if (!error && row->state != EPOCH_SEALED)
		error = -EALREADY;
	if (error)
		return error;
	r.complete = RECORD_COMPLETE;
	free(steal_ptr(r.reason));
	free(steal_ptr(r.rule));
	error = record_set_text(&r.rule, whole_rule);
	return error ? error : put_amended_locked(vol, row, &r);
}

int epochs_found_whole_locked(struct volume *vol, uint64_t number, bool waited)
{
	struct state_epoch row;
	int error;

	for (struct seal_job *job = vol->sealer->first; job; job = job->next)
		if (job->number == number) {
			job->complete = RECORD_COMPLETE;
			job->judge = whole_rule;
			free(steal_ptr(job->why));
			return 0;
		}
	if (waited)
		return -EALREADY;
	error = state_epoch_get(vol->state, number, &row);
	if (error)
		return error;
	error = put_whole_locked(vol, &row);
	state_epoch_free(&row);
	return error;
}

/* Nothing changed since this epoch: gives it the step and the message. -EALREADY where it cannot have them any more, with the step that
 * it has, which is a new one's, too, unless the caller says another. */
static int amend(struct volume *vol, const struct epochs_seal *how, uint64_t number,
		 struct seal_how *new)
{
	cleanup_record struct epoch_record record = {0};
	struct state_epoch row;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = state_epoch_get(vol->state, number, &row);
	if (error)
		return error == -ENOENT ? -EALREADY : error;
	error = row.record ? record_decode(row.record, strlen(row.record), &record) : -EALREADY;
	if (!error && !says(&record, how)) {
		error = may_amend(&row, &record) ? say(&record, how) : -EALREADY;
		if (!error)
			error = put_amended_locked(vol, &row, &record);
	}
	if (!new->has_step && record.has_step) {
		new->has_step = true;
		new->step = record.step;
	}
	state_epoch_free(&row);
	return error;
}

/* Makes sure that what the caller says of the epoch is said: of the newest one where it can be, else of a new one. */
static int say_of_newest(struct volume *vol, const struct epochs_seal *how, uint64_t *number,
			 bool *ret_begun)
{
	struct seal_how seal = seal_how_of(how);
	int error = amend(vol, how, *number, &seal);

	if (error != -EALREADY)
		return error;
	mutex_lock(&vol->lock);
	error = seal_begin_locked(vol, &seal, number);
	mutex_unlock(&vol->lock);
	*ret_begun = !error;
	return error ? error : seal_finish_until(vol, *number);
}

int epochs_seal(struct volume *vol, const struct epochs_seal *how, uint64_t *ret_number)
{
	uint64_t number = 0;
	bool begun = false;
	int error = vol->options.read_only ? -EROFS : check_how(how);

	/* The epoch that would be tagged is only made when all nodes have sealed. */
	if (!error && how->tag && nodes_is_set(vol))
		error = -EOPNOTSUPP;
	if (error)
		return error;
	error = bodies_finish_closes(vol);
	if (error)
		return error;
	doubts_look_at_temporaries(vol);
	mutex_lock(&vol->lock);
	error = seal_or_newest_locked(vol, how, &number, &begun);
	mutex_unlock(&vol->lock);
	/* The newest may have begun and not be frozen yet. */
	if (!error)
		error = seal_finish_until(vol, number);
	if (!error && !begun && number && (how->has_step || how->message || how->metadata) &&
	    !nodes_is_set(vol))
		error = say_of_newest(vol, how, &number, &begun);
	if (!error && how->tag && !begun)
		error = epochs_tag(vol, how->tag, number, false);
	if (!error)
		*ret_number = number;
	return error;
}

/* ---- listing ---- */

/* Takes over what the row owns. */
static int info_of_row(struct volume *vol, struct state_epoch *row, struct epoch_info *ret_info)
{
	const struct epoch_index *x = epochs_index_locked(vol);
	const struct epoch_brief *brief = x ? epoch_index_find(x, row->number) : NULL;
	struct epoch_info info = {.number = row->number, .state = row->state};
	int error;

	if (row->state == EPOCH_DROPPED || !row->record)
		return -ENOENT;
	error = record_decode(row->record, strlen(row->record), &info.record);
	if (error)
		return error == -ENOMEM ? error : -EUCLEAN;
	info.superseded = brief ? brief->superseded : row->superseded;
	info.complete = info.record.complete == RECORD_COMPLETE && !info.superseded;
	info.error = steal_ptr(row->error);
	*ret_info = info;
	return 0;
}

int epochs_get(struct volume *vol, uint64_t number, struct epoch_info *ret_info)
{
	struct state_epoch row;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = state_epoch_get(vol->state, number, &row);
	if (error)
		return error;
	error = info_of_row(vol, &row, ret_info);
	state_epoch_free(&row);
	return error;
}

/* The number after this one, and when it was sealed; false at the end. */
static bool next_brief(struct volume *vol, uint64_t after, uint64_t *ret_number, int64_t *ret_ns)
{
	const struct epoch_index *x;
	const struct epoch_brief *e;

	SCOPED_LOCK(&vol->lock);
	x = epochs_index_locked(vol);
	e = x ? epoch_index_after(x, after) : NULL;
	if (!e)
		return false;
	*ret_number = e->number;
	*ret_ns = e->sealed_ns;
	return true;
}

int epochs_each(struct volume *vol, int (*fn)(void *arg, const struct epoch_info *e), void *arg)
{
	uint64_t number = 0;
	int64_t sealed_ns;
	int result = 0;

	while (!result && next_brief(vol, number, &number, &sealed_ns)) {
		struct epoch_info info = {0};

		result = epochs_get(vol, number, &info);
		if (result == -ENOENT || result == -EUCLEAN) {
			result = 0; /* dropped meanwhile, or damaged */
			continue;
		}
		if (!result)
			result = fn(arg, &info);
		epoch_info_free(&info);
	}
	return result;
}

int epochs_numbers(struct volume *vol, uint64_t after,
		   int (*fn)(void *arg, uint64_t number, int64_t sealed_ns), void *arg)
{
	int64_t sealed_ns;
	int result = 0;

	while (!result && next_brief(vol, after, &after, &sealed_ns))
		result = fn(arg, after, sealed_ns);
	return result;
}

int epochs_sealed_ns(struct volume *vol, uint64_t number, int64_t *ret_ns)
{
	const struct epoch_index *x;
	const struct epoch_brief *e;

	SCOPED_LOCK(&vol->lock);
	x = epochs_index_locked(vol);
	e = x ? epoch_index_find(x, number) : NULL;
	if (!e)
		return -ENOENT;
	*ret_ns = e->sealed_ns;
	return 0;
}

uint64_t epochs_latest(struct volume *vol)
{
	const struct epoch_index *x;

	SCOPED_LOCK(&vol->lock);
	x = epochs_index_locked(vol);
	return x ? epoch_index_latest(x) : 0;
}

int epochs_of_step(struct volume *vol, uint64_t step, uint64_t *ret_number)
{
	const struct epoch_index *x;

	SCOPED_LOCK(&vol->lock);
	x = epochs_index_locked(vol);
	if (!x)
		return -EIO;
	*ret_number = epoch_index_complete_of_step(x, step);
	return *ret_number ? 0 : -ENOENT;
}

uint64_t epochs_current(struct volume *vol)
{
	SCOPED_LOCK(&vol->lock);
	return epochs_current_locked(vol);
}

int epochs_resolve(struct volume *vol, const char *name, uint64_t *ret_number)
{
	const struct epoch_index *x;
	uint64_t number;
	int error;

	SCOPED_LOCK(&vol->lock);
	x = epochs_index_locked(vol);
	if (!x)
		return -EIO;
	error = epoch_index_resolve(x, name, clock_wall_ns(), ret_number);
	if (error != -EAGAIN)
		return error;
	if (strcmp(name, "current") == 0)
		number = epochs_current_locked(vol);
	else if (!tag_name_valid(name))
		return -EINVAL;
	else if ((error = state_tag_get(vol->state, name, &number)) != 0)
		return error;
	if (!epoch_index_find(x, number))
		return -ENOENT;
	*ret_number = number;
	return 0;
}

int epochs_tree(struct volume *vol, uint64_t number, struct tree **ret_tree)
{
	struct epoch_info info = {0};
	int error = epochs_get(vol, number, &info);

	if (error)
		return error;
	error = trees_fetch(vol, number, &info.record, ret_tree);
	epoch_info_free(&info);
	return error == -ENOENT ? -EIO : error;
}

/* ---- tags ---- */

static int tag_locked(struct volume *vol, const char *name, uint64_t number, bool replace)
{
	const struct epoch_index *x = epochs_index_locked(vol);
	uint64_t taken;

	if (!x || !epoch_index_find(x, number))
		return -ENOENT;
	if (!replace && state_tag_get(vol->state, name, &taken) == 0)
		return -EEXIST;
	return state_tag_set(vol->state, name, number);
}

int epochs_tag(struct volume *vol, const char *name, uint64_t number, bool replace)
{
	int error;

	if (vol->options.read_only)
		return -EROFS;
	if (!epochs_tag_allowed(name))
		return -EINVAL;
	mutex_lock(&vol->lock);
	error = tag_locked(vol, name, number, replace);
	mutex_unlock(&vol->lock);
	if (!error)
		uploads_kick(vol);
	return error;
}

int epochs_untag(struct volume *vol, const char *name)
{
	int error;

	if (vol->options.read_only)
		return -EROFS;
	mutex_lock(&vol->lock);
	error = state_tag_remove(vol->state, name);
	mutex_unlock(&vol->lock);
	if (!error)
		uploads_kick(vol);
	return error;
}

int epochs_tag_get(struct volume *vol, const char *name, uint64_t *ret_number)
{
	SCOPED_LOCK(&vol->lock);
	return state_tag_get(vol->state, name, ret_number);
}

struct tag_list {
	struct buf bytes; /* number, name with its NUL, and so on */
};

static int collect_tag(void *arg, const char *name, uint64_t number)
{
	struct tag_list *list = arg;

	buf_put_u64(&list->bytes, number);
	buf_put(&list->bytes, name, strlen(name) + 1);
	return buf_error(&list->bytes);
}

int epochs_tag_each(struct volume *vol, int (*fn)(void *arg, const char *name, uint64_t number),
		    void *arg)
{
	struct tag_list list = {0};
	struct reader r;
	int result;

	mutex_lock(&vol->lock);
	result = state_tag_each(vol->state, collect_tag, &list);
	mutex_unlock(&vol->lock);
	r = reader_of(list.bytes.data, list.bytes.len);
	while (!result && reader_left(&r)) {
		uint64_t number = reader_u64(&r);
		const char *name = (const char *)r.p;

		reader_skip(&r, strlen(name) + 1);
		result = fn(arg, name, number);
	}
	buf_free(&list.bytes);
	return result;
}

/* ---- Waiting until epochs are durable. ---- */

/* How often `interrupted` is asked. */
#define POLL_NS (50 * NS_PER_MS)

/* Whether this epoch and all before it are durable, and what one of several nodes could complete is. */
static bool all_durable_locked(struct volume *vol, uint64_t number)
{
	uint64_t pending;

	if (state_epoch_first_pending(vol->state, &pending) == 0 && pending <= number)
		return false;
	return !nodes_unlooked_locked(vol);
}

static int wait_durable(struct volume *vol, uint64_t number, int64_t deadline_ns,
			interrupted_fn interrupted, void *arg)
{
	for (;;) {
		int64_t now = clock_mono_ns();

		/* Without the lock: it may ask the kernel. */
		if (interrupted && interrupted(arg))
			return -EINTR;
		SCOPED_LOCK(&vol->lock);
		if (all_durable_locked(vol, number))
			return 0;
		if (uploads_gave_up(vol))
			return -EBUSY;
		if (now >= deadline_ns)
			return -ETIMEDOUT;
		cond_wait_until(&vol->changed, &vol->lock,
				deadline_ns - now < POLL_NS ? deadline_ns : now + POLL_NS);
	}
}

/* Without a remote an epoch is as safe as it gets once this machine's disk has it. */
static int sync_locally(struct volume *vol)
{
	int error = state_sync(vol->state);

	if (!error && syncfs(vol->cache_fd) < 0)
		error = -errno;
	return error;
}

static bool epoch_exists(struct volume *vol, uint64_t number)
{
	const struct epoch_index *x;

	SCOPED_LOCK(&vol->lock);
	x = epochs_index_locked(vol);
	return x && epoch_index_find(x, number);
}

/* And is not frozen yet. */
static bool has_begun(struct volume *vol, uint64_t number)
{
	const struct sealer *s;

	SCOPED_LOCK(&vol->lock);
	s = vol->sealer;
	return s && s->first && number >= s->first->number && number <= s->newest->number;
}

int epochs_wait(struct volume *vol, uint64_t number, int64_t timeout_ns, interrupted_fn interrupted,
		void *arg)
{
	struct epochs_seal how = {.trigger = "wait"};
	int64_t deadline = INT64_MAX, now = clock_mono_ns();
	int error = 0;

	if (timeout_ns >= 0 && timeout_ns < INT64_MAX - now)
		deadline = now + timeout_ns;
	if (has_begun(vol, number))
		seal_finish_until(vol, number);
	/* What a node of a set sealed is no epoch yet. */
	if (number && !nodes_is_part(number) && !epoch_exists(vol, number))
		return -ENOENT;
	if (vol->options.read_only)
		return 0;
	if (!number)
		error = epochs_seal(vol, &how, &number);
	if (error || !number)
		return error;
	if (vol->local_only)
		return sync_locally(vol);
	mutex_lock(&vol->lock);
	driver_upload_waited_locked(vol, number);
	mutex_unlock(&vol->lock);
	uploads_kick(vol);
	error = wait_durable(vol, number, deadline, interrupted, arg);
	/* After a power loss this machine must know it, too. */
	return error ? error : state_sync(vol->state);
}

/* ---- What user.epochfs.* of a live file show. ---- */

/* The epoch that first held what the file is now (0: none yet), whether one has it, and whether its content is in the
 * remote whatever became of that epoch. */
static int first_epoch(struct volume *vol, uint64_t ino, uint64_t *ret_epoch, bool *ret_sealed,
		       bool *ret_durable)
{
	struct state_version v = {0};
	struct state_file f;
	uint64_t born;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = state_file_get(vol->state, ino, &f);
	if (error)
		return error;
	born = f.born;
	if (S_ISREG(f.mode)) {
		error = f.closed ? state_version_get(vol->state, f.closed, &v) : 0;
		/* A file without a name may be open as an earlier version; the last one is reclaimed then. */
		if (error == -ENOENT)
			v.born = vol->next_epoch;
		else if (error)
			return error;
		born = v.born;
	}
	*ret_sealed = born < vol->next_epoch;
	/* A part of several nodes' epoch has a number of its own, which says nothing. */
	*ret_epoch = *ret_sealed && !nodes_is_part(born) ? born : 0;
	*ret_durable = v.id && v.state == VERSION_DURABLE;
	return 0;
}

static const char *state_text(enum epoch_state state)
{
	switch (state) {
	case EPOCH_UPLOADING:
		return "uploading";
	case EPOCH_DURABLE:
		return "durable";
	case EPOCH_FAILED:
		return "failed";
	case EPOCH_SEALED:
	case EPOCH_DROPPED:
		break;
	}
	return "sealed";
}

int epochs_of_file(struct volume *vol, uint64_t ino, struct file_epoch *ret_info)
{
	struct file_epoch info = {.state = "staged"};
	struct epoch_info epoch;
	bool sealed = false, durable = false;
	int error = first_epoch(vol, ino, &info.epoch, &sealed, &durable);

	if (error)
		return error;
	if (sealed)
		info.state = "sealed";
	if (info.epoch && !epochs_get(vol, info.epoch, &epoch)) {
		info.state = state_text(epoch.state);
		info.has_step = epoch.record.has_step;
		info.step = epoch.record.step;
		epoch_info_free(&epoch);
	}
	if (durable)
		info.state = "durable";
	*ret_info = info;
	return 0;
}
