/* SPDX-License-Identifier: Apache-2.0 */
/* Losing the lease: who lost it learns so, and changes nothing of who has it now; what is kept of former ones. */
#include "lib/net/open.h"
#include "tests/unit/lease_unit.h"

START_TEST(who_lost_it_learns_so_and_writes_nothing)
{
	struct lease_terms a = elsewhere("a"), b = elsewhere("b");
	cleanup_buf struct buf was = {0}, is = {0};
	struct lease *old, *new;

	start();
	old = take(&a);
	b.take_over = true;
	new = take(&b);
	unit_ok(remote_get(remote, "lease/00000000000000000001.json", 0, REMOTE_TO_END, &was));
	/* Asked a moment ago: not asked again. */
	unit_ok(lease_confirm(old, remote, 3600 * NS_PER_S));
	unit_error(lease_confirm(old, remote, 0), -ESTALE);
	ck_assert(view_of(old).lost);
	ck_assert_str_eq(view_of(old).winner.host, "b");
	unit_error(lease_renew(old, remote), -ESTALE);
	unit_error(lease_release(old, remote, 0), -ESTALE);
	unit_ok(remote_get(remote, "lease/00000000000000000001.json", 0, REMOTE_TO_END, &is));
	unit_same_bytes(was.data, was.len, is.data, is.len);
	/* For good, whatever becomes of the other. */
	unit_ok(lease_release(new, remote, 0));
	unit_error(lease_confirm(old, remote, 3600 * NS_PER_S), -ESTALE);
	lease_free(old);
	lease_free(new);
	stop();
}
END_TEST

/* A renewal that was under way when its holder was stopped lands after all: in an old generation. */
START_TEST(a_late_renewal_of_the_old_holder_is_nobodys)
{
	struct lease_terms a = elsewhere("a"), b = elsewhere("b"), c = elsewhere("c");
	struct lease_info late, now = {0};
	struct lease *old, *new;

	start();
	old = take(&a);
	late = view_of(old).own;
	late.renewed++;
	new = take(&b); /* it lapsed */
	put_object(&late);
	unit_ok(lease_confirm(new, remote, 0));
	unit_ok(lease_look(remote, &now));
	ck_assert_str_eq(now.host, "b");
	unit_ok(lease_release(new, remote, 0));
	put_object(&late);
	unit_ok(try_take(c));
	unit_error(lease_confirm(old, remote, 0), -ESTALE);
	lease_free(old);
	lease_free(new);
	stop();
}
END_TEST

START_TEST(an_object_that_is_taken_away_is_a_lost_lease)
{
	struct lease_terms a = elsewhere("a"), b = elsewhere("b");
	struct lease *first, *second;

	start();
	first = take(&a);
	unit_ok(remote_delete(remote, "lease/00000000000000000001.json"));
	second = take(&b); /* the same generation */
	ck_assert_uint_eq(view_of(second).own.generation, 1);
	unit_error(lease_confirm(first, remote, 0), -ESTALE);
	unit_ok(remote_delete(remote, "lease/00000000000000000001.json"));
	unit_error(lease_renew(second, remote), -ESTALE);
	lease_free(first);
	lease_free(second);
	stop();
}
END_TEST

START_TEST(a_remote_that_is_away_loses_nothing)
{
	struct lease_terms a = elsewhere("a");
	struct remote *away = NULL;
	struct lease *l;

	start();
	l = take(&a);
	unit_ok(remote_open("fault+memory:lease?down=1&times=2", &away));
	unit_error(lease_renew(l, away), -ECONNREFUSED);
	unit_error(lease_confirm(l, away, 0), -ECONNREFUSED);
	ck_assert(!view_of(l).lost);
	unit_ok(lease_renew(l, away)); /* it is back */
	ck_assert_uint_eq(view_of(l).own.renewed, 1);
	remote_close(away);
	lease_free(l);
	stop();
}
END_TEST

START_TEST(history_is_short)
{
	uint64_t count = 0;

	start();
	for (int i = 0; i < 3 * LEASE_KEEP; i++) {
		struct lease_terms a = elsewhere("a");
		struct lease *l = take(&a);

		unit_ok(lease_release(l, remote, 0));
		lease_free(l);
	}
	unit_ok(remote_list(remote, PREFIX_LEASE, count_object, &count));
	ck_assert_uint_eq(count, LEASE_KEEP);
	stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_lease_lost");
	TCase *t = unit_case(s, "lease");

	tcase_add_test(t, who_lost_it_learns_so_and_writes_nothing);
	tcase_add_test(t, a_late_renewal_of_the_old_holder_is_nobodys);
	tcase_add_test(t, an_object_that_is_taken_away_is_a_lost_lease);
	tcase_add_test(t, a_remote_that_is_away_loses_nothing);
	tcase_add_test(t, history_is_short);
	return unit_run(s);
}
