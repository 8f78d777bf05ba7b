/* SPDX-License-Identifier: Apache-2.0 */
/* Doubts: the judge of a tree. */
#include "lib/meta/doubts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/util/array.h"
#include "lib/util/cleanup.h"

/* A doubt in the making. */
struct item {
	struct doubt doubt;
	struct doubt_unit unit;
	struct doubts_kill kill;	/* of a kill; its strings and lists are not kept */
	struct doubt_companion *before; /* of one that was judged; owned, with their paths */
	uint64_t *again, *together;	/* owned */
	/* The name is temporary itself; then these (of doubt.path) tell its final name. */
	bool temporary;
	size_t stem, tail;
	bool part;  /* the number in its name counts parts: its unit is that of its directory */
	bool empty; /* of the directory of its unit no file was told yet */
	/* Of one that is alone: its final name has content from before the kill; something beside it was saved after that. */
	bool final_is_there, saved_beside;
};

/* The file of a unit with a step that was changed last. */
struct newest {
	char *path; /* NULL: there is none */
	struct doubt_unit unit;
	bool is_new;
	bool torn; /* and new: nobody knows when it was closed, but when it was begun */
	unsigned was_newest;
	uint64_t
		order; /* of what is new: of its version, or of the rename that brought it; else `born` */
	uint64_t version;
	int64_t mtime_ns;
};

/* A torn file that the epoch before had. Owned. */
struct torn_part {
	char *path, *beside;
};

struct doubts {
	const struct rules *rules;
	uint64_t after;
	struct item *items; /* those of kills first */
	size_t count, cap, kills;
	struct doubt *list; /* what doubts_list gives; strings are the items' */
	size_t list_count, counting;
	struct torn_part *parts;
	size_t part_count;
	char *before; /* the newest of the epoch before; NULL: not known */
	struct doubt_unit before_unit;
	struct newest newest, inner; /* of all units, and of those that lie in another one */
};

int doubts_new(const struct rules *rules, uint64_t after, struct doubts **ret_doubts)
{
	struct doubts *d = calloc(1, sizeof(*d));

	if (!d)
		return -ENOMEM;
	d->rules = rules;
	d->after = after;
	*ret_doubts = d;
	return 0;
}

static void companions_free(struct doubt_companion *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(list[i].path);
	free(list);
}

void doubts_free(struct doubts *d)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->count; i++) {
		struct item *item = &d->items[i];

		free(item->doubt.path);
		free(item->doubt.why);
		companions_free(item->doubt.companions, item->doubt.companion_count);
		companions_free(item->before, item->kill.companion_count);
		free(item->again);
		free(item->together);
		free(item->doubt.noted);
	}
	for (size_t i = 0; i < d->part_count; i++) {
		free(d->parts[i].path);
		free(d->parts[i].beside);
	}
	free(d->parts);
	free(d->before);
	free(d->items);
	free(d->list);
	free(d->newest.path);
	free(d->inner.path);
	free(d);
}

void doubts_free_at(struct doubts **d)
{
	doubts_free(*d);
}

int doubts_set_before(struct doubts *d, const char *newest)
{
	char *copy = strdup(newest);

	if (!copy)
		return -ENOMEM;
	free(d->before);
	d->before = copy;
	d->before_unit = doubt_unit_of(d->rules, copy);
	return 0;
}

int doubts_set_part(struct doubts *d, const char *path, const char *beside)
{
	struct torn_part *part = reallocarray(d->parts, d->part_count + 1, sizeof(*part));

	if (!part)
		return -ENOMEM;
	d->parts = part;
	part += d->part_count++;
	*part = (struct torn_part){strdup(path), strdup(beside)};
	return part->path && part->beside ? 0 : -ENOMEM;
}

static struct item *item_add(struct doubts *d, enum doubt_kind kind, const char *path,
			     const char *why)
{
	struct item *item;

	if (array_reserve((void **)&d->items, &d->cap, d->count, sizeof(*d->items)))
		return NULL;
	item = &d->items[d->count];
	*item = (struct item){.doubt = {.kind = kind, .path = strdup(path), .why = strdup(why)}};
	if (!item->doubt.path || !item->doubt.why) {
		free(item->doubt.path);
		free(item->doubt.why);
		return NULL;
	}
	d->count++;
	item->unit = doubt_unit_of(d->rules, path);
	return item;
}

