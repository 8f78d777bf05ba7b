/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles that come back. A body is found again by what the state says of its id, in this order: a
 * staged version of it (whatever the record says: an edit may have begun, or a copy been committed, just
 * before the process died); the file's own content; the version in the record, which was replaced while a reader had it.
 */
#include "lib/volume/recovery.h"
#include "lib/live/events.h"
#include "lib/live/survivors.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include "lib/util/log.h"
#include "lib/util/process.h"

/* ---- bodies that come back ---- */

static const struct state_version *staged_of(const struct recovery *r, uint64_t body)
{
	for (size_t i = 0; i < r->staged.count; i++)
		if (r->staged.v[i].body == body)
			return &r->staged.v[i];
	return NULL;
}

/* What was committed as it was closed is a copy of what is there, but for what was written since by a descriptor that is left. */
static void follow_copy_locked(struct body *b, const struct state_file *f)
{
	struct stat st;

	if (fstat(b->fd, &st) < 0 || body_is_stored_since_close(b))
		return;
	b->base = f->closed;
	b->base_size = (uint64_t)st.st_size;
	b->base_mtime_ns = stat_mtime(&st);
	b->base_ctime_ns = stat_ctime(&st);
	b->base_compares = !time_may_stay(b->base_ctime_ns);
	b->copied = !b->base_compares;
}

static void fill_staged_locked(struct volume *vol, struct body *b, const struct state_version *v,
			       const struct state_file *f, const struct handle_record *record)
{
	bool replaces = v->kind == VERSION_REPLACE && f->body != b->id;

	b->orphan = record->body_orphan || !f->nlink || (!replaces && f->live != v->id);
	b->let_go = b->orphan;
	body_set_pending_locked(vol, b, replaces && !b->orphan);
	b->journaled_size = v->flushed_size;
	b->journaled_ctime_ns = v->flushed_ctime_ns;
	if (record->held && !b->orphan && v->kind == VERSION_EDIT && f->closed)
		follow_copy_locked(b, f);
}

static int revive_staged_locked(struct volume *vol, const struct state_version *v,
				const struct state_file *f, const struct handle_record *record,
				struct body **ret_body)
{
	int fd = object_open(vol, v->id, O_RDWR), error;

	if (fd < 0)
		return fd;
	error = body_new_staged_locked(vol, v, fd, ret_body);
	if (error) {
		close(fd);
		return error;
	}
	fill_staged_locked(vol, *ret_body, v, f, record);
	return 0;
}

/* Content that was replaced, or whose last name went, while somebody had it open. */
static int revive_old_locked(struct volume *vol, const struct handle_record *record,
			     struct body **ret_body)
{
	struct state_version v;
	int error = state_version_get(vol->state, record->version, &v);
	struct body *b;

	/* A rollback may have given it to the file again, or to another: closed content does not change. */
	if (error || v.state == VERSION_STAGED)
		return error ? error : -ENOENT;
	b = body_add_locked(vol, record->body, record->ino);
	if (!b)
		return -ENOMEM;
	b->version = v.id;
	b->orphan = true;
	*ret_body = b;
	return 0;
}

/*
 * The process died after it had given the inode of an edit in which nothing was written back to what the edit began with
 * (commit.c), and before the rows said so: that is the file's content.
 */
static int revive_restored_locked(struct volume *vol, const struct state_version *v,
				  struct state_file *f, struct body **ret_body)
{
	int error;

	if (v->kind != VERSION_EDIT || f->body != v->body || !f->closed || !f->nlink)
		return -ENOENT;
	error = recovery_forget_staged_locked(vol, v);
	if (!error)
		error = state_file_get(vol->state, v->ino, f);
	return error ? error : body_get_locked(vol, f, ret_body);
}

