/* SPDX-License-Identifier: Apache-2.0 */
/* Entries of a tree: encode, decode, order. */
#include "lib/format/tree_wire.h"

#include <errno.h>
#include <string.h>

#include "lib/format/wire.h"
#include "lib/format/xattrs.h"

#define BIT_GROUP  1u
#define BIT_XATTRS 2u
#define BIT_HOLES  16u
#define MODE_MAX   07777

int tree_name_check(const char *name, size_t len)
{
	if (len < 1 || len > TREE_NAME_MAX || memchr(name, '/', len) || memchr(name, '\0', len))
		return -EINVAL;
	if (name[0] == '.' && (len == 1 || (len == 2 && name[1] == '.')))
		return -EINVAL;
	return 0;
}

int tree_name_compare(const char *a, size_t a_len, const char *b, size_t b_len)
{
	int order = memcmp(a, b, a_len < b_len ? a_len : b_len);

	if (order)
		return order;
	return (a_len > b_len) - (a_len < b_len);
}

static int content_check(const struct tree_entry *e, unsigned int flags)
{
	if (e->holes && (e->holes > e->size || e->content != TREE_RECIPE))
		return -EINVAL;
	if (e->content == TREE_EMPTY)
		return e->size == 0 ? 0 : -EINVAL;
	if (e->size < 1 || e->size > INT64_MAX)
		return -EINVAL;
	switch (e->content) {
	case TREE_INLINE:
		return e->size <= TREE_INLINE_MAX ? 0 : -EINVAL;
	case TREE_RECIPE:
		return 0;
	case TREE_LOCAL:
		return flags & TREE_ALLOW_LOCAL ? 0 : -EINVAL;
	default:
		return -EINVAL;
	}
}

int tree_body_check(const struct tree_entry *e, unsigned int flags)
{
	if (e->type < TREE_DIR || e->type > TREE_BLOCK || e->mode > MODE_MAX)
		return -EINVAL;
	if (e->type == TREE_DIR && e->group)
		return -EINVAL;
	if (e->xattrs_len && xattrs_check(e->xattrs, e->xattrs_len) < 0)
		return -EINVAL;
	if (e->type == TREE_REGULAR)
		return e->flags & ~(TREE_TORN | TREE_LOG) ? -EINVAL : content_check(e, flags);
	if (e->flags || e->content || e->holes)
		return -EINVAL;
	if (e->type == TREE_SYMLINK) {
		size_t len = strnlen(e->u.target, TREE_TARGET_MAX + 1);

		return len >= 1 && len <= TREE_TARGET_MAX ? 0 : -EINVAL;
	}
	return 0;
}

static void put_content(const struct tree_entry *e, struct buf *out)
{
	buf_put_u8(out, (uint8_t)e->content);
	switch (e->content) {
	case TREE_EMPTY:
		break;
	case TREE_INLINE:
		buf_put_bytes(out, e->u.inline_data, (size_t)e->size);
		break;
	case TREE_RECIPE:
		buf_put_varint(out, e->size);
		buf_put(out, e->u.recipe.bytes, HASH_SIZE);
		break;
	case TREE_LOCAL:
		buf_put_varint(out, e->size);
		buf_put_varint(out, e->u.version);
		break;
	}
}

static void put_name(uint8_t type, const struct tree_entry *e, struct buf *out)
{
	buf_put_u8(out, type);
	buf_put_varint(out, e->depth);
	wire_put_text(out, e->name, e->name_len);
}

void tree_put_link(const struct tree_entry *e, struct buf *out)
{
	put_name(TREE_LINK, e, out);
	buf_put_varint(out, e->group);
}

void tree_put_entry(const struct tree_entry *e, struct buf *out)
{
	put_name((uint8_t)e->type, e, out);
	buf_put_u8(out, (uint8_t)((e->group ? BIT_GROUP : 0) | (e->xattrs_len ? BIT_XATTRS : 0) |
				  (e->holes ? BIT_HOLES : 0) | e->flags));
	buf_put_varint(out, e->mode);
	buf_put_varint(out, e->uid);
	buf_put_varint(out, e->gid);
	buf_put_u64(out, (uint64_t)e->mtime_ns);
	if (e->group)
		buf_put_varint(out, e->group);
	if (e->xattrs_len)
		buf_put_bytes(out, e->xattrs, e->xattrs_len);
	if (e->type == TREE_REGULAR) {
		put_content(e, out);
	} else if (e->type == TREE_SYMLINK) {
		wire_put_text(out, e->u.target, strlen(e->u.target));
	} else if (e->type == TREE_CHAR || e->type == TREE_BLOCK) {
		buf_put_varint(out, e->rdev_major);
		buf_put_varint(out, e->rdev_minor);
	}
	if (e->holes)
		buf_put_varint(out, e->holes);
}

