/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers, sizes, durations and times as text. */
#include "lib/util/parse.h"

#include "lib/util/clock.h"
#include "tests/unit/unit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

START_TEST(u64_takes_whole_decimal_numbers_only)
{
	static const char *const bad[] = {"", "-1", "+1", " 1", "1 ", "0x10", "1.0", "1e3", "a"};
	uint64_t v = 7;

	for (size_t i = 0; i < COUNT(bad); i++)
		unit_error(parse_u64(bad[i], &v), -EINVAL);
	unit_error(parse_u64("18446744073709551616", &v), -ERANGE);
	unit_error(parse_u64("99999999999999999999", &v), -ERANGE);
	ck_assert_uint_eq(v, 7);

	unit_ok(parse_u64("0", &v));
	ck_assert_uint_eq(v, 0);
	unit_ok(parse_u64("000042", &v));
	ck_assert_uint_eq(v, 42);
	unit_ok(parse_u64("18446744073709551615", &v));
	ck_assert_uint_eq(v, UINT64_MAX);
}
END_TEST

START_TEST(sizes_in_powers_of_1024)
{
	static const struct {
		const char *text;
		uint64_t bytes;
	} good[] = {{"0", 0},
		    {"512", 512},
		    {"512B", 512},
		    {"10K", 10240},
		    {"10k", 10240},
		    {"10KB", 10240},
		    {"10KiB", 10240},
		    {"1.5G", UINT64_C(3) << 29},
		    {".5M", 512 << 10},
		    {"2T", UINT64_C(2) << 40},
		    {"8388607T", UINT64_C(8388607) << 40},
		    /* Exact above what a double holds. */
		    {"9007199254740993", UINT64_C(9007199254740993)},
		    {"18446744073709551615", UINT64_MAX}};
	static const char *const bad[] = {"",	 "K",	 "-1",	"+1K",	"1 K",	 "1X",
					  "1KK", "1KBB", "1iB", "1e3K", "1.2.3", ".",
					  "1.",	 "0x10", "inf", "nan"};
	static const char *const large[] = {"18446744073709551616", "8388608T", "99999999999999T"};
	uint64_t v = 7;

	for (size_t i = 0; i < COUNT(bad); i++)
		unit_error(parse_size(bad[i], &v), -EINVAL);
	for (size_t i = 0; i < COUNT(large); i++)
		unit_error(parse_size(large[i], &v), -ERANGE);
	ck_assert_uint_eq(v, 7);
	for (size_t i = 0; i < COUNT(good); i++) {
		unit_ok(parse_size(good[i].text, &v));
		ck_assert_msg(v == good[i].bytes, "%s is %ju", good[i].text, (uintmax_t)v);
	}
}
END_TEST

START_TEST(durations_in_nanoseconds)
{
	static const struct {
		const char *text;
		int64_t ns;
	} good[] = {{"0", 0},
		    {"5", 5 * NS_PER_S},
		    {"5s", 5 * NS_PER_S},
		    {"0.25", 250 * NS_PER_MS},
		    {"200ms", 200 * NS_PER_MS},
		    {"2m", 120 * NS_PER_S},
		    {"1.5h", 5400 * NS_PER_S},
		    {"7d", 7 * 86400 * NS_PER_S}};
	static const char *const bad[] = {"", "s", "-5", "5 s", "5S", "5sec", "5M", "1h30m"};
	static const char *const large[] = {"999999d", "99999999999999999999"};
	int64_t v = 7;

	for (size_t i = 0; i < COUNT(bad); i++)
		unit_error(parse_duration(bad[i], &v), -EINVAL);
	for (size_t i = 0; i < COUNT(large); i++)
		unit_error(parse_duration(large[i], &v), -ERANGE);
	ck_assert_int_eq(v, 7);
	for (size_t i = 0; i < COUNT(good); i++) {
		unit_ok(parse_duration(good[i].text, &v));
		ck_assert_msg(v == good[i].ns, "%s is %jd", good[i].text, (intmax_t)v);
	}
}
END_TEST

START_TEST(numbers_of_any_length_are_read_safely)
{
	char text[1024];
	uint64_t size = 7;
	int64_t ns = 7;

	memset(text, '9', sizeof(text));
	text[sizeof(text) - 1] = '\0';
	unit_error(parse_size(text, &size), -ERANGE);
	unit_error(parse_duration(text, &ns), -ERANGE);
	text[1] = '.';
	unit_error(parse_duration(text, &ns), -ERANGE);
	ck_assert_uint_eq(size, 7);
	ck_assert_int_eq(ns, 7);
}
END_TEST

