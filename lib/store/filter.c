/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of chunks: which filter gains most is told from samples, then LZ4 on each plane. */
#include "lib/store/filter.h"

#include <errno.h>
#include <lz4.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include "lib/format/chunk.h"
#include "lib/store/gbs.h"
#include "lib/util/lock.h"

#define SAMPLE_PIECES 4
#define SAMPLE_PIECE  ((size_t)4096)
#define SAMPLE_MAX    (SAMPLE_PIECES * SAMPLE_PIECE)

/* A filter must gain a 200th. */
#define GAIN_DIVISOR 200
/* A plane whose sample stays above 97 % of its size is not worth the time of decoding it. */
#define PLANE_KEEP_PERCENT 97

struct filter {
	void *lz4;	 /* LZ4's state for compression */
	uint8_t *planes; /* a whole chunk, filtered */
	uint8_t *stored; /* the payload in the making */
	size_t cap;	 /* of both */
	uint8_t sample[SAMPLE_MAX];
	uint8_t sample_planes[SAMPLE_MAX];
	uint8_t sample_stored[LZ4_COMPRESSBOUND(SAMPLE_MAX)];
};

/* What the samples say. */
struct choice {
	uint8_t word;	    /* 1: no filter */
	uint16_t raw_mask;  /* planes not worth compressing */
	size_t sample_size; /* stored size of the sample */
};

int filter_new(struct filter **ret_filter)
{
	struct filter *f = calloc(1, sizeof(*f));

	if (!f)
		return -ENOMEM;
	f->lz4 = malloc((size_t)LZ4_sizeofState());
	if (!f->lz4) {
		free(f);
		return -ENOMEM;
	}
	*ret_filter = f;
	return 0;
}

void filter_free(struct filter *f)
{
	if (!f)
		return;
	free(f->lz4);
	free(f->planes);
	free(f->stored);
	free(f);
}

static int reserve(struct filter *f, size_t len)
{
	uint8_t *planes;
	uint8_t *stored;

	if (f->cap >= len)
		return 0;
	planes = malloc(len);
	stored = malloc(len);
	if (!planes || !stored) {
		free(planes);
		free(stored);
		return -ENOMEM;
	}
	free(f->planes);
	free(f->stored);
	f->planes = planes;
	f->stored = stored;
	f->cap = len;
	return 0;
}

/* The compressed length of a plane at ret_stored, or 0 where it is longer than `max`. */
static size_t compress(struct filter *f, const uint8_t *plane, size_t len, uint8_t *ret_stored,
		       size_t max)
{
	int n = LZ4_compress_fast_extState(f->lz4, (const char *)plane, (char *)ret_stored,
					   (int)len, (int)max, 1);

	return n > 0 ? (size_t)n : 0;
}

/* Evenly spread pieces, at multiples of 8 so that words stay words; all of a short chunk. */
static size_t take_sample(struct filter *f, const uint8_t *plain, size_t len)
{
	if (len <= SAMPLE_MAX) {
		memcpy(f->sample, plain, len);
		return len;
	}
	for (size_t i = 0; i < SAMPLE_PIECES; i++) {
		size_t centre = len / (2 * SAMPLE_PIECES) * (2 * i + 1);
		size_t from = (centre - SAMPLE_PIECE / 2) & ~(size_t)7;

		memcpy(f->sample + i * SAMPLE_PIECE, plain + from, SAMPLE_PIECE);
	}
	return SAMPLE_MAX;
}

static struct choice try_plain(struct filter *f, size_t len)
{
	struct choice c = {.word = 1, .raw_mask = 1, .sample_size = len};
	size_t n = compress(f, f->sample, len, f->sample_stored, sizeof(f->sample_stored));

	if (n > 0 && n < len - len / GAIN_DIVISOR) {
		c.raw_mask = 0;
		c.sample_size = n;
	}
	return c;
}

