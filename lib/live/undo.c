/* SPDX-License-Identifier: Apache-2.0 */
/* Undoing what a killed writer left, and files whose last name is gone. */
#include "lib/live/bodies.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/format/tails.h"
#include "lib/util/clock.h"
#include "lib/util/faultpoint.h"
#include "lib/util/log.h"
#include "lib/cache/grant.h"
#include "lib/live/live_internal.h"
#include "lib/live/events.h"
#include "lib/live/observer.h"
#include "lib/cache/reclaim.h"
#include "lib/cache/torn.h"

/* One name of a file, copied so that names may change. */
struct one_name {
	uint64_t parent, covered;
	bool want_covered;
	char name[256];
};

static int take_name(void *arg, const struct state_name *n, const char *name,
		     const struct state_file *f)
{
	struct one_name *one = arg;

	(void)f;
	if (one->want_covered && !n->covered)
		return 0;
	one->parent = n->parent;
	one->covered = n->covered;
	snprintf(one->name, sizeof(one->name), "%s", name);
	return 1;
}

int file_unname_locked(struct volume *vol, struct state_file *f, struct after *after)
{
	struct one_name one = {0};
	int error;

	while ((error = state_names_of(vol->state, f->ino, take_name, &one)) == 1) {
		if (one.covered)
			error = state_name_set(vol->state, one.parent, one.name, one.covered, 0);
		else
			error = state_name_remove(vol->state, one.parent, one.name);
		if (!error)
			error = live_touch_locked(vol, one.parent, 0, live_now_ns());
		if (error)
			return error;
		after_entry(after, one.parent, one.name);
	}
	f->nlink = 0;
	return error;
}

int covered_drop_locked(struct volume *vol, uint64_t ino)
{
	struct one_name one = {.want_covered = true};
	struct state_file f;
	int error;

	while ((error = state_names_of(vol->state, ino, take_name, &one)) == 1) {
		error = state_name_set(vol->state, one.parent, one.name, ino, 0);
		if (error)
			return error;
		error = state_file_get(vol->state, one.covered, &f);
		if (error == -ENOENT)
			continue;
		if (error)
			return error;
		if (f.nlink)
			f.nlink--;
		error = f.nlink ? state_file_set(vol->state, &f)
				: body_file_unlinked_locked(vol, &f);
		if (error)
			return error;
	}
	return error;
}

static bool file_is_open_locked(struct volume *vol, uint64_t ino)
{
	return body_of_ino_locked(vol, ino) != NULL;
}

/* While a file without a name was open, a rollback may have given its content to another, which needs it. */
static int closed_died_locked(struct volume *vol, const struct state_file *f)
{
	struct state_version v;
	int error = f->closed ? state_version_get(vol->state, f->closed, &v) : -ENOENT;

	if (error)
		return error == -ENOENT ? 0 : error;
	return v.ino == f->ino ? version_died_locked(vol, f->closed) : 0;
}

int body_file_unlinked_locked(struct volume *vol, struct state_file *f)
{
	int error;

	f->nlink = 0;
	body_replaced_locked(vol, f);
	body_orphan_locked(vol, f->ino);
	if (file_is_open_locked(vol, f->ino))
		error = state_file_set(vol->state, f);
	else
		error = state_file_remove(vol->state, f->ino);
	return error ? error : closed_died_locked(vol, f);
}

int body_discard_locked(struct volume *vol, struct body *b)
{
	int error;

	if (b->discarded)
		return 0;
	error = state_version_remove(vol->state, b->version);
	if (error && error != -ENOENT)
		return error;
	b->discarded = true;
	b->orphan = true;
	body_set_pending_locked(vol, b, false);
	FAULT_POINT("undo.rows");
	grant_drop_locked(vol, b->version);
	object_remove(vol, b->version);
	return 0;
}

int body_replaces_nothing_locked(struct volume *vol, const struct body *b)
{
	struct state_version v;
	int error = state_version_get(vol->state, b->version, &v);

	if (error || v.kind != VERSION_REPLACE)
		return error == -ENOENT ? 0 : error;
	v.kind = VERSION_EDIT;
	return state_version_set(vol->state, &v);
}

int body_let_go_locked(struct volume *vol, struct body *b)
{
	int error;

	if (!b->handles || b->discarded)
		return body_discard_locked(vol, b);
	/* Where no such reader is left after a crash, recovery forgets it. */
	error = body_replaces_nothing_locked(vol, b);
	if (error)
		return error;
	b->orphan = b->let_go = true;
	body_set_pending_locked(vol, b, false);
	return 0;
}

/* Rows of a fragile new file: its names, and what they hid comes back. */
static int remove_new_locked(struct volume *vol, struct body *b, struct after *after)
{
	struct after_entry *before = after->entries;
	struct state_file f;
	int error = state_begin(vol->state);

	if (error)
		return error;
	error = state_file_get(vol->state, b->ino, &f);
	if (!error)
		error = file_unname_locked(vol, &f, after);
	if (!error)
		error = body_file_unlinked_locked(vol, &f);
	else if (error == -ENOENT)
		error = 0;
	if (!error && !b->handles)
		error = state_version_remove(vol->state, b->version);
	error = state_end(vol->state, error == -ENOENT ? 0 : error);
	for (struct after_entry *e = after->entries; !error && e != before; e = e->next)
		vol->observer->note_locked(vol, ACTIVITY_REMOVE, e->parent, NULL, e->name, b->ino);
	return error;
}

