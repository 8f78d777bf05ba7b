/* SPDX-License-Identifier: Apache-2.0 */
/* What a machine takes from the remote when it opens a volume: epochs, tags, the live tree; and what it keeps. */
#include "lib/epochs/adopt.h"

#include "tests/unit/machines_unit.h"

#define MIB ((size_t)1 << 20)

static uint64_t tag_of(const char *name)
{
	uint64_t number = 0;

	return epochs_tag_get(u.vol, name, &number) ? 0 : number;
}

static bool has_epoch(uint64_t number)
{
	int64_t ns;

	return epochs_sealed_ns(u.vol, number, &ns) == 0;
}

/* In the remote. */
static bool is_dropped(uint64_t number)
{
	struct epoch_record record;
	int error = records_get(mu_remote, number, &record, NULL);

	if (!error)
		record_free(&record);
	return error == -ENOENT;
}

START_TEST(a_new_machine_has_everything)
{
	struct live_attr before, after;

	eu_mkdir("d");
	mu_save_noise("d/large", 3 * MIB, 1);
	eu_save("d/small", "small");
	eu_save("empty", "");
	eu_link("d/large", "hard");
	eu_symlink("soft", "d/large");
	mu_drain();
	eu_save("d/small", "changed");
	eu_unlink("empty");
	mu_drain();
	unit_ok(epochs_tag(u.vol, "best", 1, false));
	unit_until(mu_in_remote("tags/best"));
	unit_ok(live_lookup(u.vol, ROOT_INO, "hard", 1, &before));

	mu_go_to(1);
	ck_assert_uint_eq(epochs_current(u.vol), 2);
	ck_assert_uint_eq(epochs_latest(u.vol), 2);
	ck_assert_uint_eq(tag_of("best"), 1);
	eu_live_holds("d/small", "changed");
	unit_ok(mu_read_noise("d/large", 3 * MIB, 1));
	ck_assert(!eu_there("empty"));
	eu_epoch_holds(1, "d/small", "small");
	eu_epoch_holds(1, "empty", "");
	unit_ok(live_lookup(u.vol, ROOT_INO, "hard", 1, &after));
	ck_assert_uint_eq(after.ino, eu_ino("d/large"));
	ck_assert_uint_eq(after.nlink, 2);
	ck_assert_int_eq(after.mtime_ns, before.mtime_ns);
	ck_assert_uint_eq(after.mode, before.mode);
	/* It goes on where the other ended. */
	eu_save("more", "x");
	ck_assert_uint_eq(eu_seal(), 3);
	mu_drain();
	ck_assert(mu_has_epoch(3));
}
END_TEST

START_TEST(opening_reads_no_content)
{
	mu_save_noise("large", 3 * MIB, 1);
	mu_drain();
	mu_go_to(1);
	ck_assert_uint_eq(vu_version(&u, vu_file(&u, "large").closed).local_bytes, 0);
	unit_ok(mu_read_noise("large", 3 * MIB, 1));
	unit_until(vu_version(&u, vu_file(&u, "large").closed).local_bytes > 0);
}
END_TEST

START_TEST(an_old_machine_follows)
{
	eu_save("a", "one");
	eu_save("gone", "x");
	mu_save_noise("same", MIB, 1);
	mu_drain();
	mu_go_to(1);
	eu_save("a", "two");
	eu_unlink("gone");
	eu_save("b", "new");
	mu_drain();
	eu_save("a", "three");
	mu_drain();
	mu_go_to(0);
	ck_assert_uint_eq(eu_count(), 3);
	ck_assert_uint_eq(epochs_current(u.vol), 3);
	eu_live_holds("a", "three");
	eu_live_holds("b", "new");
	ck_assert(!eu_there("gone"));
	eu_epoch_holds(1, "gone", "x");
	eu_epoch_holds(2, "a", "two");
	/* What it had is not fetched again. */
	mu_weather("get.error=1&only=packs/");
	unit_ok(mu_read_noise("same", MIB, 1));
	mu_weather(NULL);
	eu_save("a", "four");
	ck_assert_uint_eq(eu_seal(), 4);
}
END_TEST

