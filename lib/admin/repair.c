/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing a remote. */
#include "lib/admin/repair_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/admin/catalog_internal.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/epochs/holder.h"
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

int repair_mount(struct volume *vol, const struct repair_how *how, struct repair_totals *ret_totals,
		 char **ret_message)
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
