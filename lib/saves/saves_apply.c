/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of event does to what is known. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/saves/saves_internal.h"
#include "lib/util/array.h"

static void touch(struct saves *s)
{
	s->activity_ns = s->now_ns;
}

/* There is a name that was not there before. */
static int begin_name(struct saves *s, const char *path, bool directory)
{
	bool temporary = facts_temporary(s->options.rules, path);
	struct name *n;

	touch(s);
	if (!temporary && !directory)
		return 0;
	n = make_name(s, path);
	if (!n)
		return -ENOMEM;
	n->made |= directory;
	if (temporary)
		set_temporary(s, n, s->now_ns);
	return 0;
}

/* What the sign is about: the file has its final name. */
static void note_final(struct saves *s, const char *path, bool renamed)
{
	struct checkpoint_place c = facts_checkpoint(s->options.rules, path, false);

	s->final_marker = facts_marker(s->options.rules, path);
	s->final_last_file = !s->options.no_last_files && facts_last_file(path);
	s->final_rename = renamed;
	s->final_save = find_save(s, &c);
}

/* A file stands under a final name with content that it did not have there. */
static int put_final(struct saves *s, const char *path, uint64_t process, uint64_t size)
{
	int r = add_saved(s, path, process, size);

	mend(s, path, true);
	return r;
}

/* ---- opening and closing ---- */

static int apply_opened(struct saves *s, const struct save_event *e)
{
	struct handle *h;

	if (find_handle(s, e->handle))
		return -EINVAL;
	h = calloc(1, sizeof(*h));
	if (!h)
		return -ENOMEM;
	h->path = strdup(e->path);
	if (!h->path || map_add(&s->handles, &h->link, map_hash(e->handle)) != 0) {
		free(h->path);
		free(h);
		return -ENOMEM;
	}
	h->number = e->handle;
	h->process = e->process;
	h->opened_ns = s->now_ns;
	h->seals = s->seals;
	h->how = e->facts;
	return h->how == SAVE_IS_NEW ? begin_name(s, e->path, false) : 0;
}

static int apply_refused(struct saves *s, const struct save_event *e)
{
	struct handle *h = find_handle(s, e->handle);

	if (!h)
		return -EINVAL;
	h->refused = true;
	return 0;
}

/* Output stays output, whoever writes it next. */
static int keep_output(struct saves *s, const char *path)
{
	struct name *n = make_name(s, path);

	if (!n)
		return -ENOMEM;
	n->output = true;
	return 0;
}

/* A file that its save has was appended to: it goes on, and counts once. */
static int go_on(struct saves *s, struct name *n, const struct handle *h, uint64_t size)
{
	n->save->size += size - n->size;
	n->save->changed_ns = s->now_ns;
	n->size = size;
	n->process = h->process;
	if (add_writer(n->save, h->process) != 0)
		return -ENOMEM;
	return count_for_output(s, h->process, n->path);
}

/* The file's content is what was written to it. */
static int put_content(struct saves *s, const struct handle *h, const struct save_event *e)
{
	bool torn = h->refused || e->facts & SAVE_IS_TORN, killed = e->facts & SAVE_IS_KILLED;
	bool only_grew = e->facts & SAVE_IS_GREW;
	struct name *n;
	int r = 0;

	if (killed && !(h->how == SAVE_IS_EDIT && only_grew))
		r = break_save(s, h, e);
	if (r != 0)
		return r;
	touch(s);
	n = make_name(s, e->path);
	if (!n)
		return -ENOMEM;
	/* It only grew since an epoch had it: taken along, it makes no epoch alone. */
	n->grows = h->how == SAVE_IS_EDIT && only_grew && e->facts & SAVE_IS_HAD;
	if (n->grows)
		return 0;
	n->left = killed && facts_in_temporary(s->options.rules, e->path);
	set_torn(s, n, torn || n->left);
	if (facts_in_temporary(s->options.rules, e->path)) {
		n->changed = true;
		n->size = e->size;
		n->process = h->process;
		return count_for_output(s, h->process, e->path);
	}
	if (h->how == SAVE_IS_EDIT && only_grew && n->times)
		r = go_on(s, n, h, e->size);
	else
		r = add_saved(s, e->path, h->process, e->size);
	if (killed || torn || (h->how == SAVE_IS_EDIT && lived_at_kill(s, e->path, h->process))) {
		n = find_name(s, e->path);
		if (n && n->save)
			n->save->broken = true;
		return r;
	}
	mend(s, e->path, true);
	note_final(s, e->path, false);
	return r;
}

