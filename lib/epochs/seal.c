/* SPDX-License-Identifier: Apache-2.0 */
/* Sealing: the short half under the lock, the queue, and the end of the long half. */
#include "lib/epochs/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/format/names.h"
#include "lib/saves/seal_rules.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/log.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "lib/epochs/announce.h"
#include "lib/live/bodies.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/driver.h"
#include "lib/epochs/fact_log.h"
#include "lib/epochs/node_state.h"
#include "lib/epochs/record_fill.h"
#include "lib/epochs/resume.h"
#include "lib/epochs/retention.h"
#include "lib/epochs/sealer.h"
#include "lib/cache/trees.h"
#include "lib/cache/uploads.h"

/* So long the next save is given to begin before what it sealed is frozen, which takes locks and a processor. */
#define REST_NS (50 * NS_PER_MS)

void pending_clear(struct pending *p)
{
	new_names_clear(&p->new_names);
	changed_clear(&p->changed);
	free(p->reason);
	*p = (struct pending){0};
}

void pending_add_reason(struct pending *p, const char *reason)
{
	char *joined = NULL;

	if (!p->reason)
		p->reason = strdup(reason);
	else if (!strstr(p->reason, reason) && strlen(p->reason) < RECORD_TEXT_MAX / 2 &&
		 text_print(&joined, "%s; %s", p->reason, reason) >= 0) {
		free(p->reason);
		p->reason = joined;
	}
}

static void job_free(struct seal_job *job)
{
	if (job->snapshot)
		state_snapshot_end(job->snapshot);
	for (unsigned i = 0; i < job->log_count; i++)
		if (job->logs[i].fd >= 0)
			close(job->logs[i].fd);
	free(job->logs);
	free(job->sizes);
	free(job->tag);
	free(job->message);
	free(job->metadata);
	free(job->why);
	buf_free(&job->saves);
	pending_clear(&job->pending);
	free(job);
}

/* ---- begin ---- */

struct log_search {
	struct volume *vol;
	struct seal_job *job;
};

static bool body_is_open_log(struct volume *vol, struct body *b)
{
	return b->staged && !b->pending && !b->orphan && body_is_output_locked(vol, b);
}

static int note_log(void *arg, struct body *b)
{
	struct log_search *search = arg;
	struct seal_job *job = search->job;
	struct seal_log *logs, *log;
	struct stat st;

	if (!body_is_open_log(search->vol, b) || b->fd < 0 || fstat(b->fd, &st) < 0)
		return 0;
	logs = reallocarray(job->logs, job->log_count + 1, sizeof(*logs));
	if (!logs)
		return -ENOMEM;
	job->logs = logs;
	log = &logs[job->log_count];
	*log = (struct seal_log){
		.ino = b->ino,
		.fd = fcntl(b->fd, F_DUPFD_CLOEXEC, 3),
		.size = (uint64_t)st.st_size,
		.mtime_ns = clock_ns(st.st_mtim),
	};
	if (log->fd < 0)
		return -errno;
	job->log_count++;
	return 0;
}

/* The versions that the logs' copies will be: they belong to this epoch alone. */
static int make_log_versions(struct volume *vol, struct seal_job *job)
{
	for (unsigned i = 0; i < job->log_count; i++) {
		struct seal_log *log = &job->logs[i];
		struct state_version v = {
			.ino = log->ino,
			.state = VERSION_CLOSED,
			.kind = VERSION_EDIT,
			.size = log->size,
			.born = job->number,
			.died = job->number + 1,
			.local_bytes = log->size,
			.local_whole = true,
		};
		int error = state_version_new(vol->state, &v, &log->version);

		if (error)
			return error;
	}
	return 0;
}

/* What the first of the epochs that are not frozen continues is noted for a crash, for then its number is used again. */
static int store_continues(struct volume *vol)
{
	const struct sealer *s = vol->sealer;
	int error = 0;

	if (!s->first)
		error = state_set_meta_u64(vol->state, "continues_begun", s->pending.continues);
	if (!error && !s->first)
		error = state_set_meta_u64(vol->state, "continues_begun_chain",
					   s->pending.continues_chain);
	if (!error && !s->first)
		error = state_set_meta_u64(vol->state, "continues_begun_from",
					   s->pending.continues_from);
	return error ? error : state_set_meta_u64(vol->state, "continues", 0);
}

