/* SPDX-License-Identifier: Apache-2.0 */
/* The chunk frame: how one chunk of plain bytes is stored. */
#ifndef EPOCHFS_FORMAT_CHUNK_H
#define EPOCHFS_FORMAT_CHUNK_H

#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"

/*
 * A chunk is 1 to CHUNK_PLAIN_MAX plain bytes, addressed by their SHA-256. What is stored is a
 * frame: a header, then the payload. Integers are little-endian; a varint is LEB128 in its shortest
 * form (here and in every format of this directory).
 *
 *   frame   = "EFC" version flags filter word codec planes raw plain size{planes} crc payload
 *   version = u8, 1
 *   flags   = u8; bit 0: the chunk is a delta against a base chunk whose hash (32 bytes) follows
 *             `plain`. Reserved: nothing writes it yet, and a reader refuses any flag.
 *   filter  = u8, enum chunk_filter
 *   word    = u8, bytes of a word: 2, 4 or 8 with CHUNK_FILTER_GBS, 1 without a filter
 *   codec   = u8, enum chunk_codec
 *   planes  = u8, the number of planes (below)
 *   raw     = u16, bit i: plane i is stored as it is, not passed through the codec
 *   plain   = varint, length of the plain bytes
 *   size    = varint, stored length of each plane in turn
 *   crc     = u32, CRC-32C of the header before it, continued over the payload
 *   payload = the stored planes, one after another
 *
 * The filter turns the plain bytes into planes. Without a filter there is one: the plain bytes. GBS
 * (Gray code, byte planes, bit planes) takes as many whole groups of eight words as there are, G =
 * plain / (8 * word), at least one, and makes `word` planes of 8 * G bytes each: plane i holds byte
 * i (0 is the least significant) of every Gray-coded word, as eight bit planes of G bytes. The
 * bytes that are left over, fewer than 8 * word, are one last plane, always raw; there is none
 * where nothing is left over.
 *
 * There is one way to write each thing: a plane passes through the codec only where that makes it
 * shorter, and the codec is CHUNK_CODEC_RAW exactly where all planes are raw. So a frame is never
 * more than CHUNK_HEADER_MAX longer than its plain bytes, and a decoder knows the length of each
 * decompressed plane before it starts.
 */
#define CHUNK_PLAIN_MAX	 (4u << 20)
#define CHUNK_PLANES_MAX 9
#define CHUNK_HEADER_MAX 64
#define CHUNK_FRAME_MAX	 (CHUNK_PLAIN_MAX + CHUNK_HEADER_MAX)

enum chunk_filter {
	CHUNK_FILTER_NONE = 0,
	CHUNK_FILTER_GBS = 1,
};

enum chunk_codec {
	CHUNK_CODEC_RAW = 0,
	CHUNK_CODEC_LZ4 = 1, /* LZ4 block format, one block a plane */
};

struct chunk_header {
	enum chunk_filter filter;
	enum chunk_codec codec;
	uint8_t word;
	uint8_t planes;
	uint16_t raw_mask;
	uint32_t plain_len;
	uint32_t plane_len[CHUNK_PLANES_MAX]; /* stored */
	/* Set by the decoders, ignored by the encoder: */
	uint32_t header_len;
	uint32_t payload_len; /* sum of plane_len */
	uint32_t crc;
};

/* The number of planes that these make: 1 without a filter, else word or word + 1. */
uint8_t chunk_planes(enum chunk_filter filter, uint8_t word, uint32_t plain_len);
/* The plain length of plane i of h (filter, word and plain_len set, i < planes). */
uint32_t chunk_plane_plain_len(const struct chunk_header *h, uint8_t i);

/*
 * Writes the header of a frame whose payload is the sum of h->plane_len bytes at `payload`:
 * the header's length, or -EINVAL where `h` breaks a rule above.
 */
int chunk_header_encode(const struct chunk_header *h, const void *payload,
			uint8_t ret_header[CHUNK_HEADER_MAX]);
/* Appends header and payload to `out`: 0, -EINVAL, or -ENOMEM. */
int chunk_frame_encode(const struct chunk_header *h, const void *payload, struct buf *out);

/*
 * Decodes and checks the header at the start of `frame`; `len` may cover any part of the payload.
 * -EBADMSG where it is malformed or cut, -EPROTONOSUPPORT for a version, flag, filter or codec that
 * this program does not know. The payload is not looked at.
 */
int chunk_header_decode(const void *frame, size_t len, struct chunk_header *ret_header);
/* The same for a whole frame of exactly `len` bytes; the payload begins at frame + ret_header->header_len. For
 * who checks the hash of the plain bytes, which says more than the CRC does. */
int chunk_frame_open(const void *frame, size_t len, struct chunk_header *ret_header);
/* The same with the CRC checked (-EBADMSG). */
int chunk_frame_decode(const void *frame, size_t len, struct chunk_header *ret_header);

#endif
