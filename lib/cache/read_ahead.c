/* SPDX-License-Identifier: Apache-2.0 */
/* How far to fetch ahead of readers. */
#include "lib/cache/read_ahead.h"

#include <stddef.h>

/* Who has read this part of the file on end, and at least so many bytes, reads all of it. */
#define WHOLE_PART 4
#define WHOLE_MIN  ((uint64_t)1 << 20)

static bool belongs(const struct read_stream *s, uint64_t offset)
{
	return s->next && offset + READ_SLACK >= s->next && offset <= s->next + READ_SLACK &&
	       offset >= s->start;
}

/* The stream that goes on with this read, or NULL and the one that rested longest. */
static struct read_stream *find(struct read_ahead *r, uint64_t offset,
				struct read_stream **ret_oldest)
{
	struct read_stream *oldest = &r->streams[0];

	for (size_t i = 0; i < READ_STREAMS; i++) {
		struct read_stream *s = &r->streams[i];

		if (belongs(s, offset))
			return s;
		if (s->used < oldest->used)
			oldest = s;
	}
	*ret_oldest = oldest;
	return NULL;
}

struct read_advice read_ahead_note(struct read_ahead *r, uint64_t offset, uint64_t end,
				   uint64_t size, uint64_t max)
{
	struct read_advice advice = {.until = end};
	struct read_stream *oldest, *s = find(r, offset, &oldest);
	uint64_t run, window;

	if (!s) {
		*oldest = (struct read_stream){.start = offset, .next = end, .used = ++r->reads};
		return advice;
	}
	s->used = ++r->reads;
	if (end <= s->next)
		return advice; /* out of order, or once more */
	s->next = end;
	run = s->next - s->start;
	window = run < max ? run : max;
	if (s->ahead <= s->next || s->ahead - s->next <= window / 2)
		s->ahead = size - s->next < window ? size : s->next + window;
	if (s->ahead > end)
		advice.until = s->ahead;
	advice.whole = run >= WHOLE_MIN && run >= size / WHOLE_PART;
	return advice;
}

void read_ahead_forget(struct read_ahead *r)
{
	for (size_t i = 0; i < READ_STREAMS; i++)
		r->streams[i].ahead = 0;
}