START_TEST(work_that_has_no_number_yet_stays_and_becomes_the_next_epoch)
{
	eu_save("a", "one");
	mu_drain();
	eu_save("a", "mine");
	volume_close(u.vol); /* as a crash leaves it: closed, not sealed */
	u.vol = NULL;
	mu_go_to(1);
	eu_save("a", "theirs");
	mu_drain();
	mu_go_to(0);
	eu_live_holds("a", "mine");
	ck_assert(has_epoch(2));
	eu_epoch_holds(2, "a", "theirs");
	ck_assert_uint_eq(eu_seal(), 3);
	mu_drain();
	eu_epoch_holds(3, "a", "mine");
	ck_assert(mu_has_epoch(3));
	mu_go_to(2);
	eu_live_holds("a", "mine");
	eu_epoch_holds(2, "a", "theirs");
}
END_TEST

START_TEST(epochs_that_were_not_uploaded_are_kept_and_nothing_is_overwritten)
{
	eu_save("a", "one");
	mu_drain();
	mu_weather("put.error=1&only=epochs/");
	eu_save("a", "mine");
	ck_assert_uint_eq(eu_seal(), 2);
	volume_close(u.vol);
	u.vol = NULL;
	mu_weather(NULL);
	mu_go_to(1);
	eu_save("a", "theirs");
	ck_assert_uint_eq(eu_seal(), 2);
	mu_drain();
	mu_go_to(0);
	eu_live_holds("a", "mine");
	eu_epoch_holds(2, "a", "mine");
	unit_until(mu_state(2) == EPOCH_FAILED);
	mu_go_to(2);
	eu_live_holds("a", "theirs");
}
END_TEST

START_TEST(what_another_machine_dropped_is_dropped)
{
	for (int i = 0; i < 3; i++) {
		eu_save("a", (char[]){(char)('1' + i), '\0'});
		mu_drain();
	}
	mu_go_to(1);
	unit_ok(epochs_drop(u.vol, 1));
	eu_save("a", "4");
	mu_drain();
	unit_ok(epochs_drop(u.vol, 3));
	unit_until(is_dropped(1) && is_dropped(3));
	mu_go_to(0);
	ck_assert(!has_epoch(1) && has_epoch(2) && has_epoch(4));
	eu_live_holds("a", "4");
	/* Its live tree stood on 3 until now. */
	mu_go_to(0);
	ck_assert(!has_epoch(3));
	eu_save("a", "5");
	ck_assert_uint_eq(eu_seal(), 5);
}
END_TEST

/* Numbers go on above all that were ever used. */
START_TEST(numbers_go_on_above_tombstones_and_damage)
{
	char key[KEY_MAX];

	eu_save("a", "1");
	mu_drain();
	unit_ok(records_drop(mu_remote, 7, NULL));
	epoch_key(9, key);
	unit_ok(remote_put(mu_remote, key, "damaged", 7));
	mu_go_to(1);
	eu_live_holds("a", "1");
	ck_assert_uint_eq(eu_count(), 1);
	eu_save("a", "2");
	ck_assert_uint_eq(eu_seal(), 10);
	mu_drain();
	ck_assert(mu_has_epoch(10));
}
END_TEST

/* A damaged record is left alone: it may be mended. */
START_TEST(a_damaged_record_hides_nothing_for_ever)
{
	cleanup_buf struct buf good = {0};
	char key[KEY_MAX];

	eu_save("a", "1");
	mu_drain();
	eu_save("a", "2");
	mu_drain();
	epoch_key(2, key);
	unit_ok(remote_get(mu_remote, key, 0, REMOTE_TO_END, &good));
	unit_ok(remote_put(mu_remote, key, "{", 1));
	mu_go_to(1);
	ck_assert(has_epoch(1) && !has_epoch(2));
	eu_live_holds("a", "1");
	unit_ok(remote_put(mu_remote, key, good.data, good.len));
	mu_go_to(1);
	ck_assert(has_epoch(2));
	eu_live_holds("a", "2");
}
END_TEST

