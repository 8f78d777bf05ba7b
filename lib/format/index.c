/* SPDX-License-Identifier: Apache-2.0 */
/* Index objects: encode, and read one chunk after another. */
#include "lib/format/index.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/format/wire.h"

#define INDEX_MAGIC   "EFI"
#define INDEX_VERSION 1
/* The shortest encodings, for bounds on counts. */
#define CHUNK_LEN_MIN (HASH_SIZE + 3)
#define PACK_LEN_MIN  (HASH_SIZE + 1 + CHUNK_LEN_MIN)

static int compare_packs(const void *a, const void *b)
{
	const struct index_pack *x = a, *y = b;

	return hash_compare(&x->id, &y->id);
}

static bool lengths_valid(uint64_t stored, uint64_t plain)
{
	return stored >= 1 && stored <= CHUNK_FRAME_MAX && plain >= 1 && plain <= CHUNK_PLAIN_MAX;
}

static int put_pack(const struct index_pack *p, struct buf *out)
{
	uint32_t end = PACK_HEADER_LEN;

	if (!p->count)
		return -EINVAL;
	buf_put(out, p->id.bytes, HASH_SIZE);
	buf_put_varint(out, p->count);
	for (size_t i = 0; i < p->count; i++) {
		const struct pack_entry *e = &p->entries[i];

		if (e->offset < end || e->offset > PACK_LEN_MAX ||
		    !lengths_valid(e->stored_len, e->plain_len) ||
		    e->stored_len > PACK_LEN_MAX - e->offset)
			return -EINVAL;
		buf_put(out, e->hash.bytes, HASH_SIZE);
		buf_put_varint(out, e->offset - end);
		buf_put_varint(out, e->stored_len);
		buf_put_varint(out, e->plain_len);
		end = e->offset + e->stored_len;
	}
	return 0;
}

int index_encode(struct index_pack *packs, size_t count, struct buf *out)
{
	size_t start = out->len;
	int error = 0;

	if (count)
		qsort(packs, count, sizeof(*packs), compare_packs);
	wire_put_magic(out, INDEX_MAGIC, INDEX_VERSION);
	buf_put_varint(out, count);
	for (size_t i = 0; i < count && !error; i++) {
		if (i && hash_equal(&packs[i - 1].id, &packs[i].id))
			error = -EINVAL;
		else
			error = put_pack(&packs[i], out);
	}
	wire_put_crc(out, start);
	if (!error)
		error = buf_error(out);
	if (!error && out->len - start > INDEX_ENCODED_MAX)
		error = -EFBIG;
	if (error)
		out->len = start;
	return error;
}

int index_reader_init(struct index_reader *ret_reader, const void *data, size_t len)
{
	struct reader r = reader_of(data, len);
	uint64_t packs;
	int error = wire_magic(&r, INDEX_MAGIC, INDEX_VERSION);

	if (error)
		return error;
	if (len > INDEX_ENCODED_MAX || wire_check_crc(data, len, &len) < 0)
		return -EBADMSG;
	if (len < (size_t)(r.p - (const uint8_t *)data))
		return -EBADMSG;
	r.end = (const uint8_t *)data + len;
	packs = wire_varint(&r, UINT64_MAX);
	if (r.failed || packs > reader_left(&r) / PACK_LEN_MIN)
		return -EBADMSG;
	*ret_reader = (struct index_reader){.r = r, .packs_left = packs, .first = true};
	return 0;
}

static int next_pack(struct index_reader *r)
{
	struct hash id = {0};

	wire_hash(&r->r, &id);
	r->chunks_left = wire_varint(&r->r, UINT64_MAX);
	if (r->r.failed || !r->chunks_left || r->chunks_left > reader_left(&r->r) / CHUNK_LEN_MIN)
		return -EBADMSG;
	if (!r->first && hash_compare(&r->pack, &id) >= 0)
		return -EBADMSG;
	r->pack = id;
	r->first = false;
	r->end = PACK_HEADER_LEN;
	r->packs_left--;
	return 0;
}

static int next_chunk(struct index_reader *r, struct pack_entry *ret_entry)
{
	struct pack_entry e = {0};
	uint64_t end;

	if (!r->chunks_left && next_pack(r) < 0)
		return -EBADMSG;
	wire_hash(&r->r, &e.hash);
	end = r->end + wire_varint(&r->r, PACK_LEN_MAX);
	e.offset = (uint32_t)end;
	e.stored_len = (uint32_t)wire_varint(&r->r, CHUNK_FRAME_MAX);
	e.plain_len = (uint32_t)wire_varint(&r->r, CHUNK_PLAIN_MAX);
	end += e.stored_len;
	if (r->r.failed || !lengths_valid(e.stored_len, e.plain_len) || end > PACK_LEN_MAX)
		return -EBADMSG;
	r->end = (uint32_t)end;
	r->chunks_left--;
	*ret_entry = e;
	return 0;
}

int index_reader_next(struct index_reader *r, struct hash *ret_pack, struct pack_entry *ret_entry)
{
	if (r->r.failed)
		return -EBADMSG;
	if (!r->chunks_left && !r->packs_left)
		return reader_left(&r->r) ? -EBADMSG : 0;
	if (next_chunk(r, ret_entry) < 0) {
		r->r.failed = true; /* so does every later call */
		return -EBADMSG;
	}
	*ret_pack = r->pack;
	return 1;
}
