/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing a remote: what came of it, as JSON. */
#include "lib/admin/repair.h"

#include <errno.h>

#include "lib/meta/listing.h"
#include "lib/util/cleanup.h"

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
