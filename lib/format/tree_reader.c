/* SPDX-License-Identifier: Apache-2.0 */
/* Reading trees, one entry after another. */
#include "lib/format/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/tree_wire.h"
#include "lib/format/wire.h"
#include "lib/format/xattrs.h"

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
