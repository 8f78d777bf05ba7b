/* SPDX-License-Identifier: Apache-2.0 */
/* Files whose opener has closed them while another process, which inherited the descriptor, keeps the release away. */
#include <fcntl.h>

#include "lib/cache/torn.h"
#include "tests/unit/handle_unit.h"

static struct vu_child opener;
static int worker; /* as /proc shows it: this process has a file of the same path */

static void setup_held(void)
{
	cleanup_free char *dir = unit_dir(), *path = unit_path(dir, "a");

	setup();
	opener = vu_child();
	worker = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_ge(worker, 0);
}

static void teardown_held(void)
{
	close(worker);
	vu_child_wait(&opener);
	teardown();
}

static struct handle *opened(int flags, const char *text)
{
	struct handle *h = NULL;

	unit_ok(vu_open_as(&u, "a", flags, opener.pid, &h));
	vu_write(h, text, 0);
	return h;
}

/* Its opener closes it; the release does not come. */
static void closed(struct handle *h)
{
	unit_ok(handle_flush(h, opener.pid, NULL, NULL));
}

static void killed(struct handle *h)
{
	siginfo_t info;

	ck_assert_int_eq(kill(opener.pid, SIGKILL), 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)opener.pid, &info, WEXITED | WNOWAIT), 0);
	unit_ok(handle_flush(h, opener.pid, NULL, NULL));
}

static void read_version(uint64_t version, char *data, size_t len)
{
	cleanup_close int fd = object_open(u.vol, version, O_RDONLY);
	ssize_t n = pread(fd, data, len - 1, 0);

	ck_assert_int_ge(n, 0);
	data[n] = 0;
}

static int count_one(void *arg, const char *name, uint64_t id, uint64_t size, int64_t mtime_ns)
{
	(void)name;
	(void)id;
	(void)size;
	(void)mtime_ns;
	++*(unsigned *)arg;
	return 0;
}

static unsigned torn(void)
{
	unsigned count = 0;

	unit_ok(torn_each(u.vol, count_one, &count));
	return count;
}

START_TEST(what_is_closed_is_committed_once)
{
	struct handle *h;
	uint64_t version, copy;

	vu_save(&u, "a", "old");
	h = opened(O_WRONLY | O_TRUNC, "new");
	version = h->body->version;
	closed(h);
	vu_holds(&u, "a", "new");
	copy = vu_file(&u, "a").closed;
	ck_assert_uint_ne(copy, version);
	ck_assert_uint_eq(vu_file(&u, "a").live, version);
	ck_assert_uint_eq(h->body->held, 1);
	ck_assert_uint_eq(h->body->writers, 0);
	/* Nobody looks again, or copies. */
	ck_assert_uint_eq(u.vol->bodies->closing, 0);
	vu_holds(&u, "a", "new");
	unit_ok(bodies_finish_closes(u.vol));
	ck_assert_uint_eq(vu_file(&u, "a").closed, copy);
	handle_release(h, false);
}
END_TEST

START_TEST(its_release_changes_nothing)
{
	struct handle *h;
	uint64_t version, copy, epoch;

	vu_save(&u, "a", "old");
	h = opened(O_WRONLY | O_TRUNC, "new");
	version = h->body->version;
	closed(h);
	epoch = vu_seal(&u);
	copy = vu_file(&u, "a").closed;
	handle_release(h, false);
	ck_assert_uint_eq(vu_file(&u, "a").closed, copy);
	ck_assert_uint_eq(vu_file(&u, "a").live, copy);
	mutex_lock(&u.vol->lock);
	ck_assert(!state_version_exists(u.vol->state, version));
	mutex_unlock(&u.vol->lock);
	ck_assert_uint_eq(vu_seal(&u), epoch);
	vu_remount(&u);
	vu_holds(&u, "a", "new");
	ck_assert_uint_eq(vu_seal(&u), epoch);
}
END_TEST

