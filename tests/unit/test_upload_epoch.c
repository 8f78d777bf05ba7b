/* SPDX-License-Identifier: Apache-2.0 */
/* Making epochs durable: the order, repetition, failures, other writers, tags and drops. */
#include <jansson.h>

#include "lib/format/record.h"
#include "lib/upload/upload.h"
#include "tests/unit/machines_unit.h"

#define MIB ((size_t)1 << 20)

static json_t *upload_status(void)
{
	json_t *status = json_object(), *upload;

	unit_ok(uploader_status(u.vol, status));
	upload = json_incref(json_object_get(status, "upload"));
	json_decref(status);
	return upload;
}

/* What status says of the upload: a number (-1: not told). */
static json_int_t told(const char *key)
{
	json_t *upload = upload_status(), *value = json_object_get(upload, key);
	json_int_t number = value ? json_integer_value(value) : -1;

	json_decref(upload);
	return number;
}

static bool tells(const char *key)
{
	json_t *upload = upload_status();
	bool there = json_object_get(upload, key) != NULL;

	json_decref(upload);
	return there;
}

/* Its record names only what is in the remote. */
static void record_is_whole(uint64_t number)
{
	cleanup_record struct epoch_record record = {0};
	char key[KEY_MAX];

	unit_ok(records_get(mu_remote, number, &record, NULL));
	ck_assert_uint_gt(record.pack_count, 0);
	for (size_t i = 0; i < record.pack_count; i++) {
		pack_key(&record.packs[i], key);
		ck_assert(mu_in_remote(key));
	}
	for (size_t i = 0; i < record.index_count; i++)
		ck_assert(mu_in_remote(record.indexes[i]));
}

START_TEST(packs_then_index_then_record)
{
	mu_save_noise("a", MIB, 1);
	mu_weather("put.error=1&only=packs/");
	eu_seal();
	unit_until(tells("failing_since_ns"));
	ck_assert(!mu_count(PREFIX_PACKS) && !mu_count(PREFIX_INDEX) && !mu_count(PREFIX_EPOCHS));
	mu_weather("put.error=1&only=index/");
	unit_until(mu_count(PREFIX_PACKS) > 0);
	ck_assert(!mu_count(PREFIX_INDEX) && !mu_count(PREFIX_EPOCHS));
	mu_weather("put.error=1&only=epochs/");
	unit_until(mu_count(PREFIX_INDEX) > 0);
	ck_assert(!mu_count(PREFIX_EPOCHS));
	ck_assert_int_ne(mu_state(1), EPOCH_DURABLE);
	mu_weather(NULL);
	mu_drain();
	ck_assert_int_eq(mu_state(1), EPOCH_DURABLE);
	record_is_whole(1);
}
END_TEST

START_TEST(epochs_come_one_after_the_other)
{
	mu_weather("put.error=1");
	for (uint64_t n = 1; n <= 5; n++) {
		mu_save_noise("a", 10000, n);
		ck_assert_uint_eq(eu_seal(), n);
	}
	ck_assert_int_eq(told("pending_epochs"), 5);
	ck_assert_int_eq(told("oldest_epoch"), 1);
	ck_assert_int_gt(told("oldest_sealed_ns"), 0);
	mu_weather(NULL);
	unit_ok(epochs_wait(u.vol, 3, 50 * NS_PER_S, NULL, NULL));
	ck_assert(mu_has_epoch(1) && mu_has_epoch(2) && mu_has_epoch(3));
	mu_drain();
	ck_assert_int_eq(told("pending_epochs"), 0);
	for (uint64_t n = 1; n <= 5; n++)
		record_is_whole(n);
}
END_TEST

/* What a person can put right is tried again too. */
START_TEST(every_failure_is_tried_again)
{
	static const char *const weathers[] = {"put.error=1", "put.down=1", "put.denied=1",
					       "put.enospc=1"};

	for (uint64_t n = 1; n <= 4; n++) {
		mu_save_noise("a", 10000, n);
		mu_weather(weathers[n - 1]);
		eu_seal();
		unit_until(tells("error") && told("retries") > 0);
		ck_assert_int_gt(told("failing_since_ns"), 0);
		ck_assert(!mu_has_epoch(n));
		mu_weather(NULL);
		mu_drain();
		unit_until(!tells("error"));
		record_is_whole(n);
	}
}
END_TEST

