/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and writing: which content a process sees of new files, replacements and what is unlinked
 * (contract 1.2.1). */
#include <pthread.h>
#include "tests/unit/handle_unit.h"
#include "lib/live/handle.h"
#include "lib/live/live.h"

START_TEST(a_new_file_is_seen_while_it_is_written)
{
	struct handle *h = vu_open(&u, "a", O_WRONLY | O_CREAT | O_TRUNC);

	vu_write(h, "one", 0);
	vu_holds(&u, "a", "one");
	vu_write(h, " two", 3);
	vu_holds(&u, "a", "one two");
	vu_close(h);
	vu_holds(&u, "a", "one two");
	ck_assert_uint_eq(vu_file(&u, "a").size, 7);
}
END_TEST

START_TEST(a_replacement_is_seen_by_its_process_only)
{
	struct handle *old, *h;

	vu_save(&u, "a", "old");
	old = vu_open(&u, "a", O_RDONLY);
	h = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	ck_assert_uint_ne(handle_body(old), handle_body(h));
	vu_holds(&u, "a", "old");
	vu_holds_for(&u, "a", "", getpid());
	vu_write(h, "newer", 0);
	vu_holds(&u, "a", "old");
	vu_holds_for(&u, "a", "newer", getpid());
	vu_handle_holds(old, "old");
	vu_close(h);
	vu_holds(&u, "a", "newer");
	vu_handle_holds(old, "old");
	handle_release(old, false);
	vu_holds(&u, "a", "newer");
}
END_TEST

START_TEST(two_replacements_and_the_last_close_wins)
{
	struct vu_child other = vu_child();
	struct handle *mine, *theirs = NULL;

	vu_save(&u, "a", "old");
	mine = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	unit_ok(vu_open_as(&u, "a", O_WRONLY | O_TRUNC, other.pid, &theirs));
	ck_assert_uint_ne(handle_body(mine), handle_body(theirs));
	vu_write(mine, "mine", 0);
	vu_write(theirs, "theirs", 0);
	vu_holds_for(&u, "a", "mine", getpid());
	vu_holds_for(&u, "a", "theirs", other.pid);
	vu_holds(&u, "a", "old");
	unit_ok(handle_flush(theirs, other.pid, NULL, NULL));
	handle_release(theirs, false);
	vu_holds(&u, "a", "theirs");
	vu_close(mine);
	vu_holds(&u, "a", "mine");
	vu_child_wait(&other);
}
END_TEST

START_TEST(a_writer_without_truncation_joins_the_replacement)
{
	struct vu_child other = vu_child();
	struct handle *first, *second = NULL;

	vu_save(&u, "a", "0000");
	first = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	vu_write(first, "aa", 0);
	unit_ok(vu_open_as(&u, "a", O_RDWR, other.pid, &second));
	ck_assert_uint_eq(handle_body(first), handle_body(second));
	vu_write(second, "bb", 2);
	vu_holds_for(&u, "a", "aabb", other.pid);
	vu_holds(&u, "a", "0000");
	vu_close(first);
	/* Not closed by all who write it. */
	vu_holds(&u, "a", "0000");
	unit_ok(handle_flush(second, other.pid, NULL, NULL));
	handle_release(second, false);
	vu_holds(&u, "a", "aabb");
	vu_child_wait(&other);
}
END_TEST

START_TEST(an_unlinked_open_file_can_be_read_and_written)
{
	struct handle *h = vu_open(&u, "a", O_RDWR | O_CREAT);
	uint64_t ino = handle_ino(h), version = vu_file(&u, "a").live;
	struct state_file f;
	struct live_attr attr;

	vu_write(h, "still", 0);
	unit_ok(live_unlink(u.vol, ROOT_INO, "a"));
	vu_missing(&u, "a");
	vu_handle_holds(h, "still");
	vu_write(h, " here", 5);
	vu_handle_holds(h, "still here");
	unit_ok(live_getattr(u.vol, ino, handle_body(h), &attr));
	ck_assert_uint_eq(attr.size, 10);
	ck_assert_uint_eq(attr.nlink, 0);
	vu_close(h);
	mutex_lock(&u.vol->lock);
	unit_error(state_file_get(u.vol->state, ino, &f), -ENOENT);
	ck_assert(!state_version_exists(u.vol->state, version));
	mutex_unlock(&u.vol->lock);
	unit_error(object_open(u.vol, version, O_RDONLY), -ENOENT);
}
END_TEST

