/* SPDX-License-Identifier: Apache-2.0 */
/* The cutter: a window over the content, and where the next segment ends. */
#include "lib/store/cutter.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/util/array.h"
#include "lib/util/io.h"

#define WINDOW ((size_t)4 << 20)
#define WORD   8

struct cutter {
	struct cutter_source source;
	uint8_t *window;
	size_t cap;
	size_t filled;
	uint64_t base; /* offset of window[0] */
	uint64_t pos;  /* where the next segment begins */

	struct marks marks;
	struct zip_scan zip;
	bool is_zip;
	uint64_t first_word; /* words lie at multiples of 8 from here */

	bool tensor;   /* pos is inside a large tensor, */
	uint64_t from; /* which begins here */
};

int marks_push(struct marks *m, uint64_t offset, bool tensor)
{
	if (m->head == m->count) {
		m->head = 0;
		m->count = 0;
	}
	if (m->count > 0 && m->items[m->count - 1].offset >= offset) {
		if (m->items[m->count - 1].offset == offset)
			m->items[m->count - 1].tensor = tensor;
		return 0;
	}
	if (array_reserve((void **)&m->items, &m->cap, m->count, sizeof(*m->items)))
		return -ENOMEM;
	m->items[m->count++] = (struct mark){.offset = offset, .tensor = tensor};
	return 0;
}

const struct mark *marks_first(const struct marks *m)
{
	return m->head < m->count ? &m->items[m->head] : NULL;
}

void marks_pop(struct marks *m)
{
	m->head++;
}

void marks_free(struct marks *m)
{
	free(m->items);
}

/* Where window ends in the file. */
static uint64_t window_end(const struct cutter *c)
{
	return c->base + c->filled;
}

static const uint8_t *at_pos(const struct cutter *c)
{
	return c->window + (c->pos - c->base);
}

/* Drops what lies before pos and reads until the window is full or the content ends. */
static int fill(struct cutter *c)
{
	size_t keep = (size_t)(window_end(c) - c->pos);

	memmove(c->window, at_pos(c), keep);
	c->base = c->pos;
	c->filled = keep;
	while (c->filled < c->cap && window_end(c) < c->source.size) {
		uint64_t left = c->source.size - window_end(c);
		size_t want = c->cap - c->filled;
		ssize_t n;

		if (want > left)
			want = (size_t)left;
		n = c->source.pread(c->source.arg, c->window + c->filled, want, window_end(c));
		if (n < 0)
			return (int)n;
		if (n == 0)
			return -ENODATA;
		c->filled += (size_t)n;
	}
	return 0;
}

/* Makes sure that the window reaches far enough, and enters the region that begins at pos. */
static int advance(struct cutter *c)
{
	const struct mark *m;
	int r;

	if (window_end(c) < c->source.size && window_end(c) - c->pos < CUTTER_AHEAD) {
		r = fill(c);
		if (r < 0)
			return r;
	}
	if (c->is_zip) {
		r = zip_scan(&c->zip, c->window, c->filled, c->base,
			     window_end(c) == c->source.size, &c->marks);
		if (r < 0)
			return r;
	}
	while ((m = marks_first(&c->marks)) && m->offset <= c->pos) {
		c->tensor = m->tensor;
		c->from = m->offset;
		marks_pop(&c->marks);
	}
	return 0;
}

/* Where the region of pos ends; where that is not yet known, an offset that is further from pos
 * than any decision looks, and *ret_known is false. */
static uint64_t region_end(const struct cutter *c, bool *ret_known)
{
	const struct mark *m = marks_first(&c->marks);

	*ret_known = true;
	if (m)
		return m->offset;
	*ret_known = !c->is_zip || c->zip.pos == c->source.size;
	return *ret_known ? c->source.size : zip_settled(&c->zip);
}

/* The largest step from pos that is no more than `len` and ends where a cut may be. */
static uint64_t whole_units(const struct cutter *c, uint64_t len)
{
	uint64_t origin = c->tensor ? c->from : c->first_word;
	uint64_t unit = c->tensor ? CUTTER_ZERO_MIN : WORD;
	uint64_t past = (c->pos + len - origin) % unit;

	return past < len ? len - past : 0;
}

/* Inside a hole that reaches beyond the window, jumps to where it ends. */
static void skip_hole(struct cutter *c)
{
	bool known;
	uint64_t to = region_end(c, &known);
	uint64_t data;

	if (!c->source.next_data)
		return;
	if (!known)
		to = c->source.size;
	data = c->source.next_data(c->source.arg, c->pos);
	if (data < to)
		to = c->pos + whole_units(c, data - c->pos);
	if (to <= window_end(c))
		return;
	c->pos = to;
	c->base = to;
	c->filled = 0;
	/* No header begins in zeros; an entry that began before has been decided on, as its header
	 * is no longer than the window reaches ahead. */
	if (c->is_zip)
		c->zip.pos = to;
}

