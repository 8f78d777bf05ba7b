/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing a dropped epoch back through an open volume. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/util/cleanup.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/volume/announce.h"
#include "lib/volume/holder.h"
#include "lib/volume/nodes.h"
#include "lib/volume/seal.h"
#include "lib/volume/undrop.h"
#include "lib/volume/upload.h"
#include "lib/volume/uploads.h"

/* Done by the uploader's thread, so that it is before or after each drop as a whole. */
struct undrop_call {
	struct upload_call call;
	struct volume *vol;
	uint64_t number;
	char tag[TAG_NAME_MAX + 1];
	struct remote *remote; /* while it runs */
};

static int confirm(void *arg)
{
	const struct undrop_call *c = arg;

	return holder_confirm(c->vol, c->remote, 0);
}

static int open_local(void *arg, const struct hash *recipe, uint64_t size)
{
	const struct undrop_call *c = arg;
	struct state_version v;
	int error;

	mutex_lock(&c->vol->lock);
	error = state_version_by_recipe(c->vol->state, recipe, size, &v);
	mutex_unlock(&c->vol->lock);
	return error ? error : object_open(c->vol, v.id, O_RDONLY);
}

static uint64_t highest_number(struct volume *vol)
{
	if (nodes_is_set(vol))
		return nodes_highest(vol);
	SCOPED_LOCK(&vol->lock);
	return vol->next_epoch - 1;
}

/* ---- the rows ---- */

/* In a transaction. */
static int revive_locked(struct undrop_call *c, struct state_epoch *row, const char *json)
{
	struct volume *vol = c->vol;
	int error;

	if (row->state == EPOCH_DROPPED) {
		free(row->record);
		row->record = strdup(json);
		row->state = EPOCH_DURABLE;
		row->remote_delete_pending = false;
		if (!row->record)
			return -ENOMEM;
		error = state_epoch_set(vol->state, row);
		if (!error)
			error = announce_locked(vol, ANNOUNCE_UNDROPPED, row);
		if (error)
			return error;
	}
	return state_tag_set(vol->state, c->tag, c->number);
}

static int show_locked(struct undrop_call *c, const char *json)
{
	cleanup_record struct epoch_record record = {0};
	struct volume *vol = c->vol;
	struct state_epoch row;
	int error = record_decode(json, strlen(json), &record);

	if (!error)
		error = state_epoch_get(vol->state, c->number, &row);
	if (error)
		return error;
	error = state_begin(vol->state);
	if (!error)
		error = state_end(vol->state, revive_locked(c, &row, json));
	if (!error)
		epochs_index_put_locked(vol, &record, row.superseded);
	state_epoch_free(&row);
	if (!error)
		pthread_cond_broadcast(&vol->changed);
	return error;
}

static int run(struct upload_call *call, struct remote *remote, struct store *store)
{
	struct undrop_call *c = (struct undrop_call *)(void *)call;
	cleanup_buf struct buf json = {0};
	struct undrop u = {.remote = remote,
			   .store = store,
			   .newest = highest_number(c->vol),
			   .confirm = confirm,
			   .local = open_local,
			   .arg = c};
	int error;

	c->remote = remote;
	error = undrop_run(&u, c->number, &json);
	/* It was an epoch here, and never got there. */
	if (error)
		return error == -ENOENT ? -ENODATA : error;
	mutex_lock(&c->vol->lock);
	error = show_locked(c, buf_str(&json));
	mutex_unlock(&c->vol->lock);
	FAULT_POINT("undrop.rows");
	if (!error)
		log_info("epoch %" PRIu64 " is back, with the tag %s", c->number, c->tag);
	return error;
}

static void call_free(struct upload_call *call)
{
	free(call);
}

/* ---- asking for it ---- */

/* -ENOENT where the number was never an epoch's; -EEXIST where the tag is another's. */
static int check_locked(struct volume *vol, uint64_t number, const char *tag)
{
	struct state_epoch row;
	uint64_t tagged;
	int error = number ? state_epoch_get(vol->state, number, &row) : -ENOENT;

	if (error)
		return error;
	state_epoch_free(&row);
	return state_tag_get(vol->state, tag, &tagged) == 0 && tagged != number ? -EEXIST : 0;
}

int epochs_undrop(struct volume *vol, uint64_t number, const char *tag, interrupted_fn interrupted,
		  void *arg)
{
	struct undrop_call *c;
	int error;

	if (vol->options.read_only)
		return -EROFS;
	if (vol->local_only)
		return -EOPNOTSUPP;
	if (!epochs_tag_allowed(tag))
		return -EINVAL;
	mutex_lock(&vol->lock);
	error = check_locked(vol, number, tag);
	mutex_unlock(&vol->lock);
	if (error)
		return error;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->call = (struct upload_call){.run = run, .free = call_free};
	c->vol = vol;
	c->number = number;
	strcpy(c->tag, tag); /* no longer than a tag's name */
	error = uploader_call(vol, &c->call, interrupted, arg);
	if (!error)
		uploads_kick(vol);
	return error;
}
