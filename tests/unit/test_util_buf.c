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

int main(void)
{
	Suite *s = suite_create("util_buf");
	TCase *t = unit_case(s, "buffer");

	tcase_add_test(t, fixed_widths_are_little_endian);
	return unit_run(s);
}