/* ---- kills ---- */

/*
 * The file was removed, or saved again since; what has its name now may be older, as where a copy of the one before was moved there.
 * Who removes what has a temporary name tidies up.
 */
static bool kill_is_over(const struct item *item)
{
	const struct doubts_kill *k = &item->kill;

	/* Who removes the directory of a file that never was there leaves the rest of its save as it is. */
	if (!k->ino_now)
		return k->ino_then && (k->parent_is_gone || !item->temporary);
	return k->version_now != k->version_then && k->version_now > k->id;
}

static void set_temporary(const struct rules *r, struct item *item)
{
	const char *path = item->doubt.path;

	if (item->doubt.kind != DOUBT_UNDONE || !doubt_name_is_temporary(r, path))
		return;
	item->temporary = true;
	item->unit = doubt_unit_of_kill(r, path);
	item->stem = doubt_stem_len(r, path);
	item->tail = doubt_tail_at(r, path);
}

/* It was there before. */
static void set_part(const struct rules *r, struct item *item)
{
	struct doubt_unit unit = doubt_unit_of_again(r, item->doubt.path);

	item->part = unit.len != item->unit.len;
	item->unit = unit;
}

/* One more part of that save. */
static bool is_part_beside(const struct item *item, const char *path)
{
	return item->part && doubt_same_shape_beside(item->doubt.path, path);
}

/* A new directory that carries a step is left, by a killed writer's file that lies there under its own name. */
static bool leaves_directory(const struct item *item)
{
	const struct doubt_unit *unit = &item->unit;

	return item->kill.parent_is_new && unit->len && !unit->file && !unit->temporary &&
	       item->doubt.path[unit->len] == '/';
}

/* Whoever moves ckpt to ckpt.1 before each save saves ckpt/model.pt again, though the half of it is elsewhere. */
static int set_noted(const struct rules *r, struct item *item, const char *noted)
{
	if (item->doubt.kind != DOUBT_UNDONE || item->temporary || !noted ||
	    !strcmp(noted, item->doubt.path) || doubt_unit_of(r, noted).len)
		return 0;
	item->doubt.noted = strdup(noted);
	return item->doubt.noted ? 0 : -ENOMEM;
}

static int compare_ino(const void *a, const void *b)
{
	const struct doubt_companion *x = a, *y = b;

	return (x->ino > y->ino) - (x->ino < y->ino);
}

