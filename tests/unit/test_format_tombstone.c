/* SPDX-License-Identifier: Apache-2.0 */
/* Tombstones of dropped epochs. */
#include "lib/format/record.h"
#include "lib/format/tombstone.h"
#include "tests/unit/unit.h"

START_TEST(the_number_comes_back)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_buf struct buf b = {0};
	uint64_t number = 0;

	unit_ok(tombstone_encode(42, INT64_C(1700000000000000001), 0, NULL, &b));
	ck_assert_str_eq(buf_str(&b), "{\n"
				      "  \"format\": 1,\n"
				      "  \"epoch\": 42,\n"
				      "  \"dropped\": \"2023-11-14T22:13:20.000000001Z\"\n"
				      "}\n");
	unit_ok(tombstone_decode(b.data, b.len, &number));
	ck_assert_uint_eq(number, 42);
	unit_error(record_decode(b.data, b.len, &record), -EBADMSG);
}
END_TEST

START_TEST(the_record_comes_back)
{
	cleanup_free char *record = NULL, *none = NULL, *huge = calloc(1, RECORD_ENCODED_MAX + 1);
	cleanup_buf struct buf b = {0}, plain = {0};
	const char *text = "{\n  \"format\": 1,\n  \"host\": \"h\\u0001\"\n}\n";
	uint64_t number = 0, continues = 9;

	unit_ok(tombstone_encode(42, 7, 0, text, &b));
	unit_ok(tombstone_decode_record(b.data, b.len, &number, &continues, &record));
	ck_assert_str_eq(record, text);
	ck_assert_uint_eq(number, 42);
	ck_assert_uint_gt(b.len, strlen(text));
	unit_ok(tombstone_decode(b.data, b.len, &number));
	unit_ok(tombstone_encode(42, 7, 0, NULL, &plain));
	unit_ok(tombstone_decode_record(plain.data, plain.len, &number, &continues, &none));
	ck_assert_ptr_null(none);
	memset(huge, 'x', RECORD_ENCODED_MAX);
	buf_reset(&b);
	unit_error(tombstone_encode(42, 7, 0, huge, &b), -EFBIG);
}
END_TEST

static void continues_is(const struct buf *b, uint64_t expected)
{
	uint64_t number, continues = 99;

	unit_ok(tombstone_decode_record(b->data, b->len, &number, &continues, NULL));
	ck_assert_uint_eq(number, 42);
	ck_assert_uint_eq(continues, expected);
}

/* By itself, and of a tombstone from before it was there, from the record. */
START_TEST(what_it_continued_comes_back)
{
	const struct epoch_record record = {
		.number = 42, .continues = 40, .volume = "0f8fad5b-d9cb-469f-a165-70867728950e"};
	cleanup_buf struct buf b = {0}, text = {0};

	unit_ok(tombstone_encode(42, 7, 41, NULL, &b));
	continues_is(&b, 41);
	buf_reset(&b);
	unit_ok(record_encode(&record, &text));
	unit_ok(tombstone_encode(42, 7, 0, buf_str(&text), &b));
	continues_is(&b, 40);
	buf_reset(&b);
	unit_ok(tombstone_encode(42, 7, 0, "{}", &b));
	continues_is(&b, 0);
}
END_TEST

START_TEST(a_record_is_no_tombstone)
{
	const struct epoch_record record = {.number = 1,
					    .volume = "0f8fad5b-d9cb-469f-a165-70867728950e"};
	cleanup_buf struct buf b = {0};
	uint64_t number = 7;

	unit_ok(record_encode(&record, &b));
	unit_error(tombstone_decode(b.data, b.len, &number), -EBADMSG);
	ck_assert_uint_eq(number, 7);
}
END_TEST

START_TEST(malformed_ones_are_refused)
{
	static const struct {
		const char *text;
		int error;
	} cases[] = {
		{"", -EBADMSG},
		{"[]", -EBADMSG},
		{"{\"format\":2}", -EPROTONOSUPPORT},
		{"{\"epoch\":1,\"dropped\":\"2026-01-01T00:00:00Z\"}", -EBADMSG},
		{"{\"format\":1,\"dropped\":\"2026-01-01T00:00:00Z\"}", -EBADMSG},
		{"{\"format\":1,\"epoch\":0,\"dropped\":\"2026-01-01T00:00:00Z\"}", -EBADMSG},
		{"{\"format\":1,\"epoch\":-1,\"dropped\":\"2026-01-01T00:00:00Z\"}", -EBADMSG},
		{"{\"format\":1,\"epoch\":1,\"dropped\":\"soon\"}", -EBADMSG},
		{"{\"format\":1,\"epoch\":1}", -EBADMSG},
		{"{\"format\":1,\"epoch\":2,\"dropped\":\"2026-01-01T00:00:00Z\",\"continues\":-1}",
		 -EBADMSG},
		{"{\"format\":1,\"epoch\":2,\"dropped\":\"2026-01-01T00:00:00Z\",\"continues\":\"1\"}",
		 -EBADMSG},
	};
	cleanup_buf struct buf b = {0};
	uint64_t number = 7;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		unit_error(tombstone_decode(cases[i].text, strlen(cases[i].text), &number),
			   cases[i].error);
	ck_assert_uint_eq(number, 7);
	unit_error(tombstone_encode(0, 1, 0, NULL, &b), -EINVAL);
	unit_error(tombstone_encode(UINT64_MAX, 1, 0, NULL, &b), -EINVAL);
	unit_error(tombstone_encode(1, -1, 0, NULL, &b), -EINVAL);
	unit_error(tombstone_encode(1, 1, UINT64_MAX, NULL, &b), -EINVAL);
	ck_assert_uint_eq(b.len, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_tombstone");
	TCase *t = unit_case(s, "tombstone");

	tcase_add_test(t, the_number_comes_back);
	tcase_add_test(t, the_record_comes_back);
	tcase_add_test(t, what_it_continued_comes_back);
	tcase_add_test(t, a_record_is_no_tombstone);
	tcase_add_test(t, malformed_ones_are_refused);
	return unit_run(s);
}