static int store_begin(struct volume *vol, struct seal_job *job)
{
	struct state_epoch row = {.number = job->number, .state = EPOCH_SEALED};
	int error = state_begin(vol->state);

	if (error)
		return error;
	error = state_epoch_set(vol->state, &row);
	if (!error)
		error = make_log_versions(vol, job);
	if (!error)
		error = state_set_meta_u64(vol->state, "next_epoch", job->number + 1);
	if (!error)
		error = state_set_meta_u64(vol->state, "unsealed", UNSEALED_NOTHING);
	if (!error)
		error = store_continues(vol);
	if (!error)
		error = state_set_meta_u64(vol->state, "renamed", job->renamed);
	return state_end(vol->state, error);
}

static int keep_sizes(struct seal_job *job)
{
	if (!job->log_count)
		return 0;
	job->sizes = calloc(job->log_count, sizeof(*job->sizes));
	if (!job->sizes)
		return -ENOMEM;
	for (unsigned i = 0; i < job->log_count; i++)
		job->sizes[i] = (struct log_size){job->logs[i].ino, job->logs[i].size,
						  job->logs[i].mtime_ns};
	return 0;
}

static int job_fill(struct volume *vol, const struct seal_how *how, struct seal_job *job)
{
	struct log_search search = {vol, job};
	int error;

	*job = (struct seal_job){
		.number = vol->next_epoch,
		.early = vol->sealer->first != NULL,
		.trigger = how->trigger,
		.has_step = how->has_step,
		.step = how->step,
		.restores = how->restores,
		.whole = how->whole,
		.certain = how->certain,
		.renamed = how->renamed,
		.sealed_ns = clock_wall_ns(),
		.tag = how->tag ? strdup(how->tag) : NULL,
		.message = how->message ? strdup(how->message) : NULL,
		.metadata = how->metadata ? strdup(how->metadata) : NULL,
	};
	if ((how->tag && !job->tag) || (how->message && !job->message) ||
	    (how->metadata && !job->metadata))
		return -ENOMEM;
	nodes_job_locked(vol, job);
	error = bodies_each_writing_locked(vol, note_log, &search);
	return error ? error : keep_sizes(job);
}

static bool log_is_awaited_locked(const struct volume *vol, uint64_t ino)
{
	for (const struct seal_job *job = vol->sealer->first; job; job = job->next)
		for (unsigned i = 0; i < job->log_count; i++)
			if (job->logs[i].ino == ino && !job->logs[i].copied)
				return true;
	return false;
}

void seal_await_log_locked(struct volume *vol, uint64_t ino)
{
	int64_t limit = clock_mono_ns() + NS_PER_S;

	if (vol->sealer && log_is_awaited_locked(vol, ino))
		sealer_hurry_locked(vol);
	while (vol->sealer && log_is_awaited_locked(vol, ino))
		if (cond_wait_until(&vol->changed, &vol->lock, limit) == -ETIMEDOUT)
			break;
}

bool record_trigger_says_nothing(enum record_trigger trigger)
{
	return record_trigger_automatic(trigger) || trigger == RECORD_TRIGGER_NEXT ||
	       trigger == RECORD_TRIGGER_UMOUNT;
}

static pid_t renamed_by(const struct volume *vol, const struct seal_job *job)
{
	const struct changed_file *f =
		job->renamed ? changed_find(&vol->sealer->pending.changed, job->renamed) : NULL;

	return f ? f->by : 0;
}

/* The job is in the database: now memory follows. */
static void job_begun_locked(struct volume *vol, struct seal_job *job)
{
	struct sealer *s = vol->sealer;
	pid_t by = renamed_by(vol, job);
	uint64_t path = job->renamed ? sealer_path_hash_locked(vol, job->renamed) : 0;
	/* Whether it has a step is known once it is frozen. */
	bool may_go_on = s->pending.continues || record_trigger_says_nothing(job->trigger);

	sealer_over_begun_locked(vol, job);
	new_names_clear(&s->pending.new_names);
	changed_clear(&s->pending.changed);
	free(s->last.logs);
	job->pending = s->pending;
	s->pending = (struct pending){.activity_ns = job->pending.activity_ns};
	s->killed.count = 0;
	s->last = (struct seal_last){
		.number = job->number,
		.trigger = job->trigger,
		.certain = job->certain,
		.begun_ns = clock_mono_ns(),
		.chain = may_go_on ? s->last.chain : job->number,
		.half = may_go_on && !job->pending.continues ? s->last.half : job->number,
		.run = job->pending.run_goes_on ? s->last.run : job->number,
		.renamed = job->renamed,
		.renamed_path = path,
		.again = path && path == s->last.renamed_path,
		.by = by,
		.logs = steal_ptr(job->sizes),
		.log_count = job->log_count,
	};
	vol->next_epoch = job->number + 1;
	if (s->newest)
		s->newest->next = job;
	else
		s->first = job;
	s->newest = job;
	s->rest_ns = job->trigger == RECORD_TRIGGER_NEXT ? s->last.begun_ns + REST_NS : 0;
	sealer_wake_locked(vol);
}

