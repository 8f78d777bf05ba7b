/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, reading and writing: which content a process sees (contract 1.2.1 and 1.2.2). */
#include "tests/unit/volume_unit.h"

static struct vu u;

static void setup(void)
{
	vu_start(&u);
}

static void teardown(void)
{
	vu_stop(&u);
}

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

/* The kernel came back with the same node, without a lookup: a file that is mounted by itself, a link in /proc. */
START_TEST(a_thread_is_told_estale_once)
{
	struct live_caller who = vu_caller(getpid());
	struct live_attr attr;
	struct handle *h = NULL;

	vu_save(&u, "a", "old");
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", 1, &attr));
	unit_error(
		handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		-ESTALE);
	/* Nobody has the node open: it may stand for the replacement. */
	unit_ok(handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h));
	ck_assert_uint_ne(handle_body(h), attr.body);
	vu_write(h, "new", 0);
	vu_holds(&u, "a", "old");
	vu_close(h);
	vu_holds(&u, "a", "new");
	/* A later open is told again. */
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", 1, &attr));
	unit_error(
		handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		-ESTALE);
}
END_TEST

/* The node moved while the open was answered: who came by the name is told ESTALE once all the same. */
START_TEST(an_open_that_is_tried_again_is_not_told_estale_again)
{
	struct live_caller who = vu_caller(getpid());
	struct handle *reader, *h = NULL;
	struct live_attr attr;

	vu_save(&u, "a", "old");
	reader = vu_open(&u, "a", O_RDONLY);
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	unit_error(
		handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		-ESTALE);
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	for (int i = 0; i < 3; i++) {
		unit_ok(handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL,
				    NULL, &h));
		handle_retry(h);
	}
	unit_ok(handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h));
	vu_write(h, "new", 0);
	vu_handle_holds(reader, "old");
	vu_close(h);
	handle_release(reader, false);
	vu_holds(&u, "a", "new");
	/* Answered, it is over. */
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", 1, &attr));
	unit_error(
		handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		-ESTALE);
}
END_TEST

START_TEST(a_node_that_somebody_has_open_is_truncated_in_place)
{
	struct live_caller who = vu_caller(getpid());
	struct handle *reader, *h = NULL;
	struct live_attr attr;

	vu_save(&u, "a", "old");
	reader = vu_open(&u, "a", O_RDONLY);
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", 1, &attr));
	unit_error(
		handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		-ESTALE);
	unit_ok(handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h));
	ck_assert_uint_eq(handle_body(h), attr.body);
	vu_holds(&u, "a", "");
	vu_write(h, "in place", 0);
	vu_handle_holds(reader, "in place");
	vu_close(h);
	handle_release(reader, false);
	vu_holds(&u, "a", "in place");
	/* And the replacement that nobody opened is gone. */
	vu_holds_for(&u, "a", "in place", getpid());
}
END_TEST

/* Between the two walks of an open a rename gives the name to another file. */
START_TEST(an_open_goes_on_at_the_file_that_has_the_name_now)
{
	struct live_caller who = vu_caller(getpid());
	struct live_attr attr;
	struct handle *h = NULL;

	vu_save(&u, "a", "old");
	vu_save(&u, "b", "other");
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	unit_error(
		handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		-ESTALE);
	unit_ok(live_rename(u.vol, ROOT_INO, "b", ROOT_INO, "a", 0));
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	unit_ok(handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h));
	vu_holds(&u, "a", "other");
	vu_write(h, "new", 0);
	vu_holds(&u, "a", "other");
	vu_close(h);
	vu_holds(&u, "a", "new");
}
END_TEST

/* Between the two walks of an open of the process `who`, another gives the name to a file that it is still writing. */
static struct handle *led_to_a_file_in_the_making(const struct live_caller *who, pid_t other,
						  struct live_attr *ret_attr)
{
	struct handle *maker = NULL, *h = NULL;

