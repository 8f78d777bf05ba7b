/* SPDX-License-Identifier: Apache-2.0 */
/* A name with another step seals the save before it (contract 1.3.4). */
#include "tests/unit/epochs_before_unit.h"

START_TEST(the_next_step)
{
	eu_mkdir("run");
	save_step("run/checkpoint-500");
	ck_assert_uint_eq(begun(), 0);
	save_step("run/checkpoint-1000");
	ck_assert_uint_eq(begun(), 1);
	unit_until(is_frozen());
	ck_assert(eu_has(1, "run/checkpoint-500/trainer_state.json"));
	ck_assert(!eu_has(1, "run/checkpoint-1000"));
	a_second_later();
	save_step("run/checkpoint-1500");
	ck_assert_uint_eq(begun(), 2);
}
END_TEST

/* A file beside the steps that is written before each: an epoch came between. */
START_TEST(the_next_step_after_an_epoch_in_mid_save)
{
	eu_save("a", "1");
	save_step("checkpoint-1");
	ck_assert_uint_eq(eu_seal(), 1);
	eu_save("a", "2");
	ck_assert_uint_eq(eu_seal(), 2);
	save_step("checkpoint-2");
	eu_save("a", "3");
	a_second_later();
	save_step("checkpoint-3");
	ck_assert_uint_eq(begun(), 2);
}
END_TEST

/* One that is written after each is of the save. */
START_TEST(the_next_step_after_a_file_in_place)
{
	char name[32];

	for (unsigned i = 1; i < 5; i++) {
		a_second_later();
		snprintf(name, sizeof(name), "checkpoint-%u", i);
		save_step(name);
		ck_assert_uint_eq(begun(), i - 1);
		eu_save("a", name + strlen("checkpoint-"));
	}
	unit_until(is_frozen());
	eu_epoch_holds(3, "a", "3");
}
END_TEST

START_TEST(steps_in_names_of_files)
{
	eu_save("epoch=1-step=100.ckpt", "one");
	eu_save("epoch=2-step=200.ckpt", "two");
	ck_assert_uint_eq(begun(), 1);
	/* Of another kind, or a part of one save. */
	a_second_later();
	eu_save("best-step=300.ckpt", "best");
	eu_save("layer_1.pt", "1");
	eu_save("layer_2.pt", "2");
	eu_mkdir("0");
	eu_mkdir("1");
	ck_assert_uint_eq(begun(), 1);
}
END_TEST

/* Another step is another save, also a lower one: as a run that was begun again makes it. */
START_TEST(steps_that_fall)
{
	save_step("checkpoint-300");
	save_step("checkpoint-200");
	ck_assert_uint_eq(begun(), 1);
	unit_until(is_frozen());
	ck_assert(eu_has(1, "checkpoint-300/trainer_state.json") && !eu_has(1, "checkpoint-200"));
	a_second_later();
	save_step("checkpoint-100");
	ck_assert_uint_eq(begun(), 2);
	a_second_later();
	eu_save("ckpt-step2.pt.tmp", "two");
	eu_rename("ckpt-step2.pt.tmp", "ckpt-step2.pt");
	ck_assert_uint_eq(begun(), 3);
	a_second_later();
	eu_save("ckpt-step1.pt", "one");
	ck_assert_uint_eq(begun(), 3);
}
END_TEST

/* Who numbers his saves from the newest on: between the renames and the save there is no newest one. */
START_TEST(saves_that_move_on_to_the_next_number)
{
	eu_save("ckpt_1", "first");
	ck_assert_uint_eq(eu_seal(), 1);
	eu_rename("ckpt_1", "ckpt_2");
	a_second_later();
	eu_save("ckpt_1", "second");
	ck_assert_uint_eq(eu_seal(), 2);
	eu_rename("ckpt_2", "ckpt_3");
	a_second_later();
	eu_rename("ckpt_1", "ckpt_2");
	a_second_later();
	eu_save("ckpt_1", "the third, as large as both");
	ck_assert_uint_eq(begun(), 2);
	/* The state before it is whole. */
	a_second_later();
	eu_rename("ckpt_3", "ckpt_4");
	ck_assert_uint_eq(begun(), 3);
	eu_rename("ckpt_2", "ckpt_3");
	eu_rename("ckpt_1", "ckpt_2");
	a_second_later();
	eu_save("ckpt_1", "fourth");
	ck_assert_uint_eq(begun(), 3);
	unit_until(is_frozen());
	ck_assert(eu_has(3, "ckpt_1") && eu_has(3, "ckpt_2") && eu_has(3, "ckpt_3"));
}
END_TEST

START_TEST(a_step_without_content_is_no_save)
{
	eu_save("notes", "x");
	eu_mkdir("checkpoint-1");
	eu_mkdir("checkpoint-2");
	ck_assert_uint_eq(begun(), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_before_steps");
	TCase *t = eu_case(s, "steps");

	tcase_add_test(t, the_next_step);
	tcase_add_test(t, the_next_step_after_an_epoch_in_mid_save);
	tcase_add_test(t, the_next_step_after_a_file_in_place);
	tcase_add_test(t, steps_in_names_of_files);
	tcase_add_test(t, steps_that_fall);
	tcase_add_test(t, saves_that_move_on_to_the_next_number);
	tcase_add_test(t, a_step_without_content_is_no_save);
	return unit_run(s);
}
