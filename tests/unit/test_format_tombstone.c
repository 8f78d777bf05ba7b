/* SPDX-License-Identifier: Apache-2.0 */
/* Tombstones of dropped epochs. */
#include "lib/format/record.h"
#include "tests/unit/unit.h"

START_TEST(the_number_comes_back)
{
	const struct tombstone t = {.number = 42, .dropped_ns = INT64_C(1700000000000000001)};
	cleanup_record struct epoch_record record = {0};
	cleanup_buf struct buf b = {0};
	struct tombstone got = {0};

	unit_ok(tombstone_encode(&t, NULL, &b));
	ck_assert_str_eq(buf_str(&b), "{\n"
				      "  \"format\": 1,\n"
				      "  \"epoch\": 42,\n"
				      "  \"dropped\": \"2023-11-14T22:13:20.000000001Z\"\n"
				      "}\n");
	unit_ok(tombstone_decode(b.data, b.len, &got));
	ck_assert_uint_eq(got.number, 42);
	ck_assert_int_eq(got.dropped_ns, t.dropped_ns);
	unit_error(record_decode(b.data, b.len, &record), -EBADMSG);
}
END_TEST

START_TEST(the_record_comes_back)
{
	const struct tombstone t = {.number = 42, .dropped_ns = 7};
	cleanup_free char *record = NULL, *none = NULL, *huge = calloc(1, RECORD_ENCODED_MAX + 1);
	cleanup_buf struct buf b = {0}, plain = {0};
	const char *text = "{\n  \"format\": 1,\n  \"host\": \"h\\u0001\"\n}\n";
	struct tombstone got = {0};

	unit_ok(tombstone_encode(&t, text, &b));
	unit_ok(tombstone_decode_record(b.data, b.len, &got, &record));
	ck_assert_str_eq(record, text);
	ck_assert_uint_eq(got.number, 42);
	ck_assert_uint_gt(b.len, strlen(text));
	unit_ok(tombstone_decode(b.data, b.len, &got));
	unit_ok(tombstone_encode(&t, NULL, &plain));
	unit_ok(tombstone_decode_record(plain.data, plain.len, &got, &none));
	ck_assert_ptr_null(none);
	memset(huge, 'x', RECORD_ENCODED_MAX);
	buf_reset(&b);
	unit_error(tombstone_encode(&t, huge, &b), -EFBIG);
}
END_TEST

/* What a tombstone with these numbers and this record says. */
static void continues_is(uint64_t continues, uint64_t from, const char *record, uint64_t expected,
			 uint64_t expected_from)
{
	const struct tombstone t = {
		.number = 42, .dropped_ns = 7, .continues = continues, .continues_from = from};
	cleanup_buf struct buf b = {0};
	struct tombstone got = {.continues = 99, .continues_from = 99};

	unit_ok(tombstone_encode(&t, record, &b));
	unit_ok(tombstone_decode(b.data, b.len, &got));
	ck_assert_uint_eq(got.number, 42);
	ck_assert_uint_eq(got.continues, expected);
	ck_assert_uint_eq(got.continues_from, expected_from);
}

/* By itself, and of a tombstone from before it was there, from the record. */
START_TEST(what_it_continued_comes_back)
{
	const struct epoch_record record = {
		.number = 42,
		.continues = 40,
		.continues_from = 37,
		.volume = "0f8fad5b-d9cb-469f-a165-70867728950e",
	};
	cleanup_buf struct buf text = {0};

	unit_ok(record_encode(&record, &text));
	continues_is(41, 0, NULL, 41, 0);
	continues_is(41, 38, NULL, 41, 38);
	continues_is(0, 0, buf_str(&text), 40, 37);
	continues_is(40, 0, buf_str(&text), 40, 37);
	continues_is(41, 0, buf_str(&text), 41, 0);
	continues_is(0, 0, "{}", 0, 0);
}
END_TEST

START_TEST(a_record_is_no_tombstone)
{
	const struct epoch_record record = {.number = 1,
					    .volume = "0f8fad5b-d9cb-469f-a165-70867728950e"};
	cleanup_buf struct buf b = {0};
	struct tombstone got = {.number = 7};

	unit_ok(record_encode(&record, &b));
	unit_error(tombstone_decode(b.data, b.len, &got), -EBADMSG);
	ck_assert_uint_eq(got.number, 7);
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
		{"{\"format\":1,\"epoch\":2,\"dropped\":\"2026-01-01T00:00:00Z\",\"continues_from\":-1}",
		 -EBADMSG},
	};
	static const struct tombstone refused[] = {
		{.dropped_ns = 1},
		{.number = UINT64_MAX, .dropped_ns = 1},
		{.number = 1, .dropped_ns = -1},
		{.number = 1, .dropped_ns = 1, .continues = UINT64_MAX},
		{.number = 1, .dropped_ns = 1, .continues_from = UINT64_MAX},
	};
	cleanup_buf struct buf b = {0};
	struct tombstone got = {.number = 7};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		unit_error(tombstone_decode(cases[i].text, strlen(cases[i].text), &got),
			   cases[i].error);
	ck_assert_uint_eq(got.number, 7);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++)
		unit_error(tombstone_encode(&refused[i], NULL, &b), -EINVAL);
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
