/* SPDX-License-Identifier: Apache-2.0 */
/* Fetching chunks: neighbours in one range, ranges at once, everything checked. */
#include "lib/store/store_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

/* From a range of a pack to the chunks in it, checked. Private to lib/store. */

/*
 * The chunks of one range, in the order of their places. DECODER_LANES of them are decoded together,
 * since two are hashed together in little more than the time of one; and what is stored raw is
 * checked and given where it lies in the range. One thread at a time.
 */
struct decoder {
	struct store *s;
	const struct buf *data; /* the range; shorter than asked for where the pack ends */
	uint32_t offset;	/* of the range in its pack */
	struct buf *plain;	/* DECODER_LANES of them: memory, which is the caller's */
	/* Zero these. */
	struct lane {
		const struct wanted *w; /* whose bytes it has; NULL: none */
		const uint8_t *bytes;
	} lanes[DECODER_LANES];
};

/*
 * The plain bytes of wanted[0], whose hash they have, until the next call; of those after it, count - 1 more of the
 * range, some may be decoded with it. A frame that came damaged is fetched again: the damage may be of the way
 * here. 0; -EBADMSG where it is damaged in the remote, -ENOENT where its pack is gone by now, other errors of the
 * remote, -ENOMEM.
 */
static int decoder_get(struct decoder *d, struct wanted *const *wanted, size_t count,
		       const uint8_t **ret_plain);

/* Whether its place has a chunk of the length that is wanted. */
static bool wanted_length_fits(const struct wanted *w);

/* Frames of one pack are fetched together where no more than this lies between them ... */
#define GAP_MAX (64u << 10)
/* ... up to this length: a few ranges at once, with what is decoded of them, are all the memory
 * that reading takes. */
#define RANGE_MAX (4u << 20)

/* Wanted chunks [first, first + count) in the order of places, in one range of a pack. */
struct range {
	size_t first;
	size_t count;
	uint32_t offset;
	uint32_t len;
};

struct reading {
	struct store *s;
	struct wanted **sorted; /* by pack and offset */
	size_t count;
	struct range *ranges;
	size_t range_count;
	store_sink sink;
	void *arg;
};

bool store_place_equal(const struct store_place *a, const struct store_place *b)
{
	return hash_equal(&a->pack, &b->pack) && a->offset == b->offset &&
	       a->stored_len == b->stored_len && a->plain_len == b->plain_len;
}

bool wanted_tried(const struct wanted *w, const struct store_place *place)
{
	for (unsigned i = 0; i < w->tried_count; i++)
		if (store_place_equal(&w->tried[i], place))
			return true;
	return false;
}

static void mark_failed(struct wanted *w)
{
	if (w->tried_count < WANTED_TRIES)
		w->tried[w->tried_count++] = w->place;
	w->state = WANTED_NOWHERE;
}

/* Its pack is not there: collected, or lost. */
static void mark_gone(struct store *s, struct wanted *w)
{
	w->gone_ns = trust_note_gone(s->trust, &w->place.pack);
	mark_failed(w);
}

/* ---- memory for ranges ---- */

static void reading_begin(struct store *s)
{
	SCOPED_LOCK(&s->lock);
	s->readings++;
}

static void range_memory_free(struct range_memory *m)
{
	buf_free(&m->data);
	for (size_t i = 0; i < DECODER_LANES; i++)
		buf_free(&m->plain[i]);
}

static void reading_end(struct store *s)
{
	struct range_memory none[STORE_READERS_MAX];
	unsigned count = 0;

	mutex_lock(&s->lock);
	if (--s->readings == 0)
		while (s->spare_range_count)
			none[count++] = s->spare_ranges[--s->spare_range_count];
	mutex_unlock(&s->lock);
	while (count)
		range_memory_free(&none[--count]);
}

static struct range_memory range_take(struct store *s)
{
	SCOPED_LOCK(&s->lock);
	return s->spare_range_count ? s->spare_ranges[--s->spare_range_count]
				    : (struct range_memory){0};
}

static void range_give(struct store *s, struct range_memory *m)
{
	buf_reset(&m->data);
	mutex_lock(&s->lock);
	if (s->spare_range_count < STORE_READERS_MAX) {
		s->spare_ranges[s->spare_range_count++] = *m;
		*m = (struct range_memory){0};
	}
	mutex_unlock(&s->lock);
	range_memory_free(m);
}