static struct choice try_gbs(struct filter *f, size_t len, uint8_t word)
{
	size_t plane_len = gbs_plane_len(len, word);
	size_t keep = plane_len * PLANE_KEEP_PERCENT / 100;
	struct choice c = {.word = word, .sample_size = gbs_tail_len(len, word)};

	gbs_encode(f->sample, len, word, f->sample_planes);
	for (uint8_t p = 0; p < word; p++) {
		size_t n = compress(f, f->sample_planes + p * plane_len, plane_len,
				    f->sample_stored, keep);

		if (n == 0) {
			c.raw_mask |= (uint16_t)(1u << p);
			n = plane_len;
		}
		c.sample_size += n;
	}
	return c;
}

static struct choice choose(struct filter *f, const uint8_t *plain, size_t plain_len)
{
	size_t len = take_sample(f, plain, plain_len);
	struct choice best = try_plain(f, len);

	for (uint8_t word = 2; word <= GBS_WORD_MAX; word *= 2) {
		size_t margin = best.word == 1 ? len / GAIN_DIVISOR : 0;
		struct choice c;

		if (gbs_plane_len(len, word) == 0)
			break;
		c = try_gbs(f, len, word);
		if (c.sample_size + margin < best.sample_size)
			best = c;
	}
	return best;
}

/*
 * Fills in the planes of h and their lengths from the planes at `planes`, and returns the payload:
 * f->stored, or `planes` itself where nothing is compressed.
 */
static const uint8_t *store_planes(struct filter *f, const uint8_t *planes, uint16_t raw_mask,
				   struct chunk_header *h)
{
	size_t at = 0;
	size_t from = 0;

	h->codec = CHUNK_CODEC_RAW;
	for (uint8_t i = 0; i < h->planes; i++) {
		size_t len = chunk_plane_plain_len(h, i);
		size_t n = 0;

		if (!(raw_mask >> i & 1))
			n = compress(f, planes + from, len, f->stored + at,
				     len - len / GAIN_DIVISOR - 1);
		if (n > 0) {
			h->codec = CHUNK_CODEC_LZ4;
		} else {
			memcpy(f->stored + at, planes + from, len);
			h->raw_mask |= (uint16_t)(1u << i);
			n = len;
		}
		h->plane_len[i] = (uint32_t)n;
		at += n;
		from += len;
	}
	return h->codec == CHUNK_CODEC_RAW ? planes : f->stored;
}

static void set_filter(struct chunk_header *h, uint8_t word)
{
	h->filter = word > 1 ? CHUNK_FILTER_GBS : CHUNK_FILTER_NONE;
	h->word = word;
	h->planes = chunk_planes(h->filter, h->word, h->plain_len);
	h->raw_mask = 0;
}

/* What becomes of the chunk: fills in the header, and gives the payload, in `plain` or in f. */
static const uint8_t *make_payload(struct filter *f, const uint8_t *plain, struct chunk_header *h)
{
	struct choice c = choose(f, plain, h->plain_len);
	const uint8_t *planes = plain, *payload = plain;

	h->codec = CHUNK_CODEC_RAW;
	set_filter(h, c.word);
	if (c.word > 1) {
		gbs_encode(plain, h->plain_len, c.word, f->planes);
		planes = f->planes;
		if (h->planes > c.word)
			c.raw_mask |= (uint16_t)(1u << c.word); /* the tail */
	}
	if (c.word > 1 || !c.raw_mask)
		payload = store_planes(f, planes, c.raw_mask, h);
	if (h->codec != CHUNK_CODEC_RAW)
		return payload;
	/* Not worth it, or the sample promised too much: planes that stay raw gain nothing. */
	set_filter(h, 1);
	h->raw_mask = 1;
	h->plane_len[0] = h->plain_len;
	return plain;
}

