/* SPDX-License-Identifier: Apache-2.0 */
/* Where tensors begin in a safetensors file (huggingface/safetensors, README, "Format") and in a zip. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/store/cutter.h"
#include "lib/util/array.h"

/*
 * The file is a u64 length, that many bytes of JSON, the tensors' bytes. Each tensor's object has
 * "data_offsets":[begin,end], counted from where the bytes begin. Only these are looked for, not
 * the JSON as such: a wrong answer moves cuts and harms nothing, and no tree of a header with
 * hundreds of thousands of tensors has to be held.
 */
#define LENGTH_LEN 8

struct tensor {
	uint64_t begin;
	uint64_t end;
};

struct tensors {
	struct tensor *items;
	size_t count;
	size_t cap;
};

static int tensors_push(struct tensors *s, struct tensor span)
{
	if (array_reserve((void **)&s->items, &s->cap, s->count, sizeof(*s->items)))
		return -ENOMEM;
	s->items[s->count++] = span;
	return 0;
}

static const uint8_t *skip_space(const uint8_t *p, const uint8_t *end)
{
	while (p < end && (*p == ' ' || *p == '\t' || *p == '\n' || *p == '\r'))
		p++;
	return p;
}

/* The character after white space, then what follows it; NULL where it is another or p is NULL. */
static const uint8_t *expect(const uint8_t *p, const uint8_t *end, char c)
{
	if (!p)
		return NULL;
	p = skip_space(p, end);
	return p < end && *p == (uint8_t)c ? p + 1 : NULL;
}

static const uint8_t *number(const uint8_t *p, const uint8_t *end, uint64_t *ret_value)
{
	uint64_t value = 0;
	const uint8_t *first;

	if (!p)
		return NULL;
	first = p = skip_space(p, end);
	for (; p < end && *p >= '0' && *p <= '9'; p++) {
		if (value > UINT64_MAX / 100)
			return NULL;
		value = 10 * value + (uint64_t)(*p - '0');
	}
	if (p == first)
		return NULL;
	*ret_value = value;
	return p;
}

/* All large spans of the header that lie within `room` bytes of data. */
static int find_spans(const uint8_t *json, size_t len, uint64_t room, struct tensors *s)
{
	static const char key[] = "\"data_offsets\"";
	const uint8_t *end = json + len;
	const uint8_t *p = json;
	int r = 0;

	while (r == 0 && (p = memmem(p, (size_t)(end - p), key, sizeof(key) - 1))) {
		struct tensor span = {0};
		const uint8_t *q;

		p += sizeof(key) - 1;
		q = expect(expect(p, end, ':'), end, '[');
		q = expect(number(q, end, &span.begin), end, ',');
		q = expect(number(q, end, &span.end), end, ']');
		if (q && span.begin <= span.end && span.end <= room &&
		    span.end - span.begin >= CUTTER_TENSOR_MIN)
			r = tensors_push(s, span);
	}
	return r;
}

static int compare_spans(const void *a, const void *b)
{
	const struct tensor *x = a;
	const struct tensor *y = b;

	return (x->begin > y->begin) - (x->begin < y->begin);
}

int safetensors_marks(const uint8_t *data, size_t len, uint64_t size, struct marks *m,
		      uint64_t *ret_data)
{
	struct tensors s = {0};
	uint64_t json_len = 0;
	uint64_t start;
	int r;

	if (len <= LENGTH_LEN || data[LENGTH_LEN] != '{')
		return 0;
	for (unsigned i = 0; i < LENGTH_LEN; i++)
		json_len |= (uint64_t)data[i] << (8 * i);
	if (json_len > len - LENGTH_LEN)
		return 0;
	start = LENGTH_LEN + json_len;
	r = find_spans(data + LENGTH_LEN, (size_t)json_len, size - start, &s);
	if (r == 0)
		r = marks_push(m, start, false);
	if (s.count > 0)
		qsort(s.items, s.count, sizeof(*s.items), compare_spans);
	for (size_t i = 0; r == 0 && i < s.count; i++) {
		r = marks_push(m, start + s.items[i].begin, true);
		if (r == 0)
			r = marks_push(m, start + s.items[i].end, false);
	}
	free(s.items);
	if (r < 0)
		return r;
	*ret_data = start;
	return 1;
}