static int compare_u64(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

/* False on allocation failure. */
static bool copy_sorted(const uint64_t *list, size_t count, uint64_t **ret_list, size_t *ret_count)
{
	if (!count)
		return true;
	*ret_list = calloc(count, sizeof(*list));
	if (!*ret_list)
		return false;
	memcpy(*ret_list, list, count * sizeof(*list));
	qsort(*ret_list, count, sizeof(*list), compare_u64);
	*ret_count = count;
	return true;
}

int doubts_add_kill(struct doubts *d, const struct doubts_kill *kill)
{
	struct item *item = item_add(d, kill->kind, kill->path, kill->why);

	if (!item)
		return -ENOMEM;
	d->kills = d->count;
	item->doubt.id = kill->id;
	item->doubt.since = kill->since;
	item->doubt.at_ns = kill->at_ns;
	item->kill = *kill;
	item->kill.companion_count = item->kill.again_count = item->kill.together_count = 0;
	set_temporary(d->rules, item);
	if (set_noted(d->rules, item, kill->noted))
		return -ENOMEM;
	if (kill->kind == DOUBT_UNDONE && kill->version_then && !item->temporary)
		set_part(d->rules, item);
	item->doubt.stands = !kill_is_over(item);
	item->empty = leaves_directory(item);
	if (kill->companion_count) {
		item->before = calloc(kill->companion_count, sizeof(*item->before));
		if (!item->before)
			return -ENOMEM;
		for (size_t i = 0; i < kill->companion_count; i++)
			item->before[i] = (struct doubt_companion){
				kill->companions[i].ino, kill->companions[i].version, NULL};
		item->kill.companion_count = kill->companion_count;
		qsort(item->before, kill->companion_count, sizeof(*item->before), compare_ino);
	}
	if (!copy_sorted(kill->again, kill->again_count, &item->again, &item->kill.again_count) ||
	    !copy_sorted(kill->together, kill->together_count, &item->together,
			 &item->kill.together_count))
		return -ENOMEM;
	return 0;
}

static bool is_companion_of_before(const struct item *item, const struct doubts_file *f)
{
	const struct doubt_companion key = {.ino = f->ino}, *found;

	if (!item->kill.companion_count)
		return false;
	found = bsearch(&key, item->before, item->kill.companion_count, sizeof(key), compare_ino);
	return found && found->version == f->version;
}

static bool has(const uint64_t *list, size_t count, uint64_t ino)
{
	return count && bsearch(&ino, list, count, sizeof(ino), compare_u64);
}

static bool was_saved_again(const struct item *item, const struct doubts_file *f)
{
	return has(item->again, item->kill.again_count, f->ino);
}

/* Who begins after the kill saves something else: nothing waits for a temporary name, and of what lies in the root who knows what is of one save? */
static bool is_of_next_save(const struct item *item, const struct doubts_file *f)
{
	if (f->version <= item->kill.id || f->version <= item->kill.until)
		return false;
	return item->temporary ||
	       (!item->unit.len && !has(item->together, item->kill.together_count, f->ino));
}

/* Of what was judged to have left an empty directory, a file that comes there is one, too. */
static bool is_companion(const struct doubts *d, const struct item *item,
			 const struct doubts_file *f)
{
	struct doubt_unit unit;

	if (item->kill.judged && !(leaves_directory(item) && !item->kill.companion_count))
		return is_companion_of_before(item, f);
	if (f->born <= item->kill.base || f->ino == item->kill.ino_now ||
	    was_saved_again(item, f) || is_of_next_save(item, f))
		return false;
	unit = doubt_unit_of(d->rules, f->path);
	return is_part_beside(item, f->path) ||
	       doubt_unit_same(item->doubt.path, &item->unit, f->path, &unit);
}

/* Whether it was saved by who began after the kill. */
static bool is_after(const struct doubts *d, const struct item *item, const struct doubts_file *f)
{
	return f->version ? f->version > item->kill.id : f->born > d->after;
}

/* The save was done again, under whatever temporary name, and that was renamed. */
static bool is_final_name(const struct item *item, const char *path)
{
	const char *of = item->doubt.path;
	size_t dir = doubt_directory_len(of, strlen(of)), stem = item->stem;

	if (doubt_directory_len(path, strlen(path)) != dir || strncmp(path, of, dir) != 0)
		return false;
	path += dir;
	if (stem && stem - dir == strlen(path) && !strncmp(of + dir, path, stem - dir))
		return true;
	/* .model.pt.tmp4711 */
	if (stem > dir + 1 && doubt_is_separator(of[dir]) && stem - dir - 1 == strlen(path) &&
	    !strncmp(of + dir + 1, path, stem - dir - 1))
		return true;
	return of[item->tail] && !strcmp(of + item->tail, path);
}

static bool is_saved_where_it_was(const struct doubts *d, const struct item *item,
				  const struct doubts_file *f)
{
	return item->doubt.noted && !f->torn && !strcmp(item->doubt.noted, f->path) &&
	       is_after(d, item, f);
}

static bool is_beside(const struct doubts *d, const struct item *item, const char *path)
{
	const char *of = item->doubt.path;
	size_t dir = doubt_directory_len(of, strlen(of));
	struct doubt_unit unit;

	if (doubt_directory_len(path, strlen(path)) != dir || strncmp(path, of, dir) != 0 ||
	    doubt_name_is_temporary(d->rules, path))
		return false;
	unit = doubt_unit_of(d->rules, path);
	return doubt_unit_same(of, &item->unit, path, &unit);
}

/* What one that is alone waits for, from the next epoch on. */
static void look_beside(const struct doubts *d, struct item *item, const struct doubts_file *f)
{
	if (!item->kill.alone || !item->kill.judged)
		return;
	if (!is_after(d, item, f))
		item->final_is_there |= item->temporary && is_final_name(item, f->path);
	else
		item->saved_beside |= is_beside(d, item, f->path);
}

/*
 * Where no file has the name that the killed writer's was to get, none may ever get it: the names of temporary files differ each
 * time, and that of a new one is no promise. What is saved beside it then is the next save.
 */
static bool is_done_beside(const struct item *item)
{
	if (item->kill.ino_then && !item->temporary)
		return false;
	return item->saved_beside && !item->final_is_there;
}

static int companion_add(struct item *item, const struct doubts_file *f)
{
	struct doubt *doubt = &item->doubt;

	if (doubt->companion_count == DOUBT_COMPANIONS_MAX) {
		/* Nobody will know that all of them were saved again. */
		item->kill.alone = doubt->alone = true;
		return 0;
	}
	if (array_reserve((void **)&doubt->companions, &doubt->companion_cap,
			  doubt->companion_count, sizeof(*doubt->companions)))
		return -ENOMEM;
	doubt->companions[doubt->companion_count] =
		(struct doubt_companion){f->ino, f->version, strdup(f->path)};
	return doubt->companions[doubt->companion_count++].path ? 0 : -ENOMEM;
}

/* ---- files ---- */

/* Of the unit that was the newest before: 2; of one whose directory has the name of that, as where it was moved: 1; else 0. */
static unsigned was_newest(const struct doubts *d, const char *path, const struct doubt_unit *unit)
{
	size_t at, len, before_at;

	if (!d->before || !d->before_unit.len || unit->temporary ||
	    unit->step != d->before_unit.step)
		return 0;
	if (doubt_unit_same(path, unit, d->before, &d->before_unit))
		return 2;
	at = doubt_directory_len(path, unit->len);
	before_at = doubt_directory_len(d->before, d->before_unit.len);
	len = unit->len - at;
	return !unit->file && !d->before_unit.file && len == d->before_unit.len - before_at &&
	       !strncmp(path + at, d->before + before_at, len);
}

/* Of what is new: a rename comes before the version that was to be made next, and after the one before that. */
static uint64_t order_of(const struct doubts_file *f)
{
	uint64_t version = f->version < UINT64_MAX / 2 ? 2 * f->version : UINT64_MAX;
	uint64_t came = f->came ? 2 * f->came - 1 : 0;

	return version > came ? version : came;
}

/* The file as it is compared with others; its path is borrowed, its unit is not known yet: at best that is the newest from before. */
static struct newest newest_from(const struct doubts *d, const struct doubts_file *f)
{
	bool new = f->born > d->after || f->came;

	return (struct newest){
		.path = (char *)(uintptr_t)f->path,
		.is_new = new,
		.torn = new && f->torn,
		.was_newest = !new && d->before ? 2 : 0,
		.order = new ? order_of(f) : f->born,
		.version = new ? f->version : 0,
		.mtime_ns = f->mtime_ns,
	};
}

static bool are_steps_of_one_run(const struct newest *a, const struct newest *b)
{
	size_t len = doubt_directory_len(a->path, a->unit.len);

	return a->unit.step != b->unit.step && len == doubt_directory_len(b->path, b->unit.len) &&
	       !strncmp(a->path, b->path, len);
}

/*
 * Whether it was changed later than the newest so far. Beside what is new and torn a lower step that was touched does not count: that may have
 * been while the torn one was written, and who looks for the highest step finds that.
 */
static bool is_later(const struct newest *than, const struct newest *n)
{
	if (!than->path || n->is_new != than->is_new)
		return !than->path || n->is_new;
	if (n->was_newest != than->was_newest)
		return n->was_newest > than->was_newest;
	if (n->torn != than->torn && are_steps_of_one_run(n, than))
		return n->torn ? n->unit.step > than->unit.step || n->order > than->order
			       : n->unit.step > than->unit.step && n->order > than->order;
	if (n->order != than->order)
		return n->order > than->order;
	if (n->version != than->version)
		return n->version > than->version;
	return n->mtime_ns > than->mtime_ns;
}

static int set_newest(struct newest *to, const struct newest *from)
{
	char *path = strdup(from->path);

	if (!path)
		return -ENOMEM;
	free(to->path);
	*to = *from;
	to->path = path;
	return 0;
}

/* Whether a directory above the unit carries a step, too: a job's number, say. -ENOMEM on allocation failure. */
static int lies_in_another(const struct rules *r, const char *path, const struct doubt_unit *unit)
{
	size_t dir = doubt_directory_len(path, unit->len);
	cleanup_free char *above = dir ? strndup(path, dir) : NULL;

	if (!above)
		return dir ? -ENOMEM : 0;
	return doubt_unit_of(r, above).len > 0;
}

static int look_for_newest(struct doubts *d, const struct doubts_file *f)
{
	struct newest n = newest_from(d, f);
	int inner, error = 0;

	/* Of most files nobody has to know the unit. */
	if (!n.torn && !d->newest.torn && !d->inner.torn && !is_later(&d->newest, &n) &&
	    !is_later(&d->inner, &n))
		return 0;
	n.unit = doubt_unit_of(d->rules, f->path);
	if (!n.unit.len || n.unit.temporary)
		return 0;
	if (n.was_newest)
		n.was_newest = was_newest(d, f->path, &n.unit);
	if (is_later(&d->newest, &n))
		error = set_newest(&d->newest, &n);
	if (error || !is_later(&d->inner, &n))
		return error;
	inner = lies_in_another(d->rules, f->path, &n.unit);
	return inner > 0 ? set_newest(&d->inner, &n) : inner;
}

/* The directory that holds the newest unit, as that of a job, is no save of its own: what is changed in it leaves that one the newest. */
static const struct newest *newest_of(const struct doubts *d)
{
	const struct newest *n = &d->newest, *inner = &d->inner;

	return inner->path && doubt_unit_is_around(n->path, &n->unit, inner->path, &inner->unit)
		       ? inner
		       : n;
}

static bool is_of_directory(const struct item *item, const char *path)
{
	size_t len = item->unit.len;

	return !strncmp(path, item->doubt.path, len) && path[len] == '/';
}

static const char *part_before(const struct doubts *d, const char *path)
{
	for (size_t i = 0; i < d->part_count; i++)
		if (!strcmp(d->parts[i].path, path))
			return d->parts[i].beside;
	return NULL;
}

static int add_torn(struct doubts *d, const struct doubts_file *f)
{
	struct item *item = item_add(d, DOUBT_TORN, f->path, f->torn);
	struct doubts_file beside = {.path = f->part_beside};

	if (!item)
		return -ENOMEM;
	item->doubt.stands = true;
	item->doubt.since = f->born;
	if (!beside.path && f->born <= d->after)
		beside.path = part_before(d, f->path);
	if (!beside.path)
		return 0;
	set_part(d->rules, item);
	return item->part ? companion_add(item, &beside) : 0;
}

int doubts_add_file(struct doubts *d, const struct doubts_file *f)
{
	int error = look_for_newest(d, f);

	for (size_t i = 0; !error && i < d->kills; i++) {
		struct item *item = &d->items[i];

		if (item->doubt.kind != DOUBT_UNDONE || !item->doubt.stands)
			continue;
		if (item->empty)
			item->empty = !is_of_directory(item, f->path);
		look_beside(d, item, f);
		if ((item->temporary && is_after(d, item, f) && is_final_name(item, f->path)) ||
		    is_saved_where_it_was(d, item, f))
			item->doubt.stands = false;
		else if (is_companion(d, item, f))
			error = companion_add(item, f);
	}
	return error || !f->torn ? error : add_torn(d, f);
}

/* ---- what is gone ---- */

static bool asks_what_is_gone(const struct item *item)
{
	return item->doubt.kind == DOUBT_UNDONE && item->doubt.stands &&
	       !item->kill.parent_is_gone && !item->doubt.companion_count &&
	       (!item->kill.companion_count || !item->kill.ino_now);
}

uint64_t doubts_next_base(const struct doubts *d, uint64_t after)
{
	uint64_t next = 0;

	for (size_t i = 0; i < d->kills; i++) {
		uint64_t base = d->items[i].kill.base;

		if (asks_what_is_gone(&d->items[i]) && base > after && (!next || base < next))
			next = base;
	}
	return next;
}

/* A unit with a step is newer than all that have files; a temporary one is to become so. */
static bool is_above_all(const struct doubts *d, const struct doubt_unit *unit)
{
	const struct newest *n = newest_of(d);

	return unit->len && (unit->temporary || !n->path || unit->step > n->unit.step);
}

static bool is_of_its_save(const struct doubts *d, const struct item *item, const char *path,
			   const struct doubt_unit *unit)
{
	return doubt_unit_same(item->doubt.path, &item->unit, path, unit) ||
	       (is_above_all(d, unit) && is_above_all(d, &item->unit));
}

void doubts_add_gone(struct doubts *d, uint64_t base, const char *path)
{
	struct doubt_unit unit = doubt_unit_of(d->rules, path);

	if (unit.temporary)
		return;
	for (size_t i = 0; i < d->kills; i++) {
		struct item *item = &d->items[i];

		if (!asks_what_is_gone(item) || item->kill.base != base)
			continue;
		/* Where there were companions, what was removed later has settled that, but not the file itself. */
		if (item->kill.companion_count ? !strcmp(item->doubt.path, path)
					       : is_of_its_save(d, item, path, &unit))
			item->doubt.gone = true;
	}
}

void doubts_gone_unknown(struct doubts *d, uint64_t base)
{
	for (size_t i = 0; i < d->kills; i++)
		if (asks_what_is_gone(&d->items[i]) && d->items[i].kill.base == base)
			d->items[i].doubt.gone = true;
}

/* ---- the decision ---- */

static bool unit_counts(const struct doubts *d, const struct item *item)
{
	const struct newest *n = newest_of(d);
	const char *path = item->doubt.path;

	if (item->unit.temporary || !n->path)
		return !item->unit.temporary && !item->unit.len;
	return !item->unit.len || doubt_unit_same(path, &item->unit, n->path, &n->unit) ||
	       doubt_unit_is_around(path, &item->unit, n->path, &n->unit) ||
	       doubt_unit_is_around(n->path, &n->unit, path, &item->unit);
}

/* It was found that something is gone since an epoch that was dropped: nobody can say that it is there again. */
static bool lost_base(const struct item *item)
{
	return item->kill.judged && !item->kill.base && !item->kill.companion_count &&
	       !item->kill.alone && !leaves_directory(item);
}

/* Of one without companions. */
static void decide_lone(struct item *item)
{
	struct doubt *doubt = &item->doubt;

	/* Nothing is left of that save, nor of where it was. */
	if (item->kill.parent_is_gone) {
		doubt->stands = false;
		return;
	}
	/* What lies beside it under a temporary name may still be coming. */
	doubt->postponed =
		!item->kill.judged && item->unit.temporary && doubt->path[item->unit.len];
	doubt->gone |= item->empty || lost_base(item);
	/* Where it had more companions than are known, these alone say nothing. */
	doubt->alone = item->kill.alone && !doubt->postponed &&
		       (item->kill.companion_count || !is_done_beside(item));
	doubt->stands = doubt->postponed || doubt->gone || doubt->alone;
}

static void decide_item(const struct doubts *d, struct item *item)
{
	struct doubt *doubt = &item->doubt;

	if (doubt->kind == DOUBT_UNDONE && doubt->stands) {
		if (!doubt->companion_count)
			decide_lone(item);
		else if (item->kill.judged) /* it may have had more than could be named */
			doubt->alone = item->kill.alone;
		else
			doubt->postponed = item->unit.temporary;
	}
	doubt->counts = doubt->stands &&
			(unit_counts(d, item) || (doubt->gone && is_above_all(d, &item->unit)));
}

static void list_add(struct doubts *d, const struct doubt *doubt)
{
	d->list[d->list_count++] = *doubt;
}

/* Torn files in two passes: those that count come first where there are too many. */
static void list_torn(struct doubts *d, bool counting, size_t *named)
{
	for (size_t i = 0; i < d->count && *named < DOUBTS_NAMED_MAX; i++) {
		const struct doubt *doubt = &d->items[i].doubt;

		if (doubt->kind == DOUBT_TORN && doubt->counts == counting) {
			list_add(d, doubt);
			(*named)++;
		}
	}
}

int doubts_decide(struct doubts *d)
{
	size_t named = 0;

	d->list = calloc(d->count + 1, sizeof(*d->list));
	if (!d->list)
		return -ENOMEM;
	for (size_t i = 0; i < d->count; i++) {
		decide_item(d, &d->items[i]);
		d->counting += d->items[i].doubt.counts;
		if (d->items[i].doubt.kind != DOUBT_TORN)
			list_add(d, &d->items[i].doubt);
	}
	list_torn(d, true, &named);
	list_torn(d, false, &named);
	return 0;
}

const struct doubt *doubts_list(const struct doubts *d, size_t *ret_count)
{
	*ret_count = d->list_count;
	return d->list;
}

size_t doubts_counting(const struct doubts *d)
{
	return d->counting;
}

const char *doubts_newest(const struct doubts *d)
{
	return newest_of(d)->path;
}
