/* SPDX-License-Identifier: Apache-2.0 */
/* Uploading what is closed and not yet sealed. */
#include "lib/upload/early_upload.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/epochs/holder.h"
#include "lib/upload/upload_epoch.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

#define NOTED_MAX  256
#define STORED_MAX 256
/* As before an epoch (upload.c). */
#define CONFIRMED_NS (1 * NS_PER_S)

struct early_upload {
	/* A ring: the newest push the oldest out. */
	struct early_upload_content stored[STORED_MAX];
	uint64_t stored_count;

	struct mutex lock; /* guards the rest */
	uint64_t noted[NOTED_MAX];
	uint64_t first, end; /* noted [first, end), modulo NOTED_MAX */
};

int early_upload_new(struct early_upload **ret_ahead)
{
	struct early_upload *a = calloc(1, sizeof(*a));

	if (!a)
		return -ENOMEM;
	mutex_init(&a->lock, LOCK_AHEAD);
	*ret_ahead = a;
	return 0;
}

void early_upload_free(struct early_upload *a)
{
	if (!a)
		return;
	mutex_destroy(&a->lock);
	free(a);
}

void early_upload_note(struct early_upload *a, uint64_t version)
{
	SCOPED_LOCK(&a->lock);
	if (a->end - a->first == NOTED_MAX)
		a->first++;
	a->noted[a->end++ % NOTED_MAX] = version;
}

static bool take_noted(struct early_upload *a, uint64_t *ret_version)
{
	SCOPED_LOCK(&a->lock);
	if (a->first == a->end)
		return false;
	*ret_version = a->noted[a->first++ % NOTED_MAX];
	return true;
}

/* Whether an epoch may still need it: it is what its file holds. The number of the next epoch. */
static bool is_wanted(struct volume *vol, uint64_t version, uint64_t *ret_size, uint64_t *ret_epoch)
{
	struct state_version row;

	SCOPED_LOCK(&vol->lock);
	if (state_version_get(vol->state, version, &row) || row.state != VERSION_CLOSED || row.died)
		return false;
	*ret_size = row.size;
	*ret_epoch = vol->next_epoch;
	return true;
}

static void free_batch(struct store_batch **batch)
{
	store_batch_free(*batch);
}

static int store_fd(struct store *store, uint64_t epoch, int fd, uint64_t size,
		    struct early_upload_content *ret_content)
{
	CLEANUP(free_batch) struct store_batch *batch = NULL;
	cleanup_record struct epoch_record record = {0};
	struct store_stats stats;
	int error = store_batch_begin(store, epoch, &batch);

	if (!error)
		error = store_put_fd(batch, fd, size, &ret_content->recipe, &ret_content->holes);
	FAULT_POINT("ahead.content");
	if (!error)
		error = store_batch_finish(batch, &record, &stats);
	if (error)
		return error;
	FAULT_POINT("ahead.index");
	if (record.index_count)
		snprintf(ret_content->index_key, sizeof(ret_content->index_key), "%s",
			 record.indexes[0]);
	ret_content->bytes_new = record.bytes_new;
	ret_content->bytes_stored = record.bytes_stored;
	return 0;
}

static int store_version(struct early_upload *a, struct volume *vol, struct remote *remote,
			 struct store *store, uint64_t version)
{
	struct early_upload_content content = {.version = version};
	cleanup_close int fd = -1;
	uint64_t size, epoch;
	int error;

	if (!is_wanted(vol, version, &size, &epoch))
		return 0;
	fd = object_open(vol, version, O_RDONLY);
	if (fd < 0)
		return fd;
	error = holder_confirm(vol, remote, CONFIRMED_NS);
	if (!error)
		error = upload_gc_heed(remote, store);
	if (!error)
		error = store_fd(store, epoch, fd, size, &content);
	if (!error)
		counters_add_stored(&vol->counters, size, content.bytes_new, content.bytes_stored);
	/* An edit in place took the file over: what was read may be neither. */
	if (error || !object_is_still(vol, version, fd))
		return error;
	a->stored[a->stored_count++ % STORED_MAX] = content;
	log_debug("version %" PRIu64 " is in the remote before it is sealed", version);
	return 0;
}

int early_upload_store(struct early_upload *a, struct volume *vol, struct remote *remote,
		       struct store *store)
{
	uint64_t version;
	int error;

	if (!take_noted(a, &version))
		return 0;
	error = store_version(a, vol, remote, store, version);
	if (error == -ECANCELED || error == -ESTALE)
		return error;
	if (error)
		log_debug("version %" PRIu64 " waits for its epoch: %s", version, strerror(-error));
	return 1;
}

const struct early_upload_content *early_upload_find(const struct early_upload *a, uint64_t version)
{
	uint64_t count = a->stored_count < STORED_MAX ? a->stored_count : STORED_MAX;

	for (uint64_t i = 0; version && i < count; i++)
		if (a->stored[i].version == version)
			return &a->stored[i];
	return NULL;
}

static bool names_index(const struct epoch_record *record, const char *key)
{
	for (size_t i = 0; i < record->index_count; i++)
		if (!strcmp(record->indexes[i], key))
			return true;
	return false;
}

int early_upload_count(const struct early_upload *a, uint64_t version, struct epoch_record *record)
{
	const struct early_upload_content *found = early_upload_find(a, version);
	int error;

	if (!found || !found->index_key[0] || names_index(record, found->index_key))
		return 0;
	/* Until something is stored of an epoch, its record tells what is new as the sealer reckons it. */
	if (!record->index_count)
		record->bytes_new = record->bytes_stored = 0;
	error = store_record_add_index(record, found->index_key);
	if (error)
		return error;
	record->bytes_new += found->bytes_new;
	record->bytes_stored += found->bytes_stored;
	return 0;
}

void early_upload_forget(struct early_upload *a, uint64_t version)
{
	const struct early_upload_content *found = early_upload_find(a, version);

	if (found)
		a->stored[found - a->stored].version = 0;
}
