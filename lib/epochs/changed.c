/* SPDX-License-Identifier: Apache-2.0 */
/* The files that changed since the last epoch: a hash table by inode. */
#include "lib/epochs/changed.h"

#include <stdlib.h>

#define FIRST_BUCKETS 64

static struct changed_file **bucket_of(const struct changed *c, uint64_t ino)
{
	uint64_t h = ino * UINT64_C(0x9e3779b97f4a7c15);

	return &c->buckets[(h ^ h >> 32) & (c->bucket_count - 1)];
}

void changed_clear(struct changed *c)
{
	for (size_t i = 0; i < c->bucket_count; i++)
		for (struct changed_file *f = c->buckets[i], *next; f; f = next) {
			next = f->next;
			free(f);
		}
	free(c->buckets);
	*c = (struct changed){0};
}

static struct changed_file *find(const struct changed *c, uint64_t ino)
{
	struct changed_file *f = c->bucket_count ? *bucket_of(c, ino) : NULL;

	while (f && f->ino != ino)
		f = f->next;
	return f;
}

const struct changed_file *changed_find(const struct changed *c, uint64_t ino)
{
	return find(c, ino);
}

/* Doubles the table when it is full. Where there is no memory, the chains grow longer. */
static void grow(struct changed *c)
{
	size_t count = c->bucket_count ? 2 * c->bucket_count : FIRST_BUCKETS;
	struct changed wider = {.bucket_count = count};

	if (c->count < c->bucket_count)
		return;
	wider.buckets = calloc(count, sizeof(struct changed_file *));
	if (!wider.buckets)
		return;
	for (size_t i = 0; i < c->bucket_count; i++)
		for (struct changed_file *f = c->buckets[i], *next; f; f = next) {
			struct changed_file **to = bucket_of(&wider, f->ino);

			next = f->next;
			f->next = *to;
			*to = f;
		}
	free(c->buckets);
	c->buckets = wider.buckets;
	c->bucket_count = count;
}

static struct changed_file *add(struct changed *c, uint64_t ino)
{
	struct changed_file *f, **bucket;

	grow(c);
	f = c->bucket_count && c->count < CHANGED_MAX ? calloc(1, sizeof(*f)) : NULL;
	if (!f) {
		c->overflow = true;
		return NULL;
	}
	bucket = bucket_of(c, ino);
	f->ino = ino;
	f->next = *bucket;
	*bucket = f;
	c->count++;
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
	struct changed_file *f = find(c, ino), **at;

	if (!f)
		return;
	at = bucket_of(c, ino);
	while (*at != f)
		at = &(*at)->next;
	*at = f->next;
	if (f->link_again) {
		*f->link_again = f->next_again;
		if (f->next_again)
			f->next_again->link_again = f->link_again;
	}
	c->bytes -= f->size;
	c->count--;
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
	for (size_t i = 0; i < c->bucket_count; i++)
		for (const struct changed_file *f = c->buckets[i]; f; f = f->next)
			if (is(arg, f))
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
