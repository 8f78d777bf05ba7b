/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree tells what happened. */
#include "lib/live/events.h"

#include <sys/stat.h>
#include "lib/live/bodies.h"
#include "lib/live/observer.h"
#include "lib/saves/event.h"
#include "lib/util/process.h"

static void tell_locked(struct volume *vol, const struct save_event *e)
{
	vol->observer->event_locked(vol, e);
}

/* The path of a name, or NULL without memory. */
static const char *path_of_name_locked(struct volume *vol, uint64_t parent, const char *name,
				       struct buf *path)
{
	volume_path_locked(vol, parent, path);
	buf_printf(path, "%s%s", path->len ? "/" : "", name);
	return buf_error(path) ? NULL : buf_str(path);
}

/* The first name of a body's file; NULL: it has none, or is not what the file shows. */
static const char *path_of_body_locked(struct volume *vol, const struct body *b, struct buf *path)
{
	if (b->orphan)
		return NULL;
	volume_path_locked(vol, b->ino, path);
	return path->len && !buf_error(path) ? buf_str(path) : NULL;
}

static uint64_t process_of_thread(pid_t tid)
{
	return tid ? (uint64_t)process_of(tid) : 0;
}

/* ---- open files ---- */

static unsigned how_it_writes_locked(struct volume *vol, const struct body *b)
{
	struct state_file f;

	if (b->pending)
		return SAVE_IS_REPLACE;
	return state_file_get(vol->state, b->ino, &f) == 0 && !f.closed ? SAVE_IS_NEW
									: SAVE_IS_EDIT;
}

/* The one that was closed last was not the last one after all. */
static void end_last_locked(struct volume *vol, struct body *b)
{
	const struct save_event e = {
		.kind = SAVE_CLOSED, .handle = b->last_number, .facts = SAVE_IS_SHARED};

	if (!b->last_number)
		return;
	b->last_number = 0;
	tell_locked(vol, &e);
}

void event_opened_locked(struct handle *h)
{
	struct volume *vol = h->vol;
	cleanup_buf struct buf path = {0};
	struct save_event e = {.kind = SAVE_OPENED, .process = (uint64_t)h->tgid};

	end_last_locked(vol, h->body);
	e.path = path_of_body_locked(vol, h->body, &path);
	h->number = 0;
	if (!e.path)
		return;
	e.facts = how_it_writes_locked(vol, h->body);
	e.handle = h->number = ++vol->bodies->numbers;
	tell_locked(vol, &e);
}

void event_truncated_locked(struct volume *vol, struct body *b, pid_t tid)
{
	cleanup_buf struct buf path = {0};
	struct save_event e = {
		.kind = SAVE_OPENED, .process = process_of_thread(tid), .facts = SAVE_IS_EDIT};

	end_last_locked(vol, b);
	e.path = path_of_body_locked(vol, b, &path);
	if (!e.path)
		return;
	e.handle = b->last_number = ++vol->bodies->numbers;
	tell_locked(vol, &e);
}

void event_released_locked(struct handle *h)
{
	struct body *b = h->body;

	end_last_locked(h->vol, b);
	b->last_number = h->number;
	h->number = 0;
	if (b->writers)
		end_last_locked(h->vol, b);
}

static void refuse_locked(struct volume *vol, const struct body *b)
{
	const struct save_event e = {.kind = SAVE_REFUSED, .handle = b->last_number};

	if (body_is_refused(b))
		tell_locked(vol, &e);
}

/* Nothing that was there before was changed, as far as the daemon saw it. */
static bool only_grew(const struct body *b, uint64_t size, const struct state_version *before)
{
	return before->size && !b->passed && size > before->size &&
	       atomic_load(&b->lowest) >= before->size;
}

unsigned event_close_facts_locked(struct volume *vol, const struct body *b, uint64_t size)
{
	unsigned facts = b->killed && !b->closed_well ? SAVE_IS_KILLED : 0;
	struct state_version before;
	struct state_file f;

	if (b->pending || state_file_get(vol->state, b->ino, &f) != 0 || !f.closed ||
	    state_version_get(vol->state, f.closed, &before) != 0)
		return facts;
	return facts | (only_grew(b, size, &before) ? SAVE_IS_GREW : 0) |
	       (state_version_placed(&before) < vol->next_epoch ? SAVE_IS_HAD : 0);
}

/* How long its writers had it open. What was left as it was, or is valid at every length, is no save. */
static void count_saved(struct volume *vol, const struct body *b, unsigned facts)
{
	int64_t end_ns = b->closing_ns ? b->closing_ns : clock_mono_ns();

	if (b->is_output || b->cut_off)
		return;
	if (facts & SAVE_IS_KILLED)
		atomic_fetch_add(&vol->counters.killed, 1);
	else if (body_is_refused(b))
		atomic_fetch_add(&vol->counters.refused, 1);
	else if (!(facts & SAVE_IS_SAME))
		histogram_add(&vol->counters.save, end_ns - b->opened_ns);
}