static int apply_ended(struct saves *s, const struct save_event *e)
{
	struct ended *p;

	if (!e->process)
		return -EINVAL;
	if (find_ended(s, e->process) || !is_process_named(s, e->process))
		return 0;
	p = calloc(1, sizeof(*p));
	if (!p || map_add(&s->ended, &p->link, map_hash(e->process)) != 0) {
		free(p);
		return -ENOMEM;
	}
	p->process = e->process;
	p->unknown = e->facts & SAVE_IS_UNKNOWN;
	p->badly = !p->unknown && e->status != 0;
	return 0;
}

/* Who was killed with a file open ends, though nobody has seen that yet. */
static int note_killed(struct saves *s, uint64_t process)
{
	const struct save_event e = {.kind = SAVE_ENDED, .process = process, .status = 137};

	return process ? apply_ended(s, &e) : 0;
}

static int apply_closed(struct saves *s, const struct save_event *e)
{
	struct handle *h = find_handle(s, e->handle);
	bool output;
	int r = 0;

	if (!h)
		return -EINVAL;
	output = is_output(s, h);
	/* What is closed is open no more: of its own process it is no output to be. */
	map_remove(&s->handles, &h->link);
	/* With the bytes that it had before the kill: saved again nevertheless. */
	if (h->how == SAVE_IS_REPLACE && e->path &&
	    (e->facts & (SAVE_IS_SAME | SAVE_IS_SHARED | SAVE_IS_KILLED)) == SAVE_IS_SAME &&
	    mend(s, e->path, true))
		set_changed(s);
	if (!(e->facts & (SAVE_IS_SHARED | SAVE_IS_SAME)) && e->path)
		r = output ? keep_output(s, e->path) : put_content(s, h, e);
	/* `: > DONE` after each save: there is nothing to write in it. */
	else if (e->path && !(e->facts & (SAVE_IS_SHARED | SAVE_IS_KILLED)) &&
		 facts_marker(s->options.rules, e->path))
		note_final(s, e->path, false);
	if (r == 0 && e->facts & SAVE_IS_KILLED)
		r = note_killed(s, h->process);
	free(h->saved);
	free(h->path);
	free(h);
	return r;
}

static int apply_undone(struct saves *s, const struct save_event *e)
{
	struct handle *h = find_handle(s, e->handle);
	int r = 0;

	if (!h)
		return -EINVAL;
	if (e->path) {
		struct name *n = h->how == SAVE_IS_NEW ? find_name(s, e->path) : NULL;

		if (n) {
			set_temporary(s, n, NEVER);
			tidy_name(s, n);
		}
		r = break_save(s, h, e);
	}
	if (r == 0 && e->facts & SAVE_IS_KILLED)
		r = note_killed(s, h->process);
	free_handle(s, h);
	return r;
}

/* ---- names ---- */

/* A file that was first written under this name is being written still. */
static bool is_being_made(const struct saves *s, const char *path)
{
	for (struct map_link *l = map_next(&s->handles, NULL); l; l = map_next(&s->handles, l)) {
		const struct handle *h = map_item(l, struct handle, link);

		if (h->how == SAVE_IS_NEW && h->path && !strcmp(h->path, path))
			return true;
	}
	return false;
}

/* A file has this name now. */
static int put_name(struct saves *s, const char *path, const struct save_event *e)
{
	if (facts_in_temporary(s->options.rules, path) || saves_path_is_output(s, path))
		return 0;
	return put_final(s, path, e->process, e->size);
}

static int rename_file(struct saves *s, const struct save_event *e)
{
	bool closed = !is_being_made(s, e->path);
	struct name *n = find_name(s, e->path);
	bool moves = only_moves(s, e);
	int r = 0;

	forget_file(s, e->to);
	if (n) {
		set_temporary(s, n, NEVER);
		if (!move_content(s, n, e->to))
			return -ENOMEM;
	}
	if (n && facts_in_temporary(s->options.rules, e->path)) {
		take_out(s, n);
		tidy_name(s, n);
	} else if (!facts_in_temporary(s->options.rules, e->path)) {
		r = take_away(s, e->path, e->process);
	}
	if (r == 0)
		r = move_handles(s, e->path, e->to);
	if (r == 0 && facts_temporary(s->options.rules, e->to))
		r = begin_name(s, e->to, false);
	touch(s);
	if (moves)
		set_changed(s);
	if (r != 0 || !closed || moves)
		return r;
	r = put_name(s, e->to, e);
	note_final(s, e->to, true);
	return r;
}

struct paths {
	char **path;
	size_t count, cap;
};

static void free_paths(struct paths *p)
{
	for (size_t i = 0; i < p->count; i++)
		free(p->path[i]);
	free(p->path);
}