/* A run of zeros begins at pos: goes on to its end, or to that of the region. */
static int take_zeros(struct cutter *c, struct segment *ret_segment)
{
	uint64_t start = c->pos;
	uint64_t region = c->from;
	int r;

	while (c->from == region) {
		bool known;
		uint64_t end = region_end(c, &known);
		uint64_t len;

		if (end > window_end(c)) {
			end = window_end(c);
			known = false;
		}
		len = zero_prefix(at_pos(c), (size_t)(end - c->pos));
		if (!known || c->pos + len < end)
			len = whole_units(c, len);
		if (len == 0)
			break;
		c->pos += len;
		skip_hole(c);
		r = advance(c);
		if (r < 0)
			return r;
	}
	ret_segment->kind = SEGMENT_ZERO;
	ret_segment->offset = start;
	ret_segment->len = c->pos - start;
	ret_segment->data = NULL;
	return 0;
}

static int take_data(struct cutter *c, size_t len, struct segment *ret_segment)
{
	ret_segment->kind = SEGMENT_DATA;
	ret_segment->offset = c->pos;
	ret_segment->len = len;
	ret_segment->data = at_pos(c);
	c->pos += len;
	return 0;
}

/* Inside a tensor that has `len` more bytes: to the next whole chunk from its start, or to the
 * next block of zeros. */
static int cut_tensor(struct cutter *c, uint64_t len, struct segment *ret_segment)
{
	uint64_t chunk = CUTTER_CHUNK_MAX - (c->pos - c->from) % CUTTER_CHUNK_MAX;
	const uint8_t *data = at_pos(c);

	if (chunk > len)
		chunk = len;
	for (size_t at = 0; at + CUTTER_ZERO_MIN <= chunk; at += CUTTER_ZERO_MIN) {
		if (zero_prefix(data + at, CUTTER_ZERO_MIN) < CUTTER_ZERO_MIN)
			continue;
		if (at == 0)
			return take_zeros(c, ret_segment);
		chunk = at;
	}
	return take_data(c, (size_t)chunk, ret_segment);
}

/* Outside of tensors, `len` bytes before the next one: by content. */
static int cut_content(struct cutter *c, uint64_t len, struct segment *ret_segment)
{
	uint64_t room = window_end(c) - c->pos;
	size_t phase = (size_t)((c->first_word - c->pos) % WORD);
	size_t seen = (size_t)(len < room ? len : room);
	size_t max = seen < CUTTER_CHUNK_MAX ? seen : CUTTER_CHUNK_MAX;
	size_t zeros = zero_run(at_pos(c), max, seen, phase);
	size_t cut;

	if (zeros == 0)
		return take_zeros(c, ret_segment);
	cut = gear_cut(at_pos(c), seen, phase);
	return take_data(c, zeros < cut ? zeros : cut, ret_segment);
}

int cutter_next(struct cutter *c, struct segment *ret_segment)
{
	uint64_t len;
	bool known;
	int r;

	if (c->pos == c->source.size)
		return 0;
	r = advance(c);
	if (r < 0)
		return r;
	len = region_end(c, &known) - c->pos;
	if (c->tensor)
		r = cut_tensor(c, len, ret_segment);
	else
		r = cut_content(c, len, ret_segment);
	return r < 0 ? r : 1;
}

/* Tells the format by the file's start. */
static int set_format(struct cutter *c)
{
	int r = fill(c);

	if (r < 0)
		return r;
	c->is_zip = zip_begins(c->window, c->filled);
	if (c->is_zip)
		return 0;
	r = safetensors_marks(c->window, c->filled, c->source.size, &c->marks, &c->first_word);
	return r < 0 ? r : 0;
}

int cutter_open_window(const struct cutter_source *source, size_t window,
		       struct cutter **ret_cutter)
{
	cleanup_cutter struct cutter *c = calloc(1, sizeof(*c));
	int r;

	if (!c)
		return -ENOMEM;
	c->source = *source;
	c->cap = source->size < window ? (size_t)source->size : window;
	c->window = malloc(c->cap + 1);
	if (!c->window)
		return -ENOMEM;
	r = set_format(c);
	if (r < 0)
		return r;
	*ret_cutter = steal_ptr(c);
	return 0;
}

int cutter_open(const struct cutter_source *source, struct cutter **ret_cutter)
{
	return cutter_open_window(source, WINDOW, ret_cutter);
}

void cutter_close(struct cutter *c)
{
	if (!c)
		return;
	marks_free(&c->marks);
	free(c->window);
	free(c);
}

/*
 * The next hole at or after `offset`. It is looked for before anything behind it is read: once pages of space that
 * is only preallocated lie in the page cache, SEEK_DATA takes them for data.
 */
