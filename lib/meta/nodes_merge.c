/* SPDX-License-Identifier: Apache-2.0 */
/* The trees of the nodes of a set, merged into one. */
#include "lib/meta/nodes_decide.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/util/array.h"
#include "lib/util/cleanup.h"
#include "lib/util/text.h"

/* ---- comparing entries of trees ---- */

/* What a node did to a path, against its base; the greater, the more it says. */
enum merge_change {
	MERGE_NOTHING,
	MERGE_REMOVED,
	MERGE_ATTRIBUTES, /* of what was there */
	MERGE_CONTENT,	  /* made, another type, or other content */
};

/* Of a tree that may be NULL, and a directory that may be TREE_NONE or something else. */
static uint32_t merge_lookup(const struct tree *t, uint32_t dir, const char *name)
{
	return t && dir != TREE_NONE ? tree_lookup(t, dir, name, strlen(name)) : TREE_NONE;
}

static bool merge_is_dir(const struct tree *t, uint32_t id)
{
	struct tree_entry e;

	if (!t || id == TREE_NONE)
		return false;
	tree_get(t, id, &e);
	return e.type == TREE_DIR;
}

static bool same_file(const struct tree_entry *a, const struct tree_entry *b)
{
	if (a->size != b->size || a->content != b->content)
		return false;
	if (a->content == TREE_INLINE)
		return !memcmp(a->u.inline_data, b->u.inline_data, a->size);
	return a->content != TREE_RECIPE || hash_equal(&a->u.recipe, &b->u.recipe);
}

/* The same type and the same bytes (target, device); directories are the same. */
static bool merge_same_content(const struct tree_entry *a, const struct tree_entry *b)
{
	if (a->type != b->type)
		return false;
	switch (a->type) {
	case TREE_REGULAR:
		return same_file(a, b);
	case TREE_SYMLINK:
		return !strcmp(a->u.target, b->u.target);
	case TREE_CHAR:
	case TREE_BLOCK:
		return a->rdev_major == b->rdev_major && a->rdev_minor == b->rdev_minor;
	default:
		return true;
	}
}

static bool same_attributes(const struct tree_entry *a, const struct tree_entry *b)
{
	return a->mode == b->mode && a->uid == b->uid && a->gid == b->gid &&
	       a->mtime_ns == b->mtime_ns && a->xattrs_len == b->xattrs_len &&
	       (!a->xattrs_len || !memcmp(a->xattrs, b->xattrs, a->xattrs_len));
}

/* What was done to make `e` of the base's entry (TREE_NONE: there was none). */
static enum merge_change merge_compare(const struct tree *base, uint32_t id,
				       const struct tree_entry *e)
{
	struct tree_entry before;

	if (!base || id == TREE_NONE)
		return MERGE_CONTENT;
	tree_get(base, id, &before);
	if (!merge_same_content(&before, e))
		return MERGE_CONTENT;
	return same_attributes(&before, e) ? MERGE_NOTHING : MERGE_ATTRIBUTES;
}

/* Whether the base has this name with that content, of a file with as many names. */
static int in_base(const struct tree *t, const struct tree *base, uint32_t id, bool *ret_there)
{
	cleanup_buf struct buf path = {0};
	struct tree_entry e, before;
	uint32_t other;
	int error = tree_path(t, id, &path);

	*ret_there = false;
	if (error || !base || tree_resolve(base, buf_str(&path), &other) != 0)
		return error;
	tree_get(t, id, &e);
	tree_get(base, other, &before);
	*ret_there =
		merge_same_content(&before, &e) && tree_nlink(t, id) == tree_nlink(base, other);
	return 0;
}

/*
 * Files with several names of which not all are in the base with that content: true for the identity. Then
 * all their names are taken from this tree together. NULL where there is no file with several names.
 */
static int merge_relinked(const struct tree *t, const struct tree *base, bool **ret_relinked)
{
	cleanup_free bool *relinked = NULL;

	for (uint32_t id = 0; id < tree_count(t); id++) {
		struct tree_entry e;
		bool there;
		int error;

		tree_get(t, id, &e);
		if (!e.group)
			continue;
		if (!relinked)
			relinked = calloc(tree_count(t), sizeof(*relinked));
		if (!relinked)
			return -ENOMEM;
		error = in_base(t, base, id, &there);
		if (error)
			return error;
		relinked[tree_identity(t, id)] |= !there;
	}
	*ret_relinked = steal_ptr(relinked);
	return 0;
}

