/* SPDX-License-Identifier: Apache-2.0 */
/* A growing byte buffer, and a bounds-checked reader over bytes that may be untrusted. */
#ifndef EPOCHFS_UTIL_BUF_H
#define EPOCHFS_UTIL_BUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/cleanup.h"

/*
 * A growing buffer. Zero-initialise (`struct buf b = {0};`), free with buf_free or mark
 * `cleanup_buf`. An append that finds no memory sets `failed` and does nothing more, so that a row
 * of appends needs one check at its end: buf_error(). Not thread-safe.
 */
struct buf {
	uint8_t *data;
	size_t len;
	size_t cap;
	bool failed;
};

void buf_free(struct buf *b);
#define cleanup_buf CLEANUP(buf_free)

/* Forgets the content and the error; keeps the memory. */
void buf_reset(struct buf *b);
/* 0, or -ENOMEM when an append failed. */
int buf_error(const struct buf *b);
/* Room for `more` bytes beyond len: 0 or -ENOMEM. */
int buf_reserve(struct buf *b, size_t more);
void buf_put(struct buf *b, const void *data, size_t len);
void buf_put_u8(struct buf *b, uint8_t v);
/* Little-endian fixed widths. */
void buf_put_u16(struct buf *b, uint16_t v);
void buf_put_u32(struct buf *b, uint32_t v);
void buf_put_u64(struct buf *b, uint64_t v);
/* LEB128, at most 10 bytes. */
void buf_put_varint(struct buf *b, uint64_t v);
/* A varint length, then the bytes. */
void buf_put_bytes(struct buf *b, const void *data, size_t len);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* The content as a NUL-terminated string (the NUL is not counted in len); "" where it is empty or
 * failed. */
const char *buf_str(struct buf *b);
/* Takes the memory out (caller frees with free(); NULL if empty) and leaves an empty buffer. */
void *buf_steal(struct buf *b, size_t *ret_len);

/*
 * A reader over a span. Reading past the end, or a malformed varint, sets `failed`; every later
 * read gives 0 or NULL. Check reader_error() once at the end and before trusting a length.
 */
struct reader {
	const uint8_t *p;
	const uint8_t *end;
	bool failed;
};

struct reader reader_of(const void *data, size_t len);
/* 0, or -EBADMSG when a read failed. */
int reader_error(const struct reader *r);
size_t reader_left(const struct reader *r);
uint8_t reader_u8(struct reader *r);
uint16_t reader_u16(struct reader *r);
uint32_t reader_u32(struct reader *r);
uint64_t reader_u64(struct reader *r);
uint64_t reader_varint(struct reader *r);
/* A pointer to the next len bytes inside the span, or NULL. */
const uint8_t *reader_skip(struct reader *r, uint64_t len);
/* A varint length and that many bytes; fails where the length is above `max`. */
const uint8_t *reader_bytes(struct reader *r, size_t max, size_t *ret_len);

#endif
