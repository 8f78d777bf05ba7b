/* SPDX-License-Identifier: Apache-2.0 */
/* A new save seals the one before it (contract 1.3.4). */
#include "lib/live/bodies.h"
#include "tests/unit/epochs_before_unit.h"

START_TEST(a_file_that_is_replaced_once_more)
{
	struct epoch_info info;
	struct handle *h;

	eu_save("model", "one");
	h = eu_open("model", O_WRONLY | O_TRUNC);
	ck_assert_uint_eq(begun(), 1);
	vu_write(h, "two", 0);
	vu_close(h);
	unit_until(is_frozen());
	eu_epoch_holds(1, "model", "one");
	info = eu_info(1);
	ck_assert(info.complete);
	ck_assert_int_eq(info.record.trigger, RECORD_TRIGGER_NEXT);
	epoch_info_free(&info);
	a_second_later();
	eu_save("model", "three");
	ck_assert_uint_eq(eu_seal(), 3);
	eu_epoch_holds(2, "model", "two");
	eu_epoch_holds(3, "model", "three");
}
END_TEST

/* The save that begins is not disturbed at once. False: the machine was too slow to see that. */
static bool is_resting_for_long(void)
{
	SCOPED_LOCK(&u.vol->lock);
	if (!u.vol->sealer->first)
		return false;
	u.vol->sealer->rest_ns = clock_mono_ns() + EU_LONG;
	return true;
}

static void seal_and_rest(void)
{
	for (int i = 0;; i++) {
		ck_assert_int_lt(i, 100);
		a_second_later();
		eu_save("model", "one");
		if (is_resting_for_long())
			break;
	}
	/* The thread sleeps for as long as it was told first. */
	usleep(200 * 1000);
	ck_assert(!is_frozen());
}

static int stop_mount(void)
{
	volume_close(u.vol);
	eu_mount();
	return 0;
}

static int wait_for_it(void)
{
	return epochs_wait(u.vol, begun(), 0, NULL, NULL);
}

static int commit_it(void)
{
	struct epochs_seal how = {.trigger = "commit"};
	uint64_t number;

	return epochs_seal(u.vol, &how, &number);
}

static int (*const waits[])(void) = {wait_for_it, commit_it, stop_mount};

START_TEST(it_is_frozen_a_moment_later_or_when_somebody_waits)
{
	struct epoch_info info;
	uint64_t number;

	seal_and_rest();
	number = begun();
	unit_ok(waits[_i]());
	ck_assert(is_frozen());
	info = eu_info(number);
	ck_assert_int_eq(info.record.trigger, RECORD_TRIGGER_NEXT);
	epoch_info_free(&info);
}
END_TEST

START_TEST(at_most_one_a_second)
{
	eu_save("model", "one");
	eu_save("model", "two");
	unit_until(is_frozen());
	mutex_lock(&u.vol->lock);
	u.vol->sealer->before_ns = clock_mono_ns() + EU_LONG;
	mutex_unlock(&u.vol->lock);
	eu_save("model", "three");
	eu_save("model", "four");
	ck_assert_uint_eq(begun(), 1);
	ck_assert_uint_eq(eu_seal(), 2);
	eu_epoch_holds(1, "model", "one");
	eu_epoch_holds(2, "model", "four");
}
END_TEST

START_TEST(the_first_file_of_several_seals)
{
	eu_save("a", "a1");
	eu_save("b", "b1");
	eu_save("a", "a2");
	ck_assert_uint_eq(begun(), 1);
	a_second_later();
	eu_save("b", "b2");
	ck_assert_uint_eq(begun(), 1);
	a_second_later();
	eu_save("a", "a3");
	ck_assert_uint_eq(begun(), 2);
	unit_until(is_frozen());
	eu_epoch_holds(1, "a", "a1");
	eu_epoch_holds(1, "b", "b1");
	eu_epoch_holds(2, "a", "a2");
	eu_epoch_holds(2, "b", "b2");
}
END_TEST

