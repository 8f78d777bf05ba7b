/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and footers of packs. */
#include "lib/format/pack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/wire.h"

#define PACK_MAGIC	  "EFP"
#define PACK_VERSION	  1
#define PACK_FOOTER_MAGIC "EFPT"

void pack_table_free(struct pack_table *t)
{
	free(t->entries);
	*t = (struct pack_table){0};
}

void pack_begin(struct buf *out)
{
	wire_put_magic(out, PACK_MAGIC, PACK_VERSION);
}

static uint32_t frames_end(const struct pack_table *t)
{
	return t->count ? t->end : PACK_HEADER_LEN;
}

uint64_t pack_len(const struct pack_table *t)
{
	return frames_end(t) + (uint64_t)t->count * PACK_ROW_LEN + PACK_FOOTER_LEN;
}

static int grow(struct pack_table *t)
{
	size_t cap = t->cap ? t->cap * 2 : 64;
	struct pack_entry *entries;

	if (t->count < t->cap)
		return 0;
	entries = reallocarray(t->entries, cap, sizeof(*entries));
	if (!entries)
		return -ENOMEM;
	t->entries = entries;
	t->cap = cap;
	return 0;
}

int pack_table_add(struct pack_table *t, const struct hash *hash, uint32_t stored_len,
		   uint32_t plain_len)
{
	if (stored_len < 1 || stored_len > CHUNK_FRAME_MAX || plain_len < 1 ||
	    plain_len > CHUNK_PLAIN_MAX)
		return -EINVAL;
	if (pack_len(t) + PACK_ROW_LEN + stored_len > PACK_LEN_MAX)
		return -EFBIG;
	if (grow(t) < 0)
		return -ENOMEM;
	t->entries[t->count] = (struct pack_entry){
		.hash = *hash,
		.offset = frames_end(t),
		.stored_len = stored_len,
		.plain_len = plain_len,
	};
	t->end = frames_end(t) + stored_len;
	t->count++;
	return 0;
}

static void put_rows(const struct pack_table *t, struct buf *out)
{
	for (size_t i = 0; i < t->count; i++) {
		buf_put(out, t->entries[i].hash.bytes, HASH_SIZE);
		buf_put_u32(out, t->entries[i].stored_len);
		buf_put_u32(out, t->entries[i].plain_len);
	}
}

int pack_finish(const struct pack_table *t, struct buf *out)
{
	size_t start = out->len;

	if (!t->count)
		return -EINVAL;
	put_rows(t, out);
	buf_put_u64(out, t->end);
	buf_put_u32(out, (uint32_t)t->count);
	wire_put_crc(out, start);
	buf_put(out, PACK_FOOTER_MAGIC, 4);
	buf_put_u8(out, PACK_VERSION);
	buf_put(out, "\0\0", 3);
	return buf_error(out);
}

int pack_table_id(const struct pack_table *t, struct hash *ret_id)
{
	cleanup_buf struct buf rows = {0};

	put_rows(t, &rows);
	if (rows.failed)
		return -ENOMEM;
	hash_of(rows.data, rows.len, ret_id);
	return 0;
}

int pack_header_check(const uint8_t head[PACK_HEADER_LEN])
{
	struct reader r = reader_of(head, PACK_HEADER_LEN);

	return wire_magic(&r, PACK_MAGIC, PACK_VERSION);
}

int pack_footer_decode(const uint8_t tail[PACK_FOOTER_LEN], uint64_t len,
		       struct pack_footer *ret_footer)
{
	struct reader r = reader_of(tail, PACK_FOOTER_LEN);
	struct pack_footer f;
	uint64_t rows;

	f.table_offset = reader_u64(&r);
	f.count = reader_u32(&r);
	f.crc = reader_u32(&r);
	if (memcmp(r.p, PACK_FOOTER_MAGIC, 4) || r.p[4] == 0)
		return -EBADMSG;
	if (r.p[4] > PACK_VERSION)
		return -EPROTONOSUPPORT;
	if (memcmp(r.p + 5, "\0\0", 3) || !f.count || len > PACK_LEN_MAX)
		return -EBADMSG;
	rows = (uint64_t)f.count * PACK_ROW_LEN;
	if (f.table_offset <= PACK_HEADER_LEN || f.table_offset > len ||
	    len - f.table_offset != rows + PACK_FOOTER_LEN)
		return -EBADMSG;
	f.table_len = (uint32_t)rows;
	*ret_footer = f;
	return 0;
}

static bool crc_matches(const struct pack_footer *f, const void *rows)
{
	uint8_t bytes[12];
	struct buf tail = {.data = bytes, .cap = sizeof(bytes)};

	buf_put_u64(&tail, f->table_offset);
	buf_put_u32(&tail, f->count);
	return crc32c(crc32c(0, rows, f->table_len), bytes, sizeof(bytes)) == f->crc;
}

int pack_table_decode(const struct pack_footer *f, const void *rows, struct pack_table *ret_table)
{
	cleanup_pack_table struct pack_table t = {0};
	struct reader r = reader_of(rows, f->table_len);

	if (!crc_matches(f, rows))
		return -EBADMSG;
	for (uint32_t i = 0; i < f->count; i++) {
		struct hash hash = {0};
		uint32_t stored, plain;
		int error;

		wire_hash(&r, &hash);
		stored = reader_u32(&r);
		plain = reader_u32(&r);
		error = pack_table_add(&t, &hash, stored, plain);
		if (error)
			return error == -ENOMEM ? error : -EBADMSG;
	}
	if (r.failed || t.end != f->table_offset)
		return -EBADMSG;
	*ret_table = t;
	t = (struct pack_table){0};
	return 0;
}
