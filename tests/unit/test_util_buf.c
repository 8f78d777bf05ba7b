/* SPDX-License-Identifier: Apache-2.0 */
/* The growing buffer and the bounds-checked reader. */
#include "lib/util/buf.h"

#include "tests/unit/unit.h"

START_TEST(fixed_widths_are_little_endian)
{
	static const uint8_t want[] = {0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04, 0x0f,
				       0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09, 0x08};
	cleanup_buf struct buf b = {0};
	struct reader r;

	buf_put_u8(&b, 0x01);
	buf_put_u16(&b, 0x0203);
	buf_put_u32(&b, 0x04050607);
	buf_put_u64(&b, UINT64_C(0x08090a0b0c0d0e0f));
	unit_ok(buf_error(&b));
	unit_same_bytes(b.data, b.len, want, sizeof(want));

	r = reader_of(b.data, b.len);
	ck_assert_uint_eq(reader_u8(&r), 0x01);
	ck_assert_uint_eq(reader_u16(&r), 0x0203);
	ck_assert_uint_eq(reader_u32(&r), 0x04050607);
	ck_assert_uint_eq(reader_u64(&r), UINT64_C(0x08090a0b0c0d0e0f));
	unit_ok(reader_error(&r));
	ck_assert_uint_eq(reader_left(&r), 0);
}
END_TEST

static const struct {
	uint64_t value;
	size_t len;
	uint8_t bytes[10];
} varints[] = {
	{0, 1, {0x00}},
	{1, 1, {0x01}},
	{127, 1, {0x7f}},
	{128, 2, {0x80, 0x01}},
	{300, 2, {0xac, 0x02}},
	{16383, 2, {0xff, 0x7f}},
	{16384, 3, {0x80, 0x80, 0x01}},
	{UINT32_MAX, 5, {0xff, 0xff, 0xff, 0xff, 0x0f}},
	{UINT64_MAX, 10, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}},
};
#define VARINTS (int)(sizeof(varints) / sizeof(varints[0]))

START_TEST(varint_has_its_leb128_form_and_comes_back)
{
	cleanup_buf struct buf b = {0};
	struct reader r;

	buf_put_varint(&b, varints[_i].value);
	unit_ok(buf_error(&b));
	unit_same_bytes(b.data, b.len, varints[_i].bytes, varints[_i].len);
	r = reader_of(b.data, b.len);
	ck_assert_uint_eq(reader_varint(&r), varints[_i].value);
	unit_ok(reader_error(&r));
	ck_assert_uint_eq(reader_left(&r), 0);
}
END_TEST

START_TEST(varint_cut_short_fails)
{
	for (size_t len = 0; len < varints[_i].len; len++) {
		struct reader r = reader_of(varints[_i].bytes, len);

		ck_assert_uint_eq(reader_varint(&r), 0);
		unit_error(reader_error(&r), -EBADMSG);
	}
}
END_TEST

START_TEST(varint_above_64_bits_fails)
{
	static const uint8_t too_large[] = {0xff, 0xff, 0xff, 0xff, 0xff,
					    0xff, 0xff, 0xff, 0xff, 0x02};
	static const uint8_t too_long[] = {0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
					   0x80, 0x80, 0x80, 0x80, 0x00};
	struct reader r = reader_of(too_large, sizeof(too_large));

	ck_assert_uint_eq(reader_varint(&r), 0);
	unit_error(reader_error(&r), -EBADMSG);
	r = reader_of(too_long, sizeof(too_long));
	ck_assert_uint_eq(reader_varint(&r), 0);
	unit_error(reader_error(&r), -EBADMSG);
}
END_TEST

START_TEST(failed_reader_stays_failed)
{
	static const uint8_t bytes[] = {1, 2, 3};
	struct reader r = reader_of(bytes, sizeof(bytes));

	ck_assert_uint_eq(reader_u32(&r), 0);
	unit_error(reader_error(&r), -EBADMSG);
	/* The three bytes are still there, but what they mean is unknown now. */
	ck_assert_uint_eq(reader_u8(&r), 0);
	ck_assert_uint_eq(reader_u16(&r), 0);
	ck_assert_uint_eq(reader_u64(&r), 0);
	ck_assert_ptr_null(reader_skip(&r, 0));
	ck_assert_uint_eq(reader_left(&r), 0);
	unit_error(reader_error(&r), -EBADMSG);
}
END_TEST

START_TEST(skip_never_leaves_the_span)
{
	static const uint8_t bytes[] = {1, 2, 3};
	struct reader r = reader_of(bytes, sizeof(bytes));

	ck_assert_ptr_eq(reader_skip(&r, 2), bytes);
	ck_assert_uint_eq(reader_left(&r), 1);
	ck_assert_ptr_eq(reader_skip(&r, 0), bytes + 2);
	ck_assert_ptr_null(reader_skip(&r, UINT64_MAX));
	unit_error(reader_error(&r), -EBADMSG);

	r = reader_of(NULL, 0);
	ck_assert_uint_eq(reader_left(&r), 0);
	unit_ok(reader_error(&r));
	ck_assert_uint_eq(reader_u8(&r), 0);
	unit_error(reader_error(&r), -EBADMSG);
}
END_TEST

