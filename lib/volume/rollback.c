/* SPDX-License-Identifier: Apache-2.0 */
/* Rollback: a new epoch with an old one's tree, which the live tree then equals. */
#include "lib/volume/rollback.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include "lib/util/log.h"
#include "lib/volume/body.h"
#include "lib/volume/seal.h"
#include "lib/volume/trees.h"

/* So often the tree is loaded again because its epoch became durable in between. */
#define TRIES 5

static int apply_in_transaction(struct volume *vol, const struct tree *tree,
				struct rollback_notice *notice)
{
	int error = state_begin(vol->state);

	if (error)
		return error;
	error = rollback_apply_locked(vol, tree, notice);
	/* Should the daemon end before the new epoch has begun, the next mount seals it. */
	if (!error)
		error = state_set_meta_u64(vol->state, "unsealed", UNSEALED_OPENS);
	return state_end(vol->state, error);
}

static int rollback_locked(struct volume *vol, uint64_t number, const struct tree *tree,
			   struct rollback_notice *notice, uint64_t *ret_new)
{
	struct seal_how how = {.trigger = RECORD_TRIGGER_ROLLBACK};
	const struct epoch_index *x = epochs_index_locked(vol);
	const struct epoch_brief *old = x ? epoch_index_find(x, number) : NULL;
	uint64_t pending;
	int error = old ? 0 : -ENOENT;

	if (!error && seal_needed_locked(vol))
		error = seal_begin_locked(vol, &how, &pending);
	if (!error)
		error = apply_in_transaction(vol, tree, notice);
	if (error)
		return error;
	bodies_tear_writers_locked(vol);
	vol->sealer->pending.opens = true;
	how.restores = number;
	how.has_step = old->has_step;
	how.step = old->step;
	return seal_begin_locked(vol, &how, ret_new);
}

int epochs_rollback(struct volume *vol, uint64_t number, uint64_t *ret_new)
{
	uint64_t new_number = 0;
	int error = -ESTALE;

	if (vol->options.read_only)
		return -EROFS;
	bodies_settle(vol);
	for (int i = 0; error == -ESTALE && i < TRIES; i++) {
		cleanup_tree struct tree *tree = NULL;
		struct rollback_notice notice = {0};

		error = epochs_tree(vol, number, &tree);
		if (error)
			return error;
		pthread_mutex_lock(&vol->lock);
		error = rollback_locked(vol, number, tree, &notice, &new_number);
		pthread_mutex_unlock(&vol->lock);
		rollback_notice_tell(vol, &notice);
	}
	if (!error)
		error = seal_finish_until(vol, new_number);
	else
		seal_finish_until(vol, INT64_MAX);
	versions_bury(vol);
	if (error) {
		log_error("cannot roll back to epoch %" PRIu64 ": %s", number, strerror(-error));
		return error == -ESTALE ? -EIO : error;
	}
	log_info("rolled back to epoch %" PRIu64 ": epoch %" PRIu64 " has its tree", number,
		 new_number);
	*ret_new = new_number;
	return 0;
}
