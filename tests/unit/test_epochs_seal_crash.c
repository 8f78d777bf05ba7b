/* SPDX-License-Identifier: Apache-2.0 */
/* Sealing and rolling back under failures and crashes. */
#include "tests/unit/epochs_unit.h"
#include "lib/cache/reclaim.h"

START_TEST(an_epoch_that_cannot_be_frozen_loses_nothing)
{
	struct epochs_seal how = {.trigger = "commit"};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), trees = u.vol->trees_fd;
	struct epoch_info info;
	uint64_t number = 99;

	eu_save("a", "a");
	u.vol->trees_fd = null;
	unit_error(epochs_seal(u.vol, &how, &number), -ENOTDIR);
	u.vol->trees_fd = trees;
	close(null);
	ck_assert_uint_eq(eu_count(), 0);
	ck_assert_uint_eq(epochs_current(u.vol), 0);
	/* Its number is lost, its content is not. */
	ck_assert_uint_eq(eu_seal(), 2);
	eu_epoch_holds(2, "a", "a");
	info = eu_info(2);
	ck_assert_uint_eq(info.record.bytes_new, 1);
	ck_assert_uint_eq(info.record.parent, 0);
	epoch_info_free(&info);
}
END_TEST

/* Begins an epoch, changes more, and dies before it is frozen. */
static void begin_and_die(void)
{
	struct seal_how how = {.trigger = RECORD_TRIGGER_COMMIT};
	uint64_t number;

	eu_mount();
	mutex_lock(&u.vol->sealer->finishing);
	eu_save("b", "in one");
	mutex_lock(&u.vol->lock);
	if (seal_begin_locked(u.vol, &how, &number) != 0 || number != 2)
		_exit(2);
	mutex_unlock(&u.vol->lock);
	eu_save("b", "in two");
	eu_save("c", "in two, too");
	_exit(0);
}

START_TEST(an_epoch_that_began_before_a_crash_is_begun_anew)
{
	struct state_version v;
	pid_t child;
	int status;

	eu_save("a", "a");
	eu_seal();
	volume_close(u.vol);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		begin_and_die();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	eu_mount();
	ck_assert_uint_eq(eu_count(), 1);
	ck_assert_uint_eq(epochs_current(u.vol), 1);
	ck_assert_int_eq(eu_look().verdict, SETTLE_WAIT);
	v = vu_version(&u, vu_file(&u, "b").closed);
	ck_assert_uint_eq(v.born, 2);
	ck_assert_uint_eq(eu_seal(), 2);
	eu_epoch_holds(2, "b", "in two");
	eu_epoch_holds(2, "c", "in two, too");
	eu_save("b", "later");
	versions_reclaim(u.vol);
	eu_epoch_holds(2, "b", "in two");
}
END_TEST

static uint64_t continues_of(uint64_t number)
{
	struct epoch_info info = eu_info(number);
	uint64_t continues = info.record.continues;

	epoch_info_free(&info);
	return continues;
}

/* What comes later of its save is in the next epoch, whatever happens to that. */
static void seal_the_beginning_of_a_save(void)
{
	eu_mkdir("checkpoint-5");
	eu_save("checkpoint-5/a", "a");
	ck_assert_uint_eq(eu_seal_by("quiet"), 1);
	eu_save("checkpoint-5/b", "b");
}

START_TEST(an_epoch_that_cannot_be_frozen_leaves_what_it_continues_to_the_next)
{
	struct epochs_seal how = {.trigger = "commit"};
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), trees = u.vol->trees_fd;
	uint64_t number = 99;

	seal_the_beginning_of_a_save();
	u.vol->trees_fd = null;
	unit_error(epochs_seal(u.vol, &how, &number), -ENOTDIR);
	u.vol->trees_fd = trees;
	close(null);
	if (_i)
		eu_save("checkpoint-5/c", "c");
	ck_assert_uint_eq(eu_seal(), 3);
	ck_assert_uint_eq(continues_of(3), 1);
	ck_assert_uint_eq(epochs_latest(u.vol), 3);
}
END_TEST

/* Begins an epoch that continues the first, and one that continues that, and dies before they are frozen. */
static void begin_the_rest_and_die(int epochs)
{
	struct seal_how how = {.trigger = RECORD_TRIGGER_QUIET};
	uint64_t number;

	eu_mount();
	mutex_lock(&u.vol->sealer->finishing);
	for (int i = 0; i < epochs; i++) {
		char name[32];

		mutex_lock(&u.vol->lock);
		if (seal_begin_locked(u.vol, &how, &number) != 0)
			_exit(2);
		mutex_unlock(&u.vol->lock);
		snprintf(name, sizeof(name), "checkpoint-5/%d", i);
		eu_save(name, "more");
	}
	_exit(0);
}

