/* SPDX-License-Identifier: Apache-2.0 */
/* When quiet seals an epoch. */
#include "lib/meta/settle.h"

#include "lib/util/clock.h"
#include "tests/unit/unit.h"

#define S NS_PER_S

/* Ten seconds of quiet, five are asked for. */
static struct settle_view quiet_view(void)
{
	return (struct settle_view){
		.now_ns = 1000 * S,
		.dirty = true,
		.activity_ns = 990 * S,
		.settle_ns = 5 * S,
		.patience_ns = 60 * S,
	};
}

static void check_waits(const struct settle_view *v, int64_t until, enum settle_hold hold,
			unsigned index)
{
	struct settle_answer a = settle_decide(v);

	ck_assert_int_eq(a.verdict, SETTLE_WAIT);
	ck_assert_int_eq(a.until_ns, until);
	ck_assert_int_eq(a.hold, hold);
	ck_assert_uint_eq(a.index, index);
}

START_TEST(quiet_seals)
{
	struct settle_view v = quiet_view();

	ck_assert_int_eq(settle_decide(&v).verdict, SETTLE_SEAL);
	v.activity_ns = 995 * S; /* exactly five */
	ck_assert_int_eq(settle_decide(&v).verdict, SETTLE_SEAL);
	v.activity_ns = 995 * S + 1;
	check_waits(&v, 1000 * S + 1, SETTLE_HOLD_QUIET, 0);
}
END_TEST

START_TEST(nothing_dirty_seals_nothing)
{
	struct settle_view v = quiet_view();
	struct settle_writer w = {.fresh = true, .changed_ns = 999 * S};

	v.dirty = false;
	v.writers = &w;
	v.writer_count = 1;
	ck_assert_int_eq(settle_decide(&v).verdict, SETTLE_IDLE);
}
END_TEST

START_TEST(an_unfinished_version_holds_for_patience)
{
	struct settle_view v = quiet_view();
	struct settle_writer w = {.fresh = true, .changed_ns = 950 * S};

	v.writers = &w;
	v.writer_count = 1;
	check_waits(&v, 1010 * S, SETTLE_HOLD_WRITER, 0);
	w.changed_ns = 940 * S;
	ck_assert_int_eq(settle_decide(&v).verdict, SETTLE_SEAL);
	w.changed_ns = 940 * S + 1;
	check_waits(&v, 1000 * S + 1, SETTLE_HOLD_WRITER, 0);
}
END_TEST

START_TEST(logs_edits_and_old_files_hold_nothing)
{
	struct settle_view v = quiet_view();
	struct settle_writer w[] = {
		{.fresh = true, .log = true, .changed_ns = 1000 * S},
		{.fresh = true, .in_place = true, .changed_ns = 1000 * S},
		{.fresh = false, .changed_ns = 1000 * S},
	};

	v.writers = w;
	v.writer_count = 3;
	ck_assert_int_eq(settle_decide(&v).verdict, SETTLE_SEAL);
}
END_TEST

START_TEST(writes_restart_the_quiet)
{
	struct settle_view v = quiet_view();
	struct settle_writer w = {.fresh = true, .changed_ns = 997 * S};

	v.patience_ns = 1 * S; /* it holds nothing up any more, but it was a write */
	v.writers = &w;
	v.writer_count = 1;
	check_waits(&v, 1002 * S, SETTLE_HOLD_QUIET, 0);
	w.log = true;
	ck_assert_int_eq(settle_decide(&v).verdict, SETTLE_SEAL);
}
END_TEST

START_TEST(a_temporary_name_holds_for_patience)
{
	struct settle_view v = quiet_view();
	struct settle_temporary t[] = {{.changed_ns = 900 * S}, {.changed_ns = 970 * S}};

	v.temporaries = t;
	v.temporary_count = 1;
	ck_assert_int_eq(settle_decide(&v).verdict, SETTLE_SEAL);
	v.temporary_count = 2;
	check_waits(&v, 1030 * S, SETTLE_HOLD_TEMPORARY, 1);
}
END_TEST

START_TEST(the_longest_hold_is_named)
{
	struct settle_view v = quiet_view();
	struct settle_writer w[] = {
		{.fresh = true, .changed_ns = 960 * S},
		{.fresh = true, .changed_ns = 980 * S},
		{.fresh = true, .changed_ns = 970 * S},
	};
	struct settle_temporary t = {.changed_ns = 975 * S};

	v.activity_ns = 999 * S;
	v.writers = w;
	v.writer_count = 3;
	v.temporaries = &t;
	v.temporary_count = 1;
	check_waits(&v, 1040 * S, SETTLE_HOLD_WRITER, 1);
	v.writer_count = 1;
	check_waits(&v, 1035 * S, SETTLE_HOLD_TEMPORARY, 0);
}
END_TEST

START_TEST(settle_zero_seals_at_once)
{
	struct settle_view v = quiet_view();
	struct settle_writer w = {.fresh = true, .changed_ns = 1000 * S};

	v.settle_ns = 0;
	v.activity_ns = v.now_ns;
	ck_assert_int_eq(settle_decide(&v).verdict, SETTLE_SEAL);
	v.writers = &w;
	v.writer_count = 1;
	check_waits(&v, 1060 * S, SETTLE_HOLD_WRITER, 0);
}
END_TEST

START_TEST(patience_for_ever_does_not_overflow)
{
	struct settle_view v = quiet_view();
	struct settle_writer w = {.fresh = true, .changed_ns = 10 * S};

	v.patience_ns = INT64_MAX;
	v.writers = &w;
	v.writer_count = 1;
	check_waits(&v, INT64_MAX, SETTLE_HOLD_WRITER, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_settle");
	TCase *t = unit_case(s, "settle");

	tcase_add_test(t, quiet_seals);
	tcase_add_test(t, nothing_dirty_seals_nothing);
	tcase_add_test(t, an_unfinished_version_holds_for_patience);
	tcase_add_test(t, logs_edits_and_old_files_hold_nothing);
	tcase_add_test(t, writes_restart_the_quiet);
	tcase_add_test(t, a_temporary_name_holds_for_patience);
	tcase_add_test(t, the_longest_hold_is_named);
	tcase_add_test(t, settle_zero_seals_at_once);
	tcase_add_test(t, patience_for_ever_does_not_overflow);
	return unit_run(s);
}