/* The same, where two saves have become one epoch. */
START_TEST(saves_that_were_merged)
{
	eu_save("a", "a1");
	eu_save("b", "b1");
	mutex_lock(&u.vol->lock);
	u.vol->sealer->before_ns = clock_mono_ns() + EU_LONG;
	mutex_unlock(&u.vol->lock);
	eu_save("a", "a2");
	eu_save("b", "b2");
	a_second_later();
	eu_save("a", "a3");
	ck_assert_uint_eq(begun(), 1);
	unit_until(is_frozen());
	eu_epoch_holds(1, "b", "b2");
}
END_TEST

/* An epoch that somebody asks for in mid-save has some files of it; the others come later, and then the next save's. */
START_TEST(after_an_epoch_in_mid_save)
{
	eu_save("a", "a1");
	eu_save("b", "b1");
	ck_assert_uint_eq(eu_seal(), 1);
	eu_save("a", "a2");
	ck_assert_uint_eq(eu_seal(), 2);
	for (int i = 2; i < 5; i++) {
		a_second_later();
		eu_save("b", "bn");
		ck_assert_uint_eq(begun(), 2);
		a_second_later();
		eu_save("a", "an");
		ck_assert_uint_eq(begun(), 2);
	}
	/* Once an epoch has a whole save, it is as ever. */
	eu_save("b", "b5");
	ck_assert_uint_eq(eu_seal(), 3);
	eu_save("a", "a6");
	eu_save("b", "b6");
	a_second_later();
	eu_save("a", "a7");
	ck_assert_uint_eq(begun(), 4);
	unit_until(is_frozen());
	eu_epoch_holds(4, "a", "a6");
	eu_epoch_holds(4, "b", "b6");
}
END_TEST

/* The same where the file is not there yet when the epoch comes. */
START_TEST(after_an_epoch_in_the_first_save)
{
	eu_save("a", "a1");
	ck_assert_uint_eq(eu_seal(), 1);
	eu_save("b", "b1");
	eu_save("a", "a2");
	a_second_later();
	eu_save("b", "b2");
	ck_assert_uint_eq(begun(), 1);
}
END_TEST

/* The same by renames of names that nobody knows as temporary. */
START_TEST(after_an_epoch_between_two_renames)
{
	static const char *const names[] = {"a", "b"};

	for (unsigned i = 0; i < 5; i++) {
		a_second_later();
		eu_save("new", "one");
		eu_rename("new", names[i % 2]);
		if (i == 1 || i == 2)
			ck_assert_uint_eq(eu_seal(), i);
	}
	/* Of the second save b, of the third a. */
	a_second_later();
	eu_save("new", "two");
	eu_rename("new", "b");
	ck_assert_uint_eq(begun(), 2);
}
END_TEST

START_TEST(a_status_file_seals_nothing)
{
	save_much("model", '1');
	for (int i = 0; i < 3; i++) {
		eu_save("status.json", "{}");
		a_second_later();
	}
	ck_assert_uint_eq(begun(), 0);
	/* It is of no save: it has changed more often. */
	save_much("model", '2');
	ck_assert_uint_eq(begun(), 1);
	ck_assert_uint_eq(eu_seal(), 2);
	/* All that changes since is it. */
	for (int i = 0; i < 3; i++) {
		a_second_later();
		eu_save("status.json", "{ }");
	}
	ck_assert_uint_eq(begun(), 2);
	eu_remount();
	for (int i = 0; i < 3; i++) {
		a_second_later();
		eu_save("status.json", "{  }");
	}
	ck_assert_uint_eq(begun(), 2);
}
END_TEST

START_TEST(what_is_less_than_half_seals_nothing)
{
	eu_save("a", "aaa");
	eu_save("b", "bbb");
	eu_save("c", "ccc");
	eu_save("a", "AAA");
	ck_assert_uint_eq(begun(), 0);
	/* What is removed counts no more. */
	eu_unlink("c");
	eu_unlink("b");
	a_second_later();
	eu_save("a", "aaa");
	ck_assert_uint_eq(begun(), 1);
}
END_TEST

