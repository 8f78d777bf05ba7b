/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing a remote: its parts in their order, epochfs.json, what came of it. */
#include "lib/admin/repair.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/admin/catalog_internal.h"
#include "lib/admin/repair_internal.h"
#include "lib/epochs/holder.h"
#include "lib/format/key_slot.h"
#include "lib/meta/listing.h"
#include "lib/meta/records.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/volume/volume.h"

/* Collections that come between. */
#define ROUNDS_MAX 3

void repair_say(struct repair *r, enum repair_outcome outcome, const char *key, const char *where,
		const char *what)
{
	r->totals.restored += outcome == REPAIR_RESTORED;
	r->totals.gone += outcome == REPAIR_GONE;
	if (r->how->say)
		r->how->say(r->how->arg, outcome, key, where, what);
}

int repair_confirm(struct repair *r)
{
	return r->confirm && !r->how->dry_run ? r->confirm(r->confirm_arg) : 0;
}

void repair_note_gone(struct repair *r, uint64_t epoch)
{
	struct repair_totals *t = &r->totals;
	size_t at = 0;

	while (at < t->gone_epoch_count && t->gone_epochs[at] < epoch)
		at++;
	if (at == REPAIR_EPOCHS_MAX || (at < t->gone_epoch_count && t->gone_epochs[at] == epoch))
		return;
	if (t->gone_epoch_count == REPAIR_EPOCHS_MAX)
		t->gone_epoch_count--;
	memmove(&t->gone_epochs[at + 1], &t->gone_epochs[at],
		(t->gone_epoch_count - at) * sizeof(epoch));
	t->gone_epochs[at] = epoch;
	t->gone_epoch_count++;
}

static int repair_all(struct repair *r)
{
	int error = repair_records(r);

	if (!error)
		error = -EEXIST;
	for (int i = 0; error == -EEXIST && i < ROUNDS_MAX; i++)
		error = repair_contents(r);
	if (error == -EEXIST)
		return opening_fail(r->message, error,
				    "%s: garbage collections are at work there; try again later",
				    remote_name(r->remote));
	if (!error)
		error = repair_summaries(r);
	return error;
}

static void repair_end(struct repair *r)
{
	for (size_t i = 0; i < r->copy_count; i++)
		free(r->copies[i].text);
	free(r->copies);
	if (r->source)
		repair_source_close(r->source);
	remote_close(r->remote);
}

static int finish(struct repair *r, int error, struct repair_totals *ret_totals, char **ret_message)
{
	struct opening_message *m = r->message;

	if (error == -ESTALE)
		opening_fail(m, error,
			     "another writer has taken the volume over: what was restored "
			     "until then stays; run it again");
	else if (error && r->remote)
		error = m->text ? contact_errno(error) : contact_fail(r->remote, error, m);
	else if (error)
		opening_fail(m, error, "%s", strerror(-error));
	if (error) {
		*ret_message = m->text;
		return error;
	}
	free(m->text);
	*ret_totals = r->totals;
	return 0;
}

/* ---- without a mount ---- */

static int confirm_volume(void *arg)
{
	struct volume *vol = arg;

	return holder_confirm(vol, vol->remote, NS_PER_S);
}

/* Before there is a lease: without epochfs.json nobody can hold one. */
static int repair_first(struct repair *r, const struct volume_options *options)
{
	int error = catalog_connect_any(options->remote, &options->limits, &r->remote, r->message);

	if (!error)
		error = repair_info(r, options);
	if (!error && r->how->dry_run)
		return catalog_unlock(&r->remote, &r->info, &options->limits, r->message);
	if (error)
		return error;
	remote_close(r->remote);
	r->remote = NULL;
	return 0;
}

static int take_lease(struct repair *r, const struct volume_options *options,
		      struct volume **ret_volume)
{
	int error = volume_open_for_import(options, ret_volume, &r->message->text);

	if (error)
		return error;
	r->remote = remote_ref((*ret_volume)->remote);
	r->confirm = confirm_volume;
	r->confirm_arg = *ret_volume;
	return 0;
}

int repair_remote(const struct volume_options *options, const struct repair_how *how,
		  struct repair_totals *ret_totals, char **ret_message)
{
	struct opening_message m = {0};
	struct repair_source source;
	struct repair r = {.how = how, .message = &m};
	struct volume *vol = NULL;
	int error = repair_first(&r, options);

	if (!error && !how->dry_run)
		error = take_lease(&r, options, &vol);
	if (!error && repair_source_open(options, r.info.uuid, &source) == 0)
		r.source = &source;
	if (!error)
		error = repair_all(&r);
	error = finish(&r, error, ret_totals, ret_message);
	repair_end(&r);
	if (vol)
		volume_close(vol);
	return error;
}