static int revive_body_locked(struct volume *vol, struct recovery *r,
			      const struct handle_record *record, struct body **ret_body)
{
	const struct state_version *staged = staged_of(r, record->body);
	struct body *b = body_find_locked(vol, record->body);
	struct state_file f;
	int error = state_file_get(vol->state, record->ino, &f);

	if (error || (b && b->ino == record->ino)) {
		*ret_body = b;
		return error;
	}
	if (b || (staged && staged->ino != record->ino) || !S_ISREG(f.mode))
		return -EUCLEAN;
	if (staged)
		error = revive_staged_locked(vol, staged, &f, record, &b);
	else if (f.body == record->body && f.nlink)
		error = body_get_locked(vol, &f, &b);
	else
		error = revive_old_locked(vol, record, &b);
	if (staged && error == -ENOENT)
		error = revive_restored_locked(vol, staged, &f, &b);
	if (error)
		return error;
	b->killed = record->body_killed;
	b->closed_well = record->body_closed_well;
	b->tear = record->body_tear;
	b->cramped = record->body_cramped;
	b->refused_error = record->body_refused_error;
	b->refused_from = record->body_refused_from;
	b->refused_to = record->body_refused_to;
	atomic_store(&b->was_refused, b->refused_from < b->refused_to);
	*ret_body = b;
	return 0;
}

/* ---- handles that come back ---- */

static void attach_locked(struct handle *h, struct body *b, const struct handle_record *record)
{
	struct member *m = b->pending && h->tgid ? body_member_locked(b, h->tgid, true) : NULL;

	h->body = b;
	h->next = b->open_handles;
	b->open_handles = h;
	b->handles++;
	if (!h->writes)
		return;
	if (h->held) {
		b->held++;
		return;
	}
	if (m)
		m->handles++;
	if (!b->writers) {
		b->opened_epoch = record->opened_epoch;
		b->opened_ns = record->opened_ns;
		b->append_only = true;
	}
	b->append_only = b->append_only && (h->flags & O_APPEND) && !(h->flags & O_DIRECT);
	b->writers++;
	output_opened_locked(h);
	event_opened_locked(h);
}

static int revive_locked(struct volume *vol, struct recovery *r, struct survivor *s)
{
	struct handle_record *record = s->record;
	struct body *b = NULL;
	struct handle *h;
	int error = revive_body_locked(vol, r, record, &b);

	if (error)
		return error;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->vol = vol;
	h->flags = record->flags;
	h->tgid = record->tgid;
	h->tid = record->tgid; /* its first thread, as a rule */
	h->hold = -1;
	h->writes = record->writes;
	h->killed = record->killed;
	h->closed = record->closed;
	h->held = record->held;
	h->awaited = h->closed && !h->held;
	h->ended = h->killed && process_is_ending(h->tgid);
	h->direct = record->direct;
	h->record = record;
	h->found_size = -1;
	attach_locked(h, b, record);
	s->ret_handle = h;
	return 0;
}

/* A replacement that somebody was sent to, but had not opened yet: it waits for him as in deferred.c. */
static void revive_awaited_locked(struct volume *vol, struct recovery *r)
{
	for (size_t i = 0; i < r->staged.count; i++) {
		const struct state_version *v = &r->staged.v[i];
		const struct handle_record record = {.ino = v->ino, .body = v->body};
		struct body *b = NULL;
		pid_t tgid;

		if (v->kind != VERSION_REPLACE || body_find_locked(vol, v->body) ||
		    !stale_retry_leads_locked(vol, v->body, &tgid) ||
		    revive_body_locked(vol, r, &record, &b))
			continue;
		if (b->pending)
			(void)body_member_locked(b, tgid, true);
	}
}

void survivors_revive_locked(struct volume *vol, struct recovery *r)
{
	for (size_t i = 0; i < vol->options.survivors_count; i++) {
		struct survivor *s = &vol->options.survivors[i];
		int error = revive_locked(vol, r, s);

		if (error)
			log_warn(
				"inode %" PRIu64
				" was open when the process that served it died, and its content is not "
				"there any more (%s): its users get EIO",
				s->record->ino, strerror(-error));
	}
	stale_retry_revive_locked(vol);
	revive_awaited_locked(vol, r);
	for (size_t i = 0; i < vol->options.survivors_count; i++) {
		const struct handle *h = vol->options.survivors[i].ret_handle;

		if (!h)
			continue;
		body_note_locked(h->body);
		/* Its release is on its way. */
		if (h->writes && !h->held && body_writers_closed_locked(h->body))
			body_set_closing_locked(vol, h->body, clock_mono_ns(), h->body->releasing);
	}
}