	vu_save(&u, "a", "old");
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who->pid, ret_attr));
	unit_error(handle_open(u.vol, ret_attr->ino, ret_attr->body, O_WRONLY | O_TRUNC, who, NULL,
			       NULL, &h),
		   -ESTALE);
	unit_ok(vu_open_as(&u, "b", O_WRONLY | O_CREAT, other, &maker));
	vu_write(maker, "whole", 0);
	unit_ok(live_rename(u.vol, ROOT_INO, "b", ROOT_INO, "a", 0));
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who->pid, ret_attr));
	return maker;
}

START_TEST(an_open_replaces_a_file_that_was_in_the_making)
{
	struct live_caller who = vu_caller(getpid());
	struct vu_child other = vu_child();
	struct handle *maker, *reader = NULL, *h = NULL;
	struct live_attr attr;

	maker = led_to_a_file_in_the_making(&who, other.pid, &attr);
	unit_ok(handle_flush(maker, other.pid, NULL, NULL));
	handle_release(maker, false);
	unit_ok(vu_open_as(&u, "a", O_RDONLY, 1, &reader));
	unit_ok(handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h));
	vu_write(h, "new", 0);
	vu_handle_holds(reader, "whole");
	vu_holds(&u, "a", "whole");
	vu_close(h);
	vu_handle_holds(reader, "whole");
	handle_release(reader, false);
	vu_holds(&u, "a", "new");
	vu_child_wait(&other);
}
END_TEST

START_TEST(an_open_joins_a_file_that_is_in_the_making)
{
	struct live_caller who = vu_caller(getpid());
	struct vu_child other = vu_child();
	struct handle *maker, *h = NULL;
	struct live_attr attr;

	maker = led_to_a_file_in_the_making(&who, other.pid, &attr);
	unit_ok(handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h));
	ck_assert_uint_eq(handle_body(h), handle_body(maker));
	vu_holds(&u, "a", "");
	vu_write(maker, "12345", 0);
	vu_write(h, "ab", 0);
	vu_holds_for(&u, "a", "ab345", who.pid);
	vu_close(h);
	unit_ok(handle_flush(maker, other.pid, NULL, NULL));
	handle_release(maker, false);
	vu_holds(&u, "a", "ab345");
	vu_child_wait(&other);
}
END_TEST

/* Another thread of this process, which opens "a" as the kernel does for it. */
struct truncating {
	pthread_t thread;
	atomic_int tid; /* once it is about to open for the second time */
	int error;
	struct handle *handle;
};

static void *truncate_late(void *arg)
{
	struct truncating *t = arg;
	struct live_caller who = vu_caller(gettid());
	struct handle *first;
	struct live_attr attr;

	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	unit_error(handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL,
			       &t->handle),
		   -ESTALE);
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	first = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	ck_assert_uint_eq(handle_body(first), attr.body);
	vu_write(first, "first", 0);
	vu_close(first);
	unit_ok(vu_open_as(&u, "a", O_RDONLY, 1, &first));
	vu_handle_holds(first, "first");
	t->handle = first;
	atomic_store(&t->tid, who.pid);
	t->error = handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL,
			       &t->handle);
	return NULL;
}

static bool is_waiting(const struct truncating *t)
{
	char path[64], text[512] = "";
	cleanup_close int fd = -1;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", atomic_load(&t->tid));
	fd = open(path, O_RDONLY | O_CLOEXEC);
	return fd >= 0 && read(fd, text, sizeof(text) - 1) > 0 && strstr(text, ") S ");
}

/* The replacement that it was led to is the file's content by then, and somebody reads it. */
START_TEST(an_open_waits_for_those_who_read_what_it_would_truncate)
{
	struct truncating t = {.error = 1};
	struct handle *reader;

	vu_save(&u, "a", "old");
	ck_assert(!pthread_create(&t.thread, NULL, truncate_late, &t));
	unit_until(is_waiting(&t));
	reader = t.handle;
	vu_handle_holds(reader, "first");
	handle_release(reader, false);
	ck_assert(!pthread_join(t.thread, NULL));
	unit_ok(t.error);
	vu_holds(&u, "a", "first");
	vu_close(t.handle);
	vu_holds(&u, "a", "");
}
END_TEST

