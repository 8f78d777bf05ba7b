/* SPDX-License-Identifier: Apache-2.0 */
/* Closes that leave the bytes which the file had: contract 1.2.10. */
#include "lib/cache/content.h"
#include "lib/cache/contents.h"
#include "lib/state/state.h"
#include "tests/unit/epochs_unit.h"

#define LARGE ((size_t)64 << 20)

static uint8_t *noise(size_t len)
{
	uint8_t *bytes = malloc(len);
	uint64_t x = 88172645463325252u;

	ck_assert_ptr_nonnull(bytes);
	for (size_t i = 0; i < len; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		bytes[i] = (uint8_t)x;
	}
	return bytes;
}

static void write_bytes(struct handle *h, const void *bytes, size_t len, uint64_t offset)
{
	ck_assert_int_eq(handle_write(h, bytes, len, offset, NULL, NULL), (ssize_t)len);
}

static void save_bytes(const char *name, const void *bytes, size_t len)
{
	struct handle *h = vu_open(&u, name, O_WRONLY | O_CREAT | O_TRUNC);

	write_bytes(h, bytes, len, 0);
	vu_close(h);
}

static bool opens_an_epoch(void)
{
	SCOPED_LOCK(&u.vol->lock);
	return u.vol->sealer->pending.opens;
}

static void is_unchanged(const char *name, const struct state_file *before)
{
	struct state_file now = vu_file(&u, name);

	ck_assert_uint_eq(now.closed, before->closed);
	ck_assert_uint_eq(now.live, before->closed);
	ck_assert_uint_eq(now.body, before->body);
	ck_assert_int_gt(now.mtime_ns, before->mtime_ns);
	ck_assert(!opens_an_epoch());
	ck_assert(u.vol->sealer->pending.times && !u.vol->sealer->pending.rides);
}

static void edit(const char *name, const char *text, uint64_t offset)
{
	struct handle *h = vu_open(&u, name, O_RDWR);

	vu_write(h, text, offset);
	vu_close(h);
}

START_TEST(the_same_bytes_in_place_are_no_change)
{
	struct state_file before;

	vu_save(&u, "a", "hello world");
	vu_seal(&u);
	before = vu_file(&u, "a");
	edit("a", "world", 6);
	is_unchanged("a", &before);
	vu_holds(&u, "a", "hello world");
	/* The times ride: somebody's word takes them. */
	ck_assert_uint_eq(vu_seal(&u), 2);
	edit("a", "World", 6);
	ck_assert(opens_an_epoch());
	ck_assert_uint_ne(vu_file(&u, "a").closed, before.closed);
	vu_holds(&u, "a", "hello World");
}
END_TEST

/* Of what was not sealed yet, too. */
START_TEST(a_change_before_it_stays_one)
{
	struct state_file before;

	vu_save(&u, "a", "hello");
	vu_seal(&u);
	vu_save(&u, "a", "hello world");
	before = vu_file(&u, "a");
	edit("a", "hello", 0);
	ck_assert_uint_eq(vu_file(&u, "a").closed, before.closed);
	ck_assert(opens_an_epoch());
	ck_assert_uint_eq(vu_seal(&u), 2);
}
END_TEST

START_TEST(cut_and_written_again_it_is_the_same)
{
	struct live_change to_nothing = {.set = LIVE_SET_SIZE, .size = 0, .pid = 1};
	struct state_file before;
	struct live_attr attr;
	struct handle *h;

	vu_save(&u, "a", "hello world");
	vu_seal(&u);
	before = vu_file(&u, "a");
	h = vu_open(&u, "a", O_RDWR);
	unit_ok(live_setattr(u.vol, before.ino, before.body, &to_nothing, &attr));
	vu_write(h, "hello world", 0);
	vu_close(h);
	is_unchanged("a", &before);
	vu_holds(&u, "a", "hello world");
}
END_TEST

/* Who replaces it says that it was saved again. */
START_TEST(a_replacement_is_a_save_whatever_it_holds)
{
	struct state_file before;
	struct handle *old;

	vu_save(&u, "a", "hello world");
	vu_seal(&u);
	before = vu_file(&u, "a");
	old = vu_open(&u, "a", O_RDONLY);
	vu_save(&u, "a", "hello world");
	ck_assert(opens_an_epoch());
	ck_assert_uint_ne(vu_file(&u, "a").body, before.body);
	vu_handle_holds(old, "hello world");
	handle_release(old, false);
}
END_TEST

