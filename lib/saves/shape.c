/* SPDX-License-Identifier: Apache-2.0 */
/* What saves have: shapes, and what the saves of a kind have in common. */
#include "lib/saves/shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/saves/facts.h"
#include "lib/util/array.h"
#include "lib/util/map.h"

/* ---- one shape ---- */

/* Where the name is, or would stand. */
static size_t place_of(const struct shape *s, const char *name)
{
	size_t low = 0, high = s->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (strcmp(s->name[middle].text, name) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static struct shape_name *find(const struct shape *s, const char *name)
{
	size_t at = place_of(s, name);

	return at < s->count && !strcmp(s->name[at].text, name) ? &s->name[at] : NULL;
}

int shape_add(struct shape *s, const char *name, uint64_t times)
{
	struct shape_name *known = find(s, name);
	size_t at;
	char *text;

	if (known) {
		known->times += times;
		return 0;
	}
	if (s->count == SHAPE_NAMES_MAX || !times)
		return 0;
	if (array_reserve((void **)&s->name, &s->cap, s->count, sizeof(*s->name)) != 0)
		return -ENOMEM;
	text = strdup(name);
	if (!text)
		return -ENOMEM;
	at = place_of(s, name);
	memmove(&s->name[at + 1], &s->name[at], (s->count - at) * sizeof(*s->name));
	s->name[at] = (struct shape_name){text, times};
	if (!s->first)
		s->first = map_hash_text(0, name);
	s->count++;
	return 0;
}

int shape_add_file(struct shape *s, const char *path)
{
	if (array_reserve((void **)&s->file, &s->file_cap, s->file_count, sizeof(*s->file)) != 0)
		return -ENOMEM;
	s->file[s->file_count++] = map_hash_text(0, path);
	return 0;
}

static int compare_hashes(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static bool has_file(const struct shape *s, const char *path)
{
	uint64_t hash = map_hash_text(0, path);

	return s->file_count &&
	       bsearch(&hash, s->file, s->file_count, sizeof(hash), compare_hashes);
}

void shape_take(struct shape *s, const char *name, uint64_t times)
{
	struct shape_name *known = find(s, name);
	size_t at;

	if (!known)
		return;
	if (known->times > times) {
		known->times -= times;
		return;
	}
	at = (size_t)(known - s->name);
	free(known->text);
	s->count--;
	memmove(known, known + 1, (s->count - at) * sizeof(*s->name));
}

uint64_t shape_times(const struct shape *s, const char *name)
{
	const struct shape_name *known = find(s, name);

	return known ? known->times : 0;
}

bool shape_shares(const struct shape *a, const struct shape *b)
{
	const struct shape *fewer = a->count < b->count ? a : b, *more = fewer == a ? b : a;

	for (size_t i = 0; i < fewer->count; i++)
		if (find(more, fewer->name[i].text))
			return true;
	return false;
}

void shape_free(struct shape *s)
{
	for (size_t i = 0; i < s->count; i++)
		free(s->name[i].text);
	free(s->name);
	free(s->file);
	*s = (struct shape){0};
}

/* ---- what two have in common ---- */

bool core_known(const struct core *c)
{
	return c->older != NULL;
}

uint64_t core_times(const struct core *c, const char *name)
{
	uint64_t a, b;

	if (!core_known(c))
		return 0;
	a = shape_times(c->older, name);
	b = shape_times(c->newer, name);
	return a < b ? a : b;
}

uint64_t core_most(const struct core *c, const char *name)
{
	uint64_t a, b;

	if (!core_known(c))
		return 0;
	a = shape_times(c->older, name);
	b = shape_times(c->newer, name);
	return a < b ? b : a;
}

bool core_begins(const struct core *c, const char *name)
{
	return core_known(c) && c->older->first == c->newer->first &&
	       c->older->first == map_hash_text(0, name);
}

static bool is_lacking(const struct core *c, const struct shape *s, const char *name)
{
	return core_times(c, name) > shape_times(s, name);
}

bool core_within(const struct core *c, const struct shape *s)
{
	for (size_t i = 0; core_known(c) && i < c->older->count; i++)
		if (is_lacking(c, s, c->older->name[i].text))
			return false;
	return true;
}

void core_put_lacking(const struct core *c, const struct shape *s, struct buf *out)
{
	const char *before = "";

	for (size_t i = 0; core_known(c) && i < c->older->count; i++) {
		if (!is_lacking(c, s, c->older->name[i].text))
			continue;
		buf_printf(out, "%s%s", before, c->older->name[i].text);
		before = ", ";
	}
}

/* ---- the shapes of each kind ---- */

static struct shapes_of_kind *find_kind(const struct shapes *all, const char *checkpoint)
{
	for (size_t i = all->count; i > 0; i--)
		if (facts_same_kind(all->kind[i - 1].kind, checkpoint))
			return &all->kind[i - 1];
	return NULL;
}

static void free_kind(struct shapes_of_kind *k)
{
	for (size_t i = 0; i < k->count; i++)
		shape_free(&k->shape[i]);
	free(k->shape);
	free(k->kind);
}

static void drop_kind(struct shapes *all, struct shapes_of_kind *k)
{
	size_t at = (size_t)(k - all->kind);

	free_kind(k);
	all->count--;
	memmove(k, k + 1, (all->count - at) * sizeof(*k));
}

static struct shapes_of_kind *make_kind(struct shapes *all, const char *checkpoint)
{
	struct shapes_of_kind k = {.kind = strdup(checkpoint)};

	if (!k.kind ||
	    array_reserve((void **)&all->kind, &all->cap, all->count, sizeof(*all->kind)) != 0) {
		free(k.kind);
		return NULL;
	}
	if (all->count == SHAPE_KINDS_MAX)
		drop_kind(all, &all->kind[0]);
	all->kind[all->count] = k;
	return &all->kind[all->count++];
}

/* Whether two newer ones have each of its names. */
static bool is_outlived(const struct shapes_of_kind *k, size_t at)
{
	for (size_t i = 0; i < k->shape[at].count; i++) {
		unsigned newer = 0;

		for (size_t j = at + 1; j < k->count && newer < 2; j++)
			newer += find(&k->shape[j], k->shape[at].name[i].text) != NULL;
		if (newer < 2)
			return false;
	}
	return true;
}

static void drop_shape(struct shapes_of_kind *k, size_t at)
{
	shape_free(&k->shape[at]);
	k->count--;
	memmove(&k->shape[at], &k->shape[at + 1], (k->count - at) * sizeof(*k->shape));
}

static void drop_outlived(struct shapes_of_kind *k)
{
	for (size_t i = k->count; i > 0; i--)
		if (is_outlived(k, i - 1))
			drop_shape(k, i - 1);
	if (k->count > SHAPES_OF_KIND_MAX)
		drop_shape(k, 0);
}

int shapes_add(struct shapes *all, const char *checkpoint, struct shape *s)
{
	struct shapes_of_kind *k = find_kind(all, checkpoint), added;

	if (!k)
		k = make_kind(all, checkpoint);
	if (!k || array_reserve((void **)&k->shape, &k->cap, k->count, sizeof(*k->shape)) != 0)
		return -ENOMEM;
	if (s->file_count)
		qsort(s->file, s->file_count, sizeof(*s->file), compare_hashes);
	k->shape[k->count++] = *s;
	*s = (struct shape){0};
	drop_outlived(k);
	added = *k;
	memmove(k, k + 1, (all->count - 1 - (size_t)(k - all->kind)) * sizeof(*k));
	all->kind[all->count - 1] = added;
	return 0;
}

static struct core core_sharing(const struct shapes_of_kind *k, const struct shape *with)
{
	struct core c = {NULL, NULL};

	for (size_t i = k ? k->count : 0; i > 0; i--) {
		const struct shape *s = &k->shape[i - 1];

		if (!shape_shares(s, with))
			continue;
		c.older = s;
		if (c.newer)
			break;
		c.newer = s;
	}
	return c;
}

struct core shapes_core(const struct shapes *all, const char *checkpoint, const struct shape *saved,
			const struct shape *gone)
{
	const struct shapes_of_kind *k = find_kind(all, checkpoint);
	struct core c = core_sharing(k, saved);

	return core_known(&c) ? c : core_sharing(k, gone);
}

bool shapes_last_has(const struct shapes *all, const char *checkpoint, const char *name,
		     const char *path)
{
	const struct shapes_of_kind *k = find_kind(all, checkpoint);

	for (size_t i = k ? k->count : 0; i > 0; i--)
		if (find(&k->shape[i - 1], name))
			return has_file(&k->shape[i - 1], path);
	return false;
}

void shapes_free(struct shapes *all)
{
	for (size_t i = 0; i < all->count; i++)
		free_kind(&all->kind[i]);
	free(all->kind);
	*all = (struct shapes){0};
}
