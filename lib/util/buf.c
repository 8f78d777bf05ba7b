/* SPDX-License-Identifier: Apache-2.0 */
/* The growing buffer and the bounds-checked reader. */
#include "lib/util/buf.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

void buf_free(struct buf *b)
{
	free(b->data);
	*b = (struct buf){0};
}

void buf_reset(struct buf *b)
{
	b->len = 0;
	b->failed = false;
}

int buf_error(const struct buf *b)
{
	return b->failed ? -ENOMEM : 0;
}

int buf_reserve(struct buf *b, size_t more)
{
	size_t need, cap;
	uint8_t *data;

	if (b->failed || __builtin_add_overflow(b->len, more, &need))
		goto fail;
	if (need <= b->cap)
		return 0;
	cap = b->cap ? b->cap : 64;
	while (cap < need)
		if (__builtin_mul_overflow(cap, (size_t)2, &cap))
			goto fail;
	data = realloc(b->data, cap);
	if (!data)
		goto fail;
	b->data = data;
	b->cap = cap;
	return 0;
fail:
	b->failed = true;
	return -ENOMEM;
}

void buf_put(struct buf *b, const void *data, size_t len)
{
	if (!len || buf_reserve(b, len) < 0)
		return;
	memcpy(b->data + b->len, data, len);
	b->len += len;
}

void buf_put_u8(struct buf *b, uint8_t v)
{
	buf_put(b, &v, 1);
}

static void put_le(struct buf *b, uint64_t v, size_t width)
{
	uint8_t bytes[8];

	for (size_t i = 0; i < width; i++)
		bytes[i] = (uint8_t)(v >> (8 * i));
	buf_put(b, bytes, width);
}

void buf_put_u16(struct buf *b, uint16_t v)
{
	put_le(b, v, 2);
}

void buf_put_u32(struct buf *b, uint32_t v)
{
	put_le(b, v, 4);
}

void buf_put_u64(struct buf *b, uint64_t v)
{
	put_le(b, v, 8);
}

void buf_put_varint(struct buf *b, uint64_t v)
{
	uint8_t bytes[10];
	size_t n = 0;

	while (v >= 0x80) {
		bytes[n++] = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	bytes[n++] = (uint8_t)v;
	buf_put(b, bytes, n);
}

void buf_put_bytes(struct buf *b, const void *data, size_t len)
{
	buf_put_varint(b, len);
	buf_put(b, data, len);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0 || buf_reserve(b, (size_t)n + 1) < 0) {
		b->failed = true;
		return;
	}
	va_start(ap, fmt);
	vsnprintf((char *)b->data + b->len, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->len += (size_t)n;
}

const char *buf_str(struct buf *b)
{
	if (buf_reserve(b, 1) < 0)
		return "";
	b->data[b->len] = '\0';
	return (const char *)b->data;
}

void *buf_steal(struct buf *b, size_t *ret_len)
{
	void *data = b->data;

	*ret_len = b->len;
	if (!b->len) {
		free(data);
		data = NULL;
	}
	*b = (struct buf){0};
	return data;
}

struct reader reader_of(const void *data, size_t len)
{
	const uint8_t *p = data ? data : (const uint8_t *)"";

	return (struct reader){.p = p, .end = p + (data ? len : 0)};
}

int reader_error(const struct reader *r)
{
	return r->failed ? -EBADMSG : 0;
}

size_t reader_left(const struct reader *r)
{
	return r->failed ? 0 : (size_t)(r->end - r->p);
}

const uint8_t *reader_skip(struct reader *r, uint64_t len)
{
	const uint8_t *p = r->p;

	if (r->failed || len > (uint64_t)(r->end - r->p)) {
		r->failed = true;
		return NULL;
	}
	r->p += len;
	return p;
}

static uint64_t get_le(struct reader *r, size_t width)
{
	const uint8_t *p = reader_skip(r, width);
	uint64_t v = 0;

	for (size_t i = 0; p && i < width; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

uint8_t reader_u8(struct reader *r)
{
	return (uint8_t)get_le(r, 1);
}

uint16_t reader_u16(struct reader *r)
{
	return (uint16_t)get_le(r, 2);
}

uint32_t reader_u32(struct reader *r)
{
	return (uint32_t)get_le(r, 4);
}

uint64_t reader_u64(struct reader *r)
{
	return get_le(r, 8);
}

uint64_t reader_varint(struct reader *r)
{
	uint64_t v = 0;

	for (unsigned shift = 0; shift < 70; shift += 7) {
		uint8_t byte = reader_u8(r);

		if (r->failed || (shift == 63 && byte > 1))
			break;
		v |= (uint64_t)(byte & 0x7f) << shift;
		if (!(byte & 0x80))
			return v;
	}
	r->failed = true;
	return 0;
}

const uint8_t *reader_bytes(struct reader *r, size_t max, size_t *ret_len)
{
	uint64_t len = reader_varint(r);
	const uint8_t *p;

	if (len > max)
		r->failed = true;
	p = reader_skip(r, len);
	if (p)
		*ret_len = (size_t)len;
	return p;
}
