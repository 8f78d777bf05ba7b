/* SPDX-License-Identifier: Apache-2.0 */
/* The record of the epoch that is uploaded: in the remote, and in its row. */
#include "lib/upload/upload_epoch.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lib/epochs/announce.h"
#include "lib/epochs/retention.h"
#include "lib/format/names.h"
#include "lib/meta/records.h"
#include "lib/upload/nodes.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/log.h"

static bool is_ours(const struct epoch_record *theirs, const struct epoch_record *ours)
{
	return hash_equal(&theirs->tree_hash, &ours->tree_hash) && records_same_epoch(theirs, ours);
}

/* On -EEXIST: the record that is there, if we put it ourselves before a crash. */
static int take_own_record(struct remote *remote, struct epoch_record *record, struct buf *json)
{
	struct epoch_record theirs;
	char *text = NULL;
	int error = records_get(remote, record->number, &theirs, &text);

	if (error == -ENOENT || error == -EBADMSG)
		return -EEXIST;
	if (error)
		return error;
	if (!is_ours(&theirs, record)) {
		log_error(
			"epoch %" PRIu64
			": its number was taken in the remote by %s; uploading stops here, and what is "
			"sealed stays in the cache",
			record->number, theirs.host ? theirs.host : "another writer");
		record_free(&theirs);
		free(text);
		return -EEXIST;
	}
	record_free(record);
	*record = theirs;
	buf_reset(json);
	buf_put(json, text, strlen(text));
	free(text);
	return buf_error(json);
}

int upload_record_put(struct remote *remote, struct epoch_record *record, struct buf *json)
{
	char key[KEY_MAX];
	int error;

	record->durable_ns = clock_wall_ns();
	error = record_encode(record, json);
	if (error)
		return error;
	epoch_key(record->number, key);
	error = remote_put_if_absent(remote, key, json->data, json->len);
	return error == -EEXIST ? take_own_record(remote, record, json) : error;
}

int upload_record_remember(struct volume *vol, const struct epoch_record *record)
{
	cleanup_record struct epoch_record kept = {0};
	cleanup_buf struct buf json = {0};
	struct state_epoch row;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = state_epoch_get(vol->state, record->number, &row);
	if (error || row.state == EPOCH_DROPPED || !row.record) {
		if (!error)
			state_epoch_free(&row);
		return error;
	}
	error = record_decode(row.record, strlen(row.record), &kept);
	if (!error) {
		struct epoch_record now = kept;

		now.bytes_new = record->bytes_new;
		now.bytes_stored = record->bytes_stored;
		now.indexes = record->indexes;
		now.index_count = record->index_count;
		error = record_encode(&now, &json);
	}
	if (!error) {
		free(row.record);
		row.record = strdup(buf_str(&json));
		error = row.record ? state_epoch_set(vol->state, &row) : -ENOMEM;
	}
	state_epoch_free(&row);
	return error;
}

/* Unless it was dropped meanwhile: then the drop reaches the remote next. */
static int durable_locked(struct volume *vol, struct state_epoch *row, const char *json)
{
	int error;

	if (row->state == EPOCH_DROPPED) {
		row->remote_delete_pending = true;
		return state_epoch_set(vol->state, row);
	}
	free(row->record);
	free(row->error);
	row->record = strdup(json);
	row->error = NULL;
	row->state = EPOCH_DURABLE;
	if (!row->record)
		return -ENOMEM;
	if (nodes_is_part(row->number))
		nodes_put_locked(vol);
	error = state_begin(vol->state);
	if (error)
		return error;
	error = state_epoch_set(vol->state, row);
	if (!error && !nodes_is_part(row->number))
		error = announce_locked(vol, ANNOUNCE_DURABLE, row);
	return state_end(vol->state, error);
}

int upload_record_durable(struct volume *vol, uint64_t number, const char *json)
{
	struct state_epoch row;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = state_epoch_get(vol->state, number, &row);
	if (!error) {
		error = durable_locked(vol, &row, json);
		state_epoch_free(&row);
	}
	/* Before anybody sees that it is durable: who waits for both sees that there is work. */
	retention_kick(vol);
	pthread_cond_broadcast(&vol->changed);
	return error;
}
