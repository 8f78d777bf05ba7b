/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the cutter share: contents, zips and safetensors, and the list of segments. */
#ifndef EPOCHFS_TESTS_CUTTING_H
#define EPOCHFS_TESTS_CUTTING_H

#include "lib/store/cutter.h"
#include "lib/util/hash.h"
#include "tests/unit/unit.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* splitmix64: the same bytes in every run. */
static inline uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

static inline void put_random(struct buf *b, size_t len, uint64_t seed)
{
	for (; len >= 8; len -= 8)
		buf_put_u64(b, next_random(&seed));
	for (; len > 0; len--)
		buf_put_u8(b, (uint8_t)next_random(&seed));
	unit_ok(buf_error(b));
}

static inline void put_zeros(struct buf *b, size_t len)
{
	unit_ok(buf_reserve(b, len + 1));
	memset(b->data + b->len, 0, len);
	b->len += len;
}

/* ---- content in memory, with holes wherever it is zero, or with none */

struct memory {
	const struct buf *content;
	bool holes;
	unsigned reads;
};

static inline ssize_t memory_pread(void *arg, void *data, size_t len, uint64_t offset)
{
	struct memory *m = arg;

	ck_assert_uint_le(offset + len, m->content->len);
	memcpy(data, m->content->data + offset, len);
	m->reads++;
	return (ssize_t)len;
}

/* Holes as a file system has them: whole blocks of 4 KiB. */
static inline uint64_t memory_next_data(void *arg, uint64_t offset)
{
	static const uint8_t zeros[4096];
	struct memory *m = arg;

	while (offset < m->content->len) {
		size_t n = sizeof(zeros) - offset % sizeof(zeros);

		if (n > m->content->len - offset)
			n = m->content->len - offset;
		if (memcmp(m->content->data + offset, zeros, n) != 0)
			return offset;
		offset += n;
	}
	return UINT64_MAX;
}

static inline bool all_zero(const uint8_t *data, size_t len)
{
	for (size_t i = 0; i < len; i++)
		if (data[i])
			return false;
	return true;
}

struct piece {
	struct segment segment;
	struct hash hash;
};

/* Takes all segments of a cutter and checks what holds for every list of them. */
static inline size_t collect(struct cutter *c, const struct buf *content, struct piece **ret_pieces)
{
	struct piece *pieces = NULL;
	struct segment s;
	size_t count = 0;
	uint64_t pos = 0;
	int r;

	while ((r = cutter_next(c, &s)) == 1) {
		pieces = realloc(pieces, (count + 1) * sizeof(*pieces));
		ck_assert_uint_eq(s.offset, pos);
		ck_assert_uint_ge(s.len, 1);
		pos += s.len;
		ck_assert_uint_le(pos, content->len);
		if (s.kind == SEGMENT_DATA) {
			ck_assert_uint_le(s.len, CUTTER_CHUNK_MAX);
			ck_assert_mem_eq(s.data, content->data + s.offset, s.len);
		} else {
			ck_assert_ptr_null(s.data);
			ck_assert(all_zero(content->data + s.offset, s.len));
		}
		hash_of(content->data + s.offset, s.len, &pieces[count].hash);
		pieces[count++].segment = s;
	}
	unit_ok(r);
	ck_assert_uint_eq(pos, content->len);
	*ret_pieces = pieces;
	return count;
}

static inline size_t cut_window(const struct buf *content, bool holes, size_t window,
				struct piece **ret_pieces)
{
	struct memory m = {.content = content};
	struct cutter_source source = {.size = content->len,
				       .pread = memory_pread,
				       .next_data = holes ? memory_next_data : NULL,
				       .arg = &m};
	cleanup_cutter struct cutter *c = NULL;

	unit_ok(buf_error(content));
	if (window)
		unit_ok(cutter_open_window(&source, window, &c));
	else
		unit_ok(cutter_open(&source, &c));
	return collect(c, content, ret_pieces);
}

