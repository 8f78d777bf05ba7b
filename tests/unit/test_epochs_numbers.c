/* SPDX-License-Identifier: Apache-2.0 */
/* Epochs by number, name and tag, and dropping them (contract 1.1). */
#include "tests/unit/epochs_unit.h"

/* ---- the index ---- */

static void index_add(struct epoch_index *x, uint64_t number, enum record_complete complete,
		      int64_t step, uint64_t continues)
{
	struct epoch_record r = {
		.number = number,
		.complete = complete,
		.has_step = step >= 0,
		.step = step >= 0 ? (uint64_t)step : 0,
		.continues = continues,
		.sealed_ns = (int64_t)number * 1000 * NS_PER_S,
	};

	unit_ok(epoch_index_add(x, &r, false));
}

START_TEST(the_index_finds_epochs)
{
	struct epoch_index x = {0};

	ck_assert_uint_eq(epoch_index_newest(&x), 0);
	ck_assert_uint_eq(epoch_index_latest(&x), 0);
	for (uint64_t n = 300; n >= 1; n--) /* any order */
		index_add(&x, n * 2, RECORD_COMPLETE, -1, 0);
	ck_assert_uint_eq(x.count, 300);
	ck_assert_uint_eq(epoch_index_newest(&x), 600);
	ck_assert_ptr_nonnull(epoch_index_find(&x, 42));
	ck_assert_ptr_null(epoch_index_find(&x, 43));
	ck_assert_uint_eq(epoch_index_after(&x, 0)->number, 2);
	ck_assert_uint_eq(epoch_index_after(&x, 42)->number, 44);
	ck_assert_uint_eq(epoch_index_after(&x, 43)->number, 44);
	ck_assert_ptr_null(epoch_index_after(&x, 600));
	ck_assert_ptr_null(epoch_index_after(&x, UINT64_MAX));
	epoch_index_remove(&x, 42);
	epoch_index_remove(&x, 42);
	ck_assert_uint_eq(x.count, 299);
	ck_assert_uint_eq(epoch_index_after(&x, 40)->number, 44);
	epoch_index_free(&x);
}
END_TEST

START_TEST(latest_is_the_newest_complete_one)
{
	struct epoch_index x = {0};

	index_add(&x, 1, RECORD_COMPLETE, -1, 0);
	index_add(&x, 2, RECORD_COMPLETE, -1, 0);
	index_add(&x, 3, RECORD_INCOMPLETE, -1, 0);
	index_add(&x, 4, RECORD_UNKNOWN, -1, 0);
	ck_assert_uint_eq(epoch_index_latest(&x), 2);
	index_add(&x, 5, RECORD_INCOMPLETE, -1, 2);
	ck_assert_uint_eq(epoch_index_latest(&x), 1);
	/* also where the one that is continued comes later */
	index_add(&x, 7, RECORD_COMPLETE, -1, 6);
	index_add(&x, 6, RECORD_COMPLETE, -1, 0);
	ck_assert(epoch_index_find(&x, 6)->superseded);
	epoch_index_free(&x);
}
END_TEST

static void index_seal(struct epoch_index *x, uint64_t number, enum record_trigger trigger,
		       uint64_t continues, uint64_t from)
{
	struct epoch_record r = {
		.number = number,
		.complete = RECORD_COMPLETE,
		.trigger = trigger,
		.continues = continues,
		.continues_from = from,
	};

	unit_ok(epoch_index_add(x, &r, false));
}

/* A save that was sealed several times by itself; a word in between holds, and what a rollback made. */
START_TEST(all_epochs_of_a_save_are_continued)
{
	static const enum record_trigger triggers[] = {
		RECORD_TRIGGER_QUIET, RECORD_TRIGGER_CLOSE,  RECORD_TRIGGER_COMMIT,
		RECORD_TRIGGER_QUIET, RECORD_TRIGGER_MARKER, RECORD_TRIGGER_QUIET,
	};
	static const bool complete[] = {true, false, true, false, false, true};

	/* Also where those that are continued come later, and where a tombstone says it. */
	for (unsigned order = 0; order < 3; order++) {
		struct epoch_index x = {0};

		for (uint64_t i = 0; i < 6; i++) {
			uint64_t n = order == 1 ? 6 - i : i + 1;
			bool continues = n == 6 && order < 2;

			index_seal(&x, n, triggers[n - 1], continues ? 5 : 0, continues ? 2 : 0);
		}
		if (order == 2)
			epoch_index_supersede(&x, 5, 2, 6);
		for (uint64_t n = 1; n <= 6; n++)
			ck_assert_int_eq(epoch_brief_complete(epoch_index_find(&x, n)),
					 complete[n - 1]);
		epoch_index_free(&x);
	}
}
END_TEST