/* The children of one part's directory, from `at` on: false where there are none. */
static bool child_at(const struct nodes_tree *part, uint32_t dir, uint32_t at,
		     struct tree_entry *ret_entry)
{
	uint32_t count = 0;
	const uint32_t *children = dir == TREE_NONE ? NULL : tree_children(part->tree, dir, &count);

	if (at >= count)
		return false;
	tree_get(part->tree, children[at], ret_entry);
	return true;
}

/*
 * The next name of a directory in all parts, in their order: false at the end. `dirs` is its number in each part, `at`
 * counts in each part's children; ret_name takes TREE_NAME_MAX + 1 bytes.
 */
static bool merge_next_name(const struct nodes_tree *parts, size_t count, const uint32_t *dirs,
			    uint32_t *at, char *ret_name)
{
	struct tree_entry first = {0}, e;

	for (size_t i = 0; i < count; i++)
		if (child_at(&parts[i], dirs[i], at[i], &e) &&
		    (!first.name || strcmp(e.name, first.name) < 0))
			first = e;
	if (!first.name)
		return false;
	snprintf(ret_name, TREE_NAME_MAX + 1, "%s", first.name);
	for (size_t i = 0; i < count; i++)
		if (child_at(&parts[i], dirs[i], at[i], &e))
			at[i] += strcmp(e.name, ret_name) == 0;
	return true;
}

/* ---- merging ---- */

struct merge {
	const struct nodes_tree *parts;
	size_t count;
	bool **relinked; /* of each part: identities whose names are not those of the base */
	struct tree_writer *writer;
	struct nodes_merged *out;
	size_t conflicts;
	struct buf path; /* of the directory that is being merged */
};

/* One name of the merged directory. */
struct item {
	char *name;  /* owned */
	size_t part; /* whose entry it is: of a directory, for its attributes */
	uint32_t id;
	uint32_t *dirs; /* of a directory: its number in each part, TREE_NONE; owned */
	uint32_t *bases;
};

struct items {
	struct item *item;
	size_t count, cap;
};

static void items_free(struct items *l)
{
	for (size_t i = 0; i < l->count; i++) {
		free(l->item[i].name);
		free(l->item[i].dirs);
		free(l->item[i].bases);
	}
	free(l->item);
}

void nodes_merged_free(struct nodes_merged *m)
{
	buf_free(&m->tree);
	for (size_t i = 0; i < m->conflict_count; i++)
		free(m->conflicts[i]);
	m->conflict_count = 0;
}

/* ---- one name: what each part says of it ---- */

struct opinion {
	uint32_t id, base; /* TREE_NONE: it has none */
	enum merge_change change;
	bool dir;
};

static struct opinion opinion_of(const struct merge *m, size_t i, uint32_t dir, uint32_t base_dir,
				 const char *name)
{
	const struct nodes_tree *p = &m->parts[i];
	struct opinion o = {.id = merge_lookup(p->tree, dir, name),
			    .base = merge_lookup(p->base, base_dir, name)};
	struct tree_entry e;

	if (o.id == TREE_NONE) {
		o.change = o.base == TREE_NONE ? MERGE_NOTHING : MERGE_REMOVED;
		return o;
	}
	tree_get(p->tree, o.id, &e);
	o.dir = e.type == TREE_DIR;
	o.change = merge_compare(p->base, o.base, &e);
	if (m->relinked[i] && m->relinked[i][tree_identity(p->tree, o.id)])
		o.change = MERGE_CONTENT;
	return o;
}

/* Whether this part has new content somewhere below the directory. */
static bool changed_below(const struct merge *m, size_t i, uint32_t dir, uint32_t base)
{
	const struct nodes_tree *p = &m->parts[i];
	uint32_t count;
	const uint32_t *children = tree_children(p->tree, dir, &count);

	for (uint32_t k = 0; k < count; k++) {
		struct opinion o;
		struct tree_entry e;

		tree_get(p->tree, children[k], &e);
		o = opinion_of(m, i, dir, base, e.name);
		if (o.change == MERGE_CONTENT || (o.dir && changed_below(m, i, o.id, o.base)))
			return true;
	}
	return false;
}

