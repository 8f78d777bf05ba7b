/* SPDX-License-Identifier: Apache-2.0 */
/* What a new save does not seal (contract 1.3.4): a save that failed and is tried again, and one whose small file is of the next one. */
#include "tests/unit/epochs_before_unit.h"

/* What fails between its files, and begins again, is no whole save. */
START_TEST(a_save_that_is_tried_again)
{
	eu_save("a", "a1");
	eu_save("b", "b1");
	ck_assert_uint_eq(eu_seal(), 1);
	for (int i = 0; i < 3; i++) {
		eu_save("a", "an");
		a_second_later();
		ck_assert_uint_eq(begun(), 1);
	}
	eu_save("b", "b2");
	eu_save("a", "a3");
	ck_assert_uint_eq(begun(), 2);
	unit_until(is_frozen());
	eu_epoch_holds(2, "a", "an");
	eu_epoch_holds(2, "b", "b2");
}
END_TEST

/* The same after saves so fast that several are of one epoch. */
START_TEST(a_fast_save_that_is_tried_again)
{
	eu_save("a", "a0");
	eu_save("b", "b0");
	ck_assert_uint_eq(eu_seal(), 1);
	eu_save("a", "a1");
	eu_save("b", "b1");
	mutex_lock(&u.vol->lock);
	u.vol->sealer->before_ns = clock_mono_ns() + EU_LONG;
	mutex_unlock(&u.vol->lock);
	for (int i = 2; i < 6; i++) {
		eu_save("a", "an");
		eu_save("b", "bn");
	}
	for (int i = 0; i < 3; i++) {
		eu_save("a", "a6");
		a_second_later();
		ck_assert_uint_eq(begun(), 1);
	}
	eu_save("b", "b6");
	eu_save("a", "a7");
	ck_assert_uint_eq(begun(), 2);
	unit_until(is_frozen());
	eu_epoch_holds(2, "a", "a6");
	eu_epoch_holds(2, "b", "b6");
}
END_TEST

START_TEST(renames_that_are_tried_again)
{
	static const char *const names[] = {"a", "b", "a", "a", "b", "a"};

	for (int i = 0; i < 6; i++) {
		eu_save("new", "one");
		eu_rename("new", names[i]);
		a_second_later();
		if (i == 1)
			ck_assert_uint_eq(eu_seal(), 1);
		ck_assert_uint_eq(begun(), i < 1 ? 0 : i < 5 ? 1 : 2);
	}
}
END_TEST

/* What is saved once beside a file that is saved again and again holds up no more than the first epoch after it. */
START_TEST(what_is_not_saved_again_is_not_waited_for_long)
{
	eu_save("vocabulary", "v");
	eu_save("model", "0");
	ck_assert_uint_eq(eu_seal(), 1);
	for (int i = 0; i < 5; i++) {
		eu_save("model", "n");
		a_second_later();
	}
	ck_assert_uint_eq(begun(), 2);
	eu_save("model", "n");
	ck_assert_uint_eq(begun(), 3);
}
END_TEST

/* A note of the first save, and what has a step in its name, are not saved again each time. */
START_TEST(what_is_saved_once_is_not_waited_for)
{
	eu_save("config", "c");
	save_much("epoch-1.ckpt", '1');
	save_much("last.ckpt", '1');
	ck_assert_uint_eq(eu_seal(), 1);
	save_much("last.ckpt", '2');
	a_second_later();
	save_much("last.ckpt", '3');
	ck_assert_uint_eq(begun(), 2);
}
END_TEST

/* What is written less often is no half of a save. */
START_TEST(a_file_of_every_other_save)
{
	eu_save("last", "l1");
	eu_save("best", "b1");
	ck_assert_uint_eq(eu_seal(), 1);
	eu_save("last", "l2");
	ck_assert_uint_eq(eu_seal(), 2);
	eu_save("last", "l3");
	eu_save("best", "b3");
	a_second_later();
	eu_save("last", "l4");
	ck_assert_uint_eq(begun(), 3);
	unit_until(is_frozen());
	eu_epoch_holds(3, "last", "l3");
	eu_epoch_holds(3, "best", "b3");
}
END_TEST

/* What was replaced before it is of the next save: there is no whole one any more. */
START_TEST(where_a_small_file_comes_first_it_is_too_late)
{
	eu_save("step", "1");
	save_much("model", '1');
	eu_save("step", "2");
	save_much("model", '2');
	ck_assert_uint_eq(begun(), 0);
	eu_save("step", "3");
	save_much("model", '3');
	ck_assert_uint_eq(begun(), 0);
}
END_TEST

/* How the small file of a save may come: made anew, under another name each time, or in place. */
static void save_small(int how, unsigned i)
{
	char name[32] = "state.json";

	if (how == 0 && i > 1)
		eu_unlink(name);
	if (how == 1)
		snprintf(name, sizeof(name), "state-%c.json", (int)('a' + i));
	eu_save(name, "{}");
}

/* As between two saves. */
static void train(void)
{
	a_second_later();
	usleep(200 * 1000);
}

START_TEST(a_new_small_file_that_comes_first_is_of_the_next_save)
{
	for (unsigned i = 1; i < 4; i++) {
		save_small(_i, i);
		save_much("model", (char)('0' + i));
		ck_assert_uint_eq(begun(), 0);
		train();
	}
}
END_TEST

/* One that follows is of the same save. */
START_TEST(a_new_small_file_that_comes_last_is_of_the_save)
{
	for (unsigned i = 1; i < 4; i++) {
		save_much("model", (char)('0' + i));
		ck_assert_uint_eq(begun(), i - 1);
		save_small(_i, i);
		train();
	}
}
END_TEST

/* A new file that comes before each is of the next. */
START_TEST(the_next_step_after_a_new_small_file)
{
	char name[32];

	for (unsigned i = 1; i < 4; i++) {
		save_small(_i, i);
		snprintf(name, sizeof(name), "checkpoint-%u", i);
		save_step(name);
		ck_assert_uint_eq(begun(), 0);
		train();
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_before_half");
	TCase *t = eu_case(s, "before_half");

	tcase_add_test(t, a_save_that_is_tried_again);
	tcase_add_test(t, a_fast_save_that_is_tried_again);
	tcase_add_test(t, renames_that_are_tried_again);
	tcase_add_test(t, what_is_not_saved_again_is_not_waited_for_long);
	tcase_add_test(t, what_is_saved_once_is_not_waited_for);
	tcase_add_test(t, a_file_of_every_other_save);
	tcase_add_test(t, where_a_small_file_comes_first_it_is_too_late);
	tcase_add_loop_test(t, a_new_small_file_that_comes_first_is_of_the_next_save, 0, 3);
	tcase_add_loop_test(t, a_new_small_file_that_comes_last_is_of_the_save, 0, 3);
	tcase_add_loop_test(t, the_next_step_after_a_new_small_file, 0, 3);
	return unit_run(s);
}