START_TEST(while_an_epoch_has_it_open_it_is_another_version)
{
	struct tree *tree;
	struct tree_entry e;
	struct content *c;
	uint32_t id;
	uint64_t closed;

	vu_save(&u, "a", "hello world");
	unit_ok(epochs_tree(u.vol, vu_seal(&u), &tree));
	unit_ok(tree_resolve(tree, "a", &id));
	tree_get(tree, id, &e);
	unit_ok(content_get_entry(u.vol, &e, "epoch 1: a", &c));
	closed = vu_file(&u, "a").closed;
	edit("a", "world", 6);
	ck_assert(!opens_an_epoch());
	ck_assert_uint_ne(vu_file(&u, "a").closed, closed);
	ck_assert_uint_eq(vu_version(&u, vu_file(&u, "a").closed).saved, 1);
	content_put(c);
	tree_unref(tree);
}
END_TEST

/* The kernel writes by itself, and a reader has the inode. */
START_TEST(what_passthrough_wrote_is_compared_too)
{
	struct handle *reader, *writer;
	struct state_file before;
	struct vu_grant g;
	int fd;

	vu_save(&u, "a", "hello world");
	vu_seal(&u);
	before = vu_file(&u, "a");
	for (int i = 0; i < 2; i++) {
		reader = vu_open(&u, "a", O_RDONLY);
		g = vu_grant(reader);
		writer = vu_open(&u, "a", O_RDWR);
		unit_ok(handle_join_grant(writer, NULL, NULL));
		fd = object_open(u.vol, vu_file(&u, "a").live, O_WRONLY);
		ck_assert_int_eq(pwrite(fd, i ? "World" : "world", 5, 6), 5);
		close(fd);
		unit_ok(handle_flush(writer, getpid(), NULL, NULL));
		handle_release(writer, true);
		handle_release(reader, false);
		vu_give_back(&u, &g);
		if (!i)
			is_unchanged("a", &before);
	}
	ck_assert(opens_an_epoch());
	vu_holds(&u, "a", "hello World");
}
END_TEST

/* What an fsync promised of these very bytes is not to be lost. */
START_TEST(what_was_fsynced_since_stays_so)
{
	struct handle *h;

	vu_save(&u, "a", "hello world");
	vu_seal(&u);
	h = vu_open(&u, "a", O_RDWR);
	vu_write(h, "hello", 0);
	unit_ok(handle_fsync(h, false));
	vu_close(h);
	ck_assert(!opens_an_epoch());
	ck_assert(vu_version(&u, vu_file(&u, "a").closed).fsynced);
}
END_TEST

/* It is saved again, and no longer in doubt. */
START_TEST(while_something_is_in_doubt_each_save_counts)
{
	struct vu_child child = vu_child();
	struct handle *h = NULL;
	uint64_t closed;

	vu_save(&u, "a", "hello world");
	vu_save(&u, "b", "the other");
	vu_seal(&u);
	vu_save(&u, "b", "another");
	unit_ok(vu_open_as(&u, "a", O_WRONLY | O_TRUNC, child.pid, &h));
	vu_write(h, "hel", 0);
	kill(child.pid, SIGKILL);
	ck_assert_int_eq(waitid(P_PID, (id_t)child.pid, &(siginfo_t){0}, WEXITED | WNOWAIT), 0);
	unit_ok(handle_flush(h, child.pid, NULL, NULL));
	handle_release(h, false);
	vu_child_wait(&child);
	vu_seal(&u);
	ck_assert(!opens_an_epoch());
	closed = vu_file(&u, "a").closed;
	edit("a", "hello world", 0);
	ck_assert(opens_an_epoch());
	ck_assert_uint_ne(vu_file(&u, "a").closed, closed);
}
END_TEST

/* ---- what the remote has alone ---- */

static void edit_bytes(const char *name, const void *bytes, size_t len, uint64_t offset)
{
	struct handle *h = vu_open(&u, name, O_RDWR);

	write_bytes(h, bytes, len, offset);
	vu_close(h);
}

