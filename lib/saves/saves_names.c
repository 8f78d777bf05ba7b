/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of paths and handles: finding, making, moving, forgetting. */
#include "lib/saves/saves_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/text.h"

struct name *find_name(const struct saves *s, const char *path)
{
	for (struct map_link *l = map_find(&s->names, map_hash_text(0, path)); l;
	     l = map_find_next(l))
		if (!strcmp(map_item(l, struct name, link)->path, path))
			return map_item(l, struct name, link);
	return NULL;
}

struct save *find_save(const struct saves *s, const struct checkpoint_place *c)
{
	for (struct map_link *l = map_find(&s->saves, checkpoint_hash(c)); l; l = map_find_next(l))
		if (checkpoint_is(c, map_item(l, struct save, link)->checkpoint))
			return map_item(l, struct save, link);
	return NULL;
}

struct save *find_save_of(const struct saves *s, const char *checkpoint)
{
	for (struct map_link *l = map_find(&s->saves, map_hash_text(0, checkpoint)); l;
	     l = map_find_next(l))
		if (!strcmp(map_item(l, struct save, link)->checkpoint, checkpoint))
			return map_item(l, struct save, link);
	return NULL;
}

struct handle *find_handle(const struct saves *s, uint64_t number)
{
	for (struct map_link *l = map_find(&s->handles, map_hash(number)); l; l = map_find_next(l))
		if (map_item(l, struct handle, link)->number == number)
			return map_item(l, struct handle, link);
	return NULL;
}

const struct ended *find_ended(const struct saves *s, uint64_t process)
{
	for (struct map_link *l = map_find(&s->ended, map_hash(process)); l; l = map_find_next(l))
		if (map_item(l, struct ended, link)->process == process)
			return map_item(l, struct ended, link);
	return NULL;
}

/* ---- names ---- */

struct name *make_name(struct saves *s, const char *path)
{
	struct name *n = find_name(s, path);
	size_t size = strlen(path) + 1;

	if (n)
		return n;
	n = calloc(1, sizeof(*n) + size);
	if (!n)
		return NULL;
	memcpy(n->path, path, size);
	n->temporary_ns = NEVER;
	if (map_add(&s->names, &n->link, map_hash_text(0, path)) != 0) {
		free(n);
		return NULL;
	}
	return n;
}

void set_temporary(struct saves *s, struct name *n, int64_t since_ns)
{
	if (n->temporary_at) {
		*n->temporary_at = n->next_temporary;
		if (n->next_temporary)
			n->next_temporary->temporary_at = n->temporary_at;
		n->next_temporary = NULL;
		n->temporary_at = NULL;
	}
	n->temporary_ns = since_ns;
	if (since_ns == NEVER)
		return;
	n->next_temporary = s->temporaries;
	n->temporary_at = &s->temporaries;
	if (n->next_temporary)
		n->next_temporary->temporary_at = &n->next_temporary;
	s->temporaries = n;
}

void set_torn(struct saves *s, struct name *n, bool torn)
{
	s->torn_count += (size_t)torn - (size_t)n->torn;
	n->torn = torn;
}

void set_fresh(struct saves *s, struct name *n, bool fresh)
{
	s->fresh_count += (size_t)fresh - (size_t)n->fresh;
	n->fresh = fresh;
}

void free_name(struct saves *s, struct name *n)
{
	if (n->save) {
		*n->at = n->next;
		if (n->next)
			n->next->at = n->at;
	}
	set_temporary(s, n, NEVER);
	set_torn(s, n, false);
	set_fresh(s, n, false);
	map_remove(&s->names, &n->link);
	free(n);
}

void tidy_name(struct saves *s, struct name *n)
{
	if (!n->save && n->temporary_ns == NEVER && !n->changed && !n->made && !n->output &&
	    !n->grows && !n->torn)
		free_name(s, n);
}

/* ---- what moves with a name, and what goes with it ---- */

bool is_below(const char *path, const char *directory)
{
	size_t len = strlen(directory);

	return !strncmp(path, directory, len) && path[len] == '/';
}

struct name *move_content(struct saves *s, struct name *n, const char *to)
{
	struct name *moved = make_name(s, to);

	if (!moved)
		return NULL;
	moved->size = n->size;
	moved->process = n->process;
	moved->changed |= n->changed;
	moved->made |= n->made;
	moved->output = n->output;
	moved->grows = n->grows;
	moved->left = n->left;
	set_torn(s, moved, n->torn);
	n->changed = n->made = n->output = n->grows = false;
	set_torn(s, n, false);
	return moved;
}

int move_handles(struct saves *s, const char *from, const char *to)
{
	size_t len = strlen(from);

	for (struct map_link *l = map_next(&s->handles, NULL); l; l = map_next(&s->handles, l)) {
		struct handle *h = map_item(l, struct handle, link);
		char *path;

		if (!h->path || (strcmp(h->path, from) != 0 && !is_below(h->path, from)))
			continue;
		if (text_print(&path, "%s%s", to, h->path + len) < 0)
			return -ENOMEM;
		free(h->path);
		h->path = path;
	}
	return 0;
}

void forget_file(struct saves *s, const char *path)
{
	struct name *n = find_name(s, path);

	for (struct map_link *l = map_next(&s->handles, NULL); l; l = map_next(&s->handles, l)) {
		struct handle *h = map_item(l, struct handle, link);

		if (h->path && !strcmp(h->path, path)) {
			free(h->path);
			h->path = NULL;
		}
	}
	if (!n)
		return;
	set_temporary(s, n, NEVER);
	set_torn(s, n, false);
	n->output = n->made = n->changed = n->grows = false;
	tidy_name(s, n);
}

void free_handle(struct saves *s, struct handle *h)
{
	map_remove(&s->handles, &h->link);
	free(h->saved);
	free(h->path);
	free(h);
}
