/* SPDX-License-Identifier: Apache-2.0 */
/* From a range of a pack to the chunks in it, checked. */
#include "lib/store/chunk_decode.h"

#include <errno.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/util/cleanup.h"

#define FRAME_TRIES 3

bool wanted_length_fits(const struct wanted *w)
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

int decoder_get(struct decoder *d, struct wanted *const *wanted, size_t count,
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
