/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting until epochs are durable, and dropping them. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/log.h"
#include "lib/volume/announce.h"
#include "lib/volume/seal.h"
#include "lib/volume/trees.h"
#include "lib/volume/upload.h"

/* How often `interrupted` is asked. */
#define POLL_NS (50 * NS_PER_MS)

/* Whether this epoch and all before it are durable. */
static bool all_durable_locked(struct volume *vol, uint64_t number)
{
	uint64_t pending;

	return state_epoch_first_pending(vol->state, &pending) != 0 || pending > number;
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
		if (uploader_gave_up(vol))
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

int epochs_wait(struct volume *vol, uint64_t number, int64_t timeout_ns, interrupted_fn interrupted,
		void *arg)
{
	struct epochs_seal how = {.trigger = "wait"};
	int64_t deadline = INT64_MAX, now = clock_mono_ns();
	int error = 0;

	if (timeout_ns >= 0 && timeout_ns < INT64_MAX - now)
		deadline = now + timeout_ns;
	if (number && !epoch_exists(vol, number))
		return -ENOENT;
	if (vol->options.read_only)
		return 0;
	if (!number)
		error = epochs_seal(vol, &how, &number);
	if (error || !number)
		return error;
	if (vol->local_only)
		return sync_locally(vol);
	uploader_kick(vol);
	return wait_durable(vol, number, deadline, interrupted, arg);
}

/* ---- drop ---- */

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
	if (tagged || number == vol->current_epoch || number == epoch_index_latest(x))
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

int epochs_drop(struct volume *vol, uint64_t number)
{
	int error;

	if (vol->options.read_only)
		return -EROFS;
	pthread_mutex_lock(&vol->lock);
	error = drop_locked(vol, number);
	if (!error)
		pthread_cond_broadcast(&vol->changed);
	pthread_mutex_unlock(&vol->lock);
	if (error)
		return error;
	FAULT_POINT("drop.rows");
	volume_epoch_dropped(vol, number);
	error = trees_remove(vol, number);
	if (error)
		log_warn("epoch %" PRIu64 " is dropped, but its local tree stays: %s", number,
			 strerror(-error));
	versions_bury(vol);
	uploader_kick(vol);
	log_info("epoch %" PRIu64 " dropped", number);
	return 0;
}
