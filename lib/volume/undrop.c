/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing a dropped epoch back in the remote. */
#include "lib/volume/undrop.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/meta/records.h"
#include "lib/util/cleanup.h"
#include "lib/util/faultpoint.h"
#include "lib/volume/epochs.h"
#include "lib/volume/upload_gc.h"

void undrop_tag(uint64_t number, char ret_name[UNDROP_TAG_MAX])
{
	snprintf(ret_name, UNDROP_TAG_MAX, "undropped-%" PRIu64, number);
}

void undrop_refusal(uint64_t number, struct buf *out)
{
	buf_printf(
		out,
		"epoch %" PRIu64
		" cannot be brought back: garbage collection has deleted what it needs, or it was "
		"dropped before it was in the remote",
		number);
}

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
