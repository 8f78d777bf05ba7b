/* SPDX-License-Identifier: Apache-2.0 */
/* The files that changed since the last epoch: a map by inode. */
#include "lib/epochs/changed.h"

#include <stdlib.h>

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

static void set_count(struct changed *c, struct changed_file *f, uint64_t count)
{
	f->count = count;
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

void changed_begins(struct changed *c, uint64_t ino, uint64_t epoch, pid_t by)
{
	struct changed_file *f = find(c, ino);

	if (!f) {
		f = add(c, ino);
		if (!f)
			return;
		set_from(c, f, epoch);
	}
	f->by = by;
}

void changed_add(struct changed *c, uint64_t ino, uint64_t size)
{
	struct changed_file *f = find(c, ino);

	if (!f)
		f = add(c, ino);
	if (!f)
		return;
	c->bytes += size - f->size;
	f->size = size;
	f->at = ++c->last_at;
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
	free(f);
}

void changed_replaces(struct changed *c, uint64_t ino, uint64_t replaced, uint64_t epoch)
{
	struct changed_file *f = find(c, ino);
	const struct changed_file *old = find(c, replaced);

	if (!f)
		return;
	f->at = ++c->last_at;
	set_from(c, f, old ? old->from : epoch);
	if (old)
		set_count(c, f, old->count + 1);
}

bool changed_any_ahead(const struct changed *c, uint64_t count, uint64_t but)
{
	for (const struct changed_file *f = c->again; f; f = f->next_again)
		if (f->count == count + 1 && f->ino != but)
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
};

static bool is_shifted(void *arg, const struct changed_file *f)
{
	const struct shifted *than = arg;

	return f->count == than->count && f->at > than->at && f->from > than->from;
}

bool changed_any_shifted(const struct changed *c, uint64_t count, uint64_t at, uint64_t from)
{
	struct shifted than = {count, at, from};

	return from < c->newest_from && changed_any(c, is_shifted, &than);
}
