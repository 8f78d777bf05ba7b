/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk frames: what comes back, what is chosen, what untrusted bytes can do. */
#include "lib/store/filter.h"

#include "lib/format/chunk.h"
#include "tests/unit/unit.h"

#define MIB   ((size_t)1 << 20)
#define GUARD 64

/* splitmix64: the same bytes in every run. */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

/* Near enough to a normal distribution of width 0.02, as initial weights have. */
static double normal(uint64_t *state)
{
	double sum = 0;

	for (unsigned i = 0; i < 12; i++)
		sum += (double)(next_random(state) >> 11) / (double)(UINT64_C(1) << 53);
	return (sum - 6) * 0.02;
}

enum content { ZEROS, RANDOM, TEXT, BF16, FP32, FP64, CONTENT_COUNT };

static void put_content(enum content kind, uint64_t seed, uint8_t *data, size_t len)
{
	static const char line[] = "{\"step\": %u, \"loss\": %u, \"rate\": 0.0003}\n";
	size_t unit = kind == BF16 ? 2 : kind == FP32 ? 4 : 8;
	char text[64];

	memset(data, 0, len);
	for (size_t at = 0; kind != ZEROS && at < len; at += unit) {
		size_t n = len - at < unit ? len - at : unit;
		uint64_t bits = next_random(&seed);
		double d;
		float f;

		if (kind == TEXT) {
			unit = (size_t)snprintf(text, sizeof(text), line, (unsigned)at,
						(unsigned)(bits & 0xffff));
			memcpy(data + at, text, len - at < unit ? len - at : unit);
			continue;
		}
		d = normal(&seed);
		f = (float)d;
		if (kind == FP64)
			memcpy(&bits, &d, sizeof(d));
		else if (kind != RANDOM)
			memcpy(&bits, (char *)&f + (kind == BF16 ? 2 : 0), unit);
		memcpy(data + at, &bits, n);
	}
}

static uint8_t *content(enum content kind, uint64_t seed, size_t len)
{
	uint8_t *data = malloc(len + 1);

	ck_assert_ptr_nonnull(data);
	put_content(kind, seed, data, len);
	return data;
}

/* Whether nothing was written before or behind the len bytes at span + GUARD. */
static bool guarded(const uint8_t *span, size_t len)
{
	for (size_t i = 0; i < GUARD; i++)
		if (span[i] != 0xa5 || span[GUARD + len + i] != 0xa5)
			return false;
	return true;
}

static void check_round_trip(struct filter *f, const uint8_t *plain, size_t len)
{
	cleanup_buf struct buf out = {0};
	cleanup_free uint8_t *back = malloc(len + 2 * GUARD);

	buf_put(&out, "before", 6);
	unit_ok(filter_encode(f, plain, len, &out));
	ck_assert_mem_eq(out.data, "before", 6);
	ck_assert_uint_le(out.len - 6, len + CHUNK_HEADER_MAX);
	memset(back, 0xa5, len + 2 * GUARD);
	unit_ok(filter_decode(f, out.data + 6, out.len - 6, back + GUARD, len));
	ck_assert_mem_eq(back + GUARD, plain, len);
	ck_assert(guarded(back, len));
}

START_TEST(every_content_of_every_length_comes_back)
{
	static const size_t large[] = {4095,   4096,	16383,		 16384,	      16385,
				       65537,  100000,	MIB - 3,	 MIB,	      MIB + 1,
				       262144, 1000000, CHUNK_PLAIN_MAX, 3 * MIB + 77};
	cleanup_filter struct filter *f = NULL;
	uint8_t *data = content((enum content)_i, 1, CHUNK_PLAIN_MAX);

	unit_ok(filter_new(&f));
	for (size_t len = 1; len < 300; len++)
		check_round_trip(f, data, len);
	for (size_t i = 0; i < sizeof(large) / sizeof(large[0]); i++)
		check_round_trip(f, data, large[i]);
	free(data);
}
END_TEST

/* Encodes and gives the header. */
static struct chunk_header header_of(const uint8_t *data, size_t len)
{
	cleanup_filter struct filter *f = NULL;
	cleanup_buf struct buf out = {0};
	struct chunk_header h;

	unit_ok(filter_new(&f));
	unit_ok(filter_encode(f, data, len, &out));
	unit_ok(chunk_frame_decode(out.data, out.len, &h));
	return h;
}

