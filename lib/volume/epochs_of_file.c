/* SPDX-License-Identifier: Apache-2.0 */
/* What user.epochfs.* of a live file show. */
#include "lib/volume/live_internal.h"

#include <errno.h>

#include "lib/volume/nodes.h"

/* The epoch that first held what the file is now (0: none yet), whether one has it, and whether its content is in the
 * remote whatever became of that epoch. */
static int first_epoch(struct volume *vol, uint64_t ino, uint64_t *ret_epoch, bool *ret_sealed,
		       bool *ret_durable)
{
	struct state_version v = {0};
	struct state_file f;
	uint64_t born;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = state_file_get(vol->state, ino, &f);
	if (error)
		return error;
	born = f.born;
	if (S_ISREG(f.mode)) {
		error = f.closed ? state_version_get(vol->state, f.closed, &v) : 0;
		if (error)
			return error;
		born = v.born;
	}
	*ret_sealed = born < vol->next_epoch;
	/* A part of several nodes' epoch has a number of its own, which says nothing. */
	*ret_epoch = *ret_sealed && !nodes_is_part(born) ? born : 0;
	*ret_durable = v.id && v.state == VERSION_DURABLE;
	return 0;
}

static const char *state_text(enum epoch_state state)
{
	switch (state) {
	case EPOCH_UPLOADING:
		return "uploading";
	case EPOCH_DURABLE:
		return "durable";
	case EPOCH_FAILED:
		return "failed";
	case EPOCH_SEALED:
	case EPOCH_DROPPED:
		break;
	}
	return "sealed";
}

int epochs_of_file(struct volume *vol, uint64_t ino, struct file_epoch *ret_info)
{
	struct file_epoch info = {.state = "staged"};
	struct epoch_info epoch;
	bool sealed = false, durable = false;
	int error = first_epoch(vol, ino, &info.epoch, &sealed, &durable);

	if (error)
		return error;
	if (sealed)
		info.state = "sealed";
	if (info.epoch && !epochs_get(vol, info.epoch, &epoch)) {
		info.state = state_text(epoch.state);
		info.has_step = epoch.record.has_step;
		info.step = epoch.record.step;
		epoch_info_free(&epoch);
	}
	if (durable)
		info.state = "durable";
	*ret_info = info;
	return 0;
}
