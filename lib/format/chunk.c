/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk frames: encode, decode, check. */
#include "lib/format/chunk.h"

#include <errno.h>
#include <string.h>

#include "lib/format/wire.h"
#include "lib/util/hash.h"

#define CHUNK_MAGIC   "EFC"
#define CHUNK_VERSION 1
#define GROUP_WORDS   8u /* GBS takes words in groups of so many */

uint8_t chunk_planes(enum chunk_filter filter, uint8_t word, uint32_t plain_len)
{
	if (filter == CHUNK_FILTER_NONE)
		return 1;
	return (uint8_t)(word + (plain_len % (GROUP_WORDS * word) ? 1 : 0));
}

uint32_t chunk_plane_plain_len(const struct chunk_header *h, uint8_t i)
{
	uint32_t group = GROUP_WORDS * h->word;

	if (h->filter == CHUNK_FILTER_NONE)
		return h->plain_len;
	return i < h->word ? h->plain_len / group * GROUP_WORDS : h->plain_len % group;
}

static bool filter_valid(const struct chunk_header *h)
{
	if (h->plain_len < 1 || h->plain_len > CHUNK_PLAIN_MAX)
		return false;
	if (h->filter == CHUNK_FILTER_NONE)
		return h->word == 1;
	return h->filter == CHUNK_FILTER_GBS && (h->word == 2 || h->word == 4 || h->word == 8) &&
	       h->plain_len >= GROUP_WORDS * h->word;
}

static bool plane_valid(const struct chunk_header *h, uint8_t i)
{
	uint32_t plain = chunk_plane_plain_len(h, i);

	if (h->raw_mask >> i & 1)
		return h->plane_len[i] == plain;
	if (h->filter == CHUNK_FILTER_GBS && i == h->word)
		return false; /* what is left over is raw */
	return h->plane_len[i] >= 1 && h->plane_len[i] < plain;
}

/* All rules of the format but flags and CRC. */
static bool header_valid(const struct chunk_header *h)
{
	uint16_t all;

	if (!filter_valid(h) || h->planes != chunk_planes(h->filter, h->word, h->plain_len))
		return false;
	all = (uint16_t)((1u << h->planes) - 1);
	if (h->raw_mask & ~all)
		return false;
	if (h->codec != CHUNK_CODEC_RAW && h->codec != CHUNK_CODEC_LZ4)
		return false;
	if ((h->codec == CHUNK_CODEC_RAW) != (h->raw_mask == all))
		return false;
	for (uint8_t i = 0; i < h->planes; i++)
		if (!plane_valid(h, i))
			return false;
	return true;
}

static uint32_t payload_len(const struct chunk_header *h)
{
	uint32_t sum = 0;

	for (uint8_t i = 0; i < h->planes; i++)
		sum += h->plane_len[i];
	return sum;
}

static void put_header(struct buf *out, const struct chunk_header *h, const void *payload)
{
	size_t start = out->len;
	uint32_t crc;

	wire_put_magic(out, CHUNK_MAGIC, CHUNK_VERSION);
	buf_put_u8(out, 0);
	buf_put_u8(out, (uint8_t)h->filter);
	buf_put_u8(out, h->word);
	buf_put_u8(out, (uint8_t)h->codec);
	buf_put_u8(out, h->planes);
	buf_put_u16(out, h->raw_mask);
	buf_put_varint(out, h->plain_len);
	for (uint8_t i = 0; i < h->planes; i++)
		buf_put_varint(out, h->plane_len[i]);
	if (out->failed)
		return;
	crc = crc32c(0, out->data + start, out->len - start);
	buf_put_u32(out, crc32c(crc, payload, payload_len(h)));
}

int chunk_header_encode(const struct chunk_header *h, const void *payload,
			uint8_t ret_header[CHUNK_HEADER_MAX])
{
	/* A buffer that never has to grow. */
	struct buf out = {.data = ret_header, .cap = CHUNK_HEADER_MAX};

	if (!header_valid(h))
		return -EINVAL;
	put_header(&out, h, payload);
	return (int)out.len;
}

int chunk_frame_encode(const struct chunk_header *h, const void *payload, struct buf *out)
{
	if (!header_valid(h))
		return -EINVAL;
	if (buf_reserve(out, CHUNK_HEADER_MAX + (size_t)payload_len(h)) < 0)
		return -ENOMEM;
	put_header(out, h, payload);
	buf_put(out, payload, payload_len(h));
	return buf_error(out);
}

/* The fields before the varints; -EPROTONOSUPPORT for what a later program may have written. */
static int decode_fixed(struct reader *r, struct chunk_header *h)
{
	int error = wire_magic(r, CHUNK_MAGIC, CHUNK_VERSION);
	uint8_t flags, filter, codec;

	if (error)
		return error;
	flags = reader_u8(r);
	filter = reader_u8(r);
	h->word = reader_u8(r);
	codec = reader_u8(r);
	h->planes = reader_u8(r);
	h->raw_mask = reader_u16(r);
	if (r->failed)
		return -EBADMSG;
	if (flags || filter > CHUNK_FILTER_GBS || codec > CHUNK_CODEC_LZ4)
		return -EPROTONOSUPPORT;
	h->filter = (enum chunk_filter)filter;
	h->codec = (enum chunk_codec)codec;
	return h->planes <= CHUNK_PLANES_MAX ? 0 : -EBADMSG;
}

int chunk_header_decode(const void *frame, size_t len, struct chunk_header *ret_header)
{
	struct reader r = reader_of(frame, len);
	struct chunk_header h = {0};
	int error = decode_fixed(&r, &h);

	if (error)
		return error;
	h.plain_len = (uint32_t)wire_varint(&r, CHUNK_PLAIN_MAX);
	for (uint8_t i = 0; i < h.planes; i++)
		h.plane_len[i] = (uint32_t)wire_varint(&r, CHUNK_PLAIN_MAX);
	h.crc = reader_u32(&r);
	if (r.failed || !header_valid(&h))
		return -EBADMSG;
	h.header_len = (uint32_t)(r.p - (const uint8_t *)frame);
	h.payload_len = payload_len(&h);
	*ret_header = h;
	return 0;
}

int chunk_frame_open(const void *frame, size_t len, struct chunk_header *ret_header)
{
	struct chunk_header h;
	int error = chunk_header_decode(frame, len, &h);

	if (error)
		return error;
	if (len != (size_t)h.header_len + h.payload_len)
		return -EBADMSG;
	*ret_header = h;
	return 0;
}

int chunk_frame_decode(const void *frame, size_t len, struct chunk_header *ret_header)
{
	const uint8_t *bytes = frame;
	struct chunk_header h;
	uint32_t crc;
	int error = chunk_frame_open(frame, len, &h);

	if (error)
		return error;
	crc = crc32c(0, bytes, h.header_len - sizeof(h.crc));
	if (crc32c(crc, bytes + h.header_len, h.payload_len) != h.crc)
		return -EBADMSG;
	*ret_header = h;
	return 0;
}