/* ---- by a mount ---- */

/* The same by a mounted volume, for itself: it goes on meanwhile. -EROFS, -EOPNOTSUPP (remote none), -ESTALE, the remote's. */
static int repair_mount(struct volume *vol, const struct repair_how *how,
			struct repair_totals *ret_totals, char **ret_message)
{
	struct opening_message m = {0};
	struct repair_source source = {
		.state = vol->state,
		.lock = &vol->lock,
		.objects_fd = vol->objects_fd,
		.trees_fd = vol->trees_fd,
	};
	struct repair r = {.how = how,
			   .message = &m,
			   .confirm = confirm_volume,
			   .confirm_arg = vol,
			   .source = &source};
	int error = 0;

	if (vol->local_only)
		error = opening_fail(&m, -EOPNOTSUPP, "this mount has no remote");
	else if (vol->options.read_only && !how->dry_run)
		error = opening_fail(&m, -EROFS, "this mount is read-only: name the remote");
	if (!error) {
		r.remote = remote_ref(vol->remote);
		error = repair_info(&r, &vol->options);
	}
	if (!error)
		error = repair_all(&r);
	error = finish(&r, error, ret_totals, ret_message);
	r.source = NULL; /* the volume's own */
	repair_end(&r);
	return error;
}

/* ---- Repairing a remote: epochfs.json. ---- */

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

/* ---- Repairing a remote: what came of it, as JSON. ---- */

struct outcomes {
	json_t *lists[REPAIR_NOTE + 1];
	void (*progress)(void *arg, const struct catalog_progress *p);
	void *arg;
};

static void say(void *arg, enum repair_outcome outcome, const char *key, const char *where,
		const char *what)
{
	struct outcomes *t = arg;

	json_array_append_new(t->lists[outcome],
			      json_pack("{s:o, s:o, s:o}", "object", listing_string(key), "where",
					listing_string(where), "what", listing_string(what)));
}

static void on_progress(void *arg, const struct catalog_progress *p)
{
	struct outcomes *t = arg;

	if (t->progress)
		t->progress(t->arg, p);
}

static void outcomes_free(struct outcomes *t)
{
	for (size_t i = 0; i <= REPAIR_NOTE; i++)
		json_decref(t->lists[i]);
}

static void outcomes_new(struct outcomes *t)
{
	for (size_t i = 0; i <= REPAIR_NOTE; i++)
		t->lists[i] = json_array();
}

static json_t *answer_of(const struct outcomes *t, const struct repair_totals *totals, bool dry_run)
{
	json_t *epochs = json_array();

	for (size_t i = 0; i < totals->gone_epoch_count; i++)
		json_array_append_new(epochs, json_integer((json_int_t)totals->gone_epochs[i]));
	return json_pack("{s:b, s:O, s:O, s:O, s:o, s:I, s:I}", "dry_run", dry_run, "restored",
			 t->lists[REPAIR_RESTORED], "gone", t->lists[REPAIR_GONE], "notes",
			 t->lists[REPAIR_NOTE], "gone_epochs", epochs, "condemned",
			 (json_int_t)totals->condemned, "bytes_stored",
			 (json_int_t)totals->bytes_stored);
}

int repair_remote_json(const struct volume_options *options, bool dry_run,
		       void (*progress)(void *arg, const struct catalog_progress *p), void *arg,
		       json_t **ret_answer, char **ret_message)
{
	CLEANUP(outcomes_free) struct outcomes t = {.progress = progress, .arg = arg};
	const struct repair_how how = {
		.dry_run = dry_run, .say = say, .progress = on_progress, .arg = &t};
	struct repair_totals totals;
	int error;

	outcomes_new(&t);
	error = repair_remote(options, &how, &totals, ret_message);
	if (error)
		return error;
	*ret_answer = answer_of(&t, &totals, dry_run);
	return *ret_answer ? 0 : -ENOMEM;
}

int repair_mount_json(struct volume *vol, bool dry_run, json_t **ret_answer, char **ret_message)
{
	CLEANUP(outcomes_free) struct outcomes t = {.progress = NULL};
	const struct repair_how how = {.dry_run = dry_run, .say = say, .arg = &t};
	struct repair_totals totals;
	int error;

	outcomes_new(&t);
	error = repair_mount(vol, &how, &totals, ret_message);
	if (error)
		return error;
	*ret_answer = answer_of(&t, &totals, dry_run);
	return *ret_answer ? 0 : -ENOMEM;
}
