/* SPDX-License-Identifier: Apache-2.0 */
/* Chunk frames. */
#include "lib/format/chunk.h"
#include "tests/unit/unit.h"

static uint8_t payload[CHUNK_PLAIN_MAX];

static struct chunk_header raw_header(uint32_t len)
{
	return (struct chunk_header){
		.word = 1, .planes = 1, .raw_mask = 1, .plain_len = len, .plane_len = {len}};
}

/* 100 groups of 4-byte words and 7 bytes: planes 0 and 3 raw, 1 and 2 compressed, then the rest. */
static struct chunk_header gbs_header(void)
{
	return (struct chunk_header){
		.filter = CHUNK_FILTER_GBS,
		.codec = CHUNK_CODEC_LZ4,
		.word = 4,
		.planes = 5,
		.raw_mask = 0x19,
		.plain_len = 100 * 32 + 7,
		.plane_len = {800, 799, 1, 800, 7},
	};
}

static void check_round_trip(const struct chunk_header *h, uint32_t len)
{
	cleanup_buf struct buf frame = {0};
	struct chunk_header got;
	uint8_t header[CHUNK_HEADER_MAX];
	int header_len = chunk_header_encode(h, payload, header);

	ck_assert_int_gt(header_len, 0);
	unit_ok(chunk_frame_encode(h, payload, &frame));
	unit_ok(chunk_frame_decode(frame.data, frame.len, &got));
	ck_assert_uint_eq(got.filter, h->filter);
	ck_assert_uint_eq(got.codec, h->codec);
	ck_assert_uint_eq(got.word, h->word);
	ck_assert_uint_eq(got.planes, h->planes);
	ck_assert_uint_eq(got.raw_mask, h->raw_mask);
	ck_assert_uint_eq(got.plain_len, h->plain_len);
	for (int i = 0; i < h->planes; i++)
		ck_assert_uint_eq(got.plane_len[i], h->plane_len[i]);
	ck_assert_uint_eq(got.payload_len, len);
	ck_assert_uint_eq(got.header_len, (unsigned int)header_len);
	ck_assert_uint_eq(frame.len, (size_t)header_len + len);
	ck_assert_mem_eq(frame.data, header, (size_t)header_len);
	ck_assert_mem_eq(frame.data + got.header_len, payload, len);
}

START_TEST(every_kind_of_frame_comes_back)
{
	struct chunk_header h;

	for (size_t i = 0; i < sizeof(payload); i++)
		payload[i] = (uint8_t)(i * 7 + (i >> 8));
	h = raw_header(1);
	check_round_trip(&h, 1);
	h = raw_header(CHUNK_PLAIN_MAX);
	check_round_trip(&h, CHUNK_PLAIN_MAX);
	h = raw_header(1000);
	h.codec = CHUNK_CODEC_LZ4;
	h.raw_mask = 0;
	h.plane_len[0] = 999;
	check_round_trip(&h, 999);
	h = gbs_header();
	check_round_trip(&h, 800 + 799 + 1 + 800 + 7);
}
END_TEST

START_TEST(the_largest_header_fits)
{
	struct chunk_header h = {.filter = CHUNK_FILTER_GBS,
				 .codec = CHUNK_CODEC_LZ4,
				 .word = 8,
				 .planes = 9,
				 .raw_mask = 0x100,
				 .plain_len = CHUNK_PLAIN_MAX - 1};
	uint8_t header[CHUNK_HEADER_MAX];

	for (uint8_t i = 0; i < 8; i++)
		h.plane_len[i] = chunk_plane_plain_len(&h, i) - 1;
	h.plane_len[8] = 63;
	ck_assert_int_gt(chunk_header_encode(&h, payload, header), 0);
	ck_assert_int_le(chunk_header_encode(&h, payload, header), CHUNK_HEADER_MAX);
}
END_TEST

START_TEST(planes_share_out_the_plain_bytes)
{
	static const uint8_t words[] = {2, 4, 8};

	for (size_t w = 0; w < 3; w++) {
		for (uint32_t len = 8u * words[w]; len < 300; len++) {
			struct chunk_header h = {
				.filter = CHUNK_FILTER_GBS, .word = words[w], .plain_len = len};
			uint8_t planes = chunk_planes(h.filter, h.word, len);
			uint32_t sum = 0;

			for (uint8_t i = 0; i < planes; i++) {
				ck_assert_uint_gt(chunk_plane_plain_len(&h, i), 0);
				sum += chunk_plane_plain_len(&h, i);
			}
			ck_assert_uint_eq(sum, len);
			ck_assert_uint_eq(planes, len % (8u * words[w]) ? words[w] + 1u : words[w]);
		}
	}
	ck_assert_uint_eq(chunk_planes(CHUNK_FILTER_NONE, 1, 5), 1);
}
END_TEST

static void check_refused(struct chunk_header h)
{
	cleanup_buf struct buf frame = {0};

	unit_error(chunk_frame_encode(&h, payload, &frame), -EINVAL);
	ck_assert_uint_eq(frame.len, 0);
}

