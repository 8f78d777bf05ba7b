/* SPDX-License-Identifier: Apache-2.0 */
/* Writing trees. */
#include "lib/format/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/tree_wire.h"
#include "lib/format/wire.h"

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
