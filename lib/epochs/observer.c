/* SPDX-License-Identifier: Apache-2.0 */
/* What epochs are made of is told to those who make them. */
#include "lib/live/observer.h"

#include "lib/epochs/doubts_volume.h"
#include "lib/epochs/arrivals.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/resume.h"
#include "lib/epochs/seal.h"
#include "lib/epochs/sealer.h"

static int wait_durable(struct volume *vol, int64_t timeout_ns, interrupted_fn interrupted,
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
	.note_locked = sealer_note_locked,
	.before_replace_locked = sealer_before_replace_locked,
	.before_name_locked = sealer_before_name_locked,
	.before_rename_locked = sealer_before_rename_locked,
	.before_exchange_locked = sealer_before_exchange_locked,
	.moves_locked = arrivals_note_locked,
	.before_taken_locked = sealer_before_taken_locked,
	.incomplete_locked = sealer_incomplete_locked,
	.unknown_locked = sealer_unknown_locked,
	.doubt_locked = doubts_killed_locked,
	.killed_locked = sealer_killed_locked,
	.saved_locked = doubts_saved_locked,
	.renamed_locked = doubts_renamed_locked,
	.has_log_locked = sealer_has_log_locked,
	.may_remove_locked = resume_may_remove_locked,
	.await_log_locked = seal_await_log_locked,
	.closed = resume_after_close,
	.wait_durable = wait_durable,
};