struct verdict {
	bool stays;
	enum merge_change change; /* the greatest of those that have it */
};

static struct verdict judge(const struct merge *m, const struct opinion *o)
{
	struct verdict v = {.change = MERGE_NOTHING};
	bool removed = false, below = false;

	for (size_t i = 0; i < m->count; i++) {
		removed |= o[i].change == MERGE_REMOVED;
		if (o[i].id == TREE_NONE)
			continue;
		v.stays = true;
		if (o[i].change > v.change)
			v.change = o[i].change;
	}
	if (!removed || !v.stays || v.change == MERGE_CONTENT)
		return v;
	for (size_t i = 0; !below && i < m->count; i++)
		below = o[i].dir && changed_below(m, i, o[i].id, o[i].base);
	v.stays = below;
	return v;
}

/* ---- items ---- */

static struct item *add_item(struct items *l, const char *name, size_t part, uint32_t id)
{
	struct item *item;

	if (array_reserve((void **)&l->item, &l->cap, l->count, sizeof(*l->item)))
		return NULL;
	item = &l->item[l->count];
	*item = (struct item){.name = strdup(name), .part = part, .id = id};
	if (!item->name)
		return NULL;
	l->count++;
	return item;
}

/* All directories of this name are one. */
static int make_dir(const struct merge *m, struct item *item, const struct opinion *o)
{
	item->dirs = calloc(m->count, sizeof(*item->dirs));
	item->bases = calloc(m->count, sizeof(*item->bases));
	if (!item->dirs || !item->bases)
		return -ENOMEM;
	for (size_t i = 0; i < m->count; i++) {
		item->dirs[i] = o[i].dir ? o[i].id : TREE_NONE;
		item->bases[i] = merge_is_dir(m->parts[i].base, o[i].base) ? o[i].base : TREE_NONE;
	}
	return 0;
}

static bool same_as_one(const struct merge *m, const struct opinion *o, const size_t *kept,
			size_t kept_count, size_t part)
{
	struct tree_entry e, other;

	tree_get(m->parts[part].tree, o[part].id, &e);
	for (size_t i = 0; i < kept_count; i++) {
		tree_get(m->parts[kept[i]].tree, o[kept[i]].id, &other);
		if (merge_same_content(&e, &other))
			return true;
	}
	return false;
}

/* A directory that others replaced by something else, while this one made news in it. */
static bool is_lost_dir(const struct merge *m, const struct opinion *o, const size_t *kept,
			size_t kept_count, size_t part)
{
	for (size_t i = 0; i < kept_count; i++)
		if (o[kept[i]].dir)
			return false;
	return o[part].dir && changed_below(m, part, o[part].id, o[part].base);
}

/* The parts whose entries are kept, the first under the name itself: how many. */
static size_t choose(const struct merge *m, const struct opinion *o, enum merge_change change,
		     size_t *kept)
{
	size_t count = 0;

	for (size_t i = 0; i < m->count; i++) {
		if (o[i].id == TREE_NONE || o[i].change != change)
			continue;
		if (!count || (change == MERGE_CONTENT && !same_as_one(m, o, kept, count, i)))
			kept[count++] = i;
		else if (change == MERGE_NOTHING &&
			 m->parts[i].base_number > m->parts[kept[0]].base_number)
			kept[0] = i;
	}
	for (size_t i = 0; change == MERGE_CONTENT && i < m->count; i++)
		if (o[i].change != change && is_lost_dir(m, o, kept, count, i))
			kept[count++] = i;
	return count;
}

static int note_conflict(struct merge *m, const char *name, const char *node, const char *as)
{
	struct nodes_merged *out = m->out;
	char *text = NULL;
	int len;

	if (m->conflicts++ >= NODES_CONFLICTS_MAX)
		return 0;
	len = text_print(&text, "%s%s: of several nodes; that of %s is %s", buf_str(&m->path), name,
			 node, as);
	if (len < 0)
		return -ENOMEM;
	out->conflicts[out->conflict_count++] = text;
	return 0;
}