START_TEST(hashes_tell_what_is_not_local)
{
	static const size_t sizes[] = {20, (size_t)5 << 20};
	size_t size = sizes[_i];
	cleanup_free uint8_t *bytes = noise(size);
	struct state_file before;

	save_bytes("a", bytes, size);
	unit_ok(epochs_wait(u.vol, vu_seal(&u), -1, NULL, NULL));
	before = vu_file(&u, "a");
	ck_assert_int_eq(vu_version(&u, before.closed).state, VERSION_DURABLE);
	edit_bytes("a", bytes, 10, 0);
	is_unchanged("a", &before);
	ck_assert(vu_version(&u, before.closed).local_whole);
	bytes[size - 1] ^= 1;
	edit_bytes("a", bytes + size - 1, 1, size - 1);
	ck_assert(opens_an_epoch());
	ck_assert_uint_ne(vu_file(&u, "a").closed, before.closed);
}
END_TEST

START_TEST(holes_are_the_same_as_holes)
{
	struct live_change grow = {.set = LIVE_SET_SIZE, .size = (uint64_t)8 << 30, .pid = 1};
	cleanup_free uint8_t *bytes = noise(1 << 20);
	struct state_file before;
	struct live_attr attr;

	save_bytes("a", bytes, 1 << 20);
	before = vu_file(&u, "a");
	unit_ok(live_setattr(u.vol, before.ino, before.body, &grow, &attr));
	unit_ok(epochs_wait(u.vol, vu_seal(&u), -1, NULL, NULL));
	before = vu_file(&u, "a");
	edit_bytes("a", bytes, 4096, 0);
	is_unchanged("a", &before);
	/* Where there was a hole. */
	edit_bytes("a", bytes, 1, (uint64_t)7 << 30);
	ck_assert(opens_an_epoch());
}
END_TEST

/* ---- what it costs ---- */

static uint64_t bytes_read(void)
{
	cleanup_buf struct buf text = {0};

	unit_ok(io_read_file(AT_FDCWD, "/proc/self/io", 4096, &text));
	return strtoull(strstr(buf_str(&text), "rchar:") + strlen("rchar:"), NULL, 10);
}

START_TEST(what_was_written_anew_is_hardly_read)
{
	cleanup_free uint8_t *bytes = noise(LARGE);
	uint64_t closed, before;
	int fd;

	save_bytes("a", bytes, LARGE);
	if (_i)
		unit_ok(epochs_wait(u.vol, vu_seal(&u), -1, NULL, NULL));
	closed = vu_file(&u, "a").closed;
	/* All but the head and the tail. */
	for (size_t i = 1 << 20; i < LARGE - (1 << 20); i++)
		bytes[i] ^= 0xff;
	fd = open(u.cache, O_TMPFILE | O_RDWR, 0600);
	ck_assert_int_ge(fd, 0);
	unit_ok(io_pwrite_full(fd, bytes, LARGE, 0));
	before = bytes_read();
	ck_assert_int_eq(content_same(u.vol, closed, fd), 0);
	ck_assert_uint_lt(bytes_read() - before, LARGE / 8);
	for (size_t i = 1 << 20; i < LARGE - (1 << 20); i++)
		bytes[i] ^= 0xff;
	unit_ok(io_pwrite_full(fd, bytes, LARGE, 0));
	ck_assert_int_eq(content_same(u.vol, closed, fd), 1);
	bytes[LARGE / 2 + 12345] ^= 1;
	unit_ok(io_pwrite_full(fd, bytes, LARGE, 0));
	ck_assert_int_eq(content_same(u.vol, closed, fd), 0);
	ck_assert_int_eq(ftruncate(fd, LARGE - 1), 0);
	ck_assert_int_eq(content_same(u.vol, closed, fd), 0);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("live_same");
	TCase *here = eu_case(s, "here"), *remote = eu_remote_case(s, "remote");

	tcase_add_test(here, the_same_bytes_in_place_are_no_change);
	tcase_add_test(here, a_change_before_it_stays_one);
	tcase_add_test(here, cut_and_written_again_it_is_the_same);
	tcase_add_test(here, a_replacement_is_a_save_whatever_it_holds);
	tcase_add_test(here, while_an_epoch_has_it_open_it_is_another_version);
	tcase_add_test(here, what_passthrough_wrote_is_compared_too);
	tcase_add_test(here, what_was_fsynced_since_stays_so);
	tcase_add_test(here, while_something_is_in_doubt_each_save_counts);
	tcase_add_loop_test(remote, hashes_tell_what_is_not_local, 0, 2);
	tcase_add_test(remote, holes_are_the_same_as_holes);
	tcase_add_loop_test(remote, what_was_written_anew_is_hardly_read, 0, 2);
	return unit_run(s);
}
