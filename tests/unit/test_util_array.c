/* SPDX-License-Identifier: Apache-2.0 */
/* Sets of numbers, kept as spans. */
#include "lib/util/array.h"

#include "tests/unit/unit.h"

START_TEST(an_empty_one_reaches_nothing)
{
	struct spans s = {0};

	ck_assert(spans_reach(&s, 0));
	ck_assert(!spans_reach(&s, 1));
	spans_add(&s, 5, 5);
	spans_add(&s, 9, 3);
	ck_assert_uint_eq(s.count, 0);
	spans_free(&s);
}
END_TEST

START_TEST(spans_that_touch_are_one)
{
	struct spans s = {0};

	spans_add(&s, 10, 20);
	spans_add(&s, 30, 40);
	spans_add(&s, 50, 60);
	ck_assert_uint_eq(s.count, 3);
	spans_add(&s, 40, 45);
	ck_assert_uint_eq(s.count, 3);
	ck_assert(!spans_reach(&s, 60));
	spans_add(&s, 0, 10);
	ck_assert_uint_eq(s.count, 3);
	ck_assert(spans_reach(&s, 20) && !spans_reach(&s, 21));
	spans_add(&s, 15, 55);
	ck_assert_uint_eq(s.count, 1);
	ck_assert(spans_reach(&s, 60) && !spans_reach(&s, 61));
	spans_free(&s);
	ck_assert(!spans_reach(&s, 1));
}
END_TEST

/* Beside a map of bytes. */
START_TEST(any_order)
{
	for (unsigned seed = 0; seed < 200; seed++) {
		struct spans s = {0};
		bool map[64] = {0};
		unsigned x = seed + 1;
		uint64_t reach = 0;

		for (unsigned i = 0; i < 40; i++) {
			uint64_t from, to;

			x = x * 1103515245u + 12345u;
			from = x >> 16 & 63;
			x = x * 1103515245u + 12345u;
			to = from + (x >> 16 & 7);
			to = to > 64 ? 64 : to;
			spans_add(&s, from, to);
			for (uint64_t at = from; at < to; at++)
				map[at] = true;
			for (size_t k = 0; k < s.count; k++)
				ck_assert(s.v[k].from < s.v[k].to &&
					  (!k || s.v[k - 1].to < s.v[k].from));
		}
		while (reach < 64 && map[reach])
			reach++;
		ck_assert(spans_reach(&s, reach) && !spans_reach(&s, reach + 1));
		spans_free(&s);
	}
}
END_TEST

START_TEST(too_many)
{
	struct spans s = {0};

	for (uint64_t i = SPANS_MAX + 10; i > 0; i--)
		spans_add(&s, 2 * i, 2 * i + 1);
	ck_assert_uint_eq(s.count, SPANS_MAX);
	spans_add(&s, 0, 1000000);
	ck_assert(spans_reach(&s, 1000000));
	spans_free(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_spans");
	TCase *t = unit_case(s, "spans");

	tcase_add_test(t, an_empty_one_reaches_nothing);
	tcase_add_test(t, spans_that_touch_are_one);
	tcase_add_test(t, any_order);
	tcase_add_test(t, too_many);
	return unit_run(s);
}