START_TEST(headers_that_break_a_rule_are_not_written)
{
	struct chunk_header h;

#define REFUSED(start, change)                                                                     \
	do {                                                                                       \
		h = (start);                                                                       \
		change;                                                                            \
		check_refused(h);                                                                  \
	} while (0)
	REFUSED(raw_header(1), h.plain_len = 0; h.plane_len[0] = 0);
	REFUSED(raw_header(CHUNK_PLAIN_MAX), h.plain_len++; h.plane_len[0]++);
	REFUSED(raw_header(5), h.plane_len[0] = 4);
	REFUSED(raw_header(5), h.word = 4);
	REFUSED(raw_header(5), h.planes = 0);
	REFUSED(raw_header(5), h.planes = 2);
	REFUSED(raw_header(5), h.raw_mask = 3);
	REFUSED(raw_header(5), h.codec = CHUNK_CODEC_LZ4);
	REFUSED(raw_header(5), h.raw_mask = 0);
	REFUSED(raw_header(5), h.raw_mask = 0; h.codec = CHUNK_CODEC_LZ4);
	REFUSED(raw_header(5), h.codec = (enum chunk_codec)2);
	REFUSED(raw_header(5), h.filter = (enum chunk_filter)2);
	REFUSED(gbs_header(), h.word = 3);
	REFUSED(gbs_header(), h.word = 0);
	REFUSED(gbs_header(), h.planes = 4);
	REFUSED(gbs_header(), h.plane_len[1] = 800);
	REFUSED(gbs_header(), h.plane_len[1] = 0);
	REFUSED(gbs_header(), h.plane_len[0] = 799);
	REFUSED(gbs_header(), h.raw_mask = 0x09; h.plane_len[4] = 6);
	REFUSED(gbs_header(), h.plain_len = 31);
#undef REFUSED
}
END_TEST

START_TEST(any_changed_bit_is_noticed)
{
	cleanup_buf struct buf frame = {0};
	struct chunk_header h = gbs_header(), got;

	unit_ok(chunk_frame_encode(&h, payload, &frame));
	for (size_t i = 0; i < frame.len * 8; i++) {
		int error;

		frame.data[i / 8] ^= (uint8_t)(1u << i % 8);
		error = chunk_frame_decode(frame.data, frame.len, &got);
		ck_assert_msg(error == -EBADMSG || error == -EPROTONOSUPPORT, "bit %zu: %d", i,
			      error);
		frame.data[i / 8] ^= (uint8_t)(1u << i % 8);
	}
	unit_ok(chunk_frame_decode(frame.data, frame.len, &got));
}
END_TEST

START_TEST(cut_or_longer_frames_are_malformed)
{
	cleanup_buf struct buf frame = {0};
	struct chunk_header h = raw_header(40), got;

	unit_ok(chunk_frame_encode(&h, payload, &frame));
	for (size_t len = 0; len < frame.len; len++) {
		uint8_t *cut = malloc(len + 1);

		memcpy(cut, frame.data, len);
		unit_error(chunk_frame_decode(cut, len, &got), -EBADMSG);
		free(cut);
	}
	buf_put_u8(&frame, 0);
	unit_error(chunk_frame_decode(frame.data, frame.len, &got), -EBADMSG);
	/* The header alone does not mind what follows it. */
	unit_ok(chunk_header_decode(frame.data, frame.len, &got));
	unit_ok(chunk_header_decode(frame.data, got.header_len, &got));
	unit_error(chunk_header_decode(frame.data, got.header_len - 1, &got), -EBADMSG);
}
END_TEST

START_TEST(what_a_later_program_wrote_is_told_apart)
{
	/* version, flags, filter, codec */
	static const struct {
		size_t at;
		uint8_t value;
		int error;
	} cases[] = {{0, 'X', -EBADMSG},       {3, 2, -EPROTONOSUPPORT}, {3, 0, -EBADMSG},
		     {4, 1, -EPROTONOSUPPORT}, {4, 2, -EPROTONOSUPPORT}, {5, 2, -EPROTONOSUPPORT},
		     {7, 2, -EPROTONOSUPPORT}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		cleanup_buf struct buf frame = {0};
		struct chunk_header h = raw_header(40), got;

		unit_ok(chunk_frame_encode(&h, payload, &frame));
		frame.data[cases[i].at] = cases[i].value;
		unit_error(chunk_header_decode(frame.data, frame.len, &got), cases[i].error);
		unit_error(chunk_frame_decode(frame.data, frame.len, &got), cases[i].error);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_chunk");
	TCase *t = unit_case(s, "frame");

	tcase_add_test(t, every_kind_of_frame_comes_back);
	tcase_add_test(t, the_largest_header_fits);
	tcase_add_test(t, planes_share_out_the_plain_bytes);
	tcase_add_test(t, headers_that_break_a_rule_are_not_written);
	tcase_add_test(t, any_changed_bit_is_noticed);
	tcase_add_test(t, cut_or_longer_frames_are_malformed);
	tcase_add_test(t, what_a_later_program_wrote_is_told_apart);
	return unit_run(s);
}