/* ---- who vouches for what a killed writer had open, too ---- */

/* The kernel stamps with this clock, which goes on by ticks; some file systems keep whole seconds. */
bool time_may_stay(int64_t mtime_ns)
{
	return mtime_ns + (mtime_ns % NS_PER_S ? 1 : NS_PER_S) > live_now_ns();
}

void handle_find_locked(struct handle *h)
{
	const struct body *b = h->body;
	struct stat st;

	h->found_size = -1;
	if (!h->writes || !b->staged || h->flags & O_TRUNC || fstat(b->fd, &st) < 0)
		return;
	h->found_changes = b->changes;
	h->found_mtime_ns = stat_mtime(&st);
	h->found_size = st.st_size;
	/* What was closed must not be lost for it. */
	h->found_racy = time_may_stay(h->found_mtime_ns);
}

bool handle_vouches_locked(const struct handle *h)
{
	const struct body *b = h->body;
	struct stat st;

	if (!b->staged)
		return false;
	if (h->found_size < 0 || h->found_changes != b->changes)
		return true;
	return h->direct && (h->found_racy || fstat(b->fd, &st) < 0 ||
			     st.st_size != h->found_size || stat_mtime(&st) != h->found_mtime_ns);
}

void handles_found_time_locked(struct body *b, const struct stat *before, int64_t mtime_ns,
			       pid_t by)
{
	for (struct handle *h = b->open_handles; h; h = h->next) {
		/* It was written already, which the new time may hide. */
		if (h->found_size != before->st_size || h->found_mtime_ns != stat_mtime(before)) {
			h->found_size = -1;
			continue;
		}
		h->found_mtime_ns = mtime_ns;
		h->found_racy = h->found_racy || (h->tgid != by && time_may_stay(mtime_ns));
	}
}

/* Contract 1.2.4. A process that wrote to the file, or had it written, and closes it well vouches for it. */
bool body_is_undone_locked(struct volume *vol, struct body *b)
{
	return b->cut_off ||
	       (b->killed && b->fragile && !b->closed_well && !body_is_output_locked(vol, b));
}

enum finished {
	FINISHED_NOTHING,
	FINISHED_NEW,
	FINISHED_REPLACEMENT, /* of content that is whole, as far as anybody knows */
};

/* What this close finishes. */
static enum finished finished_locked(struct volume *vol, struct body *b)
{
	struct state_version v;
	struct state_file f;

	if (!vol->options.by_saves || !b->staged || b->writers || b->killed || b->discarded ||
	    b->orphan || b->preparing || body_is_output_locked(vol, b) ||
	    state_file_get(vol->state, b->ino, &f) != 0)
		return FINISHED_NOTHING;
	if (!f.closed)
		return FINISHED_NEW;
	return b->pending && state_version_get(vol->state, f.closed, &v) == 0 && v.size && !v.torn
		       ? FINISHED_REPLACEMENT
		       : FINISHED_NOTHING;
}

/* Drops the lock. */
static bool ends_torn_locked(struct volume *vol, struct body *b, const char **ret_why)
{
	struct backing *backing = backing_ref(b->backing);
	char name[256];
	struct stat st;
	bool torn;

	first_name_locked(vol, b->ino, name, NULL);
	mutex_unlock(&vol->lock);
	torn = fstat(backing->fd, &st) == 0 && st.st_size &&
	       tail_check(backing->fd, (uint64_t)st.st_size, name, ret_why) > 0;
	backing_put(backing);
	mutex_lock(&vol->lock);
	return torn;
}

void body_look_cut_off_locked(struct volume *vol, struct body *b)
{
	enum finished finished = finished_locked(vol, b);
	cleanup_buf struct buf path = {0};
	const char *why = NULL;

	b->cut_off = b->ends_torn = false;
	if (finished == FINISHED_NOTHING || !ends_torn_locked(vol, b, &why) ||
	    finished_locked(vol, b) != finished)
		return;
	b->ends_torn = finished == FINISHED_NEW;
	b->cut_off = finished == FINISHED_REPLACEMENT;
	if (!b->cut_off)
		return;
	volume_path_locked(vol, b->ino, &path);
	log_warn(
		"%s: %s: the file is as it was, and what was written is in .epochs/torn; save it again",
		buf_str(&path), why);
}

int body_undo_locked(struct volume *vol, struct body *b, struct after *after)
{
	cleanup_buf struct buf path = {0};
	bool replaces = b->pending;
	struct state_file f;
	char name[256];
	int error;

	first_name_locked(vol, b->ino, name, NULL);
	volume_path_locked(vol, b->ino, &path);
	if (!replaces) {
		error = state_file_get(vol->state, b->ino, &f);
		if (!error && !f.closed)
			error = remove_new_locked(vol, b, after);
		if (error && error != -ENOENT)
			return error;
		/* No name leads there: who would still open it by its node is to look again. Its space may be needed, before the kernel can be told. */
		b->known = false;
	}
	event_undone_locked(vol, b, buf_str(&path));
	FAULT_POINT("undo.names");
	torn_keep_locked(vol, b->version, name, b->handles);
	FAULT_POINT("undo.torn");
	return body_let_go_locked(vol, b);
}
