/* SPDX-License-Identifier: Apache-2.0 */
/* What changed since the last epoch: a map of files by inode, and one of names by file and name. */
#include "lib/epochs/changed.h"

#include <stdlib.h>
#include <string.h>

static struct changed_file *file_of(const struct map_link *l)
{
	return map_item(l, struct changed_file, link);
}

void changed_clear(struct changed *c)
{
	for (struct map_link *l = map_next(&c->files, NULL), *next; l; l = next) {
		next = map_next(&c->files, l);
		free(file_of(l));
	}
	map_free(&c->files);
	*c = (struct changed){0};
}

static struct changed_file *find(const struct changed *c, uint64_t ino)
{
	for (struct map_link *l = map_find(&c->files, map_hash(ino)); l; l = map_find_next(l))
		if (file_of(l)->ino == ino)
			return file_of(l);
	return NULL;
}

const struct changed_file *changed_find(const struct changed *c, uint64_t ino)
{
	return find(c, ino);
}

static struct changed_file *add(struct changed *c, uint64_t ino)
{
	struct changed_file *f = c->files.count < CHANGED_MAX ? calloc(1, sizeof(*f)) : NULL;

	if (!f || map_add(&c->files, &f->link, map_hash(ino)) != 0) {
		c->overflow = true;
		free(f);
		return NULL;
	}
	f->ino = ino;
	return f;
}

/* Its bytes, where it is saved all the time; 0: it is not. */
static uint64_t often(const struct changed_file *f)
{
	return f->count > CHANGED_TRIES ? f->size : 0;
}

static void set_count(struct changed *c, struct changed_file *f, uint64_t count)
{
	c->often -= often(f);
	f->count = count;
	c->often += often(f);
	if (count < 2 || f->link_again)
		return;
	f->next_again = c->again;
	if (f->next_again)
		f->next_again->link_again = &f->next_again;
	f->link_again = &c->again;
	c->again = f;
}

static void set_from(struct changed *c, struct changed_file *f, uint64_t epoch)
{
	f->from = epoch;
	if (epoch > c->newest_from)
		c->newest_from = epoch;
}

static void set_made(struct changed *c, struct changed_file *f, int64_t ns)
{
	f->made_ns = ns;
	if (ns > c->newest_made_ns)
		c->newest_made_ns = ns;
}

void changed_begins(struct changed *c, uint64_t ino, uint64_t epoch, pid_t by, int64_t opened_ns)
{
	struct changed_file *f = find(c, ino);

	if (!f) {
		f = add(c, ino);
		if (!f)
			return;
		set_from(c, f, epoch);
		if (!epoch)
			set_made(c, f, opened_ns);
	}
	f->by = by;
}

void changed_add(struct changed *c, uint64_t ino, uint64_t size, int64_t now_ns)
{
	struct changed_file *f = find(c, ino);

	if (!f)
		f = add(c, ino);
	if (!f)
		return;
	c->bytes += size - f->size;
	c->often -= often(f);
	f->size = size;
	c->often += often(f);
	f->at = ++c->last_at;
	f->closed_ns = now_ns;
	set_count(c, f, f->count + 1);
}

void changed_remove(struct changed *c, uint64_t ino)
{
	struct changed_file *f = find(c, ino);

	if (!f)
		return;
	map_remove(&c->files, &f->link);
	if (f->link_again) {
		*f->link_again = f->next_again;
		if (f->next_again)
			f->next_again->link_again = f->link_again;
	}
	c->bytes -= f->size;
	c->often -= often(f);
	free(f);
}

void changed_again(struct changed *c, const struct changed_file *f)
{
	changed_begins(c, f->ino, 0, f->by, f->made_ns);
	changed_add(c, f->ino, f->size, f->closed_ns);
}

void changed_replaces(struct changed *c, uint64_t ino, uint64_t replaced, uint64_t epoch)
{
	struct changed_file *f = find(c, ino);
	const struct changed_file *old = find(c, replaced);

	if (!f)
		return;
	f->at = ++c->last_at;
	f->made_ns = 0;
	set_from(c, f, old ? old->from : epoch);
	if (old)
		set_count(c, f, old->count + 1);
}

static bool is_ahead(const struct changed_file *f, const struct changed_file *than)
{
	uint64_t first = than->count + 1;

	if (f->count <= first || f->count > first + CHANGED_TRIES)
		return f->count == first;
	return f->from && f->from == than->from && f->size >= than->size / CHANGED_PART;
}