/* A rename, a marker and the next save say by themselves that what is open belongs to another save. */
static bool asks_for_open(const struct seal_how *how)
{
	switch (how->trigger) {
	case RECORD_TRIGGER_RENAME:
	case RECORD_TRIGGER_MARKER:
	case RECORD_TRIGGER_NEXT:
		return false;
	default:
		return !how->whole && !how->restores;
	}
}

static int begin_snapshot_locked(struct volume *vol, const struct seal_how *how,
				 struct state **ret_snapshot)
{
	struct doubts_open open = {0};
	int error = 0;

	if (!vol->driver && asks_for_open(how))
		error = doubts_open_begin_locked(vol, &open);
	if (!error)
		error = state_snapshot_begin(vol->state, ret_snapshot);
	doubts_open_end_locked(vol, &open);
	return error;
}

int seal_begin_locked(struct volume *vol, const struct seal_how *how, uint64_t *ret_number)
{
	struct seal_job *job = calloc(1, sizeof(*job));
	int error;

	if (!job)
		return -ENOMEM;
	bodies_tell_uncommitted_locked(vol);
	error = job_fill(vol, how, job);
	if (!error && vol->driver)
		error = driver_judge_locked(vol, how, job);
	if (!error)
		error = begin_snapshot_locked(vol, how, &job->snapshot);
	if (!error)
		error = store_begin(vol, job);
	if (error) {
		job_free(job);
		log_error("cannot seal an epoch: %s", strerror(-error));
		return error;
	}
	FAULT_POINT("seal.begun");
	*ret_number = job->number;
	fact_log_sealed_locked(vol, job->number, record_trigger_name(how->trigger),
			       job->rule ? job->rule->id : NULL, job->judge);
	job_begun_locked(vol, job);
	if (vol->driver)
		driver_sealed_locked(vol, job);
	return 0;
}

bool sealer_has_log_locked(const struct volume *vol, uint64_t ino, const struct stat *st)
{
	const struct seal_last *last = vol->sealer ? &vol->sealer->last : NULL;

	for (unsigned i = 0; last && i < last->log_count; i++)
		if (last->logs[i].ino == ino)
			return last->logs[i].size == (uint64_t)st->st_size &&
			       last->logs[i].mtime_ns == clock_ns(st->st_mtim);
	return false;
}

/* What a log was when the last epoch took it: open, or as it was closed. */
static struct log_size log_taken(struct volume *vol, uint64_t ino)
{
	const struct seal_last *last = &vol->sealer->last;
	struct log_size taken = {.ino = ino};
	struct state_file f;
	struct state_version v;

	for (unsigned i = 0; i < last->log_count; i++)
		if (last->logs[i].ino == ino)
			return last->logs[i];
	if (state_file_get(vol->state, ino, &f) == 0 && f.closed &&
	    state_version_get(vol->state, f.closed, &v) == 0)
		taken = (struct log_size){ino, v.size, f.mtime_ns};
	return taken;
}

/* An empty one is no change, whenever it was made empty. */
static int log_has_changed(void *arg, struct body *b)
{
	struct volume *vol = arg;
	struct log_size taken = log_taken(vol, b->ino);
	struct stat st;

	if (!body_is_open_log(vol, b) || b->fd < 0 || fstat(b->fd, &st) < 0)
		return 0;
	return (uint64_t)st.st_size != taken.size ||
	       (st.st_size && clock_ns(st.st_mtim) != taken.mtime_ns);
}

bool seal_needed_locked(struct volume *vol)
{
	const struct pending *p = &vol->sealer->pending;

	return p->opens || p->rides || new_names_any(&p->new_names) ||
	       bodies_each_writing_locked(vol, log_has_changed, vol) != 0;
}

/* ---- the end ---- */

/* Whether the epoch before has the half that a killed save continues, though that was dropped. */
static bool has_dropped_half(const struct epoch_index *x, const struct seal_job *job)
{
	const struct epoch_brief *e = x ? epoch_index_find(x, job->parent) : NULL;

	return e && e->half && e->half == job->pending.continues && !job->pending.continues_chain;
}

