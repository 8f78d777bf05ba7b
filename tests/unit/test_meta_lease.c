/* SPDX-License-Identifier: Apache-2.0 */
/* One writer at a time: taking the lease, and waiting for who holds it. */
#include <sys/wait.h>
#include <unistd.h>
#include "lib/meta/lease.h"
#include "tests/unit/lease_unit.h"

static struct lease_terms here(void)
{
	struct lease_terms terms = {.self = {.ttl_ns = TTL}};

	unit_ok(lease_process_self(&terms.self));
	return terms;
}

static void count_wait(void *arg, const struct lease_info *holder, int64_t at_most_ns)
{
	ck_assert_int_eq(at_most_ns, holder->ttl_ns);
	++*(int *)arg;
}

/* ---- taking ---- */

START_TEST(a_free_one_is_taken_and_given_back)
{
	struct lease_terms terms = elsewhere("a");
	struct lease_info before = {.generation = 99}, now = {0};
	struct lease *l = NULL;

	start();
	unit_error(lease_look(remote, &now), -ENOENT);
	unit_ok(lease_take(remote, &terms, &l, &before));
	ck_assert_uint_eq(before.generation, 0);
	unit_ok(lease_renew(l, remote));
	unit_ok(lease_look(remote, &now));
	ck_assert_uint_eq(now.generation, 1);
	ck_assert_uint_eq(now.renewed, 1);
	ck_assert_str_eq(now.host, "a");
	unit_ok(lease_release(l, remote, 5));
	lease_free(l);
	terms = elsewhere("b");
	unit_ok(lease_take(remote, &terms, &l, &before));
	ck_assert_uint_eq(view_of(l).own.generation, 2);
	ck_assert(before.released);
	ck_assert_uint_eq(before.pending, 5);
	lease_free(l);
	stop();
}
END_TEST

START_TEST(a_process_that_is_there_is_refused_without_waiting)
{
	struct lease_terms terms = here();
	struct lease_info before = {0};
	struct lease *l, *second = NULL;
	int waits = 0;

	start();
	l = take(&terms);
	terms.waiting = count_wait;
	terms.arg = &waits;
	unit_error(lease_take(remote, &terms, &second, &before), -EBUSY);
	ck_assert_uint_eq(before.pid, (uint64_t)getpid());
	ck_assert_int_eq(waits, 0);
	unit_ok(lease_confirm(l, remote, 0));
	lease_free(l);
	stop();
}
END_TEST

START_TEST(a_process_that_is_gone_is_followed_at_once)
{
	struct lease_terms terms = here();
	struct lease_info old = terms.self;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	start();
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	old.generation = 1;
	unit_ok(uuid_make(old.holder));
	old.pid = (uint64_t)pid;
	put_object(&old);
	unit_ok(try_take(terms));
	/* Another process has the number by now. */
	old.generation = 3;
	old.pid = (uint64_t)getpid();
	old.pid_started--;
	put_object(&old);
	unit_ok(try_take(terms));
	/* In another namespace the number says nothing. */
	old.generation = 5;
	old.pid_namespace++;
	put_object(&old);
	unit_error(try_take(terms), -EINTR);
	stop();
}
END_TEST

START_TEST(a_child_that_nobody_waited_for_is_gone)
{
	struct lease_terms terms = here();
	struct lease_info old = terms.self;
	cleanup_buf struct buf text = {0};
	char path[64];
	siginfo_t ended;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	start();
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	unit_ok(io_read_file(AT_FDCWD, path, 4096, &text));
	ck_assert_ptr_nonnull(strstr(buf_str(&text), ") Z"));
	old.pid = (uint64_t)pid;
	ck_assert_int_eq(lease_process_of(&old, &terms.self), LEASE_PROCESS_GONE);
	waitpid(pid, NULL, 0);
	stop();
}
END_TEST

START_TEST(who_had_our_cache_is_gone)
{
	struct lease_terms terms = here();
	struct lease_info old = terms.self;

	start();
	old.generation = 1;
	unit_ok(uuid_make(old.holder));
	old.pid_namespace++; /* a container of this host */
	put_object(&old);
	unit_error(try_take(terms), -EINTR);
	terms.last_holder = old.holder;
	unit_ok(try_take(terms));
	/* On another host, or after another boot, the cache may be a copy. */
	old.generation = 3;
	unit_ok(uuid_make(old.boot_id));
	put_object(&old);
	unit_error(try_take(terms), -EINTR);
	stop();
}
END_TEST