START_TEST(what_is_written_later_changes_no_copy)
{
	struct handle *h = opened(O_WRONLY | O_CREAT, "new");
	char data[8];
	uint64_t copy;

	closed(h);
	vu_seal(&u);
	copy = vu_file(&u, "a").closed;
	vu_write(h, "N", 0);
	vu_holds(&u, "a", "New");
	unit_ok(bodies_finish_closes(u.vol));
	ck_assert_uint_eq(vu_file(&u, "a").closed, copy);
	read_version(copy, data, sizeof(data));
	ck_assert_str_eq(data, "new");
	handle_release(h, false);
	ck_assert_uint_ne(vu_file(&u, "a").closed, copy);
	vu_holds(&u, "a", "New");
	read_version(copy, data, sizeof(data));
	ck_assert_str_eq(data, "new");
}
END_TEST

/* Nobody asks: it is taken in after a while. */
START_TEST(it_is_committed_though_nobody_asks)
{
	struct handle *h = opened(O_WRONLY | O_CREAT, "new");

	closed(h);
	unit_until(vu_file(&u, "a").closed);
	handle_release(h, false);
	vu_holds(&u, "a", "new");
}
END_TEST

START_TEST(another_close_beside_it_is_committed_at_its_release)
{
	struct handle *h = opened(O_WRONLY | O_CREAT, "new"), *other;
	uint64_t copy;

	closed(h);
	vu_holds(&u, "a", "new");
	copy = vu_file(&u, "a").closed;
	other = vu_open(&u, "a", O_RDWR);
	ck_assert_ptr_eq(other->body, h->body);
	vu_write(other, "more", 3);
	unit_ok(handle_flush(other, getpid(), NULL, NULL));
	handle_release(other, false);
	ck_assert_uint_ne(vu_file(&u, "a").closed, copy);
	ck_assert_uint_eq(vu_file(&u, "a").size, 7);
	copy = vu_file(&u, "a").closed;
	handle_release(h, false);
	vu_holds(&u, "a", "newmore");
}
END_TEST

/* What its opener made goes at once, and what is made under the name later is nobody's of the killed. */
START_TEST(a_killed_opener_is_undone_before_the_release)
{
	struct handle *h = opened(O_WRONLY | O_CREAT, "half");

	killed(h);
	vu_missing(&u, "a");
	ck_assert_uint_eq(torn(), 1);
	vu_save(&u, "a", "whole");
	vu_write(h, "H", 0);
	handle_release(h, false);
	vu_holds(&u, "a", "whole");
	ck_assert_uint_eq(torn(), 1);
	ck_assert(!vu_version(&u, vu_file(&u, "a").closed).torn);
}
END_TEST

/* Written before anybody looked: no matter for the dead. */
START_TEST(a_killed_opener_is_undone_though_another_writes)
{
	struct handle *h = opened(O_WRONLY | O_CREAT, "half");

	killed(h);
	vu_write(h, "H", 0);
	vu_missing(&u, "a");
	handle_release(h, false);
	vu_missing(&u, "a");
}
END_TEST

START_TEST(a_killed_opener_of_what_stays_is_blamed_once)
{
	struct handle *h;
	struct epoch_info e;

	vu_save(&u, "a", "old");
	vu_seal(&u);
	h = opened(O_RDWR, "half");
	killed(h);
	vu_holds(&u, "a", "half");
	ck_assert(vu_version(&u, vu_file(&u, "a").closed).torn);
	vu_save(&u, "a", "whole");
	handle_release(h, false);
	unit_ok(epochs_get(u.vol, vu_seal(&u), &e));
	ck_assert(e.complete);
	epoch_info_free(&e);
	vu_holds(&u, "a", "whole");
}
END_TEST

/* With nothing in it, or written by another since: it is that one who closes it. */
START_TEST(what_is_given_away_waits_for_its_release)
{
	struct handle *h = opened(O_WRONLY | O_CREAT, _i ? "begin" : "");

	closed(h);
	if (_i)
		vu_write(h, " and end", 5);
	unit_ok(bodies_finish_closes(u.vol));
	ck_assert_uint_eq(vu_file(&u, "a").closed, 0);
	ck_assert_uint_eq(h->body->writers, 1);
	handle_release(h, false);
	ck_assert_uint_ne(vu_file(&u, "a").closed, 0);
}
END_TEST