START_TEST(a_reader_keeps_what_was_unlinked)
{
	struct handle *h;
	uint64_t version;

	vu_save(&u, "a", "content");
	version = vu_file(&u, "a").closed;
	h = vu_open(&u, "a", O_RDONLY);
	unit_ok(live_unlink(u.vol, ROOT_INO, "a"));
	vu_handle_holds(h, "content");
	handle_release(h, false);
	mutex_lock(&u.vol->lock);
	ck_assert(!state_version_exists(u.vol->state, version));
	mutex_unlock(&u.vol->lock);
}
END_TEST

START_TEST(a_read_only_handle_does_not_write)
{
	struct handle *h;

	vu_save(&u, "a", "x");
	h = vu_open(&u, "a", O_RDONLY);
	ck_assert_int_eq(handle_write(h, "y", 1, 0, NULL, NULL), -EBADF);
	ck_assert(!handle_writes(h));
	unit_error(handle_truncate(h, 0, NULL, NULL), -EBADF);
	handle_release(h, false);
}
END_TEST

/* ---- many threads ---- */

#define ROUNDS 60

static void *save_many(void *arg)
{
	char text[64];

	for (int i = 0; i < ROUNDS; i++) {
		struct handle *h = NULL;

		snprintf(text, sizeof(text), "round %d of a writer", i);
		unit_ok(vu_open_as(&u, arg, O_WRONLY | O_CREAT | O_TRUNC, gettid(), &h));
		vu_write(h, text, 0);
		vu_close(h);
	}
	return NULL;
}

static void *edit_many(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		struct handle *h = NULL;

		unit_ok(vu_open_as(&u, arg, O_RDWR, gettid(), &h));
		vu_write(h, "edit", 0);
		vu_close(h);
	}
	return NULL;
}

static void *read_many(void *arg)
{
	char data[64];

	for (int i = 0; i < 4 * ROUNDS; i++) {
		struct handle *h = NULL;

		unit_ok(vu_open_as(&u, arg, O_RDONLY, 1, &h));
		ck_assert_int_ge(handle_read(h, data, sizeof(data), 0, NULL, NULL), 0);
		handle_release(h, false);
	}
	return NULL;
}

START_TEST(threads_save_edit_and_read_one_file)
{
	static void *(*const work[])(void *) = {edit_many, edit_many, read_many, read_many};
	pthread_t threads[5];

	vu_save(&u, "a", "start of the file");
	vu_save(&u, "b", "start of another");
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work[i], (void *)"a"), 0);
	ck_assert_int_eq(pthread_create(&threads[4], NULL, save_many, (void *)"b"), 0);
	for (int i = 0; i < 5; i++)
		pthread_join(threads[i], NULL);
	vu_holds(&u, "a",
		 "edit"
		 "t of the file");
	vu_holds(&u, "b", "round 59 of a writer");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("live_handle");
	TCase *t = handle_case(s, "content");

	tcase_add_test(t, a_new_file_is_seen_while_it_is_written);
	tcase_add_test(t, a_replacement_is_seen_by_its_process_only);
	tcase_add_test(t, two_replacements_and_the_last_close_wins);
	tcase_add_test(t, a_writer_without_truncation_joins_the_replacement);
	tcase_add_test(t, an_unlinked_open_file_can_be_read_and_written);
	tcase_add_test(t, a_reader_keeps_what_was_unlinked);
	tcase_add_test(t, a_read_only_handle_does_not_write);
	tcase_add_test(t, threads_save_edit_and_read_one_file);
	return unit_run(s);
}