/* ---- zip ---- */

/*
 * torch.save writes sizes of 0 into the local headers and the true ones into the central directory
 * at the end, so headers are searched for. What looks like one inside a tensor costs no more than a
 * cut. Fields, little-endian, from the signature on:
 *   local:   4 version, 6 flags, 8 method, ... 26 length of name, 28 length of extra, 30 name
 *   central: 4 made by, 6 version, 8 flags, 10 method, ... 28 length of name, ... 46 name
 */
#define LOCAL_LEN    30
#define CENTRAL_LEN  46
#define NAME_MAX_LEN 4096
#define VERSION_MAX  63

static unsigned le16(const uint8_t *p)
{
	return p[0] | (unsigned)p[1] << 8;
}

/* Name length, version and method as any writer of zips puts them. */
static bool plausible(unsigned version, unsigned method, unsigned name)
{
	return version <= VERSION_MAX && (method == 0 || method == 8) && name > 0 &&
	       name <= NAME_MAX_LEN;
}

static bool local_header(const uint8_t *p, size_t len)
{
	return len >= LOCAL_LEN && memcmp(p, "PK\3\4", 4) == 0 &&
	       plausible(le16(p + 4), le16(p + 8), le16(p + 26));
}

static bool central_header(const uint8_t *p, size_t len)
{
	return len >= CENTRAL_LEN && memcmp(p, "PK\1\2", 4) == 0 &&
	       plausible(le16(p + 6), le16(p + 10), le16(p + 28));
}

bool zip_begins(const uint8_t *data, size_t len)
{
	return local_header(data, len);
}

/* The first "PK" at or after `at`, or `end`; data[end] may be read. */
static size_t find_pk(const uint8_t *data, size_t at, size_t end)
{
	enum { STEP = 128 };

	/* Without a branch in the inner loop, which so becomes vector code. */
	for (; at + STEP <= end; at += STEP) {
		const uint8_t *p = data + at;
		uint8_t any = 0;

		for (unsigned i = 0; i < STEP; i++)
			any |= (uint8_t)((p[i] == 'P') & (p[i + 1] == 'K'));
		if (any)
			break;
	}
	while (at < end && !(data[at] == 'P' && data[at + 1] == 'K'))
		at++;
	return at;
}

/* Whether the entry is still too short to tell. */
static bool undecided(const struct zip_scan *z)
{
	return z->has_entry && !z->large;
}

static int decide_large(struct zip_scan *z, struct marks *m)
{
	if (!undecided(z) || z->pos < z->entry || z->pos - z->entry < CUTTER_TENSOR_MIN)
		return 0;
	z->large = true;
	return marks_push(m, z->entry, true);
}

/* A header at z->pos ends the entry before it; `entry` is where its own data begins, 0: none. */
static int take_header(struct zip_scan *z, uint64_t entry, struct marks *m)
{
	int r = decide_large(z, m);

	if (r == 0 && z->has_entry && z->large)
		r = marks_push(m, z->pos, false);
	z->has_entry = entry > 0;
	z->entry = entry;
	z->large = false;
	return r;
}

int zip_scan(struct zip_scan *z, const uint8_t *data, size_t len, uint64_t base, bool end,
	     struct marks *m)
{
	size_t stop = len > CENTRAL_LEN ? len - CENTRAL_LEN : 0;
	size_t at = (size_t)(z->pos - base);
	int r = 0;

	while (r == 0 && at < stop) {
		const uint8_t *p;

		at = find_pk(data, at, stop);
		if (at == stop)
			break;
		p = data + at;
		z->pos = base + at;
		if (local_header(p, len - at))
			r = take_header(z, z->pos + LOCAL_LEN + le16(p + 26) + le16(p + 28), m);
		else if (central_header(p, len - at))
			r = take_header(z, 0, m);
		at++;
	}
	if (r < 0)
		return r;
	/* No header fits into the last bytes: the central directory's end is shorter than one. */
	if (at > (size_t)(z->pos - base))
		z->pos = base + at;
	if (end)
		z->pos = base + len;
	return decide_large(z, m);
}

uint64_t zip_settled(const struct zip_scan *z)
{
	return undecided(z) && z->entry < z->pos ? z->entry : z->pos;
}