/* The record was put, but its answer was lost: the one that is there is ours. */
START_TEST(a_lost_answer_is_no_conflict)
{
	mu_weather("create.lost=1&times=1&only=epochs/");
	eu_save("a", "hello");
	mu_drain();
	ck_assert_int_eq(mu_state(1), EPOCH_DURABLE);
	ck_assert(!tells("conflict"));
	record_is_whole(1);
}
END_TEST

START_TEST(what_is_pending_goes_on_at_the_next_open)
{
	mu_weather("put.error=1&only=packs/");
	mu_save_noise("a", MIB, 1);
	eu_seal();
	unit_ok(epochs_tag(u.vol, "best", 1, false));
	unit_until(tells("failing_since_ns"));
	volume_close(u.vol);
	mu_weather("put.error=1&only=epochs/");
	eu_mount();
	ck_assert_int_eq(told("pending_epochs"), 1);
	unit_until(mu_count(PREFIX_INDEX) > 0);
	mu_weather(NULL);
	mu_go_to(0);
	mu_drain();
	record_is_whole(1);
	unit_until(mu_in_remote("tags/best"));
	ck_assert_uint_eq(mu_count(PREFIX_PACKS), 1); /* the same contents made the same pack */
}
END_TEST

START_TEST(a_number_that_another_writer_took_stays_his)
{
	struct epoch_record other = {.number = 2,
				     .volume = "0b0ec43d-6a7b-4b4d-8a0e-2f6a3a3a3a3a",
				     .host = strdup("elsewhere"),
				     .sealed_ns = 5};
	cleanup_buf struct buf text = {0}, found = {0};
	struct epoch_info info;
	char key[KEY_MAX];

	eu_save("a", "one");
	mu_drain();
	unit_ok(record_encode(&other, &text));
	record_free(&other);
	epoch_key(2, key);
	unit_ok(remote_put(mu_remote, key, text.data, text.len));
	eu_save("a", "two");
	eu_seal();
	unit_until(tells("conflict"));
	unit_until(mu_state(2) == EPOCH_FAILED);
	info = eu_info(2);
	ck_assert_ptr_nonnull(info.error);
	epoch_info_free(&info);
	/* Nothing of his is overwritten, nothing of ours is lost. */
	unit_ok(remote_get(mu_remote, key, 0, REMOTE_TO_END, &found));
	unit_same_bytes(found.data, found.len, text.data, text.len);
	eu_epoch_holds(2, "a", "two");
	eu_live_holds("a", "two");
	eu_save("a", "three");
	ck_assert_uint_eq(eu_seal(), 3);
	ck_assert(!mu_has_epoch(3));
}
END_TEST

START_TEST(what_is_there_is_not_stored_again)
{
	struct epoch_info info;
	uint64_t stored;

	mu_save_noise("a", 3 * MIB, 1);
	mu_drain();
	info = eu_info(1);
	stored = info.record.bytes_stored;
	ck_assert_uint_ge(stored, 3 * MIB);
	epoch_info_free(&info);
	mu_save_noise("b", 3 * MIB, 1);
	eu_save("c", "small");
	mu_drain();
	info = eu_info(2);
	ck_assert_uint_lt(info.record.bytes_stored, 10000);
	ck_assert_uint_eq(info.record.bytes, 6 * MIB + 5);
	epoch_info_free(&info);
}
END_TEST

START_TEST(a_file_that_the_cache_lost_is_told_and_stops_nothing)
{
	struct state_version v;
	struct epoch_info info;
	char name[OBJECT_NAME_MAX];

	mu_save_noise("kept", 100000, 1);
	mu_save_noise("lost", 100000, 2);
	v = vu_version(&u, vu_file(&u, "lost").closed);
	object_name(v.id, name);
	ck_assert_int_eq(unlinkat(u.vol->objects_fd, name, 0), 0);
	eu_seal();
	mu_drain();
	info = eu_info(1);
	ck_assert(!info.complete);
	ck_assert_ptr_nonnull(info.record.reason);
	ck_assert_msg(strstr(info.record.reason, "lost"), "%s", info.record.reason);
	epoch_info_free(&info);
	mu_go_to(1);
	unit_ok(mu_read_noise("kept", 100000, 1));
}
END_TEST