/* The header, and the payload too unless it is `plain` and the caller takes it from there. */
static int encode(struct filter *f, const void *plain, size_t len, struct buf *out, bool *ret_raw)
{
	struct chunk_header h = {.plain_len = (uint32_t)len};
	uint8_t header[CHUNK_HEADER_MAX];
	const uint8_t *payload;
	int r;

	lock_none_held(LOCK_RANKS, "compression");
	if (len == 0 || len > CHUNK_PLAIN_MAX)
		return -EINVAL;
	r = reserve(f, len);
	if (r < 0)
		return r;
	payload = make_payload(f, plain, &h);
	if (!ret_raw || payload != plain) {
		r = chunk_frame_encode(&h, payload, out);
		if (r == 0 && ret_raw)
			*ret_raw = false;
		return r;
	}
	r = chunk_header_encode(&h, payload, header);
	if (r < 0)
		return r;
	if (buf_reserve(out, (size_t)r) < 0)
		return -ENOMEM;
	buf_put(out, header, (size_t)r);
	*ret_raw = true;
	return 0;
}

int filter_encode(struct filter *f, const void *plain, size_t len, struct buf *out)
{
	return encode(f, plain, len, out, NULL);
}

int filter_encode_head(struct filter *f, const void *plain, size_t len, struct buf *out,
		       bool *ret_raw)
{
	return encode(f, plain, len, out, ret_raw);
}

/* Decodes the planes of h one after another to ret_planes. */
static int load_planes(const struct chunk_header *h, const uint8_t *payload, uint8_t *ret_planes)
{
	for (uint8_t i = 0; i < h->planes; i++) {
		uint32_t stored = h->plane_len[i];
		uint32_t len = chunk_plane_plain_len(h, i);

		if (h->raw_mask >> i & 1) {
			if (stored != len)
				return -EBADMSG;
			memcpy(ret_planes, payload, len);
		} else if (LZ4_decompress_safe((const char *)payload, (char *)ret_planes,
					       (int)stored, (int)len) != (int)len) {
			return -EBADMSG;
		}
		payload += stored;
		ret_planes += len;
	}
	return 0;
}

static int decode(struct filter *f, const struct chunk_header *h, const uint8_t *payload,
		  void *ret_plain, size_t plain_len)
{
	int r;

	lock_none_held(LOCK_RANKS, "decompression");
	if (h->plain_len != plain_len)
		return -EBADMSG;
	if (h->filter == CHUNK_FILTER_NONE)
		return load_planes(h, payload, ret_plain);
	r = reserve(f, plain_len);
	if (r < 0)
		return r;
	r = load_planes(h, payload, f->planes);
	if (r < 0)
		return r;
	gbs_decode(f->planes, plain_len, h->word, ret_plain);
	return 0;
}

int filter_decode(struct filter *f, const void *frame, size_t frame_len, void *ret_plain,
		  size_t plain_len)
{
	struct chunk_header h;
	int r = chunk_frame_decode(frame, frame_len, &h);

	return r < 0 ? r
		     : decode(f, &h, (const uint8_t *)frame + h.header_len, ret_plain, plain_len);
}

/* In one piece, as it is. */
static bool is_raw(const struct chunk_header *h, size_t plain_len)
{
	return h->filter == CHUNK_FILTER_NONE && h->planes == 1 && (h->raw_mask & 1) &&
	       h->plain_len == plain_len && h->plane_len[0] == plain_len;
}

int filter_decode_within(struct filter *f, const void *frame, size_t frame_len, bool check_crc,
			 void *plain, size_t plain_len, const uint8_t **ret_bytes)
{
	struct chunk_header h;
	int r = check_crc ? chunk_frame_decode(frame, frame_len, &h)
			  : chunk_frame_open(frame, frame_len, &h);
	const uint8_t *payload;

	if (r < 0)
		return r;
	payload = (const uint8_t *)frame + h.header_len;
	*ret_bytes = is_raw(&h, plain_len) ? payload : plain;
	return *ret_bytes == payload ? 0 : decode(f, &h, payload, plain, plain_len);
}