static int add_entry(struct merge *m, struct items *l, const struct opinion *o, size_t part,
		     const char *name)
{
	struct item *item = add_item(l, name, part, o[part].id);

	if (!item)
		return -ENOMEM;
	return o[part].dir ? make_dir(m, item, o) : 0;
}

/* A conflict's further names wait until all names of the directory are known. */
struct extra {
	struct opinion *o; /* a copy; owned */
	char *name;	   /* owned */
	size_t part;
};

struct extras {
	struct extra *extra;
	size_t count;
};

static void extras_free(struct extras *x)
{
	for (size_t i = 0; i < x->count; i++) {
		free(x->extra[i].o);
		free(x->extra[i].name);
	}
	free(x->extra);
}

static int add_extra(const struct merge *m, struct extras *x, const struct opinion *o, size_t part,
		     const char *name)
{
	struct extra *grown = reallocarray(x->extra, x->count + 1, sizeof(*grown));

	if (!grown)
		return -ENOMEM;
	x->extra = grown;
	grown[x->count] = (struct extra){
		.o = calloc(m->count, sizeof(*o)), .name = strdup(name), .part = part};
	x->count++;
	if (!grown[x->count - 1].o || !grown[x->count - 1].name)
		return -ENOMEM;
	memcpy(grown[x->count - 1].o, o, m->count * sizeof(*o));
	return 0;
}

static int merge_name(struct merge *m, const uint32_t *dirs, const uint32_t *bases,
		      const char *name, struct items *l, struct extras *x)
{
	cleanup_free struct opinion *o = calloc(m->count, sizeof(*o));
	cleanup_free size_t *kept = calloc(m->count, sizeof(*kept));
	struct verdict v;
	size_t count;
	int error;

	if (!o || !kept)
		return -ENOMEM;
	for (size_t i = 0; i < m->count; i++)
		o[i] = opinion_of(m, i, dirs[i], bases[i], name);
	v = judge(m, o);
	if (!v.stays)
		return 0;
	count = choose(m, o, v.change, kept);
	error = add_entry(m, l, o, kept[0], name);
	for (size_t i = 1; !error && i < count; i++)
		error = add_extra(m, x, o, kept[i], name);
	return error;
}

static int compare_items(const void *a, const void *b)
{
	return strcmp(((const struct item *)a)->name, ((const struct item *)b)->name);
}

static bool is_taken(const struct items *l, const char *name)
{
	for (size_t i = 0; i < l->count; i++)
		if (!strcmp(l->item[i].name, name))
			return true;
	return false;
}

/* NAME.NODE, or the first of NAME.NODE.2, ... that is free; a long name is cut. */
static void free_name(const struct items *l, const char *name, const char *node,
		      char ret_name[TREE_NAME_MAX + 1])
{
	char suffix[NODE_NAME_MAX + 16] = "";

	for (unsigned n = 1;; n++) {
		int len = n == 1 ? snprintf(suffix, sizeof(suffix), ".%.*s", NODE_NAME_MAX, node)
				 : snprintf(suffix, sizeof(suffix), ".%.*s.%u", NODE_NAME_MAX, node,
					    n);

		snprintf(ret_name, TREE_NAME_MAX + 1, "%.*s%s", TREE_NAME_MAX - len, name, suffix);
		if (!is_taken(l, ret_name))
			return;
	}
}

static int add_extras(struct merge *m, struct items *l, const struct extras *x)
{
	int error = 0;

	for (size_t i = 0; !error && i < x->count; i++) {
		const struct extra *e = &x->extra[i];
		const char *node = m->parts[e->part].node;
		char name[TREE_NAME_MAX + 1];

		free_name(l, e->name, node, name);
		error = add_entry(m, l, e->o, e->part, name);
		if (!error)
			error = note_conflict(m, e->name, node, name);
	}
	return error;
}

/* ---- a directory ---- */

static int list_names(struct merge *m, const uint32_t *dirs, const uint32_t *bases, struct items *l)
{
	CLEANUP(extras_free) struct extras x = {0};
	cleanup_free uint32_t *at = calloc(m->count, sizeof(*at));
	char name[TREE_NAME_MAX + 1];
	int error = at ? 0 : -ENOMEM;

	while (!error && merge_next_name(m->parts, m->count, dirs, at, name))
		error = merge_name(m, dirs, bases, name, l, &x);
	if (!error)
		error = add_extras(m, l, &x);
	if (!error && l->count)
		qsort(l->item, l->count, sizeof(*l->item), compare_items);
	return error;
}

