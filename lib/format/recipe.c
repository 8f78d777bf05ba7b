/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes in memory, and their encoding. */
#include "lib/format/recipe.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/wire.h"

#define RECIPE_MAGIC   "EFR"
#define RECIPE_VERSION 1
#define SIZE_MAX_BYTES ((uint64_t)INT64_MAX)
/* The shortest encoding of a run of zeros and the chunk that must follow it. */
#define PAIR_LEN_MIN (1 + 1 + HASH_SIZE)

void recipe_free(struct recipe *r)
{
	free(r->segments);
	*r = (struct recipe){0};
}

static int grow(struct recipe *r, size_t count)
{
	size_t cap = r->cap ? r->cap : 16;
	struct recipe_segment *segments;

	if (count <= r->cap)
		return 0;
	while (cap < count)
		cap *= 2;
	segments = reallocarray(r->segments, cap, sizeof(*segments));
	if (!segments)
		return -ENOMEM;
	r->segments = segments;
	r->cap = cap;
	return 0;
}

static int add(struct recipe *r, const struct hash *hash, uint64_t len)
{
	struct recipe_segment *s;

	if (len > SIZE_MAX_BYTES - r->size || r->count >= RECIPE_SEGMENTS_MAX)
		return -EFBIG;
	if (grow(r, r->count + 1) < 0)
		return -ENOMEM;
	s = &r->segments[r->count++];
	*s = (struct recipe_segment){.offset = r->size, .length = len, .zero = !hash};
	if (hash)
		s->hash = *hash;
	r->size += len;
	return 0;
}

int recipe_add_chunk(struct recipe *r, const struct hash *hash, uint32_t len)
{
	if (len < 1 || len > CHUNK_PLAIN_MAX)
		return -EINVAL;
	return add(r, hash, len);
}

int recipe_add_zeros(struct recipe *r, uint64_t len)
{
	struct recipe_segment *last = r->count ? &r->segments[r->count - 1] : NULL;

	if (!len)
		return 0;
	if (!last || !last->zero)
		return add(r, NULL, len);
	if (len > SIZE_MAX_BYTES - r->size)
		return -EFBIG;
	last->length += len;
	r->size += len;
	return 0;
}

uint64_t recipe_holes(const struct recipe *r)
{
	uint64_t holes = 0;

	for (size_t i = 0; i < r->count; i++)
		holes += r->segments[i].zero ? r->segments[i].length : 0;
	return holes;
}

size_t recipe_find(const struct recipe *r, uint64_t offset)
{
	size_t low = 0, high = r->count;

	if (offset >= r->size)
		return r->count;
	/* The last segment that begins at or before the offset. */
	while (high - low > 1) {
		size_t middle = low + (high - low) / 2;

		if (r->segments[middle].offset <= offset)
			low = middle;
		else
			high = middle;
	}
	return low;
}

int recipe_encode(const struct recipe *r, struct buf *out)
{
	if (r->level > 1)
		return -EINVAL;
	for (size_t i = 0; r->level == 1 && i < r->count; i++)
		if (r->segments[i].zero)
			return -EINVAL;
	wire_put_magic(out, RECIPE_MAGIC, RECIPE_VERSION);
	buf_put_u8(out, r->level);
	buf_put_varint(out, r->size);
	buf_put_varint(out, r->count);
	for (size_t i = 0; i < r->count; i++) {
		const struct recipe_segment *s = &r->segments[i];

		buf_put_varint(out, s->length * 2 + s->zero);
		if (!s->zero)
			buf_put(out, s->hash.bytes, HASH_SIZE);
	}
	return buf_error(out);
}

static int decode_segment(struct reader *in, struct recipe *r)
{
	uint64_t tag = wire_varint(in, UINT64_MAX), len = tag / 2;
	bool zero = tag & 1;
	struct hash hash;
	int error;

	if (!zero)
		wire_hash(in, &hash);
	if (in->failed || !len || (!zero && len > CHUNK_PLAIN_MAX))
		return -EBADMSG;
	if (zero && (r->level || (r->count && r->segments[r->count - 1].zero)))
		return -EBADMSG;
	error = add(r, zero ? NULL : &hash, len);
	return error == -EFBIG ? -EBADMSG : error;
}

int recipe_decode(const void *data, size_t len, struct recipe *ret_recipe)
{
	struct reader in = reader_of(data, len);
	cleanup_recipe struct recipe r = {0};
	uint64_t size, count;
	int error;

	if (len > RECIPE_ENCODED_MAX)
		return -EBADMSG;
	error = wire_magic(&in, RECIPE_MAGIC, RECIPE_VERSION);
	if (error)
		return error;
	r.level = reader_u8(&in);
	size = wire_varint(&in, SIZE_MAX_BYTES);
	count = wire_varint(&in, RECIPE_SEGMENTS_MAX);
	if (in.failed || r.level > 1 || (r.level == 1 && size > RECIPE_ENCODED_MAX))
		return -EBADMSG;
	/* No more memory than the bytes that are there can fill. */
	if (count > reader_left(&in) / PAIR_LEN_MIN * 2 + 1)
		return -EBADMSG;
	if (grow(&r, (size_t)count) < 0)
		return -ENOMEM;
	while (count--) {
		error = decode_segment(&in, &r);
		if (error)
			return error;
	}
	if (reader_left(&in) || r.size != size)
		return -EBADMSG;
	*ret_recipe = r;
	r = (struct recipe){0};
	return 0;
}