static inline size_t cut(const struct buf *content, bool holes, struct piece **ret_pieces)
{
	return cut_window(content, holes, 0, ret_pieces);
}

static inline bool holds(const struct piece *pieces, size_t count, const struct piece *one)
{
	for (size_t i = 0; i < count; i++)
		if (pieces[i].segment.kind == one->segment.kind &&
		    hash_equal(&pieces[i].hash, &one->hash))
			return true;
	return false;
}

/* The bytes of `b` in segments that `a` does not have. */
static inline uint64_t bytes_new(const struct buf *a, const struct buf *b)
{
	cleanup_free struct piece *old = NULL;
	cleanup_free struct piece *now = NULL;
	size_t old_count = cut(a, false, &old);
	size_t count = cut(b, false, &now);
	uint64_t sum = 0;

	for (size_t i = 0; i < count; i++)
		if (!holds(old, old_count, &now[i]))
			sum += now[i].segment.len;
	return sum;
}

/* Whether a segment begins at the offset, and of what kind: -1 where none does. */
static inline int kind_at(const struct piece *pieces, size_t count, uint64_t offset)
{
	for (size_t i = 0; i < count; i++)
		if (pieces[i].segment.offset == offset)
			return (int)pieces[i].segment.kind;
	return -1;
}

/* ---- zips as torch.save writes them */

#define ENTRIES_MAX 16

struct zip {
	struct buf bytes;
	size_t count;
	uint64_t header[ENTRIES_MAX];
	uint64_t data[ENTRIES_MAX];
	char name[ENTRIES_MAX][320];
	uint64_t directory;
};

static inline void zip_free(struct zip *z)
{
	buf_free(&z->bytes);
}

/* An entry with sizes of 0 in its header, its data at a multiple of 64, a descriptor behind. */
static inline void zip_entry(struct zip *z, const char *archive, const char *name, const void *data,
			     size_t len)
{
	struct buf *b = &z->bytes;
	size_t i = z->count++;
	size_t n, pad;

	n = (size_t)snprintf(z->name[i], sizeof(z->name[i]), "%s/%s", archive, name);
	z->header[i] = b->len;
	pad = (64 - (b->len + 30 + n + 4) % 64) % 64;
	buf_put(b, "PK\3\4\0\0\10\10\0\0", 10);
	put_zeros(b, 16);
	buf_put_u16(b, (uint16_t)n);
	buf_put_u16(b, (uint16_t)(pad + 4));
	buf_put(b, z->name[i], n);
	buf_put(b, "FB", 2);
	buf_put_u16(b, (uint16_t)pad);
	for (size_t k = 0; k < pad; k++)
		buf_put_u8(b, 'Z');
	ck_assert_uint_eq(b->len % 64, 0);
	z->data[i] = b->len;
	buf_put(b, data, len);
	buf_put(b, "PK\7\10", 4);
	buf_put_u32(b, crc32c(0, data, len));
	buf_put_u64(b, len);
	buf_put_u64(b, len);
}

static inline void zip_random(struct zip *z, const char *archive, const char *name, size_t len,
			      uint64_t seed)
{
	cleanup_buf struct buf data = {0};

	put_random(&data, len, seed);
	zip_entry(z, archive, name, data.data, data.len);
}

static inline void zip_finish(struct zip *z)
{
	struct buf *b = &z->bytes;

	z->directory = b->len;
	for (size_t i = 0; i < z->count; i++) {
		size_t n = strlen(z->name[i]);

		buf_put(b, "PK\1\2\0\0\0\0\10\10\0\0", 12);
		put_zeros(b, 16);
		buf_put_u16(b, (uint16_t)n);
		put_zeros(b, 16);
		buf_put(b, z->name[i], n);
	}
	buf_put(b, "PK\5\6", 4);
	put_zeros(b, 18);
}

/* ---- safetensors */

static inline void safetensors_start(struct buf *b, const char *json)
{
	buf_put_u64(b, strlen(json));
	buf_put(b, json, strlen(json));
}

#endif