START_TEST(what_is_unfinished_holds_it_up)
{
	struct handle *h, *log;

	log = eu_open("train.log", O_WRONLY | O_CREAT | O_APPEND);
	vu_write(log, "a line", 0);
	eu_save("model", "one");
	h = eu_open("optimizer", O_WRONLY | O_CREAT | O_TRUNC);
	vu_write(h, "half", 0);
	eu_save("model", "two");
	ck_assert_uint_eq(begun(), 0);
	vu_close(h);
	eu_unlink("optimizer");
	eu_mkdir("_checkpoint");
	a_second_later();
	eu_save("model", "three");
	ck_assert_uint_eq(begun(), 0);
	unit_ok(live_rmdir(u.vol, ROOT_INO, "_checkpoint"));
	a_second_later();
	eu_save("model", "four");
	ck_assert_uint_eq(begun(), 1);
	vu_close(log);
}
END_TEST

START_TEST(logs_and_temporary_names_seal_nothing)
{
	eu_save("train.log", "one");
	eu_save("train.log", "two");
	eu_mkdir("old");
	eu_save("old/x", "x");
	eu_seal();
	eu_mkdir("_checkpoint");
	eu_save("_checkpoint/model", "one");
	eu_save("_checkpoint/model", "two");
	eu_save("model.tmp1", "one");
	eu_save("model.tmp1", "two");
	ck_assert_uint_eq(begun(), 1);
}
END_TEST

START_TEST(a_file_that_is_renamed_over_once_more)
{
	eu_save("model.new", "one");
	eu_rename("model.new", "model");
	eu_save("model.new", "two, longer");
	ck_assert_uint_eq(begun(), 0);
	eu_rename("model.new", "model");
	ck_assert_uint_eq(begun(), 1);
	a_second_later();
	eu_save("model.new", "three");
	eu_rename("model.new", "model");
	ck_assert_uint_eq(begun(), 2);
	unit_until(is_frozen());
	eu_epoch_holds(1, "model", "one");
	eu_epoch_holds(2, "model", "two, longer");
}
END_TEST

/* By any of the two names first, also where the new one is temporary; what was there is removed, or is left for the next save. */
static const struct {
	const char *name;
	bool back, left;
} exchanges[] = {
	{"model.new", false, false}, {"model.new", true, false}, {"model.new", false, true},
	{"model.tmp", false, false}, {"model.tmp", true, false}, {"model.tmp", false, true},
};

static void save_by_exchange(int i, const char *text)
{
	const char *name = exchanges[i].name;

	eu_save(name, text);
	unit_ok(live_rename(u.vol, ROOT_INO, exchanges[i].back ? "model" : name, ROOT_INO,
			    exchanges[i].back ? name : "model", RENAME_EXCHANGE, NULL));
	if (!exchanges[i].left)
		eu_unlink(name);
}

START_TEST(a_file_that_is_exchanged_once_more)
{
	static const char *const texts[] = {"one", "two, longer", "three", "four"};
	struct epoch_info info;

	eu_save("model", texts[0]);
	eu_save("note", "n");
	for (uint64_t i = 1; i < 4; i++) {
		save_by_exchange(_i, texts[i]);
		ck_assert_uint_eq(begun(), i);
		eu_live_holds("model", texts[i]);
		a_second_later();
		eu_epoch_holds(i, "model", texts[i - 1]);
		info = eu_info(i);
		ck_assert(info.complete);
		epoch_info_free(&info);
	}
}
END_TEST

/* The first save since an epoch, and small ones, seal nothing. */
START_TEST(an_exchange_that_seals_nothing)
{
	eu_save("model", "one");
	save_much("much", 'x');
	eu_seal();
	save_by_exchange(_i, "two");
	ck_assert_uint_eq(begun(), 1);
	a_second_later();
	save_much("much", 'y');
	ck_assert_uint_eq(begun(), 1);
	save_by_exchange(_i, "three");
	ck_assert_uint_eq(begun(), 1);
}
END_TEST

/* That seals when it is done, as a rename does. */
START_TEST(an_exchange_with_a_temporary_name)
{
	static const char *const texts[] = {"one", "two", "three", "four"};

	eu_save("model", texts[0]);
	eu_seal();
	for (uint64_t i = 1; i < 4; i++) {
		struct epoch_info info;

		save_by_exchange(_i, texts[i]);
		ck_assert_uint_eq(begun(), i + 1);
		a_second_later();
		eu_epoch_holds(i + 1, "model", texts[i]);
		info = eu_info(i + 1);
		ck_assert(info.complete);
		ck_assert_int_eq(info.record.trigger, RECORD_TRIGGER_RENAME);
		epoch_info_free(&info);
	}
}
END_TEST