/* It had a descriptor after all. */
START_TEST(its_opener_closes_it_once_more)
{
	struct handle *h = opened(O_WRONLY | O_CREAT, "one");
	uint64_t copy;

	closed(h);
	vu_holds(&u, "a", "one");
	copy = vu_file(&u, "a").closed;
	vu_write(h, "two", 3);
	closed(h);
	ck_assert_uint_eq(h->body->writers, 1);
	vu_holds(&u, "a", "onetwo");
	ck_assert_uint_ne(vu_file(&u, "a").closed, copy);
	ck_assert_uint_eq(vu_file(&u, "a").size, 6);
	handle_release(h, false);
}
END_TEST

START_TEST(it_is_cut_by_its_name)
{
	const struct live_change change = {.set = LIVE_SET_SIZE, .size = 2, .pid = getpid()};
	struct handle *h = opened(O_WRONLY | O_CREAT, "new");
	struct live_attr attr;

	closed(h);
	unit_ok(live_setattr(u.vol, h->body->ino, h->body->id, &change, &attr));
	ck_assert_uint_eq(vu_file(&u, "a").size, 2);
	ck_assert_uint_ne(vu_file(&u, "a").closed, vu_file(&u, "a").live);
	handle_release(h, false);
	vu_holds(&u, "a", "ne");
}
END_TEST

/* A seal must not say that all is in it; once there is room it is. */
START_TEST(a_copy_that_fails_is_made_later)
{
	struct handle *h = opened(O_WRONLY | O_CREAT, "new");
	int objects = u.vol->objects_fd;

	u.vol->objects_fd = worker;
	closed(h);
	unit_error(bodies_finish_closes(u.vol), -EIO);
	ck_assert_uint_eq(vu_file(&u, "a").closed, 0);
	u.vol->objects_fd = objects;
	unit_ok(bodies_finish_closes(u.vol));
	ck_assert_uint_ne(vu_file(&u, "a").closed, 0);
	ck_assert_uint_ne(vu_file(&u, "a").closed, vu_file(&u, "a").live);
	handle_release(h, false);
	vu_holds(&u, "a", "new");
}
END_TEST

START_TEST(a_rollback_leaves_nothing_torn)
{
	struct handle *h;
	uint64_t epoch, number;

	vu_save(&u, "a", "old");
	epoch = vu_seal(&u);
	h = opened(O_WRONLY | O_TRUNC, "new");
	closed(h);
	unit_ok(epochs_rollback(u.vol, epoch, &number));
	vu_holds(&u, "a", "old");
	handle_release(h, false);
	vu_holds(&u, "a", "old");
	ck_assert_uint_eq(torn(), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("live_held");
	TCase *t = unit_case(s, "held");

	tcase_add_checked_fixture(t, setup_held, teardown_held);
	tcase_add_test(t, what_is_closed_is_committed_once);
	tcase_add_test(t, its_release_changes_nothing);
	tcase_add_test(t, what_is_written_later_changes_no_copy);
	tcase_add_test(t, it_is_committed_though_nobody_asks);
	tcase_add_test(t, another_close_beside_it_is_committed_at_its_release);
	tcase_add_test(t, a_killed_opener_is_undone_before_the_release);
	tcase_add_test(t, a_killed_opener_is_undone_though_another_writes);
	tcase_add_test(t, a_killed_opener_of_what_stays_is_blamed_once);
	tcase_add_loop_test(t, what_is_given_away_waits_for_its_release, 0, 2);
	tcase_add_test(t, its_opener_closes_it_once_more);
	tcase_add_test(t, it_is_cut_by_its_name);
	tcase_add_test(t, a_copy_that_fails_is_made_later);
	tcase_add_test(t, a_rollback_leaves_nothing_torn);
	return unit_run(s);
}