static void find_hole(struct cutter_file *f, uint64_t offset)
{
	off_t hole = lseek(f->fd, (off_t)offset, SEEK_HOLE), data;

	/* Where holes are not known, or at the end of the file, it is read. */
	f->hole = f->data = f->size;
	if (hole < 0 || (uint64_t)hole >= f->size)
		return;
	data = lseek(f->fd, hole, SEEK_DATA);
	if (data < 0 && errno == ENXIO)
		data = lseek(f->fd, 0, SEEK_END);
	if (data <= hole)
		return;
	f->hole = (uint64_t)hole;
	f->data = (uint64_t)data;
}

static ssize_t file_pread(void *arg, void *data, size_t len, uint64_t offset)
{
	struct cutter_file *f = arg;
	uint64_t end;

	if (f->stopped && f->stopped(f->arg))
		return -ECANCELED;
	if (offset >= f->data)
		find_hole(f, offset);
	end = offset < f->hole ? f->hole : f->data;
	if (len > end - offset)
		len = (size_t)(end - offset);
	if (offset < f->hole)
		return io_pread_some(f->fd, data, len, offset);
	memset(data, 0, len);
	return (ssize_t)len;
}

static uint64_t file_next_data(void *arg, uint64_t offset)
{
	const struct cutter_file *f = arg;

	return offset >= f->hole && offset < f->data ? f->data : offset;
}

int cutter_open_file(struct cutter_file *file, struct cutter **ret_cutter)
{
	struct cutter_source source = {
		.size = file->size,
		.pread = file_pread,
		.next_data = file_next_data,
		.arg = file,
	};

	file->hole = file->data = 0;
	return cutter_open(&source, ret_cutter);
}

/* ---- Content-defined cuts between 8-byte words, and runs of zeros. ---- */

/* The golden ratio's multiplier: it carries every bit of a word to the hash's highest ones. */
#define GEAR_FACTOR UINT64_C(0x9e3779b97f4a7c15)
/* A word moves one bit left with each further one, so that 64 words decide. */
#define GEAR_WINDOW 64
/* One word in so many ends a chunk: with the 64 KiB before the first cut, 256 KiB on average. */
#define GEAR_THRESHOLD (UINT64_MAX / ((192 << 10) / WORD))

static uint64_t load_word(const uint8_t *p)
{
	uint64_t w;

	memcpy(&w, p, sizeof(w));
	return le64toh(w);
}

size_t gear_cut(const uint8_t *data, size_t len, size_t phase)
{
	size_t max = len < CUTTER_CHUNK_MAX ? len : CUTTER_CHUNK_MAX;
	size_t first = phase + CUTTER_CHUNK_MIN;
	size_t at = first - GEAR_WINDOW * WORD;
	uint64_t hash = 0;

	if (len <= first)
		return len;
	for (; at < first; at += WORD)
		hash = (hash << 1) + load_word(data + at) * GEAR_FACTOR;
	for (; at + WORD <= max; at += WORD) {
		if (hash < GEAR_THRESHOLD)
			return at;
		hash = (hash << 1) + load_word(data + at) * GEAR_FACTOR;
	}
	return len <= CUTTER_CHUNK_MAX ? len : at;
}

size_t zero_prefix(const uint8_t *data, size_t len)
{
	enum { STEP = 8 };
	size_t at = 0;

	for (; at + STEP * WORD <= len; at += STEP * WORD) {
		uint64_t w[STEP];
		uint64_t any = 0;

		memcpy(w, data + at, sizeof(w));
		for (unsigned i = 0; i < STEP; i++)
			any |= w[i];
		if (any)
			break;
	}
	while (at < len && data[at] == 0)
		at++;
	return at;
}

/* A run of the least length covers at least one of the places that are this far apart. */
#define PROBE_STEP (CUTTER_ZERO_MIN / 2)

/* The first place between words at or after `at`, and the last at or before it. */
static size_t word_up(size_t at, size_t phase)
{
	return at <= phase ? phase : phase + (at - phase + WORD - 1) / WORD * WORD;
}

static size_t word_down(size_t at, size_t phase)
{
	return at < phase ? 0 : phase + (at - phase) / WORD * WORD;
}

size_t zero_run(const uint8_t *data, size_t max, size_t len, size_t phase)
{
	size_t seen = 0;

	for (size_t probe = 0; probe < len && probe <= max + PROBE_STEP; probe += PROBE_STEP) {
		size_t from = probe;

		if (probe < seen || data[probe] != 0)
			continue;
		seen = probe + zero_prefix(data + probe, len - probe);
		while (from > 0 && data[from - 1] == 0)
			from--;
		if (from > 0)
			from = word_up(from, phase);
		if (from <= max &&
		    (seen < len ? word_down(seen, phase) : len) >= from + CUTTER_ZERO_MIN)
			return from;
	}
	return len;
}