bool changed_any_ahead(const struct changed *c, const struct changed_file *than, uint64_t but)
{
	for (const struct changed_file *f = c->again; f; f = f->next_again)
		if (is_ahead(f, than) && f->ino != but)
			return true;
	return false;
}

bool changed_any(const struct changed *c, bool (*is)(void *arg, const struct changed_file *f),
		 void *arg)
{
	for (struct map_link *l = map_next(&c->files, NULL); l; l = map_next(&c->files, l))
		if (is(arg, file_of(l)))
			return true;
	return false;
}

struct shifted {
	uint64_t count, at, from;
	changed_save_fn save_of;
	void *arg;
};

static bool is_shifted(void *arg, const struct changed_file *f)
{
	const struct shifted *than = arg;

	return f->count == than->count && f->at > than->at && f->from > than->from &&
	       than->save_of(than->arg, f->from) > than->from;
}

bool changed_any_shifted(const struct changed *c, uint64_t count, uint64_t at, uint64_t from,
			 changed_save_fn save_of, void *arg)
{
	struct shifted than = {count, at, from, save_of, arg};

	return from < c->newest_from && changed_any(c, is_shifted, &than);
}

struct made {
	int64_t after_ns;
	uint64_t but;
};

static bool is_made(void *arg, const struct changed_file *f)
{
	const struct made *m = arg;

	return f->made_ns > m->after_ns && f->count && f->ino != m->but;
}

int64_t changed_made_after(int64_t closed_ns, int64_t now_ns)
{
	int64_t half = (now_ns - closed_ns) / 2;

	return closed_ns + (half > CHANGED_LULL_NS ? half : CHANGED_LULL_NS);
}

bool changed_any_made(const struct changed *c, int64_t closed_ns, int64_t now_ns, uint64_t but)
{
	struct made m = {changed_made_after(closed_ns, now_ns), but};

	return c->newest_made_ns > m.after_ns && changed_any(c, is_made, &m);
}

/* ---- names made ---- */

static uint64_t hash_of_name(uint64_t ino, const char *name)
{
	return map_hash_text(map_hash(ino), name);
}

static struct new_name *name_of(const struct map_link *l)
{
	return map_item(l, struct new_name, link);
}

void new_names_clear(struct new_names *set)
{
	for (struct map_link *l = map_next(&set->names, NULL), *next; l; l = next) {
		next = map_next(&set->names, l);
		free(name_of(l));
	}
	map_free(&set->names);
	*set = (struct new_names){0};
}

bool new_names_any(const struct new_names *set)
{
	return set->names.count > 0 || set->overflow;
}

struct new_name *new_names_find(const struct new_names *set, uint64_t parent, const char *name,
				uint64_t ino)
{
	for (struct map_link *l = map_find(&set->names, hash_of_name(ino, name)); l;
	     l = map_find_next(l)) {
		struct new_name *n = name_of(l);

		if (n->ino == ino && (!parent || n->parent == parent) && strcmp(n->name, name) == 0)
			return n;
	}
	return NULL;
}

void new_names_add(struct new_names *set, uint64_t parent, const char *name, uint64_t ino,
		   bool temporary, int64_t now_ns)
{
	struct new_name *n = new_names_find(set, parent, name, ino);
	size_t len = strlen(name);

	if (n) {
		n->changed_ns = now_ns;
		return;
	}
	n = set->names.count < NEW_NAMES_MAX ? malloc(sizeof(*n) + len + 1) : NULL;
	if (!n || map_add(&set->names, &n->link, hash_of_name(ino, name)) != 0) {
		set->overflow = true;
		free(n);
		return;
	}
	*n = (struct new_name){
		.link = n->link,
		.parent = parent,
		.ino = ino,
		.temporary = temporary,
		.made_ns = now_ns,
		.changed_ns = now_ns,
	};
	memcpy(n->name, name, len + 1);
	if (temporary) {
		n->next_temporary = set->temporaries;
		set->temporaries = n;
	}
}

void new_names_remove(struct new_names *set, struct new_name *n)
{
	struct new_name **at = &set->temporaries;

	map_remove(&set->names, &n->link);
	if (n->temporary) {
		while (*at != n)
			at = &(*at)->next_temporary;
		*at = n->next_temporary;
	}
	free(n);
}
