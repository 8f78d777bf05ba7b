/* SPDX-License-Identifier: Apache-2.0 */
/* Trees: reading and writing them, and the decoded tree, with entries by number and directories by name. */
#include "lib/format/tree.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/tree_wire.h"
#include "lib/format/wire.h"
#include "lib/format/xattrs.h"

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

/* ---- Reading trees, one entry after another. ---- */

struct tree_reader {
	const uint8_t *start;
	struct reader r; /* ends at the end mark */
	unsigned int flags;
	uint32_t left;	/* entries */
	bool has_holes; /* one of those that came */
	/* Offsets of the first entries of the groups that have come. */
	uint32_t *groups;
	uint32_t group_count;
	uint32_t group_cap;
	struct tree_order order;
	struct buf path;
	/* Length of the path of the open directory whose entries have this depth. */
	uint32_t path_len[TREE_DEPTH_MAX + 2];
};

/* Header, trailer and CRC; the entries' span. */
static int check_frame(const void *data, size_t len, unsigned int flags, struct reader *ret_r,
		       uint32_t *ret_count)
{
	struct reader r = reader_of(data, len), trailer;
	int error = wire_magic(&r, TREE_MAGIC, TREE_VERSION);
	uint8_t stored_flags;

	if (error)
		return error;
	stored_flags = reader_u8(&r);
	if (stored_flags & ~(TREE_ALLOW_LOCAL | TREE_HAS_HOLES))
		return -EPROTONOSUPPORT;
	flags |= TREE_HAS_HOLES;
	if (len < TREE_HEADER_LEN + TREE_TRAILER_LEN || len > TREE_ENCODED_MAX ||
	    stored_flags & ~flags || wire_check_crc(data, len, &len) < 0)
		return -EBADMSG;
	r.end = (const uint8_t *)data + len - (TREE_TRAILER_LEN - 4);
	trailer = reader_of(r.end, TREE_TRAILER_LEN - 4);
	if (reader_u8(&trailer) != TREE_END)
		return -EBADMSG;
	*ret_count = reader_u32(&trailer);
	*ret_r = r;
	return *ret_count >= 1 && *ret_count <= TREE_ENTRIES_MAX &&
			       *ret_count - 1 <= reader_left(&r) / TREE_ENTRY_LEN_MIN
		       ? 0
		       : -EBADMSG;
}

bool tree_begins(const void *data, size_t len)
{
	struct reader r = reader_of(data, len);

	return wire_magic(&r, TREE_MAGIC, TREE_VERSION) == 0;
}

int tree_reader_new(const void *data, size_t len, unsigned int flags,
		    struct tree_reader **ret_reader)
{
	struct tree_reader *t;
	struct reader r;
	uint32_t count = 0;
	int error = check_frame(data, len, flags, &r, &count);

	if (error)
		return error;
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->start = data;
	t->r = r;
	t->left = count;
	/* What the header of the tree does not announce is refused, whatever the caller allows. */
	t->flags = t->start[TREE_HEADER_LEN - 1];
	*ret_reader = t;
	return 0;
}

void tree_reader_free(struct tree_reader *t)
{
	if (!t)
		return;
	free(t->groups);
	buf_free(&t->path);
	free(t);
}

const char *tree_reader_path(const struct tree_reader *t)
{
	return t->path.data ? (const char *)t->path.data : "";
}

static int note_group(struct tree_reader *t, uint64_t number, size_t offset)
{
	if (number != (uint64_t)t->group_count + 1)
		return -EBADMSG;
	if (t->group_count == t->group_cap) {
		uint32_t cap = t->group_cap ? t->group_cap * 2 : 16;
		uint32_t *groups = reallocarray(t->groups, cap, sizeof(*groups));

		if (!groups)
			return -ENOMEM;
		t->groups = groups;
		t->group_cap = cap;
	}
	t->groups[t->group_count++] = (uint32_t)offset;
	return 0;
}

/* Fills a further name of a group from the group's first entry. */
static int follow_link(const struct tree_reader *t, struct tree_entry *e)
{
	struct tree_entry first;
	struct reader r = t->r;

	if (e->group < 1 || e->group > t->group_count)
		return -EBADMSG;
	r.p = t->start + t->groups[e->group - 1];
	tree_get_entry(&r, t->flags, &first);
	first.depth = e->depth;
	first.name = e->name;
	first.name_len = e->name_len;
	*e = first;
	return 0;
}

static int set_path(struct tree_reader *t, const struct tree_entry *e)
{
	struct buf *path = &t->path;

	path->len = e->depth ? t->path_len[e->depth] : 0;
	if (e->depth > 1)
		buf_put_u8(path, '/');
	buf_put(path, e->name, e->name_len);
	buf_str(path);
	if (e->type == TREE_DIR)
		t->path_len[e->depth + 1] = (uint32_t)path->len;
	return buf_error(path);
}

static int read_entry(struct tree_reader *t, struct tree_entry *e)
{
	size_t offset = (size_t)(t->r.p - t->start);
	bool link = tree_get_entry(&t->r, t->flags, e);
	int error = 0;

	if (t->r.failed || !tree_order_allows(&t->order, t->start, e))
		return -EBADMSG;
	if (link)
		error = follow_link(t, e);
	else if (xattrs_check(e->xattrs, e->xattrs_len) < 0)
		error = -EBADMSG;
	else if (e->group)
		error = note_group(t, e->group, offset);
	if (error)
		return error;
	t->has_holes |= e->holes != 0;
	tree_order_note(&t->order, e, (size_t)((const uint8_t *)e->name - t->start));
	return set_path(t, e);
}

/* The header announces holes just where an entry has some, so that a listing has one encoding. */
static bool at_end(const struct tree_reader *t)
{
	return !reader_left(&t->r) && t->has_holes == ((t->flags & TREE_HAS_HOLES) != 0);
}

