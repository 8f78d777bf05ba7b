/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting until an epoch is durable (contract 1.1). */
#include "tests/unit/epochs_unit.h"

START_TEST(without_a_remote_sealed_is_done)
{
	eu_save("a", "a");
	unit_ok(epochs_wait(u.vol, 0, 0, NULL, NULL));
	ck_assert_uint_eq(eu_count(), 1);
	unit_ok(epochs_wait(u.vol, 1, 0, NULL, NULL));
	unit_error(epochs_wait(u.vol, 2, 0, NULL, NULL), -ENOENT);
}
END_TEST

START_TEST(an_empty_volume_has_nothing_to_wait_for)
{
	unit_ok(epochs_wait(u.vol, 0, 0, NULL, NULL));
	ck_assert_uint_eq(eu_count(), 0);
}
END_TEST

START_TEST(waiting_ends_when_it_is_durable)
{
	struct epoch_info info;

	eu_save("a", "hello");
	unit_ok(epochs_wait(u.vol, 0, -1, NULL, NULL));
	info = eu_info(1);
	ck_assert_int_eq(info.state, EPOCH_DURABLE);
	ck_assert_int_gt(info.record.durable_ns, 0);
	epoch_info_free(&info);
	eu_epoch_holds(1, "a", "hello");
}
END_TEST

static bool say_yes(void *arg)
{
	(void)arg;
	return true;
}

START_TEST(waiting_ends_by_timeout_and_signal)
{
	cleanup_free char *dir = unit_dir(), *control = unit_path(dir, "faults");
	static const char faults[] = "put.error=1";
	char *url = NULL;

	volume_close(u.vol);
	ck_assert_int_gt(asprintf(&url, "fault+file://%s?control=%s", u.remote, control), 0);
	free(u.remote);
	u.remote = url;
	eu_mount();
	unit_ok(io_replace_file(AT_FDCWD, control, faults, strlen(faults)));
	eu_save("a", "hello");
	eu_seal();
	unit_error(epochs_wait(u.vol, 1, 0, NULL, NULL), -ETIMEDOUT);
	unit_error(epochs_wait(u.vol, 1, 100 * NS_PER_MS, NULL, NULL), -ETIMEDOUT);
	unit_error(epochs_wait(u.vol, 1, -1, say_yes, NULL), -EINTR);
	ck_assert_int_eq(unlink(control), 0);
	unit_ok(epochs_wait(u.vol, 1, -1, NULL, NULL));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_wait");
	TCase *t = eu_case(s, "no remote");

	tcase_add_test(t, without_a_remote_sealed_is_done);
	tcase_add_test(t, an_empty_volume_has_nothing_to_wait_for);
	t = eu_remote_case(s, "remote");
	tcase_add_test(t, waiting_ends_when_it_is_durable);
	tcase_add_test(t, waiting_ends_by_timeout_and_signal);
	return unit_run(s);
}
