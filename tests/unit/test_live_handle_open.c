/* SPDX-License-Identifier: Apache-2.0 */
/* Opening at a node while its name or content changes: which file the open leads to, and ESTALE. */
#include <pthread.h>
#include "tests/unit/handle_unit.h"
#include "lib/live/handle.h"
#include "lib/live/live.h"

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
	unit_ok(live_rename(u.vol, ROOT_INO, "b", ROOT_INO, "a", 0, NULL));
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
	unit_ok(live_rename(u.vol, ROOT_INO, "b", ROOT_INO, "a", 0, NULL));
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

/* ---- a file that loses its name between the second walk and the open ---- */

static uint64_t known_body;

static bool is_known(void *arg, uint64_t ino, uint64_t body)
{
	(void)arg;
	(void)ino;
	return body == known_body;
}

static void know(uint64_t body)
{
	const struct volume_known known = {.is_known = is_known};

	known_body = body;
	volume_set_known(u.vol, &known);
}

static void replace_by_another(const char *text)
{
	struct handle *h;

	unit_ok(vu_open_as(&u, "a", O_WRONLY | O_TRUNC, getppid(), &h));
	vu_write(h, text, 0);
	vu_close(h);
}

static void rename_over(void)
{
	struct handle *h;

	unit_ok(vu_open_as(&u, "b", O_WRONLY | O_CREAT, getppid(), &h));
	vu_write(h, "another", 0);
	vu_close(h);
	unit_ok(live_rename(u.vol, ROOT_INO, "b", ROOT_INO, "a", 0, NULL));
}

static void replace_and_unlink(void)
{
	replace_by_another("last");
	unit_ok(live_unlink(u.vol, ROOT_INO, "a"));
}

static void unlink_it(void)
{
	unit_ok(live_unlink(u.vol, ROOT_INO, "a"));
}

static void (*const losing[])(void) = {unlink_it, rename_over, replace_and_unlink};

/* With an odd number the kernel gives up the nodes that it has, before the one of the walk is made. */
START_TEST(an_open_finds_what_lost_its_name_since_the_second_walk)
{
	struct live_caller who = vu_caller(getpid());
	struct live_attr first, second;
	struct handle *h = NULL;

	know(0);
	vu_save(&u, "a", "first");
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &first));
	replace_by_another("second");
	unit_error(handle_open(u.vol, first.ino, first.body, O_RDWR, &who, NULL, NULL, &h),
		   -ESTALE);
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &second));
	losing[_i / 2]();
	if (_i % 2)
		volume_node_gone(u.vol, second.ino, second.body);
	unit_ok(handle_open(u.vol, second.ino, second.body, O_RDWR, &who, NULL, NULL, &h));
	vu_handle_holds(h, "second");
	vu_write(h, "1", 0);
	volume_node_gone(u.vol, second.ino, handle_body(h));
	vu_close(h);
}
END_TEST

/*
 * The second walk joins a replacement of another process, which ends as its file has lost its name. A reader keeps what it has open; with an
 * odd number the open comes too early once, as the replacement's node is still in use.
 */
START_TEST(an_open_finds_what_was_there_where_what_it_joined_has_ended)
{
	static const int kinds[] = {O_RDWR, O_WRONLY | O_APPEND, O_WRONLY | O_TRUNC};
	struct live_caller who = vu_caller(getpid());
	struct handle *writer, *reader, *h = NULL;
	struct live_attr first, second;
	int flags = kinds[_i / 2];

	know(0);
	vu_save(&u, "a", "first");
	unit_ok(vu_open_as(&u, "a", O_WRONLY | O_TRUNC, getppid(), &writer));
	vu_write(writer, "torn", 0);
	unit_ok(vu_open_as(&u, "a", O_RDONLY, 1, &reader));
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", 1, &first));
	/* Who joined it once need not make one of his own. */
	if (flags & O_TRUNC) {
		unit_ok(vu_open_as(&u, "a", O_RDWR, who.pid, &h));
		vu_close(h);
	}
	unit_error(handle_open(u.vol, first.ino, first.body, flags, &who, NULL, NULL, &h), -ESTALE);
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &second));
	ck_assert_uint_ne(first.body, second.body);
	unit_ok(live_unlink(u.vol, ROOT_INO, "a"));
	vu_close(writer);
	volume_node_gone(u.vol, second.ino, second.body);
	unit_ok(handle_open(u.vol, second.ino, second.body, flags, &who, NULL, NULL, &h));
	if (_i % 2) {
		handle_retry(h);
		unit_ok(handle_open(u.vol, second.ino, second.body, flags, &who, NULL, NULL, &h));
	}
	vu_write(h, "", 0);
	vu_handle_holds(reader, "first");
	vu_close(h);
	handle_release(reader, false);
	unit_error(live_getattr(u.vol, first.ino, first.body, &first), -ENOENT);
}
END_TEST

/* truncate(2) got to the node of what was replaced before it lost its name: nobody sees that it was done. */
START_TEST(a_truncation_of_a_file_that_lost_its_name)
{
	const struct live_change change = {.set = LIVE_SET_SIZE, .size = 1, .pid = getpid()};
	struct live_attr attr;

	vu_save(&u, "a", "first");
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", 1, &attr));
	know(attr.body);
	if (_i)
		replace_by_another("second");
	unit_ok(live_unlink(u.vol, ROOT_INO, "a"));
	for (int i = 0; i < 3; i++)
		unit_ok(body_truncate(u.vol, attr.ino, attr.body, &change));
	known_body = 0;
	volume_node_gone(u.vol, attr.ino, attr.body);
	unit_error(body_truncate(u.vol, attr.ino, attr.body, &change), -ENOENT);
}
END_TEST

