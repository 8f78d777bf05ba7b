/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing a dropped epoch back in the remote. */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/cache/uploads.h"
#include "lib/epochs/announce.h"
#include "lib/epochs/epochs.h"
#include "lib/epochs/holder.h"
#include "lib/epochs/seal.h"
#include "lib/format/names.h"
#include "lib/meta/records.h"
#include "lib/upload/nodes.h"
#include "lib/upload/upload.h"
#include "lib/upload/upload_epoch.h"
#include "lib/util/cleanup.h"
#include "lib/util/faultpoint.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* What is damaged or missing of a dropped epoch is gone. */
static int gone(struct remote *remote, int error)
{
	struct remote_state state;

	if (error != -EIO && error != -EBADMSG && error != -ENOENT)
		return error;
	remote_get_state(remote, &state);
	return state.failing_since_ns ? error : -ENODATA;
}

static int put_record(const struct undrop *u, const struct epoch_record *record, struct buf *out)
{
	char key[KEY_MAX];
	int error = record_encode(record, out);

	if (!error)
		error = u->confirm(u->arg);
	FAULT_POINT("undrop.kept");
	if (error)
		return error;
	epoch_key(record->number, key);
	error = remote_put(u->remote, key, out->data, out->len);
	FAULT_POINT("undrop.record");
	return error;
}

/* With the record in place no collection condemns what it names; one that had begun before may have. */
static int keep_again(const struct undrop *u, struct upload_gc *gc, const char *json)
{
	int error = upload_gc_keep(gc, true);

	if (error || !gc->lost)
		return error;
	error = records_drop(u->remote, gc->record->number, json);
	return error ? error : -ENODATA;
}

static int bring_back(const struct undrop *u, struct epoch_record *record, struct buf *out)
{
	cleanup_buf struct buf tree = {0};
	struct upload_gc gc = {.remote = u->remote,
			       .store = u->store,
			       .record = record,
			       .tree = &tree,
			       .local = u->local,
			       .arg = u->arg,
			       .index_number = u->newest};
	int error = upload_gc_heed(u->remote, u->store);

	if (!error)
		error = gone(u->remote, store_get_tree(u->store, record, &tree));
	if (!error)
		error = gone(u->remote, upload_gc_keep(&gc, false));
	if (!error && gc.lost)
		error = -ENODATA;
	if (!error)
		error = put_record(u, record, out);
	return error ? error : keep_again(u, &gc, buf_str(out));
}

/* It is there: its record as it is. */
static int take_present(const struct undrop *u, uint64_t number, struct buf *out)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_free char *text = NULL;
	int error = records_get(u->remote, number, &record, &text);

	if (error)
		return error;
	buf_put(out, text, strlen(text));
	return buf_error(out);
}

int undrop_run(const struct undrop *u, uint64_t number, struct buf *ret_json)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_free char *text = NULL;
	int error = records_dropped(u->remote, number, &record, &text);

	if (error == -EEXIST)
		return take_present(u, number, ret_json);
	return error ? error : bring_back(u, &record, ret_json);
}

/* ---- Bringing a dropped epoch back through an open volume. ---- */

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