/* The epoch that this one continues is no longer complete. */
static void decide_continues(struct volume *vol, const struct seal_job *job,
			     struct epoch_record *record)
{
	const struct epoch_index *x =
		nodes_is_set(vol) ? nodes_index_locked(vol) : epochs_index_locked(vol);
	const struct epoch_brief *before = x ? epoch_index_find(x, job->pending.continues) : NULL;

	if (before ? record_continues(before->has_step && record->has_step,
				      before->step == record->step, job->pending.continues_chain)
		   : has_dropped_half(x, job))
		record->continues = job->pending.continues;
	if (record->continues && job->pending.continues_from < record->continues)
		record->continues_from = job->pending.continues_from;
}

static int mark_torn_locked(struct volume *vol, const struct buf *torn, bool mark)
{
	const uint64_t *versions = (const uint64_t *)torn->data;

	for (size_t i = 0; i < torn->len / sizeof(*versions); i++) {
		struct state_version v;
		int error = state_version_get(vol->state, versions[i], &v);

		if (error == -ENOENT)
			continue;
		v.torn = mark;
		if (!error)
			error = state_version_set(vol->state, &v);
		if (error)
			return error;
	}
	return 0;
}

static int tag_new_locked(struct volume *vol, const struct seal_job *job)
{
	uint64_t taken;

	/* Somebody may have taken it since it was asked for: that one stays. */
	if (!job->tag || state_tag_get(vol->state, job->tag, &taken) == 0)
		return 0;
	return state_tag_set(vol->state, job->tag, job->number);
}

/* Other epochs, as a part knows them, are this machine's own. */
static int encode_frozen(const struct epoch_record *record, struct buf *out)
{
	struct epoch_record stored = *record;

	if (nodes_is_part(record->number))
		stored.parent = stored.continues = 0;
	return record_encode(&stored, out);
}

/* What was noted since the snapshot is of the next epoch. */
static int settle_doubts_locked(struct volume *vol, const struct seal_job *job,
				const struct doubts *doubts)
{
	if (job->rule)
		return 0;
	return job->whole ? doubts_clear_locked(vol, job->number)
			  : doubts_judged_locked(vol, doubts);
}

/* Of an epoch, or of one that it continues; downwards only. NULL: none has one. */
static const struct epoch_brief *find_step(const struct epoch_index *x, const struct epoch_brief *e)
{
	while (e && !e->has_step && e->continues && e->continues < e->number)
		e = epoch_index_find(x, e->continues);
	return e && e->has_step ? e : NULL;
}

/*
 * The step of the save that the epoch before may be in a pause of: an epoch that was sealed by itself and has a step, or continues one that
 * has, may be half of it, and what is sealed after that, without another step, has the same half. False: there is none.
 */
static bool half_before(const struct epoch_index *x, uint64_t parent, uint64_t *ret_half,
			const struct epoch_brief **ret_with_step)
{
	const struct epoch_brief *before = epoch_index_find(x, parent), *with_step;

	with_step = find_step(x, before);
	if (before && before->half && !with_step)
		with_step = find_step(x, epoch_index_find(x, before->half));
	if (!before)
		return false;
	if ((!before->half || before->continues) &&
	    (!with_step || !record_trigger_automatic(before->trigger)))
		return false;
	*ret_half = before->half ? before->half : before->number;
	*ret_with_step = with_step;
	return true;
}

/*
 * Another step, or as much as that save (half of it, as in sealer_before.c), says that it is over. `with_step` is NULL where it was
 * dropped: then no step is known to be its.
 */
static bool says_nothing_of(const struct epoch_record *record, const struct epoch_brief *with_step)
{
	if (record->has_step)
		return with_step && record->step == with_step->step;
	/* What is being uploaded as this is asked may not say how much it is. */
	return !with_step || !with_step->bytes_new || record->bytes_new < with_step->bytes_new / 2;
}

/*
 * The half that the epoch it continues has. Where the save of that half has another step, what came after it without a step was made for
 * this save: a directory, say.
 */
static uint64_t half_of_continued(const struct epoch_index *x, const struct epoch_record *record)
{
	uint64_t half = epoch_index_same_half(x, record->continues), first = record->continues;

	for (size_t i = x->count; record->has_step && i-- > 0 && x->epochs[i].number >= half;) {
		const struct epoch_brief *e = &x->epochs[i];

		if (e->number > record->continues || epoch_index_same_half(x, e->number) != half)
			continue;
		if (e->has_step)
			return e->step == record->step ? half : first;
		first = e->number;
	}
	return half;
}

