/* SPDX-License-Identifier: Apache-2.0 */
/* Versions that nothing needs any more, and their backing files. */
#include "lib/volume/bodies.h"

#include <errno.h>
#include <string.h>
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* Versions looked at without letting go of the lock. */
#define BATCH 64

int version_died_locked(struct volume *vol, uint64_t old)
{
	struct state_version v;
	int error = old ? state_version_get(vol->state, old, &v) : -ENOENT;

	if (error)
		return error == -ENOENT ? 0 : error;
	if (!v.died) {
		v.died = vol->next_epoch;
		error = state_version_set(vol->state, &v);
	}
	return error ? error : version_bury_locked(vol, old);
}

int version_bury_locked(struct volume *vol, uint64_t version)
{
	struct state_version v;
	int error = state_version_get(vol->state, version, &v);

	if (error)
		return error == -ENOENT ? 0 : error;
	if (v.state == VERSION_STAGED || (!v.died && v.kind != VERSION_CACHE))
		return 0;
	if (v.kind == VERSION_CACHE && v.local_bytes)
		return 0;
	if (bodies_use_version_locked(vol, version) || content_in_use_locked(vol, version))
		return 0;
	if (v.kind != VERSION_CACHE && state_epoch_pending_in(vol->state, v.born, v.died))
		return 0;
	if (v.state == VERSION_DURABLE && v.local_bytes && v.has_recipe) {
		v.kind = VERSION_CACHE;
		v.ino = 0;
		v.died = 0;
		return state_version_set(vol->state, &v);
	}
	error = state_version_remove(vol->state, version);
	if (!error)
		doom_locked(vol, version);
	return error;
}

struct ids {
	uint64_t *id;
	size_t count, cap;
	uint64_t last; /* of those that died later, an epoch is pending */
};

static int collect(void *arg, const struct state_version *v)
{
	struct ids *ids = arg;

	if (v->died > ids->last)
		return 1;
	if (ids->count == ids->cap) {
		size_t cap = ids->cap ? 2 * ids->cap : 256;
		uint64_t *id = realloc(ids->id, cap * sizeof(*id));

		if (!id)
			return -ENOMEM;
		ids->id = id;
		ids->cap = cap;
	}
	ids->id[ids->count++] = v->id;
	return 0;
}

static int bury_batch_locked(struct volume *vol, const struct ids *ids, size_t first)
{
	int error = state_begin(vol->state);

	if (error)
		return error;
	for (size_t i = first; !error && i < ids->count && i < first + BATCH; i++)
		error = version_bury_locked(vol, ids->id[i]);
	return state_end(vol->state, error);
}

void versions_bury(struct volume *vol)
{
	struct ids ids = {.last = UINT64_MAX};
	uint64_t pending;
	int error;

	mutex_lock(&vol->lock);
	/* Epochs become durable in their order, so with a long queue most need not be looked at.
	 * Without a remote they never do, and it is a drop that asks. */
	if (!vol->local_only && !state_epoch_first_pending(vol->state, &pending))
		ids.last = pending;
	error = state_version_each_dead(vol->state, SIZE_MAX, collect, &ids);
	mutex_unlock(&vol->lock);
	if (error == 1)
		error = 0;
	for (size_t i = 0; !error && i < ids.count; i += BATCH) {
		SCOPED_LOCK(&vol->lock);
		error = bury_batch_locked(vol, &ids, i);
	}
	free(ids.id);
	if (error)
		log_warn("removing what no epoch needs: %s", strerror(-error));
}
