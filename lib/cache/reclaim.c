/* SPDX-License-Identifier: Apache-2.0 */
/* Versions that nothing needs any more, and their backing files. */
#include "lib/cache/reclaim.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "lib/cache/contents.h"
#include "lib/cache/context.h"
#include "lib/cache/grant.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* Versions without a row whose backing files can go. */
struct marked_object {
	struct marked_object *next;
	uint64_t version;
};

/* Versions looked at without letting go of the lock. */
#define BATCH 64

/* ---- backing files whose rows are gone ---- */

static void object_mark_locked(struct volume *vol, uint64_t version)
{
	struct marked_object *m = malloc(sizeof(*m));

	if (!m) /* the next mount removes it */
		return;
	m->version = version;
	m->next = vol->marked;
	if (!m->next && vol->marked_wake)
		pthread_cond_signal(vol->marked_wake);
	vol->marked = m;
}

/* What is on the list now is of transactions that have ended, or of the caller's own: with the lock
 * held nobody else is in one. A row that is still there was rolled back. */
static struct marked_object *take_marked_locked(struct volume *vol)
{
	struct marked_object *all = steal_ptr(vol->marked), **p = &all, *m;

	while ((m = *p)) {
		if (!state_version_exists(vol->state, m->version)) {
			grant_drop_locked(vol, m->version);
			p = &m->next;
			continue;
		}
		*p = m->next;
		free(m);
	}
	return all;
}

/* The disk must not know that a file is gone before it knows that no row needs it: after a power loss
 * in between, what was fsynced would be gone. Where that cannot be had, recovery removes the files. */
void objects_delete_marked(struct volume *vol)
{
	struct marked_object *all, *m;
	int unsafe;

	mutex_lock(&vol->lock);
	all = take_marked_locked(vol);
	mutex_unlock(&vol->lock);
	unsafe = all ? state_sync(vol->state) : 0;
	if (unsafe)
		log_warn("the local state: %s", strerror(-unsafe));
	while ((m = all)) {
		int error = unsafe ? 0 : object_remove(vol, m->version);

		if (error)
			log_warn("removing objects/%016" PRIx64 ": %s", m->version,
				 strerror(-error));
		all = m->next;
		free(m);
	}
}

/* ---- versions ---- */

bool version_in_use_locked(struct volume *vol, uint64_t version)
{
	return (vol->uses_version_locked && vol->uses_version_locked(vol, version)) ||
	       content_in_use_locked(vol, version);
}

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
	return error ? error : version_reclaim_locked(vol, old);
}

int version_reclaim_locked(struct volume *vol, uint64_t version)
{
	struct state_version v;
	int error = state_version_get(vol->state, version, &v);

	if (error)
		return error == -ENOENT ? 0 : error;
	if (v.state == VERSION_STAGED || (!v.died && v.kind != VERSION_CACHE))
		return 0;
	if (v.kind == VERSION_CACHE && v.local_bytes)
		return 0;
	if (version_in_use_locked(vol, version))
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
		object_mark_locked(vol, version);
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
	if (array_reserve((void **)&ids->id, &ids->cap, ids->count, sizeof(*ids->id)))
		return -ENOMEM;
	ids->id[ids->count++] = v->id;
	return 0;
}

static int reclaim_batch_locked(struct volume *vol, const struct ids *ids, size_t first)
{
	int error = state_begin(vol->state);

	if (error)
		return error;
	for (size_t i = first; !error && i < ids->count && i < first + BATCH; i++)
		error = version_reclaim_locked(vol, ids->id[i]);
	return state_end(vol->state, error);
}

void versions_reclaim(struct volume *vol)
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
		error = reclaim_batch_locked(vol, &ids, i);
	}
	free(ids.id);
	if (error)
		log_warn("removing what no epoch needs: %s", strerror(-error));
}