/* What an open was to find is no matter of the file that its process makes in the end. */
START_TEST(an_open_that_ends_in_a_new_file_leaves_nothing_to_find)
{
	struct live_caller who = vu_caller(getpid());
	struct live_attr attr;
	struct handle *h = NULL;

	vu_save(&u, "a", "old");
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	unit_error(
		handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		-ESTALE);
	unit_ok(live_unlink(u.vol, ROOT_INO, "a"));
	unit_error(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr), -ENOENT);
	unit_ok(handle_create(u.vol, ROOT_INO, "a", 0644, O_WRONLY | O_TRUNC, &who, &attr, &h));
	vu_write(h, "whole", 0);
	vu_close(h);
	vu_holds_for(&u, "a", "whole", who.pid);
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	ck_assert_uint_eq(attr.size, 5);
	vu_holds(&u, "a", "whole");
}
END_TEST

START_TEST(a_node_that_was_replaced_leads_to_a_replacement)
{
	struct live_caller who = vu_caller(getpid());
	struct live_attr stale, attr;
	struct handle *h = NULL;

	vu_save(&u, "a", "old");
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", 1, &stale));
	vu_save(&u, "a", "newer");
	unit_ok(live_getattr(u.vol, stale.ino, stale.body, &attr));
	ck_assert_uint_eq(attr.size, 5);
	unit_error(
		handle_open(u.vol, stale.ino, stale.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		-ESTALE);
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	unit_ok(handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h));
	vu_holds(&u, "a", "newer");
	vu_close(h);
	vu_holds(&u, "a", "");
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
	/* An uploader that was reading the version by that file must read it anew. */
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
	unit_ok(handle_write_fd(h, &write_fd));
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
	Suite *s = suite_create("volume_handle");
	TCase *t = unit_case(s, "open");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_new_file_is_seen_while_it_is_written);
	tcase_add_test(t, a_replacement_is_seen_by_its_process_only);
	tcase_add_test(t, a_thread_is_told_estale_once);
	tcase_add_test(t, an_open_that_is_tried_again_is_not_told_estale_again);
	tcase_add_test(t, a_node_that_somebody_has_open_is_truncated_in_place);
	tcase_add_test(t, an_open_goes_on_at_the_file_that_has_the_name_now);
	tcase_add_test(t, an_open_replaces_a_file_that_was_in_the_making);
	tcase_add_test(t, an_open_joins_a_file_that_is_in_the_making);
	tcase_add_test(t, an_open_waits_for_those_who_read_what_it_would_truncate);
	tcase_add_test(t, an_open_that_ends_in_a_new_file_leaves_nothing_to_find);
	tcase_add_test(t, a_node_that_was_replaced_leads_to_a_replacement);
	tcase_add_test(t, two_replacements_and_the_last_close_wins);
	tcase_add_test(t, a_writer_without_truncation_joins_the_replacement);
	tcase_add_test(t, an_edit_is_seen_by_all_and_the_epoch_keeps_the_old);
	tcase_add_test(t, an_edit_takes_over_the_file_that_the_kernel_reads);
	tcase_add_test(t, an_edit_that_changes_nothing_leaves_the_version);
	tcase_add_test(t, truncating_without_a_handle_is_an_edit);
	tcase_add_test(t, an_empty_lock_file_never_swaps);
	tcase_add_test(t, a_log_is_truncated_in_place);
	tcase_add_test(t, appending_writes_at_the_end);
	tcase_add_test(t, an_unlinked_open_file_can_be_read_and_written);
	tcase_add_test(t, a_reader_keeps_what_was_unlinked);
	tcase_add_test(t, descriptors_for_splicing_follow_an_edit);
	tcase_add_test(t, holes_and_allocation);
	tcase_add_test(t, a_read_only_handle_does_not_write);
	tcase_add_test(t, threads_save_edit_and_read_one_file);
	return unit_run(s);
}