START_TEST(byte_strings_come_back)
{
	cleanup_buf struct buf b = {0};
	const uint8_t *p;
	struct reader r;
	size_t len = 99;

	buf_put_bytes(&b, "weights", 7);
	buf_put_bytes(&b, NULL, 0);
	unit_ok(buf_error(&b));
	r = reader_of(b.data, b.len);
	p = reader_bytes(&r, 7, &len);
	ck_assert_ptr_nonnull(p);
	unit_same_bytes(p, len, "weights", 7);
	ck_assert_ptr_nonnull(reader_bytes(&r, 7, &len));
	ck_assert_uint_eq(len, 0);
	unit_ok(reader_error(&r));
}
END_TEST

START_TEST(byte_string_above_its_bound_or_the_span_fails)
{
	cleanup_buf struct buf b = {0};
	size_t len = 99;
	struct reader r;

	buf_put_bytes(&b, "weights", 7);
	r = reader_of(b.data, b.len);
	ck_assert_ptr_null(reader_bytes(&r, 6, &len));
	unit_error(reader_error(&r), -EBADMSG);
	r = reader_of(b.data, b.len - 1);
	ck_assert_ptr_null(reader_bytes(&r, 7, &len));
	unit_error(reader_error(&r), -EBADMSG);
	ck_assert_uint_eq(len, 99);

	buf_reset(&b);
	buf_put_varint(&b, UINT64_MAX);
	r = reader_of(b.data, b.len);
	ck_assert_ptr_null(reader_bytes(&r, SIZE_MAX, &len));
	unit_error(reader_error(&r), -EBADMSG);
}
END_TEST

START_TEST(growing_keeps_the_content)
{
	cleanup_buf struct buf b = {0};

	for (uint32_t i = 0; i < 100000; i++)
		buf_put_u32(&b, i * 2654435761u);
	unit_ok(buf_error(&b));
	ck_assert_uint_eq(b.len, 400000);
	struct reader r = reader_of(b.data, b.len);

	for (uint32_t i = 0; i < 100000; i++)
		if (reader_u32(&r) != i * 2654435761u)
			ck_abort_msg("entry %u differs", i);
	unit_ok(reader_error(&r));
}
END_TEST

START_TEST(failed_append_is_remembered_until_reset)
{
	cleanup_buf struct buf b = {0};

	buf_put(&b, "abc", 3);
	unit_error(buf_reserve(&b, SIZE_MAX), -ENOMEM);
	buf_put(&b, "def", 3);
	buf_printf(&b, "%d", 7);
	unit_error(buf_error(&b), -ENOMEM);
	ck_assert_uint_eq(b.len, 3);
	ck_assert_str_eq(buf_str(&b), "");

	buf_reset(&b);
	buf_put(&b, "def", 3);
	unit_ok(buf_error(&b));
	ck_assert_str_eq(buf_str(&b), "def");
}
END_TEST

START_TEST(text_is_terminated_but_not_longer)
{
	cleanup_buf struct buf b = {0};

	ck_assert_str_eq(buf_str(&b), "");
	buf_printf(&b, "%s-%03d", "step", 7);
	buf_printf(&b, "%s", "");
	ck_assert_str_eq(buf_str(&b), "step-007");
	ck_assert_uint_eq(b.len, 8);
	/* 64 bytes: the terminator just does not fit into the first allocation. */
	buf_reset(&b);
	buf_printf(&b, "%064d", 1);
	ck_assert_uint_eq(strlen(buf_str(&b)), 64);
}
END_TEST

START_TEST(steal_leaves_an_empty_buffer)
{
	cleanup_buf struct buf b = {0};
	cleanup_free char *text = NULL;
	size_t len = 99;

	buf_put(&b, "abc", 4);
	text = buf_steal(&b, &len);
	unit_same_bytes(text, len, "abc", 4);
	ck_assert_ptr_null(b.data);
	ck_assert_uint_eq(b.len, 0);

	ck_assert_str_eq(buf_str(&b), ""); /* memory, but no content */
	ck_assert_ptr_null(buf_steal(&b, &len));
	ck_assert_uint_eq(len, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_buf");
	TCase *t = unit_case(s, "buffer");

	tcase_add_test(t, fixed_widths_are_little_endian);
	tcase_add_test(t, growing_keeps_the_content);
	tcase_add_test(t, failed_append_is_remembered_until_reset);
	tcase_add_test(t, text_is_terminated_but_not_longer);
	tcase_add_test(t, steal_leaves_an_empty_buffer);

	t = unit_case(s, "reader");
	tcase_add_loop_test(t, varint_has_its_leb128_form_and_comes_back, 0, VARINTS);
	tcase_add_loop_test(t, varint_cut_short_fails, 0, VARINTS);
	tcase_add_test(t, varint_above_64_bits_fails);
	tcase_add_test(t, failed_reader_stays_failed);
	tcase_add_test(t, skip_never_leaves_the_span);
	tcase_add_test(t, byte_strings_come_back);
	tcase_add_test(t, byte_string_above_its_bound_or_the_span_fails);
	return unit_run(s);
}