START_TEST(the_filter_fits_the_content)
{
	static const struct {
		enum content kind;
		enum chunk_filter filter;
		uint8_t word;
		enum chunk_codec codec;
		unsigned percent; /* stored size of plain size, at most */
	} want[] = {
		{ZEROS, CHUNK_FILTER_NONE, 1, CHUNK_CODEC_LZ4, 1},
		{RANDOM, CHUNK_FILTER_NONE, 1, CHUNK_CODEC_RAW, 100},
		{TEXT, CHUNK_FILTER_NONE, 1, CHUNK_CODEC_LZ4, 50},
		{BF16, CHUNK_FILTER_GBS, 2, CHUNK_CODEC_LZ4, 76},
		{FP32, CHUNK_FILTER_GBS, 4, CHUNK_CODEC_LZ4, 88},
		{FP64, CHUNK_FILTER_GBS, 8, CHUNK_CODEC_LZ4, 93},
	};

	for (size_t i = 0; i < CONTENT_COUNT; i++) {
		uint8_t *data = content(want[i].kind, 2, MIB);
		struct chunk_header h = header_of(data, MIB);

		ck_assert_msg(h.filter == want[i].filter && h.word == want[i].word &&
				      h.codec == want[i].codec,
			      "content %zu: filter %d, word %d, codec %d", i, (int)h.filter,
			      (int)h.word, (int)h.codec);
		ck_assert_msg(h.payload_len <= MIB / 100 * want[i].percent + MIB % 100,
			      "content %zu: %u bytes", i, h.payload_len);
		free(data);
	}
}
END_TEST

START_TEST(planes_of_noise_are_stored_raw)
{
	uint8_t *data = content(FP32, 3, MIB + 5);
	struct chunk_header h = header_of(data, MIB + 5);

	/* Both low bytes of the mantissa, and the five bytes that fill no word. */
	ck_assert_uint_eq(h.planes, 5);
	ck_assert_uint_eq(h.raw_mask & 0x1b, 0x13);
	free(data);
}
END_TEST

/* Reading it would cost more time than it saves space. */
START_TEST(a_plane_that_hardly_shrinks_is_stored_raw)
{
	enum { LEN = 16384 };
	uint8_t *data = content(RANDOM, 4, LEN);
	struct chunk_header h;

	for (size_t word = 0; word < LEN / 4; word++) {
		data[4 * word + 3] = 0x3f;
		if (word >= 1000 && word < 1104)
			data[4 * word] = 0;
	}
	h = header_of(data, LEN);
	ck_assert_uint_eq(h.word, 4);
	ck_assert_uint_eq(h.raw_mask, 0x7);
	free(data);
}
END_TEST

START_TEST(a_tail_of_zeros_comes_back)
{
	cleanup_filter struct filter *f = NULL;
	uint8_t *data = content(FP64, 4, 40000 + 63);

	unit_ok(filter_new(&f));
	memset(data + 40000, 0, 63);
	check_round_trip(f, data, 40000 + 63);
	free(data);
}
END_TEST

/* A sample that lies: what looks compressible at the four places is noise elsewhere. */
START_TEST(a_sample_that_lies_costs_nothing)
{
	enum { LEN = 64 << 10 };
	uint8_t *data = content(RANDOM, 4, LEN);
	struct chunk_header h;

	for (size_t i = 0; i < 4; i++)
		put_content(FP32, i, data + LEN / 8 * (2 * i + 1) - 2048, 4096);
	h = header_of(data, LEN);
	ck_assert_uint_le(h.payload_len, LEN);
	free(data);
}
END_TEST

START_TEST(one_chunk_has_one_frame)
{
	cleanup_filter struct filter *f = NULL;
	cleanup_buf struct buf first = {0};
	cleanup_buf struct buf again = {0};
	uint8_t *data = content(FP32, 5, 300001);
	uint8_t *other = content(TEXT, 5, 2 * MIB);

	unit_ok(filter_new(&f));
	unit_ok(filter_encode(f, data, 300001, &first));
	check_round_trip(f, other, 2 * MIB);
	unit_ok(filter_encode(f, data, 300001, &again));
	unit_same_bytes(first.data, first.len, again.data, again.len);
	free(data);
	free(other);
}
END_TEST

START_TEST(impossible_lengths_are_refused)
{
	cleanup_filter struct filter *f = NULL;
	cleanup_buf struct buf out = {0};
	uint8_t *data = content(ZEROS, 0, CHUNK_PLAIN_MAX + 1);

	unit_ok(filter_new(&f));
	buf_put(&out, "kept", 4);
	unit_error(filter_encode(f, data, 0, &out), -EINVAL);
	unit_error(filter_encode(f, data, CHUNK_PLAIN_MAX + 1, &out), -EINVAL);
	unit_same_bytes(out.data, out.len, "kept", 4);
	free(data);
}
END_TEST