/* Only what is not there is gone: what cannot be read just now is tried again, and no epoch is stored without it. */
START_TEST(what_cannot_be_read_is_not_gone)
{
	char name[OBJECT_NAME_MAX];
	struct epoch_info info;

	mu_save_noise("a", 100000, 1);
	mu_save_noise("b", 100000, 2);
	object_name(vu_version(&u, vu_file(&u, "a").closed).id, name);
	unit_ok(renameat(u.vol->objects_fd, name, u.vol->objects_fd, "aside"));
	unit_ok(mkdirat(u.vol->objects_fd, name, 0700)); /* whose bytes are EISDIR */
	eu_seal();
	unit_until(tells("error"));
	ck_assert(!mu_has_epoch(1));
	unit_ok(unlinkat(u.vol->objects_fd, name, AT_REMOVEDIR));
	unit_ok(renameat(u.vol->objects_fd, "aside", u.vol->objects_fd, name));
	mu_drain();
	record_is_whole(1);
	info = eu_info(1);
	ck_assert(info.complete);
	epoch_info_free(&info);
	mu_go_to(1);
	unit_ok(mu_read_noise("a", 100000, 1));
	unit_ok(mu_read_noise("b", 100000, 2));
}
END_TEST

/* ---- tags and drops ---- */

static uint64_t remote_tag(const char *name)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];
	uint64_t number = 0;

	unit_ok(tag_key(name, key));
	if (remote_get(mu_remote, key, 0, TAG_TEXT_MAX, &text) == 0)
		unit_ok(tag_text_parse(text.data, text.len, &number));
	return number;
}

START_TEST(tags_follow_their_epochs)
{
	eu_save("a", "one");
	mu_drain();
	mu_weather("create.error=1&only=epochs/");
	eu_save("a", "two");
	eu_seal();
	unit_ok(epochs_tag(u.vol, "old", 1, false));
	unit_ok(epochs_tag(u.vol, "new", 2, false));
	unit_until(tells("failing_since_ns"));
	ck_assert_uint_eq(remote_tag("new"), 0); /* it would name what is not there */
	mu_weather(NULL);
	unit_until(remote_tag("new") == 2 && remote_tag("old") == 1);
	ck_assert(mu_has_epoch(2));
	unit_ok(epochs_tag(u.vol, "old", 2, true));
	unit_until(remote_tag("old") == 2);
	unit_ok(epochs_untag(u.vol, "new"));
	unit_until(!remote_tag("new"));
}
END_TEST

static bool is_tombstone(uint64_t number)
{
	cleanup_buf struct buf text = {0};
	struct tombstone dropped;
	char key[KEY_MAX];

	epoch_key(number, key);
	return remote_get(mu_remote, key, 0, RECORD_ENCODED_MAX, &text) == 0 &&
	       tombstone_decode(text.data, text.len, &dropped) == 0 && dropped.number == number;
}

START_TEST(drops_reach_the_remote_when_it_is_back)
{
	for (uint64_t n = 1; n <= 3; n++) {
		mu_save_noise("a", 5000, n);
		mu_drain();
	}
	mu_weather("put.down=1");
	unit_ok(epochs_drop(u.vol, 1));
	unit_until(tells("failing_since_ns"));
	ck_assert(!is_tombstone(1));
	mu_weather(NULL);
	unit_until(is_tombstone(1));
	mu_weather("put.down=1&only=epochs/");
	unit_ok(epochs_drop(u.vol, 2));
	volume_close(u.vol);
	u.vol = NULL;
	mu_weather(NULL);
	mu_go_to(0); /* also after a restart */
	unit_until(is_tombstone(2));
	ck_assert(!is_tombstone(3));
}
END_TEST

