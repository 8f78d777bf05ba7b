/* SPDX-License-Identifier: Apache-2.0 */
/* Dropping epochs. */
#include "lib/epochs/retention.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include "lib/cache/reclaim.h"
#include "lib/cache/trees.h"
#include "lib/cache/uploads.h"
#include "lib/epochs/announce.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/node_state.h"
#include "lib/epochs/seal.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

static int names_epoch(void *arg, const char *name, uint64_t number)
{
	(void)name;
	return number == *(const uint64_t *)arg;
}

static int store_drop_locked(struct volume *vol, const struct state_epoch *row)
{
	int error = state_epoch_set(vol->state, row);

	return error ? error : announce_locked(vol, ANNOUNCE_DROPPED, row);
}

static int drop_locked(struct volume *vol, uint64_t number)
{
	struct epoch_index *x = epochs_index_locked(vol);
	struct state_epoch row;
	int tagged, error;

	if (!x)
		return -EIO;
	if (!epoch_index_find(x, number))
		return -ENOENT;
	tagged = state_tag_each(vol->state, names_epoch, &number);
	if (tagged < 0)
		return tagged;
	if (tagged || number == epochs_current_locked(vol) || number == epoch_index_latest(x) ||
	    nodes_need_locked(vol, number))
		return -EBUSY;
	error = state_epoch_get(vol->state, number, &row);
	if (error)
		return error;
	/* The record tells the remote's drop which epoch is meant. */
	row.state = EPOCH_DROPPED;
	row.remote_delete_pending = !vol->local_only;
	error = state_begin(vol->state);
	if (!error)
		error = state_end(vol->state, store_drop_locked(vol, &row));
	state_epoch_free(&row);
	if (!error)
		epoch_index_remove(x, number);
	return error;
}

int drop_epoch(struct volume *vol, uint64_t number)
{
	int error;

	if (vol->options.read_only)
		return -EROFS;
	mutex_lock(&vol->lock);
	error = drop_locked(vol, number);
	if (!error)
		pthread_cond_broadcast(&vol->changed);
	mutex_unlock(&vol->lock);
	if (error)
		return error;
	FAULT_POINT("drop.rows");
	volume_epoch_dropped(vol, number);
	error = trees_remove(vol, number);
	if (error)
		log_warn("epoch %" PRIu64 " is dropped, but its local tree stays: %s", number,
			 strerror(-error));
	return 0;
}

struct tagged {
	uint64_t number;
	struct buf *out;
};

static int name_tag(void *arg, const char *name, uint64_t number)
{
	const struct tagged *t = arg;

	if (number == t->number)
		buf_printf(t->out,
			   "epoch %" PRIu64 " is tagged '%s': remove that first (`epochfs tag -d`)",
			   number, name);
	return number == t->number;
}

void drop_refusal(struct volume *vol, uint64_t number, struct buf *out)
{
	struct tagged t = {number, out};
	bool needed;

	if (epochs_tag_each(vol, name_tag, &t) != 0)
		return;
	mutex_lock(&vol->lock);
	needed = nodes_need_locked(vol, number);
	mutex_unlock(&vol->lock);
	buf_printf(out, "epoch %" PRIu64 " is %s: it stays until there is another", number,
		   number == epochs_current(vol) ? "current, what the live tree stands on"
		   : needed			 ? "what a node of this run began from"
						 : "the newest complete one");
}

void drop_finish(struct volume *vol)
{
	versions_reclaim(vol);
	uploads_kick(vol);
}

int epochs_drop(struct volume *vol, uint64_t number)
{
	int error = drop_epoch(vol, number);

	/* What was sealed a moment ago is the newest one, once it is finished. */
	if (error == -EBUSY && vol->sealer && !seal_finish_until(vol, INT64_MAX))
		error = drop_epoch(vol, number);
	if (error)
		return error;
	drop_finish(vol);
	log_info("epoch %" PRIu64 " dropped", number);
	return 0;
}
