/* SPDX-License-Identifier: Apache-2.0 */
/* What is in doubt in a tree that is half of a save. */
#include "lib/meta/partial_save.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "lib/meta/doubts.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/text.h"

struct part {
	char *path;
	struct doubt_unit unit;
	int64_t mtime_ns;
};

struct parts {
	struct part *v;
	size_t count, cap;
};

struct partial_save {
	const struct rules *rules;
	struct parts changed;
	struct parts rest; /* the newest, at most PARTIAL_SAVE_REST_MAX */
};

int partial_save_new(const struct rules *rules, struct partial_save **ret_save)
{
	struct partial_save *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->rules = rules;
	*ret_save = s;
	return 0;
}

static void parts_free(struct parts *p)
{
	for (size_t i = 0; i < p->count; i++)
		free(p->v[i].path);
	free(p->v);
}

void partial_save_free(struct partial_save *s)
{
	if (!s)
		return;
	parts_free(&s->changed);
	parts_free(&s->rest);
	free(s);
}

void partial_save_free_at(struct partial_save **s)
{
	partial_save_free(*s);
}

static int add(const struct partial_save *s, struct parts *p, const char *path, int64_t mtime_ns)
{
	char *copy;

	if (array_reserve((void **)&p->v, &p->cap, p->count, sizeof(*p->v)))
		return -ENOMEM;
	copy = strdup(path);
	if (!copy)
		return -ENOMEM;
	p->v[p->count++] = (struct part){copy, doubt_unit_of(s->rules, path), mtime_ns};
	return 0;
}

int partial_save_add_changed(struct partial_save *s, const char *path, int64_t mtime_ns)
{
	return add(s, &s->changed, path, mtime_ns);
}

static size_t oldest(const struct parts *p)
{
	size_t at = 0;

	for (size_t i = 1; i < p->count; i++)
		if (p->v[i].mtime_ns < p->v[at].mtime_ns)
			at = i;
	return at;
}

/* Those that were written last say best that the save is over. */
int partial_save_add_rest(struct partial_save *s, const char *path, int64_t mtime_ns)
{
	struct parts *p = &s->rest;
	size_t at = p->count == PARTIAL_SAVE_REST_MAX ? oldest(p) : p->count;
	int error;

	if (at < p->count && p->v[at].mtime_ns >= mtime_ns)
		return 0;
	error = add(s, p, path, mtime_ns);
	if (error || at == p->count - 1)
		return error;
	free(p->v[at].path);
	p->v[at] = p->v[--p->count];
	return 0;
}

/* ---- doubts ---- */

static int set_companions(const struct partial_save *s, const struct part *of,
			  struct record_doubt *d)
{
	const struct parts *p = &s->changed;

	d->companions = calloc(DOUBT_COMPANIONS_MAX, sizeof(*d->companions));
	if (!d->companions)
		return -ENOMEM;
	for (size_t i = 0; i < p->count && d->companion_count < DOUBT_COMPANIONS_MAX; i++) {
		if (!doubt_unit_same(of->path, &of->unit, p->v[i].path, &p->v[i].unit))
			continue;
		d->companions[d->companion_count] = strdup(p->v[i].path);
		if (!d->companions[d->companion_count])
			return -ENOMEM;
		d->companion_count++;
	}
	return 0;
}

static int fill(const struct partial_save *s, uint64_t number, const struct part *of,
		const char *what, struct record_doubt *d)
{
	d->path = strdup(of->path);
	d->kind = strdup(doubt_kind_name(DOUBT_UNDONE));
	d->since = number;
	if (text_print(&d->why, "epoch %" PRIu64 ", which was restored, %s", number, what) < 0) {
		d->why = NULL;
		return -ENOMEM;
	}
	return d->path && d->kind ? set_companions(s, of, d) : -ENOMEM;
}

static bool has_companions(const struct partial_save *s, const struct part *of)
{
	for (size_t i = 0; i < s->changed.count; i++)
		if (doubt_unit_same(of->path, &of->unit, s->changed.v[i].path,
				    &s->changed.v[i].unit))
			return true;
	return false;
}

/* Of the newest unit with a step, where there is one: what lies beside it may be written once in a training. */
static const struct part *changed_last(const struct partial_save *s)
{
	const struct part *last = NULL;

	for (size_t i = 0; i < s->changed.count; i++) {
		const struct part *p = &s->changed.v[i];

		if (!last || (!p->unit.len == !last->unit.len ? p->mtime_ns > last->mtime_ns
							      : p->unit.len > 0))
			last = p;
	}
	return last;
}

int partial_save_doubts(const struct partial_save *s, uint64_t number,
			struct record_doubt **ret_doubts, size_t *ret_count)
{
	struct record_doubt *list = calloc(s->rest.count + 1, sizeof(*list));
	const struct part *last = s->rest.count ? NULL : changed_last(s);
	size_t count = 0;
	int error = list ? 0 : -ENOMEM;

	for (size_t i = 0; !error && i < s->rest.count; i++)
		if (has_companions(s, &s->rest.v[i]))
			error = fill(s, number, &s->rest.v[i], "was sealed before it was saved",
				     &list[count++]);
	if (!error && last)
		error = fill(s, number, last, "is not complete", &list[count++]);
	if (error) {
		record_doubts_free(list, count);
		return error;
	}
	*ret_doubts = list;
	*ret_count = count;
	return 0;
}