START_TEST(names_of_epochs)
{
	static const struct {
		const char *text;
		int64_t want;
	} cases[] = {
		{"3", 3},
		{"000003", 3},
		{"9", -ENOENT},
		{"0", -ENOENT},
		{"latest", 4},
		{"step=100", 2},
		{"step=200", 5},
		{"step=7", -ENOENT},
		{"step=", -EINVAL},
		{"step=x", -EINVAL},
		{"@0", 5},
		{"@1000s", 4},
		{"@1", 4},
		{"@1h", 1},
		{"@2d", -ENOENT},
		{"@", -EINVAL},
		{"@x", -EINVAL},
		{"", -EINVAL},
		{"current", -EAGAIN},
		{"best", -EAGAIN},
		{"99999999999999999999999", -ENOENT},
	};
	struct epoch_index x = {0};

	index_add(&x, 1, RECORD_COMPLETE, 100, 0);
	index_add(&x, 2, RECORD_COMPLETE, 100, 0);
	index_add(&x, 3, RECORD_INCOMPLETE, 100, 0);
	index_add(&x, 4, RECORD_COMPLETE, -1, 0);
	index_add(&x, 5, RECORD_INCOMPLETE, 200, 0);
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint64_t number = 0;
		int error = epoch_index_resolve(&x, cases[i].text, 5000 * NS_PER_S, &number);

		ck_assert_msg((error ? error : (int64_t)number) == cases[i].want, "%s: %d %d",
			      cases[i].text, error, (int)number);
	}
	epoch_index_free(&x);
}
END_TEST

/* ---- listing and names ---- */

static int count_numbers(void *arg, uint64_t number, int64_t sealed_ns)
{
	uint64_t *sum = arg;

	ck_assert_int_gt(sealed_ns, 0);
	*sum = *sum * 10 + number;
	return 0;
}

static int count_infos(void *arg, const struct epoch_info *e)
{
	uint64_t *sum = arg;

	ck_assert_uint_eq(e->number, e->record.number);
	*sum = *sum * 10 + e->number;
	return e->number == 3 ? 7 : 0;
}

static void seal_three(void)
{
	eu_save("step-1", "one");
	eu_seal();
	eu_save("step-2", "two");
	eu_seal();
	eu_save("step-3", "three");
	ck_assert_uint_eq(eu_seal(), 3);
}

START_TEST(listing)
{
	struct epoch_info info;
	uint64_t sum = 0;
	int64_t ns;

	seal_three();
	unit_ok(epochs_numbers(u.vol, 0, count_numbers, &sum));
	ck_assert_uint_eq(sum, 123);
	sum = 0;
	unit_ok(epochs_numbers(u.vol, 1, count_numbers, &sum));
	ck_assert_uint_eq(sum, 23);
	sum = 0;
	ck_assert_int_eq(epochs_each(u.vol, count_infos, &sum), 7);
	ck_assert_uint_eq(sum, 123);
	unit_error(epochs_get(u.vol, 4, &info), -ENOENT);
	unit_error(epochs_get(u.vol, 0, &info), -ENOENT);
	unit_error(epochs_sealed_ns(u.vol, 4, &ns), -ENOENT);
	ck_assert_uint_eq(epochs_latest(u.vol), 3);
	ck_assert_uint_eq(epochs_current(u.vol), 3);
	eu_remount();
	ck_assert_uint_eq(epochs_latest(u.vol), 3);
	ck_assert_uint_eq(epochs_current(u.vol), 3);
}
END_TEST

START_TEST(resolving)
{
	uint64_t number;

	seal_three();
	unit_ok(epochs_tag(u.vol, "best", 2, false));
	unit_ok(epochs_resolve(u.vol, "best", &number));
	ck_assert_uint_eq(number, 2);
	unit_ok(epochs_resolve(u.vol, "current", &number));
	ck_assert_uint_eq(number, 3);
	unit_ok(epochs_resolve(u.vol, "latest", &number));
	ck_assert_uint_eq(number, 3);
	unit_ok(epochs_resolve(u.vol, "step=1", &number));
	ck_assert_uint_eq(number, 1);
	unit_ok(epochs_resolve(u.vol, "000002", &number));
	ck_assert_uint_eq(number, 2);
	unit_error(epochs_resolve(u.vol, "worst", &number), -ENOENT);
	unit_error(epochs_resolve(u.vol, "a/b", &number), -EINVAL);
	unit_error(epochs_resolve(u.vol, ".hidden", &number), -EINVAL);
}
END_TEST

static int join_tags(void *arg, const char *name, uint64_t number)
{
	buf_printf(arg, "%s=%d ", name, (int)number);
	return 0;
}