int tree_reader_next(struct tree_reader *t, struct tree_entry *ret_entry)
{
	struct tree_entry e;
	int error;

	if (t->r.failed)
		return -EBADMSG;
	if (!t->left)
		return at_end(t) ? 0 : -EBADMSG;
	error = read_entry(t, &e);
	if (error) {
		t->r.failed = true; /* so does every later call */
		return error;
	}
	t->left--;
	*ret_entry = e;
	return 1;
}

/* ---- Writing trees. ---- */

/* A group of hard links: the caller's number for it, and ours. 0: the slot is free. */
struct group {
	uint64_t key;
	uint32_t number;
	enum tree_type type;
};

struct tree_writer {
	struct buf *out;
	size_t start; /* of the tree in `out` */
	unsigned int flags;
	uint32_t count;
	bool has_holes;
	struct group *groups; /* open addressing, at most half full */
	size_t slots;	      /* a power of two, or 0 */
	uint32_t group_count;
	struct tree_order order;
};

int tree_writer_new(struct buf *out, unsigned int flags, struct tree_writer **ret_writer)
{
	struct tree_writer *w;

	if (flags & ~TREE_ALLOW_LOCAL)
		return -EINVAL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOMEM;
	w->out = out;
	w->start = out->len;
	w->flags = flags;
	wire_put_magic(out, TREE_MAGIC, TREE_VERSION);
	buf_put_u8(out, (uint8_t)flags);
	if (out->failed) {
		free(w);
		return -ENOMEM;
	}
	*ret_writer = w;
	return 0;
}

void tree_writer_free(struct tree_writer *w)
{
	if (w)
		free(w->groups);
	free(w);
}

/* The slot that holds `key`, or the free one where it belongs. */
static struct group *slot_of(struct group *groups, size_t slots, uint64_t key)
{
	size_t i = (size_t)(key * UINT64_C(0x9e3779b97f4a7c15) >> 20) & (slots - 1);

	while (groups[i].key && groups[i].key != key)
		i = (i + 1) & (slots - 1);
	return &groups[i];
}

/* Room for one more group. */
static int grow_groups(struct tree_writer *w)
{
	size_t slots = w->slots ? w->slots * 2 : 64;
	struct group *groups;

	if (w->group_count < w->slots / 2)
		return 0;
	groups = calloc(slots, sizeof(*groups));
	if (!groups)
		return -ENOMEM;
	for (size_t i = 0; i < w->slots; i++)
		if (w->groups[i].key)
			*slot_of(groups, slots, w->groups[i].key) = w->groups[i];
	free(w->groups);
	w->groups = groups;
	w->slots = slots;
	return 0;
}

/* Appends the entry, of which `first` is NULL or the slot of its group. */
static int put(struct tree_writer *w, const struct tree_entry *e, struct group *slot)
{
	struct tree_entry numbered = *e;
	bool further = slot && slot->key;

	if (further && (slot->type != e->type))
		return -EINVAL;
	if (!further && tree_body_check(e, w->flags) < 0)
		return -EINVAL;
	if (slot)
		numbered.group = further ? slot->number : w->group_count + 1;
	if (further)
		tree_put_link(&numbered, w->out);
	else
		tree_put_entry(&numbered, w->out);
	if (w->out->failed)
		return -ENOMEM;
	if (w->out->len - w->start > TREE_ENCODED_MAX - TREE_TRAILER_LEN)
		return -EFBIG;
	if (slot && !further)
		*slot = (struct group){e->group, ++w->group_count, e->type};
	return 0;
}

/* Where the name lies in an entry that begins at `entry`: after the type, the depth and the name's
 * length. */
static size_t name_offset(const struct tree_writer *w, size_t entry)
{
	struct reader r = reader_of(w->out->data + entry, w->out->len - entry);

	reader_u8(&r);
	reader_varint(&r);
	reader_varint(&r);
	return (size_t)(r.p - w->out->data) - w->start;
}

int tree_writer_add(struct tree_writer *w, const struct tree_entry *e)
{
	size_t entry = w->out->len;
	struct group *slot = NULL;
	int error;

	if (!tree_order_allows(&w->order, w->out->data + w->start, e))
		return -EINVAL;
	if (w->count >= TREE_ENTRIES_MAX)
		return -EFBIG;
	if (e->group) {
		if (grow_groups(w) < 0)
			return -ENOMEM;
		slot = slot_of(w->groups, w->slots, e->group);
	}
	error = put(w, e, slot);
	if (error) {
		w->out->len = entry;
		return error;
	}
	tree_order_note(&w->order, e, name_offset(w, entry));
	w->has_holes |= e->holes != 0;
	w->count++;
	return 0;
}

int tree_writer_finish(struct tree_writer *w)
{
	if (!w->order.root)
		return -EINVAL;
	if (w->has_holes)
		w->out->data[w->start + TREE_HEADER_LEN - 1] |= TREE_HAS_HOLES;
	buf_put_u8(w->out, TREE_END);
	buf_put_u32(w->out, w->count);
	wire_put_crc(w->out, w->start);
	return buf_error(w->out);
}

int tree_of_root(const struct tree_entry *root, struct tree **ret_tree)
{
	cleanup_tree_writer struct tree_writer *w = NULL;
	cleanup_buf struct buf data = {0};
	int error = tree_writer_new(&data, 0, &w);
	size_t len;
	void *bytes;

	if (!error)
		error = tree_writer_add(w, root);
	if (!error)
		error = tree_writer_finish(w);
	if (error)
		return error;
	bytes = buf_steal(&data, &len);
	error = tree_decode(bytes, len, 0, ret_tree);
	if (error)
		free(bytes);
	return error;
}
