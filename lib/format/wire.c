/* SPDX-License-Identifier: Apache-2.0 */
/* Magic and version, shortest varints, texts, checksums. */
#include "lib/format/wire.h"

#include <errno.h>
#include <string.h>

#define CRC_LEN 4

int wire_magic(struct reader *r, const char magic[4], uint8_t version)
{
	const uint8_t *p = reader_skip(r, 4);

	if (!p || memcmp(p, magic, 3) || p[3] == 0)
		return -EBADMSG;
	return p[3] > version ? -EPROTONOSUPPORT : 0;
}

void wire_put_magic(struct buf *out, const char magic[4], uint8_t version)
{
	buf_put(out, magic, 3);
	buf_put_u8(out, version);
}

uint64_t wire_varint(struct reader *r, uint64_t max)
{
	const uint8_t *start = r->p;
	uint64_t v = reader_varint(r);

	if (r->failed)
		return 0;
	if (v > max || (r->p - start > 1 && r->p[-1] == 0)) {
		r->failed = true;
		return 0;
	}
	return v;
}

const uint8_t *wire_bytes(struct reader *r, size_t max, size_t *ret_len)
{
	uint64_t len = wire_varint(r, max);
	const uint8_t *p = reader_skip(r, len);

	if (p)
		*ret_len = (size_t)len;
	return p;
}

const char *wire_text(struct reader *r, size_t max, size_t *ret_len)
{
	size_t len = 0;
	const uint8_t *p = wire_bytes(r, max, &len);
	const uint8_t *end = reader_skip(r, 1);

	if (!p || !end)
		return NULL;
	if (*end || memchr(p, '\0', len)) {
		r->failed = true;
		return NULL;
	}
	*ret_len = len;
	return (const char *)p;
}

void wire_put_text(struct buf *out, const char *text, size_t len)
{
	buf_put_bytes(out, text, len);
	buf_put_u8(out, 0);
}

void wire_hash(struct reader *r, struct hash *ret_hash)
{
	const uint8_t *p = reader_skip(r, HASH_SIZE);

	if (p)
		memcpy(ret_hash->bytes, p, HASH_SIZE);
}

void wire_put_crc(struct buf *out, size_t start)
{
	if (!out->failed)
		buf_put_u32(out, crc32c(0, out->data + start, out->len - start));
}

int wire_check_crc(const void *data, size_t len, size_t *ret_len)
{
	struct reader r;

	if (len < CRC_LEN)
		return -EBADMSG;
	r = reader_of((const uint8_t *)data + len - CRC_LEN, CRC_LEN);
	if (reader_u32(&r) != crc32c(0, data, len - CRC_LEN))
		return -EBADMSG;
	*ret_len = len - CRC_LEN;
	return 0;
}