static void decide_half(struct volume *vol, const struct seal_job *job, struct epoch_record *record)
{
	/* Of several nodes, each epoch is put together from parts that say they are whole. */
	const struct epoch_index *x = nodes_is_set(vol) ? NULL : epochs_index_locked(vol);
	const struct epoch_brief *with_step;
	uint64_t half;

	if (x && record->continues)
		record->half = half_of_continued(x, record);
	else if (x && record_trigger_says_nothing(record->trigger) &&
		 half_before(x, job->parent, &half, &with_step) &&
		 says_nothing_of(record, with_step))
		record->half = half;
}

/* Where the last epoch continues nothing, a new chain begins with it, unless it has the half of the save before. */
static void note_chain_locked(struct volume *vol, const struct epoch_record *record)
{
	struct seal_last *last = &vol->sealer->last;

	if (last->number != record->number)
		return;
	last->half = record->half && !record->continues ? record->half : record->number;
	if (!record->continues && !record->half)
		last->chain = record->number;
	else if (record->continues && record->half)
		last->chain = record->half;
}

/*
 * Late, for what was pending may be decided meanwhile. What could not be taken makes it incomplete all the same, and what is cut off, which the
 * rules were not told of.
 */
static int take_verdict(struct seal_job *job, const struct freeze_result *frozen,
			struct epoch_record *record)
{
	bool torn = !job->restores && job->complete == RECORD_COMPLETE &&
		    record->complete == RECORD_INCOMPLETE && frozen->torn.len;
	/* Without memory the next mount learns anew. */
	int error =
		buf_error(&job->saves) ? 0 : record_set_text(&record->saves, buf_str(&job->saves));

	if (!error)
		error = record_set_text(&record->rule, torn ? "J1" : job->judge);
	if (error)
		return error;
	if (job->restores || record->complete == RECORD_INCOMPLETE)
		return 0;
	record->complete = job->complete;
	return record_set_text(&record->reason, job->why);
}

static int store_frozen_locked(struct volume *vol, struct seal_job *job,
			       const struct freeze_result *frozen, struct epoch_record *record)
{
	struct state_epoch row = {.number = job->number, .state = EPOCH_SEALED};
	bool part = nodes_is_part(job->number);
	cleanup_buf struct buf json = {0};
	int error = 0;

	if (job->rule) {
		error = take_verdict(job, frozen, record);
	} else {
		decide_continues(vol, job, record);
		decide_half(vol, job, record);
	}
	if (!error && part)
		error = nodes_place_locked(vol, job, record);
	if (!error)
		error = encode_frozen(record, &json);
	if (!error)
		error = state_begin(vol->state);
	if (error)
		return error;
	row.record = (char *)(uintptr_t)buf_str(&json);
	error = state_epoch_set(vol->state, &row);
	if (!error && record->continues && !part)
		error = epochs_supersede_locked(vol, record->continues, record->continues_from,
						record->number);
	if (!error)
		error = mark_torn_locked(vol, &frozen->torn, true);
	if (!error)
		error = mark_torn_locked(vol, &frozen->whole, false);
	if (!error)
		error = settle_doubts_locked(vol, job, frozen->doubts);
	if (!error)
		error = tag_new_locked(vol, job);
	if (!error)
		error = state_set_meta_u64(vol->state, "current", job->number);
	if (!error && !part)
		error = announce_locked(vol, ANNOUNCE_SEALED, &row);
	error = state_end(vol->state, error);
	if (error)
		return error;
	atomic_fetch_add(&vol->counters.torn, frozen->torn.len / sizeof(uint64_t));
	vol->current_epoch = job->number;
	vol->sealer->tree_bytes = record->bytes;
	if (part)
		nodes_sealed_locked(vol, record);
	else
		epochs_index_put_locked(vol, record, false);
	note_chain_locked(vol, record);
	return 0;
}

static void log_sealed(const struct epoch_record *r)
{
	char bytes[FORMAT_MAX], fresh[FORMAT_MAX], step[32] = "";

	format_size(r->bytes, bytes);
	format_size(r->bytes_new, fresh);
	if (r->has_step)
		snprintf(step, sizeof(step), ", step %" PRIu64, r->step);
	log_info("%s %" PRIu64 " sealed (%s%s): %" PRIu64 " file%s, %s, %s new%s%s",
		 r->part.node ? "part" : "epoch", r->part.node ? r->part.sequence : r->number,
		 record_trigger_name(r->trigger), step, r->files, plural(r->files), bytes, fresh,
		 r->reason ? "; not complete: " : "", r->reason ? r->reason : "");
}