START_TEST(sizes_have_at_most_three_digits)
{
	static const struct {
		uint64_t bytes;
		const char *text;
	} cases[] = {{0, "0 B"},
		     {812, "812 B"},
		     {999, "999 B"},
		     {1000, "1.0 KiB"},
		     {1024, "1.0 KiB"},
		     {1536, "1.5 KiB"},
		     {10137, "9.9 KiB"},
		     {10200, "10 KiB"},
		     {1023487, "999 KiB"},
		     {1023488, "1.0 MiB"},
		     {UINT64_C(12) << 30, "12 GiB"},
		     {UINT64_C(5) << 40, "5.0 TiB"},
		     {UINT64_MAX, "16 EiB"}};
	char text[FORMAT_MAX];

	for (size_t i = 0; i < COUNT(cases); i++) {
		format_size(cases[i].bytes, text);
		ck_assert_str_eq(text, cases[i].text);
	}
}
END_TEST

START_TEST(ages_in_one_unit)
{
	static const struct {
		int64_t seconds;
		const char *text;
	} cases[] = {{-5, "0 s"},      {0, "0 s"},	  {119, "119 s"},
		     {120, "2 min"},   {7199, "119 min"}, {7200, "2 h"},
		     {172799, "47 h"}, {172800, "2 d"},	  {86400 * 365, "365 d"}};
	char text[FORMAT_MAX];

	for (size_t i = 0; i < COUNT(cases); i++) {
		format_age(cases[i].seconds * NS_PER_S, text);
		ck_assert_str_eq(text, cases[i].text);
	}
}
END_TEST

START_TEST(times_come_back_to_the_nanosecond)
{
	static const struct {
		int64_t ns;
		const char *text;
	} cases[] = {{0, "1970-01-01T00:00:00.000000000Z"},
		     {-1, "1969-12-31T23:59:59.999999999Z"},
		     {INT64_C(1709164800000000001), "2024-02-29T00:00:00.000000001Z"},
		     {INT64_C(1763719800123456789), "2025-11-21T10:10:00.123456789Z"}};
	char text[FORMAT_MAX];
	int64_t back;

	for (size_t i = 0; i < COUNT(cases); i++) {
		format_time(cases[i].ns, text);
		ck_assert_str_eq(text, cases[i].text);
		unit_ok(parse_time(text, &back));
		ck_assert_int_eq(back, cases[i].ns);
	}
}
END_TEST

START_TEST(times_with_fewer_digits_are_read)
{
	int64_t ns;

	unit_ok(parse_time("1970-01-01T00:00:01Z", &ns));
	ck_assert_int_eq(ns, NS_PER_S);
	unit_ok(parse_time("1970-01-01T00:00:01.5Z", &ns));
	ck_assert_int_eq(ns, 1500 * NS_PER_MS);
}
END_TEST

START_TEST(times_that_are_none_are_refused)
{
	static const char *const bad[] = {"",
					  "now",
					  "1970-01-01",
					  "1970-01-01T00:00:01",
					  "1970-01-01T00:00:01+00:00",
					  "1970-01-01T00:00:01.1234567890Z",
					  "1970-01-01T00:00:01Zx",
					  "1970-13-01T00:00:01Z",
					  "2026-02-30T00:00:00Z",
					  "9999-01-01T00:00:00Z",
					  "0001-01-01T00:00:00Z"};
	int64_t ns = 7;

	for (size_t i = 0; i < COUNT(bad); i++)
		unit_error(parse_time(bad[i], &ns), -EINVAL);
	ck_assert_int_eq(ns, 7);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_parse");
	TCase *t = unit_case(s, "parse");

	tcase_add_test(t, u64_takes_whole_decimal_numbers_only);
	tcase_add_test(t, sizes_in_powers_of_1024);
	tcase_add_test(t, durations_in_nanoseconds);
	tcase_add_test(t, numbers_of_any_length_are_read_safely);

	t = unit_case(s, "format");
	tcase_add_test(t, sizes_have_at_most_three_digits);
	tcase_add_test(t, ages_in_one_unit);
	tcase_add_test(t, times_come_back_to_the_nanosecond);
	tcase_add_test(t, times_with_fewer_digits_are_read);
	tcase_add_test(t, times_that_are_none_are_refused);
	return unit_run(s);
}
