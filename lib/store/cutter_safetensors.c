/* SPDX-License-Identifier: Apache-2.0 */
/* The offsets of the tensors in a safetensors file (huggingface/safetensors, README, "Format"). */
#include "lib/store/cutter_impl.h"

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
