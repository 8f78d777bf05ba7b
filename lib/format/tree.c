/* SPDX-License-Identifier: Apache-2.0 */
/* The decoded tree: entries by number, directories by name. */
#include "lib/format/tree.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/tree_wire.h"

#define PAGE   4096
#define SECTOR 512

struct tree {
	_Atomic uint32_t refs;
	uint8_t *data;
	size_t len;
	unsigned int flags;
	uint32_t count;
	uint32_t *at;	  /* offset of each entry in data */
	uint32_t *parent; /* number of each entry's directory */
	uint32_t *nlink;
	/* The entries of directory d are children[first_child[d]] up to, without it,
	 * children[first_child[d + 1]]: `count - 1` and `count + 1` of them. */
	uint32_t *children;
	uint32_t *first_child;
	uint32_t *groups; /* the first entry of each group, from 1 */
	uint32_t group_count;
	struct tree_counts counts;
};

struct tree *tree_ref(struct tree *t)
{
	atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
	return t;
}

static void tree_free(struct tree *t)
{
	free(t->at);
	free(t->parent);
	free(t->nlink);
	free(t->children);
	free(t->first_child);
	free(t->groups);
	free(t->data);
	free(t);
}

void tree_unref(struct tree *t)
{
	if (t && atomic_fetch_sub_explicit(&t->refs, 1, memory_order_acq_rel) == 1)
		tree_free(t);
}

static void count_entry(struct tree_counts *c, const struct tree_entry *e)
{
	switch (e->type) {
	case TREE_DIR:
		c->directories++;
		break;
	case TREE_REGULAR:
		c->files++;
		if (__builtin_add_overflow(c->bytes, e->size, &c->bytes))
			c->bytes = UINT64_MAX; /* a hostile tree */
		break;
	case TREE_SYMLINK:
		c->symlinks++;
		break;
	case TREE_FIFO:
	case TREE_SOCKET:
	case TREE_CHAR:
	case TREE_BLOCK:
		c->specials++;
		break;
	}
}

/* Which directory is open at each depth while the entries come. */
struct building {
	struct tree *t;
	uint32_t group_cap;
	uint32_t open[TREE_DEPTH_MAX + 2];
};

/* The entry `id` is the first or a further one of a group. */
static int add_to_group(struct building *b, uint32_t id, const struct tree_entry *e)
{
	struct tree *t = b->t;

	if (e->group <= t->group_count) {
		t->nlink[t->groups[e->group]]++;
		return 0;
	}
	if (e->group >= b->group_cap) {
		uint32_t cap = b->group_cap ? b->group_cap * 2 : 16;
		uint32_t *groups = reallocarray(t->groups, cap, sizeof(*groups));

		if (!groups)
			return -ENOMEM;
		t->groups = groups;
		b->group_cap = cap;
	}
	t->groups[++t->group_count] = id;
	count_entry(&t->counts, e);
	return 0;
}

static int add_entry(struct building *b, uint32_t id, const struct tree_entry *e)
{
	struct tree *t = b->t;
	uint32_t parent = e->depth ? b->open[e->depth - 1] : 0;

	t->parent[id] = parent;
	t->nlink[id] = e->type == TREE_DIR ? 2 : 1;
	if (id)
		t->first_child[parent]++; /* a count, until link_children */
	if (e->type == TREE_DIR) {
		b->open[e->depth] = id;
		if (id)
			t->nlink[parent]++;
	}
	if (e->group)
		return add_to_group(b, id, e);
	count_entry(&t->counts, e);
	return 0;
}

/* Sorts the entries by directory; those of one directory stay in their order. */
static void link_children(struct tree *t)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i <= t->count; i++) {
		uint32_t count = t->first_child[i];

		t->first_child[i] = sum;
		sum += count;
	}
	for (uint32_t id = 1; id < t->count; id++)
		t->children[t->first_child[t->parent[id]]++] = id;
	/* Each start has moved to the next directory's: move them back. */
	memmove(t->first_child + 1, t->first_child, t->count * sizeof(*t->first_child));
	t->first_child[0] = 0;
}

/* Entries are counted first, so that a hostile count costs no memory. */
static int count_entries(const struct tree *t, uint32_t *ret_count)
{
	cleanup_tree_reader struct tree_reader *r = NULL;
	struct tree_entry e;
	uint32_t count = 0;
	int more = tree_reader_new(t->data, t->len, t->flags, &r);

	if (more < 0)
		return more;
	while ((more = tree_reader_next(r, &e)) == 1)
		count++;
	*ret_count = count;
	return more;
}

static int allocate(struct tree *t)
{
	t->at = calloc(t->count, sizeof(*t->at));
	t->parent = calloc(t->count, sizeof(*t->parent));
	t->nlink = calloc(t->count, sizeof(*t->nlink));
	t->children = calloc(t->count, sizeof(*t->children));
	t->first_child = calloc((size_t)t->count + 1, sizeof(*t->first_child));
	return t->at && t->parent && t->nlink && t->children && t->first_child ? 0 : -ENOMEM;
}

