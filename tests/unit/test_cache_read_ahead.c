/* SPDX-License-Identifier: Apache-2.0 */
/* How far is fetched ahead of readers: by reads as the kernel sends them. */
#include "lib/cache/read_ahead.h"

#include "tests/unit/unit.h"

#define KIB  ((uint64_t)1 << 10)
#define MIB  ((uint64_t)1 << 20)
#define GIB  ((uint64_t)1 << 30)
#define SIZE (10 * GIB)
#define MAX  (64 * MIB)
#define READ (128 * KIB)

static struct read_ahead r;

static void start(void)
{
	r = (struct read_ahead){0};
}

static struct read_advice note(uint64_t offset, uint64_t len)
{
	struct read_advice advice = read_ahead_note(&r, offset, offset + len, SIZE, MAX);

	ck_assert_uint_ge(advice.until, offset + len);
	ck_assert_uint_le(advice.until, SIZE);
	return advice;
}

/* Reads on from there: the furthest that was asked for. */
static uint64_t read_on(uint64_t from, uint64_t len)
{
	uint64_t furthest = 0;

	for (uint64_t at = from; at < from + len; at += READ) {
		uint64_t until = note(at, READ).until;

		furthest = until > furthest ? until : furthest;
	}
	return furthest;
}

START_TEST(a_random_read_is_what_it_is)
{
	uint64_t x = 1;

	for (int i = 0; i < 10000; i++) {
		struct read_advice advice;
		uint64_t offset;

		x = x * 6364136223846793005u + 1442695040888963407u;
		offset = (x >> 20) % (SIZE / 8 / MIB) * 8 * MIB + (uint64_t)i % 3 * 3 * MIB;
		advice = note(offset, READ);
		/* Now and then two of them are the same. */
		ck_assert_uint_eq(advice.until, offset + READ);
		ck_assert(!advice.whole);
	}
}
END_TEST

START_TEST(a_part_of_a_file_costs_twice_its_length_at_most)
{
	for (uint64_t len = MIB; len <= 32 * MIB; len *= 2) {
		start();
		ck_assert_uint_le(read_on(GIB, len), GIB + 2 * len);
	}
	start();
	ck_assert_uint_le(read_on(GIB, GIB), 2 * GIB + MAX);
}
END_TEST

START_TEST(who_reads_on_has_enough_under_way)
{
	uint64_t ahead = 0;

	for (uint64_t at = 0; at < GIB; at += READ) {
		uint64_t until = note(at, READ).until;

		ahead = until > ahead ? until : ahead;
		if (at >= MAX)
			ck_assert_uint_ge(ahead, at + READ + MAX / 2);
	}
	/* And asks for no more than there is. */
	ck_assert_uint_eq(read_on(SIZE - 256 * MIB, 256 * MIB), SIZE);
}
END_TEST

/* Requests overtake one another; page faults of a mapping read around them. */
START_TEST(order_is_not_strict)
{
	uint64_t furthest = 0;

	for (uint64_t at = 0; at < 128 * MIB; at += 2 * READ) {
		uint64_t second = note(at + READ, READ).until, first = note(at, READ).until;

		furthest = second > furthest ? second : furthest;
		ck_assert_uint_eq(first, at + READ);
	}
	ck_assert_uint_ge(furthest, 128 * MIB + MAX / 2);
	start();
	for (uint64_t at = 2 * GIB; at < 2 * GIB + 128 * MIB; at += 4 * READ)
		furthest = note(at, READ).until; /* holes of a reader who skips a little */
	ck_assert_uint_ge(furthest, 2 * GIB + 128 * MIB);
}
END_TEST

START_TEST(several_readers_each_have_their_own)
{
	uint64_t furthest[READ_STREAMS] = {0};

	for (uint64_t at = 0; at < 16 * MIB; at += READ)
		for (uint64_t i = 0; i < READ_STREAMS; i++) {
			uint64_t until = note(i * GIB + at, READ).until;

			furthest[i] = until > furthest[i] ? until : furthest[i];
		}
	for (uint64_t i = 0; i < READ_STREAMS; i++)
		ck_assert_uint_ge(furthest[i], i * GIB + 16 * MIB + 4 * MIB);
}
END_TEST

START_TEST(who_has_read_a_quarter_gets_the_whole)
{
	bool whole = false;
	uint64_t at;

	for (at = 0; at < 16 * MIB && !whole; at += READ)
		whole = read_ahead_note(&r, at, at + READ, 16 * MIB, MAX).whole;
	ck_assert_uint_eq(at, 4 * MIB);
	/* A tensor of a file of 10 GiB is not enough. */
	start();
	for (at = GIB; at < 2 * GIB; at += READ)
		ck_assert(!note(at, READ).whole);
}
END_TEST

START_TEST(what_was_dropped_is_asked_for_anew)
{
	uint64_t until = read_on(0, 8 * MIB);

	read_ahead_forget(&r);
	ck_assert_uint_ge(note(8 * MIB, READ).until, until);
	ck_assert_uint_le(note(8 * MIB, READ).until, until + MIB);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cache_read_ahead");
	TCase *c = unit_case(s, "streams");

	tcase_add_checked_fixture(c, start, NULL);
	tcase_add_test(c, a_random_read_is_what_it_is);
	tcase_add_test(c, a_part_of_a_file_costs_twice_its_length_at_most);
	tcase_add_test(c, who_reads_on_has_enough_under_way);
	tcase_add_test(c, order_is_not_strict);
	tcase_add_test(c, several_readers_each_have_their_own);
	tcase_add_test(c, who_has_read_a_quarter_gets_the_whole);
	tcase_add_test(c, what_was_dropped_is_asked_for_anew);
	return unit_run(s);
}