static int job_finish(struct volume *vol, struct seal_job *job)
{
	cleanup_freeze struct freeze_result frozen = {0};
	cleanup_record struct epoch_record record = {0};
	cleanup_tree struct tree *tree = NULL;
	size_t len;
	void *data;
	int error;

	mutex_lock(&vol->lock);
	job->parent = vol->current_epoch;
	mutex_unlock(&vol->lock);

	error = freeze(vol, job, &frozen);
	if (error)
		return error;
	state_snapshot_end(steal_ptr(job->snapshot));
	FAULT_POINT("seal.frozen");
	data = buf_steal(&frozen.tree, &len);
	error = trees_store(vol, job->number, data, len, TREE_ALLOW_LOCAL, &tree);
	if (!error)
		error = seal_record(vol, job, &frozen, tree, &record);
	if (error)
		return error;
	FAULT_POINT("seal.tree");
	mutex_lock(&vol->lock);
	error = store_frozen_locked(vol, job, &frozen, &record);
	/* At an unmount the next mount does it. */
	if (!error && !job->restores && job->trigger != RECORD_TRIGGER_UMOUNT &&
	    doubts_counting(frozen.doubts))
		resume_sealed_in_doubt_locked(vol);
	mutex_unlock(&vol->lock);
	FAULT_POINT("seal.rows");
	if (!error)
		log_sealed(&record);
	return error;
}

/* The next epoch holds what this one was to hold, and so continues what this one would have continued. */
static void bequeath_continues(struct volume *vol, const struct seal_job *job)
{
	struct pending *heir = job->next ? &job->next->pending : &vol->sealer->pending;

	if (heir->continues && heir->continues != job->number)
		return;
	if (!heir->continues_from ||
	    (job->pending.continues_from && job->pending.continues_from < heir->continues_from))
		heir->continues_from = job->pending.continues_from;
	if (!job->next) {
		sealer_continue_locked(vol, job->pending.continues, job->pending.continues_chain);
		return;
	}
	heir->continues = job->pending.continues;
	heir->continues_chain = job->pending.continues_chain;
}

/* It cannot be: its number stays unused, and what changed waits for the next epoch. */
static void job_failed_locked(struct volume *vol, struct seal_job *job, int error)
{
	struct state_epoch row = {.number = job->number, .state = EPOCH_DROPPED};
	struct sealer *s = vol->sealer;
	struct pending *p = &s->pending;

	log_error("epoch %" PRIu64 " could not be sealed: %s; what changed goes into the next one",
		  job->number, strerror(-error));
	state_epoch_set(vol->state, &row);
	s->failed_number = job->number;
	s->failed_error = error;
	s->retry_ns = clock_mono_ns() + vol->options.patience_ns;
	bequeath_continues(vol, job);
	p->opens = p->closed = p->changed.overflow = true;
	p->unknown |= job->pending.unknown;
	if (job->pending.reason)
		pending_add_reason(p, job->pending.reason);
	p->opened_ns = job->pending.opened_ns;
	p->opened_mono_ns = job->pending.opened_mono_ns;
	if (state_set_meta_u64(vol->state, "unsealed", UNSEALED_OPENS) == 0)
		p->noted = UNSEALED_OPENS;
}

int seal_finish_until(struct volume *vol, uint64_t number)
{
	struct sealer *s = vol->sealer;
	struct seal_job *job;
	bool any = false;
	int result;

	mutex_lock(&s->finishing);
	for (;;) {
		int error;

		mutex_lock(&vol->lock);
		job = s->first && s->first->number <= number ? s->first : NULL;
		mutex_unlock(&vol->lock);
		if (!job)
			break;
		any = true;
		error = job_finish(vol, job);
		mutex_lock(&vol->lock);
		if (error)
			job_failed_locked(vol, job, error);
		s->first = job->next;
		if (!s->first)
			s->newest = NULL;
		pthread_cond_broadcast(&vol->changed);
		mutex_unlock(&vol->lock);
		job_free(job);
	}
	mutex_unlock(&s->finishing);
	if (any)
		uploads_kick(vol);
	/* As durable as it gets. */
	if (any && vol->local_only)
		retention_kick(vol);
	mutex_lock(&vol->lock);
	result = s->failed_number == number ? s->failed_error : 0;
	mutex_unlock(&vol->lock);
	return result;
}