START_TEST(an_epoch_that_is_begun_anew_continues_the_same)
{
	pid_t child;
	int status;

	seal_the_beginning_of_a_save();
	volume_close(u.vol);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		begin_the_rest_and_die(_i);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	eu_mount();
	ck_assert_uint_eq(eu_count(), 1);
	eu_remount();
	ck_assert_uint_eq(eu_seal(), 2);
	ck_assert_uint_eq(continues_of(2), 1);
	ck_assert_uint_eq(epochs_latest(u.vol), 2);
}
END_TEST

static const char *const fault_names[] = {"seal.begun", "seal.frozen", "seal.tree", "seal.rows"};

/* Seals twice, and dies in the middle of the second time. */
static void seal_and_die(const char *point)
{
	char fault[64];

	snprintf(fault, sizeof(fault), "%s:2", point);
	setenv("EPOCHFS_FAULT", fault, 1);
	eu_mount();
	eu_save("a", "a");
	eu_seal();
	eu_save("b", "two");
	eu_seal();
	_exit(0);
}

START_TEST(a_crash_while_sealing_loses_nothing)
{
	struct epoch_info info;
	pid_t child;
	int status;

	child = fork(); /* before a volume is opened here: fault points look once */
	ck_assert_int_ge(child, 0);
	if (!child)
		seal_and_die(fault_names[_i]);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFSIGNALED(status), "%s is not reached: %x", fault_names[_i],
		      (unsigned)status);
	eu_mount();
	eu_live_holds("b", "two");
	ck_assert_uint_eq(eu_seal(), 2);
	eu_epoch_holds(2, "a", "a");
	eu_epoch_holds(2, "b", "two");
	eu_save("b", "three");
	ck_assert_uint_eq(eu_seal(), 3);
	eu_epoch_holds(2, "b", "two");
	info = eu_info(3);
	ck_assert_uint_eq(info.record.parent, 2);
	epoch_info_free(&info);
	ck_assert_uint_eq(eu_count(), 3);
}
END_TEST

/* Rolls back, and dies when the live tree has changed and the epoch has not begun. */
static void roll_back_and_die(void)
{
	uint64_t number;

	setenv("EPOCHFS_FAULT", "rollback.applied", 1);
	eu_mount();
	eu_save("a", "one");
	eu_seal();
	eu_save("a", "two");
	epochs_rollback(u.vol, 1, &number);
	_exit(0);
}

START_TEST(a_crash_while_rolling_back_loses_nothing)
{
	pid_t child = fork();
	int status;

	ck_assert_int_ge(child, 0);
	if (!child)
		roll_back_and_die();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFSIGNALED(status));
	eu_mount();
	/* The rollback is done, or was never begun. */
	eu_live_holds("a", "one");
	ck_assert_int_eq(eu_look().verdict, SETTLE_WAIT);
	eu_seal();
	eu_epoch_holds(epochs_current(u.vol), "a", "one");
	eu_epoch_holds(1, "a", "one");
	eu_epoch_holds(2, "a", "two");
}
END_TEST

/* Makes a file and dies without a word. */
static void save_and_die(void)
{
	eu_mount();
	eu_save("b", "two");
	_exit(0);
}

START_TEST(changes_before_a_crash_are_sealed_after_it)
{
	struct epoch_info info;
	pid_t child;
	int status;

	eu_save("a", "a");
	eu_seal();
	volume_close(u.vol);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		save_and_die();
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	eu_options.settle_ns = NS_PER_MS;
	eu_mount();
	eu_wait_for_epoch(2);
	info = eu_info(2);
	ck_assert_int_eq(info.record.trigger, RECORD_TRIGGER_RECOVERY);
	ck_assert(info.complete);
	epoch_info_free(&info);
	eu_epoch_holds(2, "b", "two");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_seal_crash");
	TCase *t = eu_case(s, "failures");

	tcase_add_test(t, an_epoch_that_cannot_be_frozen_loses_nothing);
	tcase_add_test(t, an_epoch_that_began_before_a_crash_is_begun_anew);
	tcase_add_loop_test(t, an_epoch_that_cannot_be_frozen_leaves_what_it_continues_to_the_next,
			    0, 2);
	tcase_add_loop_test(t, an_epoch_that_is_begun_anew_continues_the_same, 0, 3);
	tcase_add_test(t, changes_before_a_crash_are_sealed_after_it);

	t = unit_case(s, "crashes");
	tcase_add_checked_fixture(t, eu_prepare, eu_stop);
	tcase_add_loop_test(t, a_crash_while_sealing_loses_nothing, 0,
			    sizeof(fault_names) / sizeof(*fault_names));
	tcase_add_test(t, a_crash_while_rolling_back_loses_nothing);
	return unit_run(s);
}
