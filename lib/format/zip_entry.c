/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/format/zip_entry.h"

#include <errno.h>

#define ENTRY_MAGIC	   0x02014b50u
#define LOCAL_HEADER_MAGIC 0x04034b50u
#define LOCAL_HEADER_SIZE  30u
#define FLAG_ENCRYPTED	   1u
#define METHOD_STORED	   0
/* A field after the name: its kind and its length, then its bytes. */
#define FIELD_HEAD_SIZE 4u
#define FIELD_ZIP64	1u

/* ---- a span of the source ---- */

void zip_span_open(struct zip_span *s, const struct tail_source *in, uint64_t at, uint64_t size)
{
	s->in = in;
	s->at = at;
	s->end = at + size;
	s->pos = s->len = 0;
	s->read = 0;
	s->error = 0;
}

static bool span_fill(struct zip_span *s)
{
	uint64_t left = s->end - s->at;
	ssize_t got;

	if (s->error)
		return false;
	got = left && s->read < ZIP_SPAN_READ_MAX
		      ? s->in->read(s->in->arg, s->window,
				    left < ZIP_SPAN_WINDOW ? (size_t)left : ZIP_SPAN_WINDOW, s->at)
		      : 0;
	if (got <= 0) {
		s->error = got < 0 ? (int)got : -ENODATA;
		return false;
	}
	s->at += (uint64_t)got;
	s->read += (uint64_t)got;
	s->pos = 0;
	s->len = (size_t)got;
	return true;
}

uint8_t zip_span_u8(struct zip_span *s)
{
	if (s->pos == s->len && !span_fill(s))
		return 0;
	return s->window[s->pos++];
}

uint64_t zip_span_uint(struct zip_span *s, unsigned width)
{
	uint64_t v = 0;

	for (unsigned i = 0; i < width; i++)
		v |= (uint64_t)zip_span_u8(s) << (8 * i);
	return s->error ? 0 : v;
}

void zip_span_skip(struct zip_span *s, uint64_t len)
{
	size_t inside = s->len - s->pos;

	if (s->error)
		return;
	if (len <= inside) {
		s->pos += (size_t)len;
		return;
	}
	len -= inside;
	s->pos = s->len;
	if (len > s->end - s->at)
		s->error = -ENODATA;
	else
		s->at += len;
}

void zip_span_bytes(struct zip_span *s, uint64_t len, void *data, size_t room)
{
	uint8_t *p = data;
	size_t n = len < room ? (size_t)len : room;

	for (size_t i = 0; i < n; i++)
		p[i] = zip_span_u8(s);
	zip_span_skip(s, len - n);
}

void zip_span_line(struct zip_span *s)
{
	while (!s->error && zip_span_u8(s) != '\n')
		;
}

/* ---- entries ---- */

/* The ZIP64 field has, in this order, those numbers for which 32 bits did not suffice. */
static void take_zip64(struct zip_span *s, uint64_t len, struct zip_entry *e)
{
	uint64_t *const numbers[] = {&e->size, &e->packed, &e->at};

	for (size_t i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		if (*numbers[i] == UINT32_MAX && len >= sizeof(uint64_t)) {
			*numbers[i] = zip_span_uint(s, sizeof(uint64_t));
			len -= sizeof(uint64_t);
		}
	zip_span_skip(s, len);
}

static void take_fields(struct zip_span *s, uint64_t len, struct zip_entry *e)
{
	while (len >= FIELD_HEAD_SIZE && !s->error) {
		uint64_t kind = zip_span_uint(s, 2), field_len = zip_span_uint(s, 2);

		len -= FIELD_HEAD_SIZE;
		if (field_len > len)
			break;
		len -= field_len;
		if (kind == FIELD_ZIP64)
			take_zip64(s, field_len, e);
		else
			zip_span_skip(s, field_len);
	}
	zip_span_skip(s, len);
}

bool zip_entry_read(struct zip_span *s, struct zip_entry *e)
{
	uint64_t name_len, fields, comment;

	if (zip_span_uint(s, 4) != ENTRY_MAGIC)
		return false;
	zip_span_skip(s, 4);
	e->flags = (uint16_t)zip_span_uint(s, 2);
	e->method = (uint16_t)zip_span_uint(s, 2);
	zip_span_skip(s, 8);
	e->packed = zip_span_uint(s, 4);
	e->size = zip_span_uint(s, 4);
	name_len = zip_span_uint(s, 2);
	fields = zip_span_uint(s, 2);
	comment = zip_span_uint(s, 2);
	zip_span_skip(s, 8);
	e->at = zip_span_uint(s, 4);
	zip_span_bytes(s, name_len, e->name, sizeof(e->name));
	e->name_len = name_len <= sizeof(e->name) ? (size_t)name_len : 0;
	take_fields(s, fields, e);
	zip_span_skip(s, comment);
	return !s->error;
}

bool zip_entry_is_plain(const struct zip_entry *e)
{
	return e->method == METHOD_STORED && !(e->flags & FLAG_ENCRYPTED) && e->packed == e->size;
}

int zip_entry_find(struct zip_span *s, const struct tail_source *in, const struct zip_directory *d,
		   const struct zip_entry *e, uint64_t *ret_at)
{
	uint64_t room = d->at - d->base, begin = LOCAL_HEADER_SIZE, name_len;

	if (d->base > d->at || e->at > room || room - e->at < LOCAL_HEADER_SIZE)
		return 0;
	room -= e->at;
	zip_span_open(s, in, d->base + e->at, LOCAL_HEADER_SIZE);
	if (zip_span_uint(s, 4) != LOCAL_HEADER_MAGIC)
		return 0;
	zip_span_skip(s, 22);
	name_len = zip_span_uint(s, 2);
	begin += name_len + zip_span_uint(s, 2);
	if (s->error || begin > room || (e->name_len && name_len != e->name_len))
		return 0;
	if (e->packed > room - begin)
		return ZIP_ENTRY_CUT;
	*ret_at = d->base + e->at + begin;
	return 1;
}