/* ---- one range ---- */

/* What became of one chunk: failures that are of this chunk alone are noted, and are none. */
static int deliver(struct reading *r, struct decoder *d, size_t i, size_t end)
{
	struct wanted *w = r->sorted[i];
	const uint8_t *plain;
	int error = decoder_get(d, r->sorted + i, end - i, &plain);

	if (error == -ENOENT) {
		mark_gone(r->s, w);
		return 0;
	}
	if (error == -EBADMSG) {
		trust_note_damage(r->s->trust, &w->hash, &w->place.pack);
		mark_failed(w);
		return 0;
	}
	if (!error)
		error = r->sink(r->arg, w->number, plain, w->place.plain_len);
	if (!error)
		w->state = WANTED_DONE;
	return error;
}

static int deliver_range(struct reading *r, const struct range *range, struct range_memory *m)
{
	struct decoder d = {
		.s = r->s, .data = &m->data, .offset = range->offset, .plain = m->plain};
	size_t end = range->first + range->count;
	int error = 0;

	for (size_t i = range->first; i < end && !error; i++) {
		if (wanted_length_fits(r->sorted[i]))
			error = deliver(r, &d, i, end);
		else
			mark_failed(r->sorted[i]);
	}
	return error;
}

static int fetch_and_deliver(struct reading *r, const struct range *range, struct range_memory *m)
{
	const struct hash *pack = &r->sorted[range->first]->place.pack;
	char key[KEY_MAX];
	int error = buf_reserve(&m->data, range->len);

	if (error)
		return error;
	pack_key(pack, key);
	error = remote_get(r->s->remote, key, range->offset, range->len, &m->data);
	if (error == -ENOENT) {
		for (size_t k = 0; k < range->count; k++)
			mark_gone(r->s, r->sorted[range->first + k]);
		return 0;
	}
	return error ? error : deliver_range(r, range, m);
}

static int read_range(void *arg, size_t i)
{
	struct reading *r = arg;
	struct range_memory memory = range_take(r->s);
	int error = fetch_and_deliver(r, &r->ranges[i], &memory);

	range_give(r->s, &memory);
	return error;
}

/* ---- all ranges ---- */

static int compare_places(const void *a, const void *b)
{
	const struct wanted *x = *(struct wanted *const *)a, *y = *(struct wanted *const *)b;
	int order = hash_compare(&x->place.pack, &y->place.pack);

	if (!order)
		order = (x->place.offset > y->place.offset) - (x->place.offset < y->place.offset);
	return order ? order : hash_compare(&x->hash, &y->hash);
}

/* Whether the frame of w can be fetched with the range; `end` is that of the longer of the two. */
static bool joins(const struct reading *r, const struct range *range, const struct wanted *w,
		  uint64_t *ret_end)
{
	uint64_t end = (uint64_t)range->offset + range->len;
	uint64_t frame_end = (uint64_t)w->place.offset + w->place.stored_len;

	if (!hash_equal(&r->sorted[range->first]->place.pack, &w->place.pack) ||
	    w->place.offset > end + GAP_MAX)
		return false;
	if (end < frame_end)
		end = frame_end;
	*ret_end = end;
	return end - range->offset <= RANGE_MAX;
}

static void make_ranges(struct reading *r)
{
	for (size_t i = 0; i < r->count; i++) {
		const struct wanted *w = r->sorted[i];
		struct range *last = r->range_count ? &r->ranges[r->range_count - 1] : NULL;
		uint64_t end;

		if (last && joins(r, last, w, &end)) {
			last->count++;
			last->len = (uint32_t)(end - last->offset);
		} else {
			r->ranges[r->range_count++] =
				(struct range){i, 1, w->place.offset, w->place.stored_len};
		}
	}
}

static int read_placed(struct store *s, struct wanted *wanted, size_t count, store_sink sink,
		       void *arg, const atomic_bool *waits)
{
	cleanup_free struct wanted **sorted = calloc(count + 1, sizeof(*sorted));
	cleanup_free struct range *ranges = calloc(count + 1, sizeof(*ranges));
	struct reading r = {.s = s, .sorted = sorted, .ranges = ranges, .sink = sink, .arg = arg};
	int error;

	if (!sorted || !ranges)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++)
		if (wanted[i].state == WANTED_PLACED)
			sorted[r.count++] = &wanted[i];
	if (r.count)
		qsort(sorted, r.count, sizeof(*sorted), compare_places);
	make_ranges(&r);
	reading_begin(s);
	error = pool_run_ahead(s->readers, r.range_count, read_range, &r, waits);
	reading_end(s);
	return error;
}