/* The writer whose close has a copy taken in; NULL: he has it open no more. */
static struct handle *closer_of(const struct body *b)
{
	for (struct handle *h = b->open_handles; h; h = h->next)
		if (h->writes && h->number && (!b->closer || h->tgid == b->closer))
			return h;
	return NULL;
}

/*
 * A copy is taken in while somebody has the file open or mapped still. Whose close that is has closed it; what is left of his, a mapping say, may
 * change the file in place.
 */
static void tell_copy_locked(struct volume *vol, const struct body *b, uint64_t size,
			     unsigned facts)
{
	struct handle *h = closer_of(b);
	cleanup_buf struct buf path = {0};
	struct save_event open = {
		.kind = SAVE_OPENED,
		.process = h ? (uint64_t)h->tgid : (uint64_t)b->closer,
		.handle = ++vol->bodies->numbers,
		.facts = SAVE_IS_EDIT,
	};
	struct save_event close = {.kind = SAVE_CLOSED, .size = size, .facts = facts};

	open.path = close.path = path_of_body_locked(vol, b, &path);
	if (!open.process || !open.path || facts & SAVE_IS_SAME)
		return;
	close.handle = h ? h->number : open.handle;
	if (!h)
		tell_locked(vol, &open);
	tell_locked(vol, &close);
	if (!h)
		return;
	h->number = open.handle;
	tell_locked(vol, &open);
}

void event_closed_locked(struct volume *vol, struct body *b, uint64_t size, unsigned facts)
{
	cleanup_buf struct buf path = {0};
	struct save_event e = {
		.kind = SAVE_CLOSED, .handle = b->last_number, .size = size, .facts = facts};

	if (!b->last_number) {
		tell_copy_locked(vol, b, size, facts);
		return;
	}
	if (facts & SAVE_IS_SAME)
		e.facts &= ~(unsigned)SAVE_IS_GREW;
	e.path = path_of_body_locked(vol, b, &path);
	refuse_locked(vol, b);
	count_saved(vol, b, facts);
	b->last_number = 0;
	tell_locked(vol, &e);
}

void event_undone_locked(struct volume *vol, struct body *b, const char *path)
{
	const struct save_event e = {.kind = SAVE_UNDONE,
				     .handle = b->last_number,
				     .path = *path ? path : NULL,
				     .facts = b->cut_off	   ? SAVE_IS_TORN
					      : body_is_refused(b) ? SAVE_IS_REFUSED
								   : SAVE_IS_KILLED};

	if (!b->last_number)
		return;
	refuse_locked(vol, b);
	count_saved(vol, b, e.facts);
	b->last_number = 0;
	tell_locked(vol, &e);
}

/* ---- names ---- */

/* What else there is has no content. */
static bool is_told_of(const struct state_file *f)
{
	return S_ISREG(f->mode) || S_ISDIR(f->mode) || S_ISLNK(f->mode);
}

static unsigned directory_fact(const struct state_file *f)
{
	return S_ISDIR(f->mode) ? SAVE_IS_DIRECTORY : 0;
}

/* Of what was closed, or of the target of a symbolic link; of a directory 0. */
static uint64_t size_of_file(const struct state_file *f)
{
	return (S_ISREG(f->mode) && f->closed) || S_ISLNK(f->mode) ? f->size : 0;
}

/* ---- before ---- */

static void ask_locked(struct volume *vol, const struct save_event *e)
{
	vol->observer->before_event_locked(vol, e);
}

void event_before_made_locked(struct volume *vol, uint64_t parent, const char *name)
{
	cleanup_buf struct buf path = {0};
	struct save_event e = {.kind = SAVE_MADE};

	if (!vol->observer->before_event_locked)
		return;
	e.path = path_of_name_locked(vol, parent, name, &path);
	if (e.path)
		ask_locked(vol, &e);
}

/* Which handle it will be nobody knows yet. */
static struct save_event opening(const char *path, unsigned facts)
{
	return (struct save_event){
		.kind = SAVE_OPENED, .handle = UINT64_MAX, .path = path, .facts = facts};
}

void event_before_created_locked(struct volume *vol, uint64_t parent, const char *name)
{
	cleanup_buf struct buf path = {0};
	struct save_event e;

	if (!vol->observer->before_event_locked)
		return;
	e = opening(path_of_name_locked(vol, parent, name, &path), SAVE_IS_NEW);
	if (e.path)
		ask_locked(vol, &e);
}

