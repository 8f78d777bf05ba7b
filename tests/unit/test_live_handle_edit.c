/* SPDX-License-Identifier: Apache-2.0 */
/* Edits in place: all see them, and the epoch keeps the old content (contract 1.2.2). */
#include "tests/unit/handle_unit.h"
#include "lib/live/handle.h"
#include "lib/live/live.h"

START_TEST(an_edit_is_seen_by_all_and_the_epoch_keeps_the_old)
{
	struct handle *reader, *h;
	uint64_t closed;

	vu_save(&u, "a", "hello world");
	closed = vu_file(&u, "a").closed;
	vu_seal(&u);
	reader = vu_open(&u, "a", O_RDONLY);
	h = vu_open(&u, "a", O_RDWR);
	ck_assert_uint_eq(handle_body(reader), handle_body(h));
	vu_write(h, "HELLO", 0);
	vu_handle_holds(reader, "HELLO world");
	vu_holds(&u, "a", "HELLO world");
	ck_assert_uint_eq(vu_file(&u, "a").closed, closed);
	{
		struct content *c;
		char data[32] = "";

		unit_ok(content_get(u.vol, closed, &c));
		ck_assert_int_eq(content_read(c, data, sizeof(data), 0, NULL, NULL), 11);
		ck_assert_str_eq(data, "hello world");
		content_put(c);
	}
	vu_close(h);
	ck_assert_uint_ne(vu_file(&u, "a").closed, closed);
	vu_handle_holds(reader, "HELLO world");
	handle_release(reader, false);
}
END_TEST

/* What the kernel has open of a body must show an edit, and what an epoch's reader has must not. */
START_TEST(an_edit_takes_over_the_file_that_the_kernel_reads)
{
	struct handle *reader, *h;
	struct grant *another;
	struct vu_grant g;
	struct content *c;
	uint64_t closed;
	char data[32] = "";
	int fd, no;

	vu_save(&u, "a", "hello world");
	closed = vu_file(&u, "a").closed;
	vu_seal(&u);
	reader = vu_open(&u, "a", O_RDONLY);
	g = vu_grant(reader);
	fd = g.fd;
	unit_ok(content_get(u.vol, closed, &c));
	unit_error(content_grant(c, &another, &no), -EAGAIN);
	ck_assert(object_is_still(u.vol, closed, fd));
	h = vu_open(&u, "a", O_RDWR);
	unit_error(handle_grant(h, &another, &no), -EAGAIN);
	unit_ok(handle_join_grant(h, NULL, NULL));
	/* An uploader that was reading the version by that file must read it again. */
	ck_assert(!object_is_still(u.vol, closed, fd));
	vu_write(h, "HELLO", 0);
	ck_assert_int_eq(pread(fd, data, sizeof(data), 0), 11);
	ck_assert_str_eq(data, "HELLO world");
	ck_assert_int_eq(content_read(c, data, sizeof(data), 0, NULL, NULL), 11);
	ck_assert_str_eq(data, "hello world");
	content_put(c);
	vu_close(h);
	vu_handle_holds(reader, "HELLO world");
	handle_release(reader, true);
	vu_give_back(&u, &g);
	vu_remount(&u);
	vu_holds(&u, "a", "HELLO world");
}
END_TEST

START_TEST(an_edit_that_changes_nothing_leaves_the_version)
{
	struct state_file before, after;
	struct handle *h;

	vu_save(&u, "a", "same");
	/* Older than a clock tick, so that a change would show. */
	unit_ok(live_setattr(u.vol, vu_file(&u, "a").ino, 0,
			     &(struct live_change){.set = LIVE_SET_MTIME, .mtime_ns = 1000},
			     &(struct live_attr){0}));
	before = vu_file(&u, "a");
	h = vu_open(&u, "a", O_RDWR);
	unit_ok(handle_join_grant(h, NULL, NULL));
	vu_close(h);
	after = vu_file(&u, "a");
	ck_assert_uint_eq(after.closed, before.closed);
	ck_assert_uint_eq(after.live, before.closed);
	ck_assert_int_eq(after.mtime_ns, before.mtime_ns);
	vu_holds(&u, "a", "same");
	h = vu_open(&u, "a", O_RDWR);
	vu_handle_holds(h, "same");
	vu_close(h);
	ck_assert_uint_eq(vu_file(&u, "a").closed, before.closed);
	vu_remount(&u);
	vu_holds(&u, "a", "same");
}
END_TEST