/* ---- waiting ---- */

struct other {
	struct lease *lease;
	int renews; /* so often, at the beginning of a wait */
	int waits;
};

static void renew_other(void *arg, const struct lease_info *holder, int64_t at_most_ns)
{
	struct other *other = arg;

	ck_assert_int_eq(at_most_ns, holder->ttl_ns);
	other->waits++;
	for (int i = 0; i < other->renews; i++)
		unit_ok(lease_renew(other->lease, remote));
}

static void release_other(void *arg, const struct lease_info *holder, int64_t at_most_ns)
{
	struct other *other = arg;

	(void)holder;
	(void)at_most_ns;
	unit_ok(lease_release(other->lease, remote, 0));
}

START_TEST(one_elsewhere_that_renews_is_alive)
{
	struct lease_terms a = elsewhere("a"), b = elsewhere("b");
	struct other other = {.lease = NULL, .renews = 1};
	struct lease_info before = {0};
	struct lease *l = NULL;

	start();
	other.lease = take(&a);
	b.waiting = renew_other;
	b.arg = &other;
	unit_error(lease_take(remote, &b, &l, &before), -EBUSY);
	ck_assert_int_eq(other.waits, 1);
	ck_assert_str_eq(before.host, "a");
	unit_ok(lease_confirm(other.lease, remote, 0));
	lease_free(other.lease);
	stop();
}
END_TEST

/* No clock of another machine is believed: neither one far behind nor one far ahead. */
START_TEST(one_elsewhere_that_does_not_renew_lapses_whatever_its_clock_says)
{
	const int64_t since[] = {0, clock_wall_ns() + 3600 * NS_PER_S};

	start();
	for (uint64_t i = 0; i < 2; i++) {
		struct lease_terms a = elsewhere("a"), b = elsewhere("b");
		int64_t began = clock_mono_ns();
		int waits = 0;

		a.self.generation = 2 * i + 1;
		a.self.since_ns = since[i];
		unit_ok(uuid_make(a.self.holder));
		put_object(&a.self);
		b.waiting = count_wait;
		b.arg = &waits;
		lease_free(take(&b));
		ck_assert_int_ge(clock_mono_ns() - began, TTL);
		ck_assert_int_eq(waits, 1);
	}
	stop();
}
END_TEST

START_TEST(one_that_is_released_meanwhile_is_taken)
{
	struct lease_terms a = elsewhere("a"), b = elsewhere("b");
	struct other other = {.lease = NULL};
	struct lease *l;

	start();
	a.self.ttl_ns = 3600 * NS_PER_S;
	other.lease = take(&a);
	b.waiting = release_other;
	b.arg = &other;
	l = take(&b);
	ck_assert_uint_eq(view_of(l).own.generation, 2);
	lease_free(l);
	lease_free(other.lease);
	stop();
}
END_TEST

START_TEST(one_that_is_damaged_is_watched_like_any_other)
{
	struct lease_terms a = elsewhere("a");

	start();
	unit_ok(remote_put(remote, "lease/00000000000000000004.json", "{", 1));
	unit_ok(remote_put(remote, "lease/notes.txt", "x", 1));
	unit_error(try_take(a), -EINTR);
	a.take_over = true;
	unit_ok(try_take(a));
	unit_ok(remote_put(remote, "lease/00000000000000000009.json", "{\"format\": 3}", 13));
	unit_error(try_take(a), -EPROTONOSUPPORT);
	unit_ok(remote_put(remote, "lease/09223372036854775807.json", "{", 1));
	unit_error(try_take(a), -EBADMSG);
	stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_lease");
	TCase *t = unit_case(s, "lease");

	tcase_add_test(t, a_free_one_is_taken_and_given_back);
	tcase_add_test(t, a_process_that_is_there_is_refused_without_waiting);
	tcase_add_test(t, a_process_that_is_gone_is_followed_at_once);
	tcase_add_test(t, a_child_that_nobody_waited_for_is_gone);
	tcase_add_test(t, who_had_our_cache_is_gone);
	tcase_add_test(t, one_elsewhere_that_renews_is_alive);
	tcase_add_test(t, one_elsewhere_that_does_not_renew_lapses_whatever_its_clock_says);
	tcase_add_test(t, one_that_is_released_meanwhile_is_taken);
	tcase_add_test(t, one_that_is_damaged_is_watched_like_any_other);
	return unit_run(s);
}