/* filter_decode_within without the CRC, into `plain` whatever it takes. */
static int decode_unchecked(struct filter *f, const struct buf *frame, void *plain, size_t len)
{
	const uint8_t *bytes = NULL;
	int error = filter_decode_within(f, frame->data, frame->len, false, plain, len, &bytes);

	if (!error && bytes != plain)
		memcpy(plain, bytes, len);
	return error;
}

/* Without the CRC, damage gives an error or other bytes, which their hash tells: never more. */
START_TEST(damage_without_the_crc)
{
	cleanup_filter struct filter *f = NULL;
	cleanup_buf struct buf out = {0};
	cleanup_free uint8_t *data = content(BF16, 6, 5000), *back = malloc(5000);
	struct chunk_header h;

	unit_ok(filter_new(&f));
	unit_ok(filter_encode(f, data, 5000, &out));
	unit_ok(chunk_frame_decode(out.data, out.len, &h));
	out.data[h.header_len - 1] ^= 1; /* the CRC itself */
	unit_error(filter_decode(f, out.data, out.len, back, 5000), -EBADMSG);
	unit_ok(decode_unchecked(f, &out, back, 5000));
	ck_assert_mem_eq(back, data, 5000);
	for (size_t i = 0; i < out.len; i++) {
		int error;

		out.data[i] ^= 0x55;
		error = decode_unchecked(f, &out, back, 5000);
		ck_assert(!error || error == -EBADMSG || error == -EPROTONOSUPPORT);
		unit_error(filter_decode(f, out.data, out.len, back, 5000),
			   error == -EPROTONOSUPPORT ? error : -EBADMSG);
		out.data[i] ^= 0x55;
	}
}
END_TEST

START_TEST(what_is_stored_raw_is_given_where_it_lies)
{
	cleanup_filter struct filter *f = NULL;
	cleanup_buf struct buf raw = {0}, planes = {0};
	uint8_t *noise = content(RANDOM, 7, 5000), *words = content(BF16, 6, 5000), back[5000];
	const uint8_t *bytes = NULL;

	unit_ok(filter_new(&f));
	unit_ok(filter_encode(f, noise, 5000, &raw));
	unit_ok(filter_encode(f, words, 5000, &planes));
	memset(back, 7, sizeof(back));
	unit_ok(filter_decode_within(f, raw.data, raw.len, true, back, 5000, &bytes));
	ck_assert_ptr_eq(bytes, raw.data + raw.len - 5000);
	ck_assert_mem_eq(bytes, noise, 5000);
	ck_assert_int_eq(back[0], 7);
	unit_error(filter_decode_within(f, raw.data, raw.len, true, back, 4999, &bytes), -EBADMSG);
	unit_ok(filter_decode_within(f, planes.data, planes.len, true, back, 5000, &bytes));
	ck_assert_ptr_eq(bytes, back);
	ck_assert_mem_eq(back, words, 5000);
	raw.data[raw.len - 1] ^= 1;
	unit_error(filter_decode_within(f, raw.data, raw.len, true, back, 5000, &bytes), -EBADMSG);
	unit_ok(filter_decode_within(f, raw.data, raw.len, false, back, 5000, &bytes));
	free(noise);
	free(words);
}
END_TEST

START_TEST(another_length_is_damage)
{
	cleanup_filter struct filter *f = NULL;
	cleanup_buf struct buf out = {0};
	uint8_t *data = content(BF16, 6, 5000);
	uint8_t back[5002];

	unit_ok(filter_new(&f));
	unit_ok(filter_encode(f, data, 5000, &out));
	unit_error(filter_decode(f, out.data, out.len, back, 4999), -EBADMSG);
	unit_error(filter_decode(f, out.data, out.len, back, 5001), -EBADMSG);
	for (size_t len = 0; len < out.len; len++)
		unit_error(filter_decode(f, out.data, len, back, 5000), -EBADMSG);
	buf_put_u8(&out, 0);
	unit_error(filter_decode(f, out.data, out.len, back, 5000), -EBADMSG);
	free(data);
}
END_TEST

START_TEST(every_flipped_bit_is_noticed)
{
	cleanup_filter struct filter *f = NULL;
	cleanup_buf struct buf out = {0};
	uint8_t *data = content(FP32, 7, 1500);
	uint8_t back[1500];

	unit_ok(filter_new(&f));
	unit_ok(filter_encode(f, data, sizeof(back), &out));
	for (size_t bit = 0; bit < 8 * out.len; bit++) {
		out.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
		ck_assert_int_lt(filter_decode(f, out.data, out.len, back, sizeof(back)), 0);
		out.data[bit / 8] ^= (uint8_t)(1u << (bit % 8));
	}
	free(data);
}
END_TEST