START_TEST(tags_are_those_of_the_remote_but_for_our_own_changes)
{
	eu_save("a", "1");
	mu_drain();
	eu_save("a", "2");
	mu_drain();
	unit_ok(epochs_tag(u.vol, "moved", 1, false));
	unit_ok(epochs_tag(u.vol, "removed", 1, false));
	unit_ok(epochs_tag(u.vol, "kept", 1, false));
	unit_until(mu_count(PREFIX_TAGS) == 3);
	mu_go_to(1);
	ck_assert_uint_eq(tag_of("moved"), 1);
	unit_ok(epochs_tag(u.vol, "moved", 2, true));
	unit_ok(epochs_untag(u.vol, "removed"));
	unit_ok(epochs_tag(u.vol, "kept", 2, true));
	unit_ok(epochs_tag(u.vol, "new", 2, false));
	unit_until(mu_count(PREFIX_TAGS) == 3 && mu_in_remote("tags/new"));
	mu_go_to(1);
	mu_drain();
	/* A change of machine 0 that the remote has not seen. */
	volume_close(u.vol);
	u.vol = NULL;
	mu_weather("put.error=1&only=tags/");
	mu_go_to(0);
	unit_ok(epochs_tag(u.vol, "kept", 1, true));
	mu_go_to(0);
	ck_assert_uint_eq(tag_of("moved"), 2);
	ck_assert_uint_eq(tag_of("removed"), 0);
	ck_assert_uint_eq(tag_of("new"), 2);
	ck_assert_uint_eq(tag_of("kept"), 1);
	mu_weather(NULL);
}
END_TEST

START_TEST(a_damaged_tag_changes_nothing_here)
{
	eu_save("a", "1");
	mu_drain();
	unit_ok(epochs_tag(u.vol, "best", 1, false));
	unit_until(mu_in_remote("tags/best"));
	unit_ok(remote_put(mu_remote, "tags/best", "one", 3));
	unit_ok(remote_put(mu_remote, "tags/other", "one", 3));
	mu_go_to(0);
	ck_assert_uint_eq(tag_of("best"), 1);
	ck_assert_uint_eq(tag_of("other"), 0);
}
END_TEST

START_TEST(a_remote_that_is_away_is_told)
{
	char *message = NULL;

	eu_save("a", "1");
	mu_drain();
	volume_close(u.vol);
	u.vol = NULL;
	mu_weather("get.error=1&only=epochs/");
	u.cache = mu_cache[1];
	eu_options.remote = u.remote;
	eu_options.cache_dir = u.cache;
	eu_options.patience_ns = 0;
	ck_assert_int_lt(volume_open(&eu_options, &u.vol, &message), 0);
	ck_assert_ptr_nonnull(message);
	free(message);
	mu_weather(NULL);
	mu_go_to(1);
	eu_live_holds("a", "1");
}
END_TEST

START_TEST(a_continued_epoch_is_continued_here_too)
{
	struct epoch_info info;

	eu_options.settle_ns = 50 * NS_PER_MS;
	mu_go_to(0);
	eu_mkdir("checkpoint-1");
	eu_save("checkpoint-1/a", "a");
	eu_wait_for_epoch(1);
	eu_save("checkpoint-1/b", "b");
	eu_wait_for_epoch(2);
	mu_drain();
	mu_go_to(1);
	info = eu_info(1);
	ck_assert(info.superseded && !info.complete);
	epoch_info_free(&info);
	info = eu_info(2);
	ck_assert(info.complete);
	ck_assert_uint_eq(info.record.continues, 1);
	epoch_info_free(&info);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("epochs_adopt");
	TCase *t = unit_case(s, "adopt");

	tcase_add_checked_fixture(t, mu_start, mu_stop);
	tcase_add_test(t, a_new_machine_has_everything);
	tcase_add_test(t, opening_reads_no_content);
	tcase_add_test(t, an_old_machine_follows);
	tcase_add_test(t, work_that_has_no_number_yet_stays_and_becomes_the_next_epoch);
	tcase_add_test(t, epochs_that_were_not_uploaded_are_kept_and_nothing_is_overwritten);
	tcase_add_test(t, what_another_machine_dropped_is_dropped);
	tcase_add_test(t, numbers_go_on_above_tombstones_and_damage);
	tcase_add_test(t, a_damaged_record_hides_nothing_for_ever);
	tcase_add_test(t, tags_are_those_of_the_remote_but_for_our_own_changes);
	tcase_add_test(t, a_damaged_tag_changes_nothing_here);
	tcase_add_test(t, a_remote_that_is_away_is_told);
	tcase_add_test(t, a_continued_epoch_is_continued_here_too);
	return unit_run(s);
}
