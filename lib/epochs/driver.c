/* SPDX-License-Identifier: Apache-2.0 */
/* What the rules say, and what becomes of it. */
#include "lib/epochs/driver_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cache/uploads.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/fact_log.h"
#include "lib/epochs/record_fill.h"
#include "lib/saves/facts.h"
#include "lib/saves/judge_rules.h"
#include "lib/saves/seal_rules.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* A step of time, where what is due is not to be had yet. */
#define STEP_NS (10 * NS_PER_MS)

int driver_new(struct volume *vol)
{
	struct driver *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	vol->driver = d;
	d->writers = writers_new();
	return d->writers ? 0 : -ENOMEM;
}

void driver_free(struct volume *vol)
{
	struct driver *d = steal_ptr(vol->driver);

	if (!d)
		return;
	saves_free(d->saves);
	buf_free(&d->before);
	buf_free(&d->kept);
	writers_free(d->writers);
	free(d);
}

bool driver_is_started(const struct volume *vol)
{
	return vol->driver && vol->driver->saves && vol->sealer;
}

/* ---- telling ---- */

int64_t driver_now_ns(void)
{
	int64_t now = clock_mono_ns();

	return now < SAVE_TIME_MAX ? now : SAVE_TIME_MAX;
}

static void note_whole_locked(struct volume *vol, uint64_t epoch)
{
	struct driver *d = vol->driver;
	int error = epochs_found_whole_locked(vol, epoch, epoch <= d->waited);

	if (error == -EALREADY) {
		d->again = epoch;
		sealer_wake_locked(vol);
	} else if (error) {
		log_warn("epoch %" PRIu64 " is whole, but stays pending: %s", epoch,
			 strerror(-error));
	}
}

/* What was pending is decided. */
static void note_decided_locked(struct volume *vol)
{
	struct driver *d = vol->driver;
	enum verdict verdict;
	uint64_t epoch;

	if (!saves_decided(d->saves, &epoch, &verdict))
		return;
	if (epoch == d->pending)
		d->pending = 0;
	if (verdict == VERDICT_WHOLE)
		note_whole_locked(vol, epoch);
	uploads_kick(vol);
}

void driver_apply_locked(struct volume *vol, const struct save_event *e)
{
	int error = saves_apply(vol->driver->saves, e);

	/* What was open before the mount, the rules were not told of. */
	if (error && error != -EINVAL)
		log_warn("a save may be judged wrongly: %s", strerror(-error));
	/* Also that it is no more. */
	if (vol->driver->is_broken || saves_any_broken(vol->driver->saves))
		driver_keep_known_locked(vol);
	vol->driver->is_broken = saves_any_broken(vol->driver->saves);
	note_decided_locked(vol);
}

/* Whoever wrote here and has ended since. */
void driver_tell_ended_locked(struct volume *vol)
{
	struct save_event e = {.kind = SAVE_ENDED}, told;
	unsigned status;
	bool known;

	while ((e.process = writers_ended(vol->driver->writers, &known, &status))) {
		e.at_ns = driver_now_ns();
		e.status = known ? status : 0;
		e.facts = known ? 0 : SAVE_IS_UNKNOWN;
		told = e;
		told.process = save_process_pid(e.process);
		fact_log_note_locked(vol, &told);
		driver_apply_locked(vol, &e);
		if (vol->driver->lost_lives && !writers_any(vol->driver->writers))
			driver_tell_lost_ended_locked(vol);
	}
}

/* ---- sealing ---- */

static enum record_trigger trigger_of(const struct volume *vol, const struct seal_rule *rule,
				      const struct save_event *e)
{
	if (rule->before)
		return RECORD_TRIGGER_NEXT;
	if (rule->sign)
		return e && e->kind == SAVE_RENAMED && !facts_marker(vol->rules, e->to)
			       ? RECORD_TRIGGER_RENAME
			       : RECORD_TRIGGER_MARKER;
	if (vol->sealer->pending.recovered)
		return RECORD_TRIGGER_RECOVERY;
	return vol->options.settle_ns ? RECORD_TRIGGER_QUIET : RECORD_TRIGGER_CLOSE;
}

void driver_seal_locked(struct volume *vol, const struct seal_rule *rule,
			const struct save_event *e)
{
	const struct seal_how how = {.trigger = trigger_of(vol, rule, e), .rule = rule};
	struct sealer *s = vol->sealer;
	uint64_t number;

	if (s->retry_ns > clock_mono_ns())
		return;
	if (seal_begin_locked(vol, &how, &number) != 0)
		s->retry_ns = clock_mono_ns() + vol->options.patience_ns;
}

void driver_seal_now_locked(struct volume *vol, const struct save_event *e)
{
	const struct seal_rule *rule = saves_seal_now(vol->driver->saves);

	if (rule)
		driver_seal_locked(vol, rule, e);
}