/* That seals when it is done. */
START_TEST(a_temporary_name_that_becomes_final)
{
	for (unsigned i = 1; i <= 3; i++) {
		eu_save("model.tmp", "x");
		eu_rename("model.tmp", "model");
		ck_assert_uint_eq(begun(), i);
		a_second_later();
	}
}
END_TEST

/* What changed before the daemon ended is not known file by file: the first save after it is the first that can be told. */
START_TEST(after_a_remount)
{
	eu_save("model", "one");
	eu_remount();
	eu_save("model", "two");
	ck_assert_uint_eq(begun(), 0);
	ck_assert_uint_eq(eu_seal(), 1);
	eu_save("model", "three");
	eu_save("model", "four");
	ck_assert_uint_eq(begun(), 2);
	eu_remount();
	a_second_later();
	eu_save("model", "five");
	ck_assert_uint_eq(begun(), 2);
	eu_save("model", "six");
	ck_assert_uint_eq(begun(), 3);
	unit_until(is_frozen());
	eu_epoch_holds(3, "model", "five");
}
END_TEST

/* The same in mid-save. */
START_TEST(a_remount_in_mid_save)
{
	eu_save("a", "a1");
	eu_save("b", "b1");
	ck_assert_uint_eq(eu_seal(), 1);
	eu_save("a", "a2");
	eu_remount();
	for (int i = 2; i < 5; i++) {
		a_second_later();
		eu_save("b", "bn");
		ck_assert_uint_eq(begun(), 1);
		a_second_later();
		eu_save("a", "an");
		ck_assert_uint_eq(begun(), 1);
	}
}
END_TEST

/* The replacement comes to nothing, and the epoch is whole all the same. */
START_TEST(a_replacement_that_is_killed)
{
	struct handle *h;
	struct epoch_info info;

	eu_save("model", "one");
	h = eu_open("model", O_WRONLY | O_TRUNC);
	vu_write(h, "tw", 0);
	h->killed = true;
	handle_release(h, false);
	unit_until(is_frozen());
	info = eu_info(1);
	ck_assert(info.complete);
	epoch_info_free(&info);
	eu_epoch_holds(1, "model", "one");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_before");
	TCase *t = unit_case(s, "before");

	tcase_add_checked_fixture(t, eu_start, eu_stop);
	tcase_add_test(t, a_file_that_is_replaced_once_more);
	tcase_add_loop_test(t, it_is_frozen_a_moment_later_or_when_somebody_waits, 0, 3);
	tcase_add_test(t, at_most_one_a_second);
	tcase_add_test(t, the_first_file_of_several_seals);
	tcase_add_test(t, saves_that_were_merged);
	tcase_add_test(t, after_an_epoch_in_mid_save);
	tcase_add_test(t, after_an_epoch_in_the_first_save);
	tcase_add_test(t, after_an_epoch_between_two_renames);
	tcase_add_test(t, a_status_file_seals_nothing);
	tcase_add_test(t, what_is_less_than_half_seals_nothing);
	tcase_add_test(t, what_is_unfinished_holds_it_up);
	tcase_add_test(t, logs_and_temporary_names_seal_nothing);
	tcase_add_test(t, a_file_that_is_renamed_over_once_more);
	tcase_add_loop_test(t, a_file_that_is_exchanged_once_more, 0, 6);
	tcase_add_loop_test(t, an_exchange_that_seals_nothing, 0, 3);
	tcase_add_loop_test(t, an_exchange_with_a_temporary_name, 3, 6);
	tcase_add_test(t, a_temporary_name_that_becomes_final);
	tcase_add_test(t, after_a_remount);
	tcase_add_test(t, a_remount_in_mid_save);
	tcase_add_test(t, a_replacement_that_is_killed);
	return unit_run(s);
}