/* Fills the arrays. All was checked by count_entries. */
static int build(struct tree *t)
{
	cleanup_free struct building *b = calloc(1, sizeof(*b));
	struct reader r = reader_of(t->data + TREE_HEADER_LEN, t->len - TREE_HEADER_LEN);
	struct tree_entry e;
	int error = 0;

	if (!b)
		return -ENOMEM;
	b->t = t;
	for (uint32_t id = 0; id < t->count && !error; id++) {
		t->at[id] = (uint32_t)(r.p - t->data);
		tree_get_entry(&r, t->flags, &e);
		error = add_entry(b, id, &e);
	}
	link_children(t);
	return error;
}

int tree_decode(void *data, size_t len, unsigned int flags, struct tree **ret_tree)
{
	struct tree *t = calloc(1, sizeof(*t));
	int error;

	if (!t)
		return -ENOMEM;
	t->refs = 1;
	t->data = data;
	t->len = len;
	t->flags = flags;
	error = count_entries(t, &t->count);
	if (!error) /* what the header announces, as its reader takes it */
		t->flags = t->data[TREE_HEADER_LEN - 1];
	if (!error)
		error = allocate(t);
	if (!error)
		error = build(t);
	if (error) {
		t->data = NULL; /* still the caller's */
		tree_free(t);
		return error;
	}
	*ret_tree = t;
	return 0;
}

const void *tree_data(const struct tree *t, size_t *ret_len)
{
	*ret_len = t->len;
	return t->data;
}

uint32_t tree_count(const struct tree *t)
{
	return t->count;
}

void tree_get_counts(const struct tree *t, struct tree_counts *ret_counts)
{
	*ret_counts = t->counts;
}

/* As it stands in the encoding: true where it is a further name of a group. */
static bool get_raw(const struct tree *t, uint32_t id, struct tree_entry *ret_entry)
{
	struct reader r = reader_of(t->data + t->at[id], t->len - t->at[id]);

	return tree_get_entry(&r, t->flags, ret_entry);
}

void tree_get(const struct tree *t, uint32_t id, struct tree_entry *ret_entry)
{
	struct tree_entry e, first;

	if (!get_raw(t, id, &e)) {
		*ret_entry = e;
		return;
	}
	get_raw(t, t->groups[e.group], &first);
	first.depth = e.depth;
	first.name = e.name;
	first.name_len = e.name_len;
	*ret_entry = first;
}

uint64_t tree_blocks(uint64_t size, uint64_t holes)
{
	return (size - holes + PAGE - 1) / PAGE * (PAGE / SECTOR);
}

uint32_t tree_parent(const struct tree *t, uint32_t id)
{
	return t->parent[id];
}

uint32_t tree_identity(const struct tree *t, uint32_t id)
{
	struct tree_entry e;

	get_raw(t, id, &e);
	return e.group ? t->groups[e.group] : id;
}

uint32_t tree_nlink(const struct tree *t, uint32_t id)
{
	return t->nlink[tree_identity(t, id)];
}

const uint32_t *tree_children(const struct tree *t, uint32_t dir, uint32_t *ret_count)
{
	*ret_count = t->first_child[dir + 1] - t->first_child[dir];
	return *ret_count ? t->children + t->first_child[dir] : NULL;
}

/* Type, depth and name only. */
static const char *name_of(const struct tree *t, uint32_t id, size_t *ret_len)
{
	struct reader r = reader_of(t->data + t->at[id], t->len - t->at[id]);

	reader_u8(&r);
	reader_varint(&r);
	return (const char *)reader_bytes(&r, TREE_NAME_MAX, ret_len);
}

uint32_t tree_lookup(const struct tree *t, uint32_t dir, const char *name, size_t len)
{
	uint32_t low = 0, high;
	const uint32_t *children = tree_children(t, dir, &high);

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		size_t found_len = 0;
		const char *found = name_of(t, children[middle], &found_len);
		int order = tree_name_compare(found, found_len, name, len);

		if (order == 0)
			return children[middle];
		if (order < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return TREE_NONE;
}

int tree_resolve(const struct tree *t, const char *path, uint32_t *ret_id)
{
	uint32_t id = 0;

	for (;;) {
		size_t len;

		path += strspn(path, "/");
		if (!*path)
			break;
		/* Only of a directory may more be asked. */
		if (t->data[t->at[id]] != TREE_DIR)
			return -ENOTDIR;
		len = strcspn(path, "/");
		id = tree_lookup(t, id, path, len);
		if (id == TREE_NONE)
			return -ENOENT;
		path += len;
	}
	*ret_id = id;
	return 0;
}

int tree_path(const struct tree *t, uint32_t id, struct buf *out)
{
	uint32_t chain[TREE_DEPTH_MAX];
	size_t depth = 0, start = out->len;

	for (; id; id = t->parent[id])
		chain[depth++] = id;
	while (depth--) {
		size_t len = 0;
		const char *name = name_of(t, chain[depth], &len);

		if (out->len > start)
			buf_put_u8(out, '/');
		buf_put(out, name, len);
	}
	return buf_error(out);
}