void driver_pass_time_locked(struct volume *vol)
{
	const struct save_event e = {.kind = SAVE_TIME, .at_ns = driver_now_ns()};

	driver_tell_ended_locked(vol);
	driver_apply_locked(vol, &e);
	driver_seal_now_locked(vol, &e);
}

static enum record_complete complete_of(enum verdict verdict)
{
	switch (verdict) {
	case VERDICT_WHOLE:
		return RECORD_COMPLETE;
	case VERDICT_UNKNOWN:
		return RECORD_UNKNOWN;
	default:
		return RECORD_INCOMPLETE;
	}
}

int driver_judge_locked(struct volume *vol, const struct seal_how *how, struct seal_job *job)
{
	const struct seal_rule *rule = how->rule ? how->rule : seal_rule_of(SEAL_ASKED);
	cleanup_buf struct buf why = {0};
	enum verdict verdict;
	struct judged j;

	job->rule = rule;
	/* That is as whole as what it restores (rollback.c). */
	if (how->restores)
		return 0;
	driver_tell_ended_locked(vol);
	j = saves_judge(vol->driver->saves, rule, how->whole);
	verdict = judged_verdict(&j);
	saves_put_reason(vol->driver->saves, &j, &why);
	if (buf_error(&why))
		return -ENOMEM;
	job->judge = j.rule->id;
	job->is_pending = verdict == VERDICT_PENDING;
	job->complete = complete_of(verdict);
	return record_set_text(&job->why, buf_str(&why));
}

static bool is_whole_locked(struct volume *vol, uint64_t number)
{
	const struct epoch_index *x = epochs_index_locked(vol);
	const struct epoch_brief *e = x ? epoch_index_find(x, number) : NULL;

	/* What is unknown was told apart when it was sealed, and the record says so still. */
	return !e || e->unknown || epoch_brief_complete(e);
}

void driver_sealed_locked(struct volume *vol, struct seal_job *job)
{
	struct save_event e = {.kind = SAVE_SEALED, .at_ns = driver_now_ns(), .epoch = job->number};

	if (job->restores) {
		e.kind = SAVE_BACK;
		e.epoch = job->restores;
	} else {
		e.rule = seal_rule_number(job->rule);
		e.facts = job->whole ? SAVE_IS_WHOLE : 0;
	}
	driver_apply_locked(vol, &e);
	if (job->restores && !is_whole_locked(vol, job->restores))
		saves_found_chosen(vol->driver->saves);
	if (job->is_pending)
		vol->driver->pending = job->number;
	saves_put_known(vol->driver->saves, &job->saves);
}

/* The same once more, as an epoch that is whole; nothing where there is more to seal since. */
static void seal_again_locked(struct volume *vol)
{
	struct driver *d = vol->driver;
	uint64_t epoch = d->again;

	d->again = 0;
	if (!epoch || epoch != vol->current_epoch || saves_dirty(d->saves))
		return;
	log_info("epoch %" PRIu64 " is whole: what came was all", epoch);
	driver_seal_locked(vol, seal_rule_of(SEAL_QUIET), NULL);
}

void driver_leave(struct volume *vol)
{
	SCOPED_LOCK(&vol->lock);
	if (!driver_is_started(vol))
		return;
	driver_tell_ended_locked(vol);
	/* Without memory its shape is not known to the next mount. */
	saves_leave(vol->driver->saves);
	note_decided_locked(vol);
	seal_again_locked(vol);
}

int64_t driver_act_locked(struct volume *vol)
{
	struct driver *d = vol->driver;
	int64_t now = clock_mono_ns(), next;

	if (vol->sealer->retry_ns > now)
		return vol->sealer->retry_ns;
	driver_pass_time_locked(vol);
	seal_again_locked(vol);
	if (driver_is_back_due_locked(vol))
		return now;
	next = saves_next_ns(d->saves);
	if (next <= now)
		next = now + STEP_NS;
	if (writers_any(d->writers) && next > now + DRIVER_LOOK_NS &&
	    (d->pending || saves_dirty(d->saves) || saves_back(d->saves) == BACK_LATER))
		next = now + DRIVER_LOOK_NS;
	return next;
}

bool driver_path_stays_locked(const struct volume *vol, const char *path)
{
	return saves_path_stays(vol->driver->saves, path);
}

bool driver_holds_upload_locked(const struct volume *vol, uint64_t number)
{
	const struct driver *d = vol->driver;

	return d && number == d->pending && number > d->waited;
}

void driver_upload_waited_locked(struct volume *vol, uint64_t number)
{
	if (vol->driver && number > vol->driver->waited)
		vol->driver->waited = number;
}