/* Changes a frame and gives it a right CRC, as only an attacker does. */
static void forge(const struct buf *frame, uint64_t *seed, struct buf *out)
{
	struct chunk_header h;
	cleanup_free uint8_t *payload = NULL;
	uint32_t i;

	buf_reset(out);
	unit_ok(chunk_frame_decode(frame->data, frame->len, &h));
	payload = calloc(1, 2 * (size_t)h.payload_len + 64);
	memcpy(payload, frame->data + h.header_len, h.payload_len);
	for (uint64_t n = next_random(seed) % 8; n > 0; n--)
		payload[next_random(seed) % h.payload_len] = (uint8_t)next_random(seed);
	i = (uint32_t)(next_random(seed) % h.planes);
	switch (next_random(seed) % 4) {
	case 0: /* a plane of another stored length */
		h.plane_len[i] = (uint32_t)(next_random(seed) % (h.plane_len[i] + 16));
		break;
	case 1: /* other words */
		h.word = (uint8_t)(1u << (1 + next_random(seed) % 3));
		break;
	case 2: /* another plain length */
		h.plain_len += (uint32_t)(next_random(seed) % 64) - 32;
		break;
	default:
		break;
	}
	if (chunk_frame_encode(&h, payload, out) < 0)
		buf_put(out, frame->data, frame->len / 2);
}

START_TEST(forged_frames_stay_inside_their_bounds)
{
	enum { LEN = 3000 };
	cleanup_filter struct filter *f = NULL;
	cleanup_buf struct buf frame = {0};
	cleanup_buf struct buf forged = {0};
	cleanup_free uint8_t *data = content((enum content)_i, 8, LEN);
	cleanup_free uint8_t *back = malloc(LEN + 2 * GUARD);
	uint64_t seed = 9 + (uint64_t)_i;
	unsigned bad = 0;

	unit_ok(filter_new(&f));
	unit_ok(filter_encode(f, data, LEN, &frame));
	for (unsigned round = 0; round < 20000; round++) {
		int r;

		forge(&frame, &seed, &forged);
		memset(back, 0xa5, LEN + 2 * GUARD);
		r = filter_decode(f, forged.data, forged.len, back + GUARD, LEN);
		ck_assert_msg(r == 0 || r == -EBADMSG, "round %u: %d", round, r);
		bad += r != 0;
		ck_assert(guarded(back, LEN));
	}
	ck_assert_uint_gt(bad, 1000);
}
END_TEST

START_TEST(noise_is_no_frame)
{
	cleanup_filter struct filter *f = NULL;
	uint64_t seed = 10;
	uint8_t noise[200];
	uint8_t back[1000];

	unit_ok(filter_new(&f));
	for (unsigned round = 0; round < 20000; round++) {
		size_t len = next_random(&seed) % sizeof(noise);

		for (size_t i = 0; i < len; i++)
			noise[i] = (uint8_t)next_random(&seed);
		if (round % 2 && len >= 4)
			memcpy(noise, "EFC\1", 4);
		ck_assert_int_lt(filter_decode(f, noise, len, back, sizeof(back)), 0);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_filter");
	TCase *t = unit_case(s, "frames");

	tcase_set_timeout(t, 300);
	tcase_add_loop_test(t, every_content_of_every_length_comes_back, 0, CONTENT_COUNT);
	tcase_add_test(t, the_filter_fits_the_content);
	tcase_add_test(t, planes_of_noise_are_stored_raw);
	tcase_add_test(t, a_plane_that_hardly_shrinks_is_stored_raw);
	tcase_add_test(t, a_tail_of_zeros_comes_back);
	tcase_add_test(t, a_sample_that_lies_costs_nothing);
	tcase_add_test(t, one_chunk_has_one_frame);
	tcase_add_test(t, impossible_lengths_are_refused);
	tcase_add_test(t, damage_without_the_crc);
	tcase_add_test(t, what_is_stored_raw_is_given_where_it_lies);
	tcase_add_test(t, another_length_is_damage);
	tcase_add_test(t, every_flipped_bit_is_noticed);
	tcase_add_loop_test(t, forged_frames_stay_inside_their_bounds, 0, CONTENT_COUNT);
	tcase_add_test(t, noise_is_no_frame);
	return unit_run(s);
}
