/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing a remote: epochfs.json. */
#include "lib/admin/repair_internal.h"

#include <errno.h>
#include <string.h>

#include "lib/format/key_slot.h"
#include "lib/meta/records.h"
#include "lib/util/cleanup.h"

struct whose {
	struct repair *r;
	char uuid[37];
	int64_t created_ns; /* not later than the first epoch */
	bool encrypted;
};

static int note_volume(void *arg, const struct record_found *found)
{
	struct whose *w = arg;

	if (!found->record)
		return 0;
	memcpy(w->uuid, found->record->volume, sizeof(w->uuid));
	w->created_ns =
		found->record->opened_ns ? found->record->opened_ns : found->record->sealed_ns;
	return 1;
}

/* Of an encrypted volume nothing else can be read before it is open. */
static int note_slot(void *arg, const char *key, uint64_t size)
{
	struct whose *w = arg;
	cleanup_buf struct buf text = {0};
	char id[KEY_ID_MAX];
	struct key_slot slot;
	int error;

	(void)size;
	if (slot_key_parse(key, id))
		return 0;
	w->encrypted = true;
	error = remote_get(w->r->remote, key, 0, KEY_SLOT_ENCODED_MAX + 1, &text);
	if (error)
		return error == -ENOENT ? 0 : error;
	if (key_slot_decode(text.data, text.len, &slot) == 0)
		memcpy(w->uuid, slot.uuid, sizeof(w->uuid));
	return 0;
}

static int find_out(struct whose *w)
{
	int error = remote_list(w->r->remote, PREFIX_KEYS, note_slot, w);

	if (!error && !w->encrypted)
		error = records_each(w->r->remote, 0, note_volume, w);
	return error < 0 ? error : 0;
}

/* As every volume is made but for its name, which a record knows; an encrypted one also has what no record tells. */
static int make_anew(const struct whose *w, struct buf *out)
{
	struct volume_info info;
	int error = w->encrypted ? -ENOENT : volume_info_make(&info);

	if (error)
		return error;
	memcpy(info.uuid, w->uuid, sizeof(info.uuid));
	info.created_ns = w->created_ns;
	buf_reset(out);
	return volume_info_encode(&info, out);
}

static int is_gone(struct repair *r, const char *why)
{
	return opening_fail(r->message, -EBADMSG, "%s/%s is gone: it is missing or damaged, and %s",
			    remote_name(r->remote), KEY_VOLUME, why);
}

static int put(struct repair *r, const struct buf *text, bool missing)
{
	if (r->how->dry_run)
		return 0;
	return missing ? remote_put_if_absent(r->remote, KEY_VOLUME, text->data, text->len)
		       : remote_put(r->remote, KEY_VOLUME, text->data, text->len);
}

static int restore(struct repair *r, const struct volume_options *options, bool missing)
{
	cleanup_buf struct buf text = {0};
	struct whose whose = {.r = r};
	const char *from = "restored from the cache of this machine";
	int error = find_out(&whose);

	if (error)
		return contact_fail(r->remote, error, r->message);
	if (!whose.uuid[0])
		return is_gone(r, "no epoch's record says which volume this is");
	error = repair_source_info(options, whose.uuid, &text);
	if (error == -ENOENT) {
		from = "rebuilt, as an epoch's record says which volume it is";
		error = make_anew(&whose, &text);
	}
	if (error == -ENOENT)
		return is_gone(r,
			       "no cache has a copy of it, without which no key opens the volume");
	if (!error)
		error = volume_info_decode(text.data, text.len, &r->info);
	if (!error)
		error = put(r, &text, missing);
	if (error)
		return contact_fail(r->remote, error, r->message);
	repair_say(r, REPAIR_RESTORED, KEY_VOLUME, "", from);
	return 0;
}

/* It is whole, but not what a cache has, which was taken when it was read first: it is never changed. */
static int compare(struct repair *r, const struct volume_options *options)
{
	cleanup_buf struct buf now = {0}, before = {0};
	struct whose whose = {.r = r};
	int error = repair_source_info(options, r->info.uuid, &before);

	/* Its very name may have been altered. */
	if (error == -ENOENT) {
		error = find_out(&whose);
		if (error || !strcmp(whose.uuid, r->info.uuid) || !whose.uuid[0] ||
		    repair_source_info(options, whose.uuid, &before))
			return error;
	}
	if (!error)
		error = volume_info_encode(&r->info, &now);
	if (error || !strcmp(buf_str(&now), buf_str(&before)))
		return error;
	error = volume_info_decode(before.data, before.len, &r->info);
	if (!error)
		error = put(r, &before, false);
	if (!error)
		repair_say(r, REPAIR_RESTORED, KEY_VOLUME, "",
			   "was altered; restored from the cache of this machine");
	return error;
}

int repair_info(struct repair *r, const struct volume_options *options)
{
	struct opening_message own = {0};
	int error = contact_read(r->remote, &r->info, &own);

	if (error == -ENOENT || error == -EBADMSG) {
		free(own.text);
		return restore(r, options, error == -ENOENT);
	}
	if (error) {
		opening_fail(r->message, error, "%s", own.text ? own.text : strerror(-error));
		free(own.text);
		return error;
	}
	free(own.text);
	error = compare(r, options);
	return error ? contact_fail(r->remote, error, r->message) : 0;
}