void event_before_replaced_locked(struct volume *vol, uint64_t ino)
{
	cleanup_buf struct buf path = {0};
	struct save_event e;

	if (!vol->observer->before_event_locked)
		return;
	volume_path_locked(vol, ino, &path);
	e = opening(buf_str(&path), SAVE_IS_REPLACE);
	if (path.len && !buf_error(&path))
		ask_locked(vol, &e);
}

void event_before_renamed_locked(struct volume *vol, uint64_t parent, const char *name,
				 uint64_t new_parent, const char *new_name)
{
	cleanup_buf struct buf path = {0}, to = {0};
	struct save_event e = {.kind = SAVE_RENAMED};
	struct state_name n;
	struct state_file f;

	if (!vol->observer->before_event_locked ||
	    state_name_lookup(vol->state, parent, name, &n, &f) != 0 || !is_told_of(&f))
		return;
	e.size = size_of_file(&f);
	e.facts = directory_fact(&f);
	if (state_name_get(vol->state, new_parent, new_name, &n) == 0)
		e.facts |= SAVE_IS_OVER;
	e.path = path_of_name_locked(vol, parent, name, &path);
	e.to = path_of_name_locked(vol, new_parent, new_name, &to);
	if (e.path && e.to)
		ask_locked(vol, &e);
}

void event_before_exchanged_locked(struct volume *vol, uint64_t parent, const char *name,
				   uint64_t other_parent, const char *other_name)
{
	cleanup_buf struct buf path = {0}, to = {0};
	struct save_event e = {.kind = SAVE_EXCHANGED};
	struct state_name n;
	struct state_file f;

	if (!vol->observer->before_event_locked ||
	    state_name_lookup(vol->state, other_parent, other_name, &n, &f) != 0 || !is_told_of(&f))
		return;
	e.size = size_of_file(&f);
	e.path = path_of_name_locked(vol, parent, name, &path);
	e.to = path_of_name_locked(vol, other_parent, other_name, &to);
	if (e.path && e.to)
		ask_locked(vol, &e);
}

/* ---- after ---- */

void event_made_locked(struct volume *vol, uint64_t parent, const char *name, pid_t tid)
{
	cleanup_buf struct buf path = {0};
	const struct save_event e = {.kind = SAVE_MADE,
				     .process = process_of_thread(tid),
				     .path = path_of_name_locked(vol, parent, name, &path)};

	if (e.path)
		tell_locked(vol, &e);
}

void event_renamed_locked(struct volume *vol, uint64_t parent, const char *name,
			  uint64_t new_parent, const char *new_name, const struct state_file *f,
			  bool over, pid_t tid)
{
	cleanup_buf struct buf path = {0}, to = {0};
	const struct save_event e = {.kind = SAVE_RENAMED,
				     .process = process_of_thread(tid),
				     .size = size_of_file(f),
				     .facts = directory_fact(f) | (over ? SAVE_IS_OVER : 0),
				     .path = path_of_name_locked(vol, parent, name, &path),
				     .to = path_of_name_locked(vol, new_parent, new_name, &to)};

	if (is_told_of(f) && e.path && e.to)
		tell_locked(vol, &e);
}

void event_exchanged_locked(struct volume *vol, uint64_t parent, const char *name,
			    uint64_t other_parent, const char *other_name,
			    const struct state_file *f, pid_t tid)
{
	cleanup_buf struct buf path = {0}, to = {0};
	const struct save_event e = {.kind = SAVE_EXCHANGED,
				     .process = process_of_thread(tid),
				     .size = size_of_file(f),
				     .path = path_of_name_locked(vol, parent, name, &path),
				     .to = path_of_name_locked(vol, other_parent, other_name, &to)};

	if (is_told_of(f) && e.path && e.to)
		tell_locked(vol, &e);
}

void event_linked_locked(struct volume *vol, uint64_t parent, const char *name,
			 const struct state_file *f, pid_t tid)
{
	cleanup_buf struct buf path = {0};
	const struct save_event e = {.kind = SAVE_LINKED,
				     .process = process_of_thread(tid),
				     .size = size_of_file(f),
				     .path = path_of_name_locked(vol, parent, name, &path)};

	if (is_told_of(f) && e.path)
		tell_locked(vol, &e);
}

void event_removed_locked(struct volume *vol, uint64_t parent, const char *name,
			  const struct state_file *f)
{
	cleanup_buf struct buf path = {0};
	const struct save_event e = {.kind = SAVE_REMOVED,
				     .facts = directory_fact(f),
				     .path = path_of_name_locked(vol, parent, name, &path)};

	if (is_told_of(f) && e.path)
		tell_locked(vol, &e);
}
