/* SPDX-License-Identifier: Apache-2.0 */
/* The last close: what it commits, what it leaves, and who takes it in. */
#include "lib/live/bodies.h"
#include "lib/cache/content.h"
#include "lib/cache/torn.h"
#include "lib/epochs/epochs.h"
#include "lib/live/handle.h"
#include "lib/live/live.h"
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

static ino_t object_inode(uint64_t version)
{
	cleanup_close int fd = object_open(u.vol, version, O_RDONLY);
	struct stat st;

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	return st.st_ino;
}

static bool version_is_there(uint64_t version)
{
	bool there;

	mutex_lock(&u.vol->lock);
	there = state_version_exists(u.vol->state, version);
	mutex_unlock(&u.vol->lock);
	return there;
}

static bool object_is_there(uint64_t version)
{
	int fd = object_open(u.vol, version, O_RDONLY);

	ck_assert(fd >= 0 || fd == -ENOENT);
	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

START_TEST(a_commit_copies_nothing)
{
	struct handle *h = vu_open(&u, "a", O_WRONLY | O_CREAT);
	uint64_t version = vu_file(&u, "a").live;
	ino_t inode = object_inode(version);

	vu_write(h, "content", 0);
	vu_close(h);
	ck_assert_uint_eq(vu_file(&u, "a").closed, version);
	ck_assert_uint_eq(object_inode(version), inode);
	ck_assert_int_eq(vu_version(&u, version).state, VERSION_CLOSED);
	ck_assert(vu_version(&u, version).local_whole);
}
END_TEST

START_TEST(content_that_no_epoch_had_goes_at_once)
{
	uint64_t first, second;

	/* Most of what changed: else it is a save, which the next one seals. */
	vu_save(&u, "b", "more than all that follows");
	vu_save(&u, "a", "first");
	first = vu_file(&u, "a").closed;
	vu_save(&u, "a", "second");
	second = vu_file(&u, "a").closed;
	ck_assert(!version_is_there(first));
	unit_until(!object_is_there(first));
	vu_seal(&u);
	vu_save(&u, "a", "third");
	ck_assert(version_is_there(second));
	ck_assert_uint_eq(vu_version(&u, second).died, 2);
	object_inode(second);
}
END_TEST

START_TEST(an_open_file_is_in_the_epoch_as_it_was_closed)
{
	struct handle *replaced, *edited, *made;
	struct tree *tree;
	struct tree_entry e;
	struct content *c;
	uint32_t id;
	char data[32] = "";

	vu_save(&u, "edited", "hello world");
	vu_save(&u, "replaced", "old");
	edited = vu_open(&u, "edited", O_RDWR);
	vu_write(edited, "HELLO", 0);
	replaced = vu_open(&u, "replaced", O_WRONLY | O_TRUNC);
	vu_write(replaced, "new", 0);
	made = vu_open(&u, "made", O_WRONLY | O_CREAT);
	vu_write(made, "half", 0);
	unit_ok(epochs_tree(u.vol, vu_seal(&u), &tree));
	ck_assert_int_eq(tree_resolve(tree, "made", &id), -ENOENT);
	unit_ok(tree_resolve(tree, "edited", &id));
	tree_get(tree, id, &e);
	unit_ok(content_get_entry(u.vol, &e, "epoch 1: edited", &c));
	ck_assert_int_eq(content_read(c, data, sizeof(data), 0, NULL, NULL), 11);
	ck_assert_str_eq(data, "hello world");
	content_put(c);
	unit_ok(tree_resolve(tree, "replaced", &id));
	tree_get(tree, id, &e);
	unit_ok(content_get_entry(u.vol, &e, "epoch 1: replaced", &c));
	ck_assert_int_eq(content_read(c, data, sizeof(data), 0, NULL, NULL), 3);
	ck_assert_mem_eq(data, "old", 3);
	content_put(c);
	tree_unref(tree);
	vu_close(edited);
	vu_close(replaced);
	vu_close(made);
}
END_TEST

START_TEST(all_names_of_a_file_get_the_new_content)
{
	struct live_attr attr;

	vu_save(&u, "a", "old");
	unit_ok(live_link(u.vol, vu_file(&u, "a").ino, ROOT_INO, "b", NULL, &attr));
	vu_save(&u, "b", "new");
	vu_holds(&u, "a", "new");
	ck_assert_uint_eq(vu_file(&u, "a").ino, vu_file(&u, "b").ino);
}
END_TEST

START_TEST(times_that_the_program_set_are_kept)
{
	const int64_t then = INT64_C(1000000000123456789);
	struct handle *h = vu_open(&u, "a", O_WRONLY | O_CREAT);
	struct live_change change = {.set = LIVE_SET_MTIME, .mtime_ns = then};
	struct live_attr attr;

	vu_write(h, "x", 0);
	unit_ok(live_setattr(u.vol, handle_ino(h), handle_body(h), &change, &attr));
	ck_assert_int_eq(attr.mtime_ns, then);
	vu_close(h);
	ck_assert_int_eq(vu_file(&u, "a").mtime_ns, then);
	h = vu_open(&u, "a", O_RDWR);
	vu_write(h, "y", 0);
	vu_close(h);
	ck_assert_int_gt(vu_file(&u, "a").mtime_ns, then);
}
END_TEST

/* ---- closes on their way ---- */

static void *release_later(void *arg)
{
	usleep(30000);
	handle_release(arg, false);
	return NULL;
}

START_TEST(a_lookup_takes_the_close_in)
{
	struct handle *h;
	pthread_t thread;

	for (int i = 0; i < 5; i++) {
		char text[32];

		snprintf(text, sizeof(text), "content %d", i);
		h = vu_open(&u, "a", O_WRONLY | O_CREAT | O_TRUNC);
		vu_write(h, text, 0);
		unit_ok(handle_flush(h, getpid(), NULL, NULL));
		ck_assert_int_eq(pthread_create(&thread, NULL, release_later, h), 0);
		vu_holds(&u, "a", text);
		ck_assert_uint_eq(vu_file(&u, "a").size, strlen(text));
		pthread_join(thread, NULL);
	}
}
END_TEST

static void *close_at_once(void *h)
{
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	handle_release(h, false);
	return NULL;
}

/* Two replacements: the release of the one that was closed first comes last. The second, with content or without, counts. */
START_TEST(a_close_takes_the_close_before_it_in)
{
	struct handle *first, *last;
	pthread_t thread;

	vu_save(&u, "a", "old");
	unit_ok(vu_open_as(&u, "a", O_WRONLY | O_TRUNC, getppid(), &first));
	last = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	ck_assert_ptr_ne(first->body, last->body);
	vu_write(first, "first", 0);
	if (_i)
		vu_write(last, "last", 0);
	unit_ok(handle_flush(first, 0, NULL, NULL));
	ck_assert_int_eq(pthread_create(&thread, NULL, close_at_once, last), 0);
	usleep(30000);
	handle_release(first, false);
	pthread_join(thread, NULL);
	vu_holds(&u, "a", _i ? "last" : "");
}
END_TEST

START_TEST(a_seal_takes_the_close_in)
{
	struct handle *h = vu_open(&u, "a", O_WRONLY | O_CREAT);
	struct tree *tree;
	pthread_t thread;
	uint32_t id;

	vu_write(h, "content", 0);
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	ck_assert_int_eq(pthread_create(&thread, NULL, release_later, h), 0);
	unit_ok(epochs_tree(u.vol, vu_seal(&u), &tree));
	unit_ok(tree_resolve(tree, "a", &id));
	tree_unref(tree);
	pthread_join(thread, NULL);
}
END_TEST

/* dup2 of a shell's redirection: a descriptor was closed, and another is left. */
START_TEST(a_descriptor_that_is_left_holds_nobody_up_for_long)
{
	cleanup_free char *path = unit_path(u.cache, "a");
	int other = open(path, O_RDWR | O_CREAT, 0600); /* stands for it in /proc */
	struct handle *h = vu_open(&u, "a", O_WRONLY | O_CREAT);

	vu_write(h, "one", 0);
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	vu_holds(&u, "a", "one");
	ck_assert_uint_eq(vu_file(&u, "a").closed, 0);
	vu_write(h, " two", 3);
	vu_close(h);
	vu_holds(&u, "a", "one two");
	close(other);
}
END_TEST

/* The same before anything is written: that is no close at all. */
START_TEST(a_redirection_is_no_close)
{
	cleanup_free char *path = unit_path(u.cache, "a");
	int other = open(path, O_RDWR | O_CREAT, 0600);
	struct handle *h = vu_open(&u, "a", O_WRONLY | O_CREAT);

	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	ck_assert_int_eq(vu_version(&u, vu_file(&u, "a").live).flushed_ctime_ns, 0);
	close(other);
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	ck_assert_int_ne(vu_version(&u, vu_file(&u, "a").live).flushed_ctime_ns, 0);
	handle_release(h, false);
	vu_holds(&u, "a", "");
}
END_TEST

START_TEST(a_copy_stands_in_while_the_file_is_open)
{
	struct handle *h;
	uint64_t copy;

	vu_save(&u, "a", "old");
	h = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	vu_write(h, "as it stands", 0);
	unit_ok(body_commit_copy(u.vol, handle_body(h), NULL, NULL));
	vu_holds(&u, "a", "as it stands");
	copy = vu_file(&u, "a").closed;
	/* Nothing new: no second copy. */
	unit_ok(body_commit_copy(u.vol, handle_body(h), NULL, NULL));
	ck_assert_uint_eq(vu_file(&u, "a").closed, copy);
	vu_write(h, "AS", 0);
	vu_close(h);
	vu_holds(&u, "a", "AS it stands");
	ck_assert_uint_ne(vu_file(&u, "a").closed, copy);
	unit_error(body_commit_copy(u.vol, 12345, NULL, NULL), -ENOENT);
}
END_TEST

START_TEST(a_rolled_back_writer_goes_to_torn)
{
	struct handle *h;
	struct state_file f;
	int fd;
	char data[16] = "";

	vu_save(&u, "a", "old");
	h = vu_open(&u, "a", O_RDWR);
	vu_write(h, "OLD", 0);
	mutex_lock(&u.vol->lock);
	bodies_keep_names_locked(u.vol, false);
	bodies_tear_writers_locked(u.vol);
	unit_ok(state_file_get(u.vol->state, handle_ino(h), &f));
	f.body = object_new_id(u.vol);
	f.live = f.closed;
	unit_ok(state_file_set(u.vol->state, &f));
	mutex_unlock(&u.vol->lock);
	vu_write(h, "!", 3);
	vu_handle_holds(h, "OLD!");
	vu_holds(&u, "a", "old");
	vu_close(h);
	vu_holds(&u, "a", "old");
	fd = torn_open(u.vol, "1-a");
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(read(fd, data, sizeof(data)), 4);
	ck_assert_str_eq(data, "OLD!");
	close(fd);
}
END_TEST

START_TEST(a_replacement_nobody_opened_is_let_go_at_the_end)
{
	struct live_caller who = vu_caller(getpid());
	struct live_attr attr;
	struct handle *h = NULL;

	vu_save(&u, "a", "old");
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", 1, &attr));
	unit_error(
		handle_open(u.vol, attr.ino, attr.body, O_WRONLY | O_TRUNC, &who, NULL, NULL, &h),
		-ESTALE);
	unit_ok(live_lookup(u.vol, ROOT_INO, "a", getpid(), &attr));
	ck_assert(attr.pending);
	ck_assert_uint_eq(attr.size, 0);
	vu_remount(&u);
	vu_holds_for(&u, "a", "old", getpid());
}
END_TEST

START_TEST(what_is_replaced_and_unlinked_is_only_let_go)
{
	struct handle *h;

	vu_save(&u, "a", "old");
	h = vu_open(&u, "a", O_WRONLY | O_TRUNC);
	vu_write(h, "new", 0);
	unit_ok(live_unlink(u.vol, ROOT_INO, "a"));
	vu_close(h);
	vu_missing(&u, "a");
	vu_seal(&u);
}
END_TEST

START_TEST(durable_closes_are_in_an_epoch_when_they_return)
{
	struct volume_options o;
	struct handle *h;
	char *message = NULL;
	struct tree *tree;
	uint64_t closed;
	uint32_t id;

	volume_close(u.vol);
	vu_options(&u, &o);
	o.durable_close = true;
	unit_ok(volume_open(&o, &u.vol, &message));
	h = vu_open(&u, "a", O_WRONLY | O_CREAT);
	vu_write(h, "safe", 0);
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	unit_ok(epochs_tree(u.vol, 1, &tree));
	unit_ok(tree_resolve(tree, "a", &id));
	tree_unref(tree);
	closed = vu_file(&u, "a").closed;
	ck_assert_uint_ne(closed, 0);
	handle_release(h, false);
	vu_holds(&u, "a", "safe");
}
END_TEST

/* What the kernel wrote by itself on a disk without room may lack a write: also where a copy is committed. */
START_TEST(a_durable_close_without_room_is_torn)
{
	struct volume_options o;
	struct handle *h;
	char *message = NULL;
	struct state_version v;
	struct tree *tree;
	struct tree_entry e;
	uint64_t closed;
	uint32_t id;

	volume_close(u.vol);
	vu_options(&u, &o);
	o.durable_close = true;
	unit_ok(volume_open(&o, &u.vol, &message));
	h = vu_open(&u, "a", O_WRONLY | O_CREAT);
	vu_write(h, "half", 0);
	/* Else it would be undone. */
	unit_ok(handle_fsync(h, false));
	mutex_lock(&u.vol->lock);
	h->body->cramped = true;
	mutex_unlock(&u.vol->lock);
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	unit_ok(epochs_tree(u.vol, 1, &tree));
	unit_ok(tree_resolve(tree, "a", &id));
	tree_get(tree, id, &e);
	ck_assert_uint_eq(e.flags, TREE_TORN);
	tree_unref(tree);
	handle_release(h, false);
	vu_holds(&u, "a", "half");
	closed = vu_file(&u, "a").closed;
	mutex_lock(&u.vol->lock);
	unit_ok(state_version_get(u.vol->state, closed, &v));
	mutex_unlock(&u.vol->lock);
	ck_assert(v.torn);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("live_commit");
	TCase *t = unit_case(s, "commit");

	vu_by_saves = false;
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_commit_copies_nothing);
	tcase_add_test(t, content_that_no_epoch_had_goes_at_once);
	tcase_add_test(t, an_open_file_is_in_the_epoch_as_it_was_closed);
	tcase_add_test(t, all_names_of_a_file_get_the_new_content);
	tcase_add_test(t, times_that_the_program_set_are_kept);
	tcase_add_test(t, a_lookup_takes_the_close_in);
	tcase_add_loop_test(t, a_close_takes_the_close_before_it_in, 0, 2);
	tcase_add_test(t, a_seal_takes_the_close_in);
	tcase_add_test(t, a_descriptor_that_is_left_holds_nobody_up_for_long);
	tcase_add_test(t, a_redirection_is_no_close);
	tcase_add_test(t, a_copy_stands_in_while_the_file_is_open);
	tcase_add_test(t, a_rolled_back_writer_goes_to_torn);
	tcase_add_test(t, a_replacement_nobody_opened_is_let_go_at_the_end);
	tcase_add_test(t, what_is_replaced_and_unlinked_is_only_let_go);
	tcase_add_test(t, durable_closes_are_in_an_epoch_when_they_return);
	tcase_add_test(t, a_durable_close_without_room_is_torn);
	return unit_run(s);
}