int store_chunks_read_placed(struct store *s, struct wanted *wanted, size_t count, store_sink sink,
			     void *arg)
{
	return read_placed(s, wanted, count, sink, arg, NULL);
}

/* ---- where to look ---- */

static size_t count_in(const struct wanted *wanted, size_t count, enum wanted_state state)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++)
		n += wanted[i].state == state;
	return n;
}

/* By the caller's index. */
static int locate(struct store *s, struct wanted *wanted, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct wanted *w = &wanted[i];
		struct store_place place;
		int error;

		if (w->state != WANTED_NOWHERE)
			continue;
		error = s->index.get(s->index.arg, &w->hash, &place);
		if (error && error != -ENOENT)
			return error;
		if (error || wanted_tried(w, &place))
			continue;
		w->place = place;
		w->state = WANTED_PLACED;
	}
	return 0;
}

/* The latest time at which a pack of those that are WANTED_NOWHERE was first found gone, or 0. */
static int64_t gone_ns(const struct wanted *wanted, size_t count)
{
	int64_t latest = 0;

	for (size_t i = 0; i < count; i++)
		if (wanted[i].state == WANTED_NOWHERE && wanted[i].gone_ns > latest)
			latest = wanted[i].gone_ns;
	return latest;
}

/* By the index, else by new index objects, perhaps being read already, else by all of them. */
static int find_places(struct store *s, struct wanted *wanted, size_t count, uint64_t refreshes)
{
	int error = locate(s, wanted, count);

	if (!error && count_in(wanted, count, WANTED_NOWHERE) && store_index_wait(s))
		error = locate(s, wanted, count);
	if (error || !count_in(wanted, count, WANTED_NOWHERE))
		return error;
	error = store_index_refresh_since(s, refreshes, gone_ns(wanted, count));
	if (!error)
		error = locate(s, wanted, count);
	if (!error && count_in(wanted, count, WANTED_NOWHERE))
		error = store_chunks_search(s, wanted, count, gone_ns(wanted, count));
	return error;
}

static void explain(const struct wanted *wanted, size_t count, struct store_failure *failure)
{
	for (size_t i = 0; i < count && failure; i++) {
		if (wanted[i].state == WANTED_DONE)
			continue;
		failure->pack[0] = '\0';
		if (wanted[i].tried_count)
			hash_to_hex(&wanted[i].tried[0].pack, failure->pack);
		if (failure->pack[0])
			return;
	}
}

int store_chunks_read(struct store *s, struct wanted *wanted, size_t count, store_sink sink,
		      void *arg, const atomic_bool *waits, struct store_failure *failure)
{
	uint64_t refreshes = store_index_refreshes(s);

	for (int round = 0; round < WANTED_TRIES; round++) {
		int error = find_places(s, wanted, count, refreshes);

		if (error)
			return error;
		if (!count_in(wanted, count, WANTED_PLACED))
			break;
		error = read_placed(s, wanted, count, sink, arg, waits);
		if (error)
			return error;
		if (count_in(wanted, count, WANTED_DONE) == count)
			return 0;
	}
	explain(wanted, count, failure);
	return -EIO;
}

/* ---- From a range of a pack to the chunks in it, checked. ---- */

#define FRAME_TRIES 3

static bool wanted_length_fits(const struct wanted *w)
{
	return !w->plain_len || w->plain_len == w->place.plain_len;
}

static bool same_frame(const struct wanted *a, const struct wanted *b)
{
	return hash_equal(&a->hash, &b->hash) && store_place_equal(&a->place, &b->place);
}

static const struct lane *find_lane(const struct decoder *d, const struct wanted *w)
{
	for (size_t i = 0; i < DECODER_LANES; i++)
		if (d->lanes[i].w && same_frame(d->lanes[i].w, w))
			return &d->lanes[i];
	return NULL;
}