static void get_content(struct reader *r, unsigned int flags, struct tree_entry *e)
{
	uint8_t content = reader_u8(r);
	size_t len = 0;

	switch (content) {
	case TREE_EMPTY:
		break;
	case TREE_INLINE:
		e->u.inline_data = wire_bytes(r, TREE_INLINE_MAX, &len);
		e->size = len;
		break;
	case TREE_RECIPE:
		e->size = wire_varint(r, INT64_MAX);
		wire_hash(r, &e->u.recipe);
		break;
	case TREE_LOCAL:
		e->size = wire_varint(r, INT64_MAX);
		e->u.version = wire_varint(r, UINT64_MAX);
		r->failed |= !(flags & TREE_ALLOW_LOCAL);
		break;
	default:
		r->failed = true;
		return;
	}
	e->content = (enum tree_content)content;
	r->failed |= content != TREE_EMPTY && e->size == 0;
}

static void get_more(struct reader *r, unsigned int flags, struct tree_entry *e)
{
	size_t len = 0;

	switch (e->type) {
	case TREE_REGULAR:
		get_content(r, flags, e);
		break;
	case TREE_SYMLINK:
		e->u.target = wire_text(r, TREE_TARGET_MAX, &len);
		e->size = len;
		r->failed |= len == 0;
		break;
	case TREE_CHAR:
	case TREE_BLOCK:
		e->rdev_major = (uint32_t)wire_varint(r, UINT32_MAX);
		e->rdev_minor = (uint32_t)wire_varint(r, UINT32_MAX);
		break;
	case TREE_DIR:
	case TREE_FIFO:
	case TREE_SOCKET:
		break;
	}
}

static void get_body(struct reader *r, unsigned int flags, struct tree_entry *e)
{
	uint8_t bits = reader_u8(r);
	uint8_t known = BIT_GROUP | BIT_XATTRS;

	if (e->type == TREE_REGULAR)
		known |= TREE_TORN | TREE_LOG | (flags & TREE_HAS_HOLES ? BIT_HOLES : 0);
	if (e->type == TREE_DIR)
		known &= (uint8_t)~BIT_GROUP;
	r->failed |= (bits & ~known) != 0;
	e->flags = bits & (TREE_TORN | TREE_LOG);
	e->mode = (uint16_t)wire_varint(r, MODE_MAX);
	e->uid = (uint32_t)wire_varint(r, UINT32_MAX);
	e->gid = (uint32_t)wire_varint(r, UINT32_MAX);
	e->mtime_ns = (int64_t)reader_u64(r);
	if (bits & BIT_GROUP) {
		e->group = wire_varint(r, TREE_ENTRIES_MAX);
		r->failed |= e->group == 0;
	}
	if (bits & BIT_XATTRS) {
		e->xattrs = wire_bytes(r, XATTRS_BYTES_MAX, &e->xattrs_len);
		r->failed |= e->xattrs_len == 0;
	}
	get_more(r, flags, e);
	if (bits & BIT_HOLES) {
		e->holes = wire_varint(r, e->size);
		r->failed |= !e->holes || e->content != TREE_RECIPE;
	}
}

bool tree_get_entry(struct reader *r, unsigned int flags, struct tree_entry *ret_entry)
{
	struct tree_entry e = {0};
	uint8_t type = reader_u8(r);

	e.depth = (uint32_t)wire_varint(r, TREE_DEPTH_MAX);
	e.name = wire_text(r, TREE_NAME_MAX, &e.name_len);
	if (type == TREE_LINK) {
		e.group = wire_varint(r, TREE_ENTRIES_MAX);
	} else if (type >= TREE_DIR && type <= TREE_BLOCK) {
		e.type = (enum tree_type)type;
		get_body(r, flags, &e);
	} else {
		r->failed = true;
	}
	*ret_entry = e;
	return type == TREE_LINK;
}

bool tree_order_allows(const struct tree_order *o, const uint8_t *start, const struct tree_entry *e)
{
	size_t last;

	if (!o->root)
		return e->depth == 0 && e->name_len == 0 && e->type == TREE_DIR;
	if (e->depth < 1 || e->depth > o->deepest || tree_name_check(e->name, e->name_len) < 0)
		return false;
	last = o->last[e->depth].len;
	return !last || tree_name_compare((const char *)start + o->last[e->depth].offset, last,
					  e->name, e->name_len) < 0;
}

void tree_order_note(struct tree_order *o, const struct tree_entry *e, size_t name_offset)
{
	o->root = true;
	o->last[e->depth].offset = name_offset;
	o->last[e->depth].len = e->name_len;
	o->deepest = e->depth;
	if (e->type == TREE_DIR && e->depth < TREE_DEPTH_MAX)
		o->last[++o->deepest].len = 0;
}
