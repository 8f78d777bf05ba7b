/* SPDX-License-Identifier: Apache-2.0 */
/* From a plain chunk to its stored frame and back: choice of the filter, and LZ4. */
#ifndef EPOCHFS_STORE_FILTER_H
#define EPOCHFS_STORE_FILTER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"

/*
 * A frame (lib/format/chunk.h) stores a chunk raw, as one LZ4 block, or as GBS planes (gbs.h), each
 * plane an LZ4 block of its own or raw. Which one is told from samples of 4 x 4 KiB: a filter is
 * taken only where it gains 0.5 % or more over none, and a plane is stored raw where its sample
 * stays above 97 %. The same chunk gives the same frame on every machine with the same liblz4.
 */

/*
 * Contexts and scratch memory (some MiB, as large as the largest chunk that it has seen): use one
 * for each thread, for any number of chunks. Not thread-safe.
 */
struct filter;

/* 0 or -ENOMEM. */
int filter_new(struct filter **ret_filter);
/* NULL is allowed. */
void filter_free(struct filter *f);

static inline void cleanup_filter_fn(struct filter **f)
{
	filter_free(*f);
}
#define cleanup_filter CLEANUP(cleanup_filter_fn)

/*
 * Appends the whole frame (header and payload, at most CHUNK_HEADER_MAX more than len bytes) of the
 * chunk `plain` to `out`: 0; -EINVAL where len is 0 or above CHUNK_PLAIN_MAX; -ENOMEM. On failure
 * `out` is as long as it was.
 */
int filter_encode(struct filter *f, const void *plain, size_t len, struct buf *out);
/* The same without a copy: where the chunk is stored raw, only the header is appended and ret_raw is
 * true, the payload being `plain` itself. */
int filter_encode_head(struct filter *f, const void *plain, size_t len, struct buf *out,
		       bool *ret_raw);

/*
 * Decodes a frame of exactly frame_len bytes, which are untrusted, into exactly plain_len
 * bytes at ret_plain: 0, -ENOMEM, -EBADMSG where it is damaged or of another length, or
 * -EPROTONOSUPPORT where a newer version wrote it (chunk_frame_decode). Writes nothing outside
 * [ret_plain, ret_plain + plain_len); what that holds after an error is undefined. To check the
 * hash of the plain bytes is left to the caller.
 */
int filter_decode(struct filter *f, const void *frame, size_t frame_len, void *ret_plain,
		  size_t plain_len);
/*
 * The same, without a copy where it needs none: *ret_bytes is `plain`, or for a chunk that is stored raw its payload
 * in the frame. The frame's CRC is checked only where check_crc says so: who checks the hash of the plain bytes needs
 * it not.
 */
int filter_decode_within(struct filter *f, const void *frame, size_t frame_len, bool check_crc,
			 void *plain, size_t plain_len, const uint8_t **ret_bytes);

#endif
