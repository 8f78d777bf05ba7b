/* SPDX-License-Identifier: Apache-2.0 */
/* Recipes. */
#include "lib/format/recipe.h"
#include "tests/unit/unit.h"

static struct hash hash_no(int i)
{
	struct hash h;

	hash_of(&i, sizeof(i), &h);
	return h;
}

static void add_chunk(struct recipe *r, int no, uint32_t len)
{
	struct hash h = hash_no(no);

	unit_ok(recipe_add_chunk(r, &h, len));
}

START_TEST(segments_come_back)
{
	cleanup_recipe struct recipe r = {0}, got = {0};
	cleanup_buf struct buf b = {0};

	add_chunk(&r, 1, CHUNK_PLAIN_MAX);
	unit_ok(recipe_add_zeros(&r, UINT64_C(1) << 40));
	add_chunk(&r, 2, 1);
	add_chunk(&r, 1, 500);
	unit_ok(recipe_add_zeros(&r, 1));
	unit_ok(recipe_encode(&r, &b));
	unit_ok(recipe_decode(b.data, b.len, &got));
	ck_assert_uint_eq(got.level, 0);
	ck_assert_uint_eq(got.size, r.size);
	ck_assert_uint_eq(got.size, CHUNK_PLAIN_MAX + (UINT64_C(1) << 40) + 502);
	ck_assert_uint_eq(got.count, 5);
	for (size_t i = 0; i < 5; i++) {
		ck_assert_uint_eq(got.segments[i].offset, r.segments[i].offset);
		ck_assert_uint_eq(got.segments[i].length, r.segments[i].length);
		ck_assert_int_eq(got.segments[i].zero, r.segments[i].zero);
		ck_assert(hash_equal(&got.segments[i].hash, &r.segments[i].hash));
	}
}
END_TEST

START_TEST(an_empty_recipe_comes_back)
{
	cleanup_recipe struct recipe r = {0}, got = {0};
	cleanup_buf struct buf b = {0};

	unit_ok(recipe_encode(&r, &b));
	unit_ok(recipe_decode(b.data, b.len, &got));
	ck_assert_uint_eq(got.size, 0);
	ck_assert_uint_eq(got.count, 0);
	ck_assert_uint_eq(recipe_find(&got, 0), 0);
}
END_TEST

START_TEST(runs_of_zeros_join_so_that_equal_content_has_one_encoding)
{
	cleanup_recipe struct recipe a = {0}, b = {0};
	cleanup_buf struct buf one = {0}, other = {0};

	unit_ok(recipe_add_zeros(&a, 10));
	unit_ok(recipe_add_zeros(&a, 0));
	unit_ok(recipe_add_zeros(&a, 20));
	add_chunk(&a, 1, 5);
	unit_ok(recipe_add_zeros(&b, 30));
	add_chunk(&b, 1, 5);
	ck_assert_uint_eq(a.count, 2);
	unit_ok(recipe_encode(&a, &one));
	unit_ok(recipe_encode(&b, &other));
	unit_same_bytes(one.data, one.len, other.data, other.len);
}
END_TEST

START_TEST(an_offset_finds_its_segment)
{
	cleanup_recipe struct recipe r = {0};

	for (int i = 0; i < 1000; i++)
		add_chunk(&r, i, (uint32_t)(1 + i % 17));
	for (size_t i = 0; i < r.count; i++) {
		const struct recipe_segment *s = &r.segments[i];

		ck_assert_uint_eq(recipe_find(&r, s->offset), i);
		ck_assert_uint_eq(recipe_find(&r, s->offset + s->length - 1), i);
	}
	ck_assert_uint_eq(recipe_find(&r, r.size), r.count);
	ck_assert_uint_eq(recipe_find(&r, UINT64_MAX), r.count);
}
END_TEST

START_TEST(limits_are_kept_when_adding)
{
	cleanup_recipe struct recipe r = {0};
	struct hash h = hash_no(1);

	unit_error(recipe_add_chunk(&r, &h, 0), -EINVAL);
	unit_error(recipe_add_chunk(&r, &h, CHUNK_PLAIN_MAX + 1), -EINVAL);
	unit_ok(recipe_add_zeros(&r, INT64_MAX));
	unit_error(recipe_add_zeros(&r, 1), -EFBIG);
	unit_error(recipe_add_zeros(&r, UINT64_MAX), -EFBIG);
	unit_error(recipe_add_chunk(&r, &h, 1), -EFBIG);
	ck_assert_uint_eq(r.size, INT64_MAX);
	ck_assert_uint_eq(r.count, 1);
}
END_TEST