START_TEST(tags)
{
	cleanup_buf struct buf text = {0};
	uint64_t number;

	seal_three();
	unit_ok(epochs_tag(u.vol, "b", 2, false));
	unit_ok(epochs_tag(u.vol, "a", 1, false));
	unit_error(epochs_tag(u.vol, "a", 2, false), -EEXIST);
	unit_ok(epochs_tag(u.vol, "a", 3, true));
	unit_error(epochs_tag(u.vol, "latest", 3, true), -EINVAL);
	unit_error(epochs_tag(u.vol, "12", 3, true), -EINVAL);
	unit_error(epochs_tag(u.vol, "c", 9, false), -ENOENT);
	unit_ok(epochs_tag_each(u.vol, join_tags, &text));
	ck_assert_str_eq(buf_str(&text), "a=3 b=2 ");
	unit_ok(epochs_untag(u.vol, "b"));
	unit_error(epochs_untag(u.vol, "b"), -ENOENT);
	unit_error(epochs_tag_get(u.vol, "b", &number), -ENOENT);
	eu_remount();
	unit_ok(epochs_tag_get(u.vol, "a", &number));
	ck_assert_uint_eq(number, 3);
}
END_TEST

/* ---- drop ---- */

START_TEST(what_is_needed_is_not_dropped)
{
	seal_three();
	unit_ok(epochs_tag(u.vol, "keep", 1, false));
	unit_error(epochs_drop(u.vol, 1), -EBUSY);
	unit_error(epochs_drop(u.vol, 3), -EBUSY);
	unit_error(epochs_drop(u.vol, 9), -ENOENT);
	unit_ok(epochs_untag(u.vol, "keep"));
	unit_ok(epochs_drop(u.vol, 1));
	unit_error(epochs_drop(u.vol, 1), -ENOENT);
}
END_TEST

START_TEST(the_newest_complete_one_is_not_dropped)
{
	eu_save("a", "a");
	eu_seal();
	eu_save("a", "b");
	mutex_lock(&u.vol->lock);
	sealer_incomplete_locked(u.vol, "killed");
	mutex_unlock(&u.vol->lock);
	eu_seal();
	ck_assert_uint_eq(epochs_latest(u.vol), 1);
	ck_assert_uint_eq(epochs_current(u.vol), 2);
	unit_error(epochs_drop(u.vol, 1), -EBUSY);
	unit_error(epochs_drop(u.vol, 2), -EBUSY);
}
END_TEST

START_TEST(a_dropped_epoch_is_gone_and_its_number_too)
{
	uint64_t first, number;
	struct epoch_info info;
	struct tree *tree;

	eu_save("a", "only in one");
	first = vu_file(&u, "a").closed;
	eu_seal();
	eu_save("a", "in two");
	eu_seal();
	eu_epoch_holds(1, "a", "only in one");
	unit_ok(epochs_drop(u.vol, 1));
	unit_error(epochs_get(u.vol, 1, &info), -ENOENT);
	unit_error(epochs_tree(u.vol, 1, &tree), -ENOENT);
	unit_error(trees_load(u.vol, 1, &tree), -ENOENT);
	unit_error(epochs_resolve(u.vol, "1", &number), -ENOENT);
	unit_error(epochs_tag(u.vol, "x", 1, false), -ENOENT);
	/* Its content goes. */
	mutex_lock(&u.vol->lock);
	ck_assert(!state_version_exists(u.vol->state, first));
	mutex_unlock(&u.vol->lock);
	eu_remount();
	eu_save("a", "in three");
	ck_assert_uint_eq(eu_seal(), 3);
	eu_epoch_holds(2, "a", "in two");
}
END_TEST

/* ---- with a remote ---- */

START_TEST(a_dropped_epoch_of_the_remote_stays_dropped)
{
	struct epoch_info info;

	seal_three();
	unit_ok(epochs_wait(u.vol, 0, -1, NULL, NULL));
	unit_ok(epochs_drop(u.vol, 2));
	eu_remount();
	unit_error(epochs_get(u.vol, 2, &info), -ENOENT);
	eu_epoch_holds(1, "step-1", "one");
	eu_epoch_holds(3, "step-2", "two");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_numbers");
	TCase *t = unit_case(s, "index");

	tcase_add_test(t, the_index_finds_epochs);
	tcase_add_test(t, latest_is_the_newest_complete_one);
	tcase_add_test(t, all_epochs_of_a_save_are_continued);
	tcase_add_test(t, names_of_epochs);
	t = eu_case(s, "epochs");
	tcase_add_test(t, listing);
	tcase_add_test(t, resolving);
	tcase_add_test(t, tags);
	tcase_add_test(t, what_is_needed_is_not_dropped);
	tcase_add_test(t, the_newest_complete_one_is_not_dropped);
	tcase_add_test(t, a_dropped_epoch_is_gone_and_its_number_too);
	t = eu_remote_case(s, "remote");
	tcase_add_test(t, a_dropped_epoch_of_the_remote_stays_dropped);
	return unit_run(s);
}
