/* SPDX-License-Identifier: Apache-2.0 */
/* What is announced of an epoch, and who wants it. */
#include "lib/volume/announce_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/meta/listing.h"
#include "lib/util/clock.h"
#include "lib/util/parse.h"

static json_t *drop_object(const struct volume *vol, const char *event, uint64_t number)
{
	char now[FORMAT_MAX];

	format_time(clock_wall_ns(), now);
	return json_pack("{s:s, s:I, s:s, s:s}", "event", event, "epoch", (json_int_t)number,
			 "volume", vol->uuid, event, now);
}

static void add_tree_hash(json_t *object, const struct epoch_record *r)
{
	char text[HASH_HEX];

	if (!r->tree_size)
		return;
	hash_to_hex(&r->tree_hash, text);
	json_object_set_new(object, "tree_hash", json_string(text));
}

static int epoch_object(const struct volume *vol, enum announce_event event,
			const struct state_epoch *row, json_t **ret_object)
{
	struct epoch_info info = {
		.number = row->number,
		.state = row->state,
		.superseded = row->superseded,
	};
	int error = record_decode(row->record, strlen(row->record), &info.record);
	json_t *object;

	if (error)
		return error;
	info.complete = info.record.complete == RECORD_COMPLETE && !info.superseded;
	object = listing_epoch(&info);
	if (object) {
		json_object_set_new(object, "event",
				    json_string(event == ANNOUNCE_SEALED ? "sealed" : "durable"));
		json_object_set_new(object, "remote", listing_string(remote_name(vol->remote)));
		if (vol->options.mountpoint)
			json_object_set_new(object, "mountpoint",
					    listing_string(vol->options.mountpoint));
		add_tree_hash(object, &info.record);
	}
	record_free(&info.record);
	*ret_object = object;
	return object ? 0 : -ENOMEM;
}

int announce_text(const struct volume *vol, enum announce_event event,
		  const struct state_epoch *row, char **ret_text)
{
	json_t *object = NULL;
	int error = 0;

	if (event == ANNOUNCE_DROPPED)
		object = drop_object(vol, "dropped", row->number);
	else if (event == ANNOUNCE_UNDROPPED)
		object = drop_object(vol, "undropped", row->number);
	else
		error = epoch_object(vol, event, row, &object);
	*ret_text = error ? NULL : json_dumps(object, JSON_COMPACT);
	json_decref(object);
	return error ? error : *ret_text ? 0 : -ENOMEM;
}

static bool wants(const struct volume *vol, unsigned sink, enum announce_event event)
{
	if (vol->options.read_only)
		return false;
	if (sink == SINK_PROGRAM)
		return vol->options.on_epoch && event != ANNOUNCE_DROPPED &&
		       event != ANNOUNCE_UNDROPPED;
	return vol->options.catalog_db != NULL;
}

int announce_locked(struct volume *vol, enum announce_event event, const struct state_epoch *row)
{
	cleanup_free char *text = NULL;
	int error = 0;

	for (unsigned sink = 0; !error && sink < SINK_COUNT; sink++) {
		if (!wants(vol, sink, event))
			continue;
		if (!text)
			error = announce_text(vol, event, row, &text);
		if (!error)
			error = state_announcement_add(vol->state, sink, text);
	}
	if (text)
		announcer_kick_locked(vol);
	return error;
}