START_TEST(a_level_1_recipe_has_no_zeros)
{
	cleanup_recipe struct recipe r = {.level = 1}, got = {0};
	cleanup_buf struct buf b = {0};

	add_chunk(&r, 1, 100);
	unit_ok(recipe_encode(&r, &b));
	unit_ok(recipe_decode(b.data, b.len, &got));
	ck_assert_uint_eq(got.level, 1);
	unit_ok(recipe_add_zeros(&r, 5));
	b.len = 0;
	unit_error(recipe_encode(&r, &b), -EINVAL);
	r.level = 2;
	unit_error(recipe_encode(&r, &b), -EINVAL);
	ck_assert_uint_eq(b.len, 0);
}
END_TEST

START_TEST(every_cut_is_malformed)
{
	cleanup_recipe struct recipe r = {0}, got = {0};
	cleanup_buf struct buf b = {0};

	add_chunk(&r, 1, 300);
	unit_ok(recipe_add_zeros(&r, 10));
	unit_ok(recipe_encode(&r, &b));
	for (size_t len = 0; len < b.len; len++)
		unit_error(recipe_decode(b.data, len, &got), -EBADMSG);
	buf_put_u8(&b, 0);
	unit_error(recipe_decode(b.data, b.len, &got), -EBADMSG);
	ck_assert_ptr_null(got.segments);
}
END_TEST

/* "EFR", version, level, size, count, then the given bytes. */
static int decode_raw(uint8_t version, uint8_t level, uint64_t size, uint64_t count,
		      const void *segments, size_t len)
{
	cleanup_recipe struct recipe got = {0};
	cleanup_buf struct buf b = {0};

	buf_put(&b, "EFR", 3);
	buf_put_u8(&b, version);
	buf_put_u8(&b, level);
	buf_put_varint(&b, size);
	buf_put_varint(&b, count);
	buf_put(&b, segments, len);
	return recipe_decode(b.data, b.len, &got);
}

START_TEST(each_broken_rule_is_malformed)
{
	uint8_t chunk[40] = {10}; /* 5 bytes, a hash of zeros */

	unit_ok(decode_raw(1, 0, 5, 1, chunk, 33));
	unit_error(decode_raw(2, 0, 5, 1, chunk, 33), -EPROTONOSUPPORT);
	unit_error(decode_raw(0, 0, 5, 1, chunk, 33), -EBADMSG);
	unit_error(decode_raw(1, 2, 5, 1, chunk, 33), -EBADMSG);
	unit_error(decode_raw(1, 0, 4, 1, chunk, 33), -EBADMSG);
	unit_error(decode_raw(1, 0, 5, 2, chunk, 33), -EBADMSG);
	unit_error(decode_raw(1, 0, 5, 0, chunk, 33), -EBADMSG);
	unit_error(decode_raw(1, 0, 0, 1, "\1", 1), -EBADMSG);
	unit_ok(decode_raw(1, 0, 3, 1, "\7", 1));
	unit_error(decode_raw(1, 1, 3, 1, "\7", 1), -EBADMSG);
	unit_error(decode_raw(1, 0, 6, 2, "\7\7", 2), -EBADMSG);
	unit_error(decode_raw(1, 0, 3, 1, "\x87\0", 2), -EBADMSG);
	unit_error(decode_raw(1, 0, 0, RECIPE_SEGMENTS_MAX, "", 0), -EBADMSG);
	unit_error(decode_raw(1, 0, 0, UINT64_MAX, "", 0), -EBADMSG);
	unit_error(decode_raw(1, 0, UINT64_MAX, 1, chunk, 33), -EBADMSG);
	/* 4 MiB + 1 byte */
	unit_error(decode_raw(1, 0, CHUNK_PLAIN_MAX + 1, 1,
			      "\x82\x80\x80\x04\0\0\0\0\0\0\0\0\0\0\0"
			      "\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
			      36),
		   -EBADMSG);
	/* Two holes of INT64_MAX with a chunk between. */
	{
		cleanup_buf struct buf b = {0};

		buf_put_varint(&b, UINT64_MAX);
		buf_put(&b, chunk, 33);
		buf_put_varint(&b, UINT64_MAX);
		unit_error(decode_raw(1, 0, 3, 3, b.data, b.len), -EBADMSG);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_recipe");
	TCase *t = unit_case(s, "recipe");

	tcase_add_test(t, segments_come_back);
	tcase_add_test(t, an_empty_recipe_comes_back);
	tcase_add_test(t, runs_of_zeros_join_so_that_equal_content_has_one_encoding);
	tcase_add_test(t, an_offset_finds_its_segment);
	tcase_add_test(t, limits_are_kept_when_adding);
	tcase_add_test(t, a_level_1_recipe_has_no_zeros);
	tcase_add_test(t, every_cut_is_malformed);
	tcase_add_test(t, each_broken_rule_is_malformed);
	return unit_run(s);
}
