/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting until epochs are durable. */
#include <errno.h>
#include <string.h>
#include <unistd.h>
#include "lib/util/clock.h"
#include "lib/volume/node_state.h"
#include "lib/volume/seal.h"
#include "lib/volume/uploads.h"

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
	uploads_kick(vol);
	error = wait_durable(vol, number, deadline, interrupted, arg);
	/* After a power loss this machine must know it, too. */
	return error ? error : state_sync(vol->state);
}