START_TEST(the_remote_keeps_its_newest_whole_epoch_until_the_next_is_there)
{
	for (uint64_t n = 1; n <= 3; n++) {
		mu_save_noise("a", 5000, n);
		mu_drain();
	}
	mu_weather("put.down=1&only=packs/");
	mu_save_noise("a", 5000, 4);
	eu_seal();
	unit_until(tells("failing_since_ns"));
	unit_ok(epochs_drop(u.vol, 1));
	unit_ok(epochs_drop(u.vol, 3));
	mu_go_to(0); /* where drops come before epochs */
	unit_until(is_tombstone(1));
	unit_until(tells("failing_since_ns"));
	ck_assert(!is_tombstone(3));
	mu_weather(NULL);
	mu_drain();
	unit_until(is_tombstone(3));
	record_is_whole(4);
}
END_TEST

START_TEST(many_drops_reach_the_remote_and_tags_go_first)
{
	char key[KEY_MAX];
	uint64_t size;

	for (uint64_t n = 1; n <= 30; n++) {
		mu_save_noise("a", 5000, n);
		eu_seal();
	}
	mu_drain();
	unit_ok(epochs_tag(u.vol, "best", 2, false));
	unit_ok(tag_key("best", key));
	unit_until(mu_in_remote(key));
	mu_weather("put.down=1&delete.down=1");
	unit_ok(epochs_untag(u.vol, "best"));
	for (uint64_t n = 1; n < 30; n++)
		unit_ok(epochs_drop(u.vol, n));
	mu_weather("put.down=1");
	unit_until(remote_size(mu_remote, key, &size) == -ENOENT);
	ck_assert(!is_tombstone(2));
	mu_weather(NULL);
	for (uint64_t n = 1; n < 30; n++)
		unit_until(is_tombstone(n));
	record_is_whole(30);
}
END_TEST

START_TEST(an_epoch_dropped_before_it_was_durable_keeps_its_number_taken)
{
	eu_save("a", "one");
	mu_drain();
	mu_weather("put.error=1");
	eu_save("a", "two");
	eu_seal();
	eu_save("a", "three");
	eu_seal();
	unit_ok(epochs_drop(u.vol, 2));
	mu_weather(NULL);
	mu_drain();
	unit_until(is_tombstone(2));
	record_is_whole(3);
	mu_go_to(1);
	unit_error(epochs_get(u.vol, 2, &(struct epoch_info){0}), -ENOENT);
	eu_live_holds("a", "three");
}
END_TEST

/* ---- the summary ---- */

START_TEST(each_hundredth_epoch_writes_a_summary)
{
	char key[KEY_MAX];

	for (int i = 0; i < 100; i++) {
		eu_save("a", (char[]){(char)('!' + i % 90), (char)('!' + i / 90), '\0'});
		eu_seal();
	}
	mu_drain();
	summary_key(100, key);
	unit_until(mu_in_remote(key));
	mu_go_to(1);
	ck_assert_uint_eq(eu_count(), 100);
	eu_epoch_holds(7, "a", "'!");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("upload_epoch");
	TCase *t = unit_case(s, "upload");

	tcase_add_checked_fixture(t, mu_start, mu_stop);
	tcase_add_test(t, packs_then_index_then_record);
	tcase_add_test(t, epochs_come_one_after_the_other);
	tcase_add_test(t, every_failure_is_tried_again);
	tcase_add_test(t, a_lost_answer_is_no_conflict);
	tcase_add_test(t, what_is_pending_goes_on_at_the_next_open);
	tcase_add_test(t, a_number_that_another_writer_took_stays_his);
	tcase_add_test(t, what_is_there_is_not_stored_again);
	tcase_add_test(t, a_file_that_the_cache_lost_is_told_and_stops_nothing);
	tcase_add_test(t, what_cannot_be_read_is_not_gone);
	tcase_add_test(t, tags_follow_their_epochs);
	tcase_add_test(t, drops_reach_the_remote_when_it_is_back);
	tcase_add_test(t, the_remote_keeps_its_newest_whole_epoch_until_the_next_is_there);
	tcase_add_test(t, many_drops_reach_the_remote_and_tags_go_first);
	tcase_add_test(t, an_epoch_dropped_before_it_was_durable_keeps_its_number_taken);
	tcase_add_test(t, each_hundredth_epoch_writes_a_summary);
	return unit_run(s);
}