/* The kernel's node of what was there before went over to this content, which was replaced before the volume could be asked whether it is known. */
START_TEST(content_that_a_node_went_over_to_stays_for_it)
{
	struct live_caller who = vu_caller(getpid());
	struct handle *h = NULL;
	struct live_attr attr;
	uint64_t body;

	know(0);
	vu_save(&u, "a", "first");
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	replace_by_another("second");
	unit_error(handle_open(u.vol, attr.ino, attr.body, O_RDONLY, &who, NULL, NULL, &h),
		   -ESTALE);
	unit_ok(handle_open(u.vol, attr.ino, attr.body, O_RDONLY, &who, NULL, NULL, &h));
	body = handle_body(h);
	losing[_i]();
	known_body = body;
	volume_node_came(u.vol, attr.ino, body);
	vu_handle_holds(h, "second");
	handle_release(h, false);
	/* What was replaced before its name was lost is looked for by name first. */
	if (losing[_i] == replace_and_unlink)
		unit_error(handle_open(u.vol, attr.ino, body, O_RDONLY, &who, NULL, NULL, &h),
			   -ESTALE);
	unit_ok(handle_open(u.vol, attr.ino, body, O_RDONLY, &who, NULL, NULL, &h));
	vu_handle_holds(h, "second");
	known_body = 0;
	volume_node_gone(u.vol, attr.ino, body);
	handle_release(h, false);
	unit_error(live_getattr(u.vol, attr.ino, body, &attr), -ENOENT);
}
END_TEST

/* truncate(2) was sent on, and found the file: what the thread opens next is an open like any other. */
START_TEST(an_open_after_a_truncation_that_was_sent_on)
{
	const struct live_change change = {.set = LIVE_SET_SIZE, .size = 1, .pid = getpid()};
	struct live_caller who = vu_caller(getpid());
	struct handle *reader, *h = NULL;
	struct live_attr attr;

	vu_save(&u, "a", "first");
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	replace_by_another("second");
	unit_error(live_setattr(u.vol, attr.ino, attr.body, &change, &attr), -ESTALE);
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	unit_ok(live_setattr(u.vol, attr.ino, attr.body, &change, &attr));
	unit_ok(vu_open_as(&u, "a", O_RDONLY, 1, &reader));
	unit_error(
		handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		-ESTALE);
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	unit_ok(handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h));
	vu_write(h, "third", 0);
	vu_close(h);
	vu_handle_holds(reader, "s");
	handle_release(reader, false);
	vu_holds(&u, "a", "third");
}
END_TEST

static void count_entry(void *arg, uint64_t parent, const char *name)
{
	unsigned *told = arg;

	ck_assert_uint_eq(parent, ROOT_INO);
	*told |= *name == 'a' ? 1 : *name == 'c' ? 2 : 4;
}

/* The kernel may have looked the other one up a moment ago, when there was one name only. */
START_TEST(a_replacement_that_a_second_walk_makes_is_told_of_by_all_names)
{
	struct live_caller who = vu_caller(getpid());
	struct volume_events none = {0};
	struct live_attr attr;
	struct handle *h;
	unsigned told = 0;

	volume_set_events(u.vol,
			  &(struct volume_events){.arg = &told, .entry_changed = count_entry});
	vu_save(&u, "a", "first");
	vu_save(&u, "b", "second");
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	unit_ok(live_unlink(u.vol, ROOT_INO, "a"));
	unit_error(
		handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		-ESTALE);
	unit_ok(live_lookup(u.vol, ROOT_INO, "b", 1, &attr));
	unit_ok(live_link(u.vol, attr.ino, ROOT_INO, "c", NULL, &attr));
	unit_ok(live_rename(u.vol, ROOT_INO, "b", ROOT_INO, "a", 0, NULL));
	told = 0;
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", who.pid, &attr));
	ck_assert_uint_eq(told, 3);
	unit_ok(handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h));
	vu_close(h);
	volume_set_events(u.vol, &none);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("live_handle_open");
	TCase *t = handle_case(s, "open");

	tcase_add_test(t, a_thread_is_told_estale_once);
	tcase_add_test(t, an_open_that_is_tried_again_is_not_told_estale_again);
	tcase_add_test(t, a_node_that_somebody_has_open_is_truncated_in_place);
	tcase_add_test(t, an_open_goes_on_at_the_file_that_has_the_name_now);
	tcase_add_test(t, an_open_replaces_a_file_that_was_in_the_making);
	tcase_add_test(t, an_open_joins_a_file_that_is_in_the_making);
	tcase_add_test(t, an_open_waits_for_those_who_read_what_it_would_truncate);
	tcase_add_test(t, an_open_that_ends_in_a_new_file_leaves_nothing_to_find);
	tcase_add_test(t, a_node_that_was_replaced_leads_to_a_replacement);
	tcase_add_loop_test(t, an_open_finds_what_lost_its_name_since_the_second_walk, 0,
			    2 * sizeof(losing) / sizeof(losing[0]));
	tcase_add_loop_test(t, an_open_finds_what_was_there_where_what_it_joined_has_ended, 0, 6);
	tcase_add_loop_test(t, a_truncation_of_a_file_that_lost_its_name, 0, 2);
	tcase_add_loop_test(t, content_that_a_node_went_over_to_stays_for_it, 0,
			    sizeof(losing) / sizeof(losing[0]));
	tcase_add_test(t, an_open_after_a_truncation_that_was_sent_on);
	tcase_add_test(t, a_replacement_that_a_second_walk_makes_is_told_of_by_all_names);
	return unit_run(s);
}
