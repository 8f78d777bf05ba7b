/* SPDX-License-Identifier: Apache-2.0 */
/* The record of a sealed epoch. */
#include "lib/epochs/seal.h"

#include <errno.h>
#include <string.h>
#include "lib/util/lock.h"
#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/record_fill.h"
#include "lib/cache/trees.h"

static int set_complete(const struct seal_job *job, struct freeze_result const *frozen,
			const struct epoch_record *before, struct epoch_record *r)
{
	cleanup_buf struct buf reason = {0};

	r->complete = job->pending.unknown ? RECORD_UNKNOWN : RECORD_COMPLETE;
	if (!job->pending.reason && !frozen->reason.len && !doubts_counting(frozen->doubts))
		return 0;
	r->complete = RECORD_INCOMPLETE;
	r->doubted = !job->pending.reason && !frozen->reason.len;
	if (job->pending.reason)
		buf_printf(&reason, "%s", job->pending.reason);
	if (frozen->reason.len)
		buf_printf(&reason, "%s%.*s", reason.len ? "; " : "", (int)frozen->reason.len,
			   (const char *)frozen->reason.data);
	doubts_reason(frozen->doubts, before, &reason);
	return buf_error(&reason) ? -ENOMEM : record_set_text(&r->reason, buf_str(&reason));
}

/* The record that says since when its doubts are: of the epoch before, or of the one that it restores. Empty where it is not here. */
static int doubts_before(struct volume *vol, const struct seal_job *job,
			 struct epoch_record *ret_record)
{
	struct state_epoch row = {0};
	int error;

	mutex_lock(&vol->lock);
	error = state_epoch_get(vol->state, job->restores ? job->restores : job->parent, &row);
	mutex_unlock(&vol->lock);
	if (!error && row.record)
		error = record_decode(row.record, strlen(row.record), ret_record);
	state_epoch_free(&row);
	return error == -ENOENT ? 0 : error;
}

/* Whether it is complete, and what is in doubt. */
static int set_doubts(struct volume *vol, const struct seal_job *job,
		      const struct freeze_result *frozen, struct epoch_record *r)
{
	cleanup_record struct epoch_record before = {0};
	size_t count;
	int error = 0;

	doubts_list(frozen->doubts, &count);
	if (count)
		error = doubts_before(vol, job, &before);
	if (!error)
		error = set_complete(job, frozen, &before, r);
	return error || !count ? error : doubts_to_record(frozen->doubts, &before, r);
}

int seal_record(struct volume *vol, const struct seal_job *job, const struct freeze_result *frozen,
		struct tree *tree, struct epoch_record *ret_record)
{
	cleanup_record struct epoch_record r = {
		.number = job->number,
		.parent = job->parent,
		.trigger = job->trigger,
		.restores = job->restores,
		.opened_ns = job->pending.opened_ns ? job->pending.opened_ns : job->sealed_ns,
		.sealed_ns = job->sealed_ns,
		.bytes_new = frozen->bytes_new,
	};
	cleanup_tree struct tree *before = NULL;
	struct record_source from = {
		.vol = vol,
		.rules = vol->rules,
		.tree = tree,
		.message = job->message,
		.metadata = job->metadata,
		.has_step = job->has_step,
		.step = job->step,
	};
	int error;

	if (job->pending.content_ns > job->pending.opened_mono_ns)
		r.save_ns = (uint64_t)(job->pending.content_ns - job->pending.opened_mono_ns);
	/* What is not here (never, but after damage) is not worth waiting for the remote. */
	if (trees_load(vol, job->parent, &before) == 0)
		from.before = before;
	error = record_fill(&from, &r, NULL);
	if (!error)
		error = set_doubts(vol, job, frozen, &r);
	if (error)
		return error;
	*ret_record = r;
	r = (struct epoch_record){0};
	return 0;
}