START_TEST(truncating_without_a_handle_is_an_edit)
{
	struct state_file f;

	vu_save(&u, "a", "hello world");
	f = vu_file(&u, "a");
	unit_ok(body_truncate(u.vol, f.ino, f.body, &(struct live_change){.size = 5}));
	vu_holds(&u, "a", "hello");
	unit_ok(body_truncate(u.vol, f.ino, f.body, &(struct live_change){.size = 0}));
	vu_holds(&u, "a", "");
	ck_assert_uint_eq(vu_file(&u, "a").size, 0);
	unit_ok(body_truncate(u.vol, f.ino, f.body, &(struct live_change){.size = 3}));
	ck_assert_uint_eq(vu_file(&u, "a").size, 3);
}
END_TEST

START_TEST(an_empty_lock_file_never_swaps)
{
	struct handle *a, *b = NULL;
	struct vu_child other = vu_child();

	vu_save(&u, "lock", "");
	a = vu_open(&u, "lock", O_RDWR | O_TRUNC);
	unit_ok(vu_open_as(&u, "lock", O_RDWR | O_TRUNC, other.pid, &b));
	ck_assert_uint_eq(handle_body(a), handle_body(b));
	vu_close(a);
	unit_ok(handle_flush(b, other.pid, NULL, NULL));
	handle_release(b, false);
	vu_child_wait(&other);
}
END_TEST

START_TEST(a_log_is_truncated_in_place)
{
	struct handle *reader, *h;

	vu_save(&u, "train.log", "line\n");
	reader = vu_open(&u, "train.log", O_RDONLY);
	h = vu_open(&u, "train.log", O_WRONLY | O_TRUNC);
	ck_assert_uint_eq(handle_body(reader), handle_body(h));
	vu_holds(&u, "train.log", "");
	vu_write(h, "again\n", 0);
	vu_holds(&u, "train.log", "again\n");
	vu_handle_holds(reader, "again\n");
	vu_close(h);
	handle_release(reader, false);
}
END_TEST

START_TEST(appending_writes_at_the_end)
{
	struct handle *h;

	vu_save(&u, "a", "one");
	h = vu_open(&u, "a", O_WRONLY | O_APPEND);
	vu_write(h, " two", UINT64_MAX);
	vu_write(h, " three", UINT64_MAX);
	vu_close(h);
	vu_holds(&u, "a", "one two three");
}
END_TEST

START_TEST(descriptors_for_splicing_follow_an_edit)
{
	struct handle *reader, *h;
	char data[16] = "";
	int fd, write_fd;

	vu_save(&u, "a", "0123456789");
	reader = vu_open(&u, "a", O_RDONLY);
	ck_assert_int_eq(handle_read_fd(reader, 100, 4, &fd), 6);
	ck_assert_int_eq(pread(fd, data, 6, 4), 6);
	ck_assert_str_eq(data, "456789");
	h = vu_open(&u, "a", O_RDWR);
	unit_ok(handle_begin_write(h, NULL, NULL, &write_fd));
	ck_assert_int_eq(pwrite(write_fd, "x", 1, 0), 1);
	ck_assert_int_eq(handle_read_fd(reader, 1, 0, &fd), 1);
	ck_assert_int_eq(pread(fd, data, 1, 0), 1);
	ck_assert_int_eq(data[0], 'x');
	ck_assert_int_eq(handle_read_fd(reader, 1, 100, &fd), 0);
	vu_close(h);
	handle_release(reader, false);
}
END_TEST

START_TEST(holes_and_allocation)
{
	struct handle *h = vu_open(&u, "a", O_RDWR | O_CREAT);
	uint64_t at;

	vu_write(h, "x", 1 << 20);
	unit_ok(handle_lseek(h, 0, SEEK_DATA, NULL, NULL, &at));
	ck_assert_uint_gt(at, 0);
	ck_assert_uint_le(at, 1 << 20);
	unit_error(handle_lseek(h, 2 << 20, SEEK_DATA, NULL, NULL, &at), -ENXIO);
	unit_ok(handle_fallocate(h, 0, 0, 3 << 20, NULL, NULL));
	vu_close(h);
	ck_assert_uint_eq(vu_file(&u, "a").size, 3 << 20);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("live_handle_edit");
	TCase *t = handle_case(s, "edit");

	tcase_add_test(t, an_edit_is_seen_by_all_and_the_epoch_keeps_the_old);
	tcase_add_test(t, an_edit_takes_over_the_file_that_the_kernel_reads);
	tcase_add_test(t, an_edit_that_changes_nothing_leaves_the_version);
	tcase_add_test(t, truncating_without_a_handle_is_an_edit);
	tcase_add_test(t, an_empty_lock_file_never_swaps);
	tcase_add_test(t, a_log_is_truncated_in_place);
	tcase_add_test(t, appending_writes_at_the_end);
	tcase_add_test(t, descriptors_for_splicing_follow_an_edit);
	tcase_add_test(t, holes_and_allocation);
	return unit_run(s);
}