/* The directory and what is known below it, before any of it moves. */
static int paths_below(const struct saves *s, const char *directory, struct paths *ret_paths)
{
	for (struct map_link *l = map_next(&s->names, NULL); l; l = map_next(&s->names, l)) {
		const char *path = map_item(l, struct name, link)->path;

		if (strcmp(path, directory) != 0 && !is_below(path, directory))
			continue;
		if (array_reserve((void **)&ret_paths->path, &ret_paths->cap, ret_paths->count,
				  sizeof(*ret_paths->path)) != 0)
			return -ENOMEM;
		ret_paths->path[ret_paths->count] = strdup(path);
		if (!ret_paths->path[ret_paths->count])
			return -ENOMEM;
		ret_paths->count++;
	}
	return 0;
}

/* One name below a directory that was renamed. */
static int move_name(struct saves *s, struct name *n, const struct save_event *e)
{
	cleanup_buf struct buf to = {0};
	bool changed = n->changed || n->times, made = n->made;
	uint64_t size = n->size;
	struct name *moved;

	buf_printf(&to, "%s%s", e->to, n->path + strlen(e->path));
	if (buf_error(&to) != 0)
		return -ENOMEM;
	set_temporary(s, n, NEVER);
	take_out(s, n);
	moved = move_content(s, n, buf_str(&to));
	tidy_name(s, n);
	if (!moved)
		return -ENOMEM;
	moved->made = made;
	moved->changed = changed && facts_in_temporary(s->options.rules, moved->path);
	moved->size = size;
	if (!changed || moved->changed || saves_path_is_output(s, moved->path)) {
		tidy_name(s, moved);
		return 0;
	}
	return put_final(s, buf_str(&to), e->process, size);
}

static int rename_directory(struct saves *s, const struct save_event *e)
{
	struct paths paths = {0};
	int r = paths_below(s, e->path, &paths);

	for (size_t i = 0; r == 0 && i < paths.count; i++) {
		/* What moved before may have ended a save, and with it what was known. */
		struct name *n = find_name(s, paths.path[i]);

		r = n ? move_name(s, n, e) : 0;
	}
	free_paths(&paths);
	if (r == 0)
		r = move_handles(s, e->path, e->to);
	s->final_directory = facts_in_temporary(s->options.rules, e->path) &&
			     !facts_in_temporary(s->options.rules, e->to);
	/* Also of what an epoch has under the name before. */
	if (r == 0 && !facts_in_temporary(s->options.rules, e->to))
		set_changed(s);
	if (r == 0 && s->final_directory)
		r = put_newest(s, e->to);
	touch(s);
	return r;
}

static int apply_renamed(struct saves *s, const struct save_event *e)
{
	return e->facts & SAVE_IS_DIRECTORY ? rename_directory(s, e) : rename_file(s, e);
}

/* No path has this name. */
#define PARKED "/"

static int apply_exchanged(struct saves *s, const struct save_event *e)
{
	int r = move_handles(s, e->path, PARKED);

	if (r == 0)
		r = move_handles(s, e->to, e->path);
	if (r == 0)
		r = move_handles(s, PARKED, e->to);
	touch(s);
	if (r == 0)
		r = put_name(s, e->path, e);
	if (r == 0)
		r = put_name(s, e->to, e);
	return r;
}

static int apply_linked(struct saves *s, const struct save_event *e)
{
	int r = put_name(s, e->path, e);

	note_final(s, e->path, false);
	touch(s);
	return r;
}

static int apply_removed(struct saves *s, const struct save_event *e)
{
	int r = 0;

	forget_file(s, e->path);
	if (!(e->facts & SAVE_IS_DIRECTORY)) {
		r = take_away(s, e->path, 0);
		mend(s, e->path, false);
	}
	touch(s);
	return r;
}

int apply_event(struct saves *s, const struct save_event *e)
{
	switch (e->kind) {
	case SAVE_MADE:
		return begin_name(s, e->path, true);
	case SAVE_OPENED:
		return apply_opened(s, e);
	case SAVE_REFUSED:
		return apply_refused(s, e);
	case SAVE_CLOSED:
		return apply_closed(s, e);
	case SAVE_UNDONE:
		return apply_undone(s, e);
	case SAVE_RENAMED:
		return apply_renamed(s, e);
	case SAVE_EXCHANGED:
		return apply_exchanged(s, e);
	case SAVE_LINKED:
		return apply_linked(s, e);
	case SAVE_REMOVED:
		return apply_removed(s, e);
	case SAVE_ENDED:
		return apply_ended(s, e);
	case SAVE_ASKED:
		s->asked = true;
		return 0;
	case SAVE_SEALED:
		return apply_sealed(s, e);
	case SAVE_BACK:
		apply_back(s);
		return 0;
	case SAVE_LOST:
		apply_lost(s);
		return 0;
	default:
		return 0;
	}
}