static int write_item(struct merge *m, const struct item *item, uint32_t depth)
{
	struct tree_entry e;

	tree_get(m->parts[item->part].tree, item->id, &e);
	e.depth = depth;
	e.name = item->name;
	e.name_len = strlen(item->name);
	if (e.group)
		e.group |= (uint64_t)(item->part + 1) << 32;
	for (size_t i = 0; item->dirs && i < m->count; i++) {
		struct tree_entry other;

		if (item->dirs[i] == TREE_NONE)
			continue;
		tree_get(m->parts[i].tree, item->dirs[i], &other);
		if (other.mtime_ns > e.mtime_ns)
			e.mtime_ns = other.mtime_ns;
	}
	return tree_writer_add(m->writer, &e);
}

static int write_dir(struct merge *m, const uint32_t *dirs, const uint32_t *bases, uint32_t depth)
{
	CLEANUP(items_free) struct items l = {0};
	size_t len = m->path.len;
	int error = list_names(m, dirs, bases, &l);

	for (size_t i = 0; !error && i < l.count; i++) {
		error = write_item(m, &l.item[i], depth);
		if (error || !l.item[i].dirs)
			continue;
		buf_printf(&m->path, "%s/", l.item[i].name);
		error = buf_error(&m->path);
		if (!error)
			error = write_dir(m, l.item[i].dirs, l.item[i].bases, depth + 1);
		m->path.len = len;
	}
	return error;
}

static int write_all(struct merge *m)
{
	struct opinion *o = calloc(m->count, sizeof(*o));
	struct items l = {0};
	struct item *root = o ? add_item(&l, "", 0, 0) : NULL;
	int error = root ? 0 : -ENOMEM;

	for (size_t i = 0; !error && i < m->count; i++) {
		const struct nodes_tree *p = &m->parts[i];
		struct tree_entry e;

		tree_get(p->tree, 0, &e);
		o[i] = (struct opinion){.base = p->base ? 0 : TREE_NONE, .dir = true};
		o[i].change = merge_compare(p->base, o[i].base, &e);
		/* The first that changed it. */
		if (o[i].change > o[root->part].change)
			root->part = i;
	}
	if (!error)
		error = make_dir(m, root, o);
	if (!error)
		error = write_item(m, root, 0);
	if (!error)
		error = write_dir(m, root->dirs, root->bases, 1);
	if (!error)
		error = tree_writer_finish(m->writer);
	items_free(&l);
	free(o);
	return error;
}

static int tell_rest(struct merge *m)
{
	struct nodes_merged *out = m->out;

	if (m->conflicts <= NODES_CONFLICTS_MAX)
		return 0;
	if (text_print(&out->conflicts[out->conflict_count], "and %zu more",
		       m->conflicts - NODES_CONFLICTS_MAX) < 0)
		return -ENOMEM;
	out->conflict_count++;
	return 0;
}

int nodes_merge(const struct nodes_tree *parts, size_t count, struct nodes_merged *ret_merged)
{
	cleanup_tree_writer struct tree_writer *writer = NULL;
	cleanup_nodes_merged struct nodes_merged out = {0};
	struct merge m = {.parts = parts, .count = count, .out = &out};
	int error = tree_writer_new(&out.tree, 0, &writer);

	m.writer = writer;
	m.relinked = calloc(count, sizeof(*m.relinked));
	if (!m.relinked)
		error = -ENOMEM;
	for (size_t i = 0; !error && i < count; i++)
		error = merge_relinked(parts[i].tree, parts[i].base, &m.relinked[i]);
	if (!error)
		error = write_all(&m);
	if (!error)
		error = tell_rest(&m);
	for (size_t i = 0; m.relinked && i < count; i++)
		free(m.relinked[i]);
	free(m.relinked);
	buf_free(&m.path);
	if (error)
		return error;
	*ret_merged = out;
	out = (struct nodes_merged){0};
	return 0;
}