/* NULL where the range ended before it. */
static const uint8_t *frame_of(const struct decoder *d, const struct wanted *w)
{
	uint64_t at = w->place.offset - d->offset;

	return at + w->place.stored_len <= d->data->len ? d->data->data + at : NULL;
}

/* 0, -EBADMSG where it is damaged, or -ENOMEM. The hash is not checked yet. */
static int decode(struct decoder *d, size_t lane, const struct wanted *w, const uint8_t *frame)
{
	struct buf *plain = &d->plain[lane];
	struct filter *filter;
	int error;

	d->lanes[lane].w = NULL;
	if (w->place.plain_len > CHUNK_PLAIN_MAX)
		return -EBADMSG;
	buf_reset(plain);
	error = buf_reserve(plain, w->place.plain_len);
	if (!error)
		error = store_filter_take(d->s, &filter);
	if (error)
		return error;
	error = filter_decode_within(filter, frame, w->place.stored_len, d->s->check_frames,
				     plain->data, w->place.plain_len, &d->lanes[lane].bytes);
	store_filter_give(d->s, filter);
	if (!error)
		d->lanes[lane].w = w;
	return error && error != -ENOMEM ? -EBADMSG : error;
}

/* Empties those whose bytes have another hash than they should. */
static void check_lanes(struct decoder *d)
{
	struct hash hashes[DECODER_LANES];
	struct hash_job jobs[DECODER_LANES] = {0};
	struct lane *of[DECODER_LANES];
	size_t count = 0;

	for (size_t i = 0; i < DECODER_LANES; i++) {
		struct lane *l = &d->lanes[i];

		if (!l->w)
			continue;
		jobs[count] = (struct hash_job){l->bytes, l->w->place.plain_len, &hashes[count]};
		of[count++] = l;
	}
	remote_address_many(d->s->remote, jobs, count);
	for (size_t i = 0; i < count; i++)
		if (!hash_equal(&hashes[i], &of[i]->w->hash))
			of[i]->w = NULL;
}

/* Fills the lanes with the first of these that are not the same. */
static int decode_next(struct decoder *d, struct wanted *const *wanted, size_t count)
{
	size_t lane = 0;
	int error = 0;

	for (size_t i = 0; i < DECODER_LANES; i++)
		d->lanes[i].w = NULL;
	for (size_t i = 0; i < count && lane < DECODER_LANES && error != -ENOMEM; i++) {
		const uint8_t *frame = frame_of(d, wanted[i]);

		if (!frame || !wanted_length_fits(wanted[i]) || find_lane(d, wanted[i]))
			continue;
		error = decode(d, lane++, wanted[i], frame);
	}
	/* Whatever becomes of the others: no lane is left unchecked. */
	check_lanes(d);
	return error == -ENOMEM ? error : 0;
}

/* From the remote once more, into the first lane: also -ENOENT and the remote's other errors. */
static int decode_again(struct decoder *d, const struct wanted *w, struct buf *frame)
{
	char key[KEY_MAX];
	int error;

	pack_key(&w->place.pack, key);
	buf_reset(frame);
	error = remote_get(d->s->remote, key, w->place.offset, w->place.stored_len, frame);
	if (error)
		return error;
	if (frame->len != w->place.stored_len)
		return -EBADMSG;
	error = decode(d, 0, w, frame->data);
	if (error)
		return error;
	/* It outlives its frame. */
	if (d->lanes[0].bytes != d->plain[0].data)
		d->lanes[0].bytes = memcpy(d->plain[0].data, d->lanes[0].bytes, w->place.plain_len);
	check_lanes(d);
	return d->lanes[0].w ? 0 : -EBADMSG;
}

static int decoder_get(struct decoder *d, struct wanted *const *wanted, size_t count,
		       const uint8_t **ret_plain)
{
	cleanup_buf struct buf frame = {0};
	const struct lane *lane = find_lane(d, wanted[0]);
	int error = 0;

	if (!lane) {
		error = decode_next(d, wanted, count);
		lane = find_lane(d, wanted[0]);
	}
	if (!lane && !error)
		error = -EBADMSG;
	for (int tries = 1; error == -EBADMSG && tries < FRAME_TRIES; tries++) {
		error = decode_again(d, wanted[0], &frame);
		lane = &d->lanes[0];
	}
	if (!error)
		*ret_plain = lane->bytes;
	return error;
}
