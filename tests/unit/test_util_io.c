/* SPDX-License-Identifier: Apache-2.0 */
/* Whole reads and writes, atomic replacement, clones, directories made and removed. */
#include "lib/util/io.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include "lib/util/cleanup.h"
#include "tests/unit/readdir_unit.h"
#include "tests/unit/unit.h"

static char *dir; /* of the running test */

static void enter_dir(void)
{
	dir = unit_dir();
	ck_assert_int_eq(chdir(dir), 0);
}

static void leave_dir(void)
{
	ck_assert_int_eq(chdir("/"), 0);
	free(dir);
}

static int open_new(const char *name)
{
	int fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	ck_assert_msg(fd >= 0, "%s: %s", name, strerror(errno));
	return fd;
}

static void write_file(const char *name, const void *data, size_t len)
{
	cleanup_close int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	unit_ok(io_write_full(fd, data, len));
}

static void has_content(const char *name, const void *data, size_t len)
{
	cleanup_buf struct buf b = {0};

	unit_ok(io_read_file(AT_FDCWD, name, 1 << 30, &b));
	unit_same_bytes(b.data, b.len, data, len);
}

static size_t names_in(const char *path)
{
	cleanup_closedir DIR *d = opendir(path);
	size_t n = 0;

	ck_assert_ptr_nonnull(d);
	while (readdir(d))
		n++;
	return n - 2;
}

START_TEST(reads_and_writes_at_offsets)
{
	cleanup_close int fd = open_new("f");
	char got[8];

	unit_ok(io_write_full(fd, "0123456789", 10));
	unit_ok(io_pwrite_full(fd, "ab", 2, 3));
	unit_ok(io_pread_full(fd, got, 8, 2));
	ck_assert_mem_eq(got, "2ab56789", 8);
	unit_error(io_pread_full(fd, got, 8, 3), -ENODATA);
	ck_assert_int_eq(io_pread_some(fd, got, 8, 7), 3);
	ck_assert_mem_eq(got, "789", 3);
	ck_assert_int_eq(io_pread_some(fd, got, 8, 100), 0);
	unit_ok(io_pread_full(fd, got, 0, 100));
	unit_error(io_pread_full(-1, got, 8, 0), -EBADF);
	unit_error(io_pwrite_full(-1, got, 8, 0), -EBADF);
	unit_error(io_write_full(-1, got, 8), -EBADF);
}
END_TEST

START_TEST(full_device_is_an_error)
{
	cleanup_close int fd = open("/dev/full", O_WRONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	unit_error(io_write_full(fd, "x", 1), -ENOSPC);
	unit_error(io_pwrite_full(fd, "x", 1, 0), -ENOSPC);
}
END_TEST

START_TEST(read_file_appends_the_whole_file)
{
	cleanup_buf struct buf b = {0};
	cleanup_free char *large = malloc(300000);

	ck_assert_ptr_nonnull(large);
	memset(large, 'x', 300000);
	write_file("f", large, 300000);
	buf_put(&b, "head", 4);
	/* What is in the buffer already does not count against the limit. */
	unit_ok(io_read_file(AT_FDCWD, "f", 300000, &b));
	ck_assert_uint_eq(b.len, 300004);
	ck_assert_mem_eq(b.data, "head", 4);
	ck_assert_mem_eq(b.data + 4, large, 300000);
}
END_TEST

START_TEST(read_file_that_fails_leaves_the_buffer)
{
	cleanup_buf struct buf b = {0};

	buf_put(&b, "head", 4);
	write_file("f", "0123456789", 10);
	ck_assert_int_eq(mkdir("d", 0700), 0);
	ck_assert_int_eq(mkfifo("p", 0600), 0);
	unit_error(io_read_file(AT_FDCWD, "f", 9, &b), -EFBIG);
	unit_error(io_read_file(AT_FDCWD, "none", 9, &b), -ENOENT);
	unit_error(io_read_file(AT_FDCWD, "d", 9, &b), -EISDIR);
	/* A pipe that nobody writes to does not hang the reader. */
	unit_error(io_read_file(AT_FDCWD, "p", 9, &b), -EINVAL);
	/* Files of /proc say size 0: the limit holds while reading too. */
	unit_error(io_read_file(AT_FDCWD, "/proc/self/maps", 16, &b), -EFBIG);
	unit_ok(buf_error(&b));
	unit_same_bytes(b.data, b.len, "head", 4);
}
END_TEST

START_TEST(replace_file_makes_and_replaces)
{
	struct stat st;

	unit_ok(io_replace_file(AT_FDCWD, "f", "one", 3));
	has_content("f", "one", 3);
	ck_assert_int_eq(stat("f", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	unit_ok(io_replace_file(AT_FDCWD, "f", "", 0));
	has_content("f", "", 0);
	ck_assert_uint_eq(names_in("."), 1);
}
END_TEST

START_TEST(replace_file_keeps_who_reads_the_old_one)
{
	cleanup_close int old = -1;
	char got[3];

	unit_ok(io_replace_file(AT_FDCWD, "f", "one", 3));
	old = open("f", O_RDONLY | O_CLOEXEC);
	unit_ok(io_replace_file(AT_FDCWD, "f", "two", 3));
	unit_ok(io_pread_full(old, got, 3, 0));
	ck_assert_mem_eq(got, "one", 3);
	has_content("f", "two", 3);
}
END_TEST

START_TEST(replace_file_that_fails_leaves_nothing)
{
	cleanup_close int fd = -1;

	ck_assert_int_eq(mkdir("d", 0700), 0);
	write_file("d/x", "x", 1);
	unit_error(io_replace_file(AT_FDCWD, "d", "one", 3), -EISDIR);
	unit_error(io_replace_file(AT_FDCWD, "none/f", "one", 3), -ENOENT);
	ck_assert_uint_eq(names_in("."), 1);
	has_content("d/x", "x", 1);
	/* Relative to a directory, and under a path. */
	fd = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_eq(chdir("/"), 0);
	unit_ok(io_replace_file(fd, "d/x", "new", 3));
	ck_assert_int_eq(fchdir(fd), 0);
	has_content("d/x", "new", 3);
	ck_assert_uint_eq(names_in("d"), 1);
}
END_TEST

START_TEST(fsync_parent_finds_the_directory)
{
	unit_ok(io_fsync_parent(AT_FDCWD, "f"));
	unit_ok(io_fsync_parent(AT_FDCWD, "/f"));
	unit_ok(io_fsync_parent(AT_FDCWD, "./f"));
	unit_error(io_fsync_parent(AT_FDCWD, "none/f"), -ENOENT);
}
END_TEST

#define MIB ((uint64_t)1 << 20)

START_TEST(truncate_of_what_is_empty_sets_the_time)
{
	const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 2000}};
	cleanup_close int fd = open_new("f");
	struct stat st;

	ck_assert_int_eq(futimens(fd, old), 0);
	unit_ok(io_truncate(fd, 0));
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_atim.tv_sec, 1000);
	ck_assert_int_gt(st.st_mtim.tv_sec, 2000);
	unit_ok(io_truncate(fd, 10));
	has_content("f", "\0\0\0\0\0\0\0\0\0\0", 10);
	unit_ok(io_truncate(fd, 0));
	has_content("f", "", 0);
	unit_error(io_truncate(-1, 0), -EBADF);
}
END_TEST

START_TEST(clone_has_the_content_and_keeps_holes)
{
	cleanup_close int from = open_new("from"), to = open_new("to");
	char got[4], zero[4] = {0};
	struct stat st;

	/* A hole, data, a hole to the end. */
	unit_ok(io_pwrite_full(from, "data", 4, 8 * MIB));
	ck_assert_int_eq(ftruncate(from, 64 * MIB), 0);
	unit_ok(io_clone(from, to, 64 * MIB));
	ck_assert_int_eq(fstat(to, &st), 0);
	ck_assert_uint_eq((uint64_t)st.st_size, 64 * MIB);
	ck_assert_uint_lt((uint64_t)st.st_blocks * 512, 8 * MIB);
	unit_ok(io_pread_full(to, got, 4, 8 * MIB));
	ck_assert_mem_eq(got, "data", 4);
	unit_ok(io_pread_full(to, got, 4, 64 * MIB - 4));
	ck_assert_mem_eq(got, zero, 4);
}
END_TEST

START_TEST(clone_has_exactly_the_size_asked)
{
	cleanup_close int from = open_new("from"), to = open_new("to");
	cleanup_free char *old = malloc(100000);

	ck_assert_ptr_nonnull(old);
	memset(old, 'o', 100000);
	unit_ok(io_write_full(to, old, 100000));
	unit_ok(io_write_full(from, "0123456789", 10));
	unit_ok(io_clone(from, to, 4));
	has_content("to", "0123", 4);
	/* Larger than the source: zeros, none of the target's old bytes. */
	unit_ok(io_pwrite_full(to, old, 100000, 0));
	unit_ok(io_clone(from, to, 14));
	has_content("to", "0123456789\0\0\0\0", 14);
	unit_ok(io_clone(from, to, 0));
	has_content("to", "", 0);
	has_content("from", "0123456789", 10);
}
END_TEST

START_TEST(clone_crosses_file_systems)
{
	cleanup_close int from = open_new("from");
	cleanup_close int to = memfd_create("to", MFD_CLOEXEC);
	cleanup_free char *data = malloc(3 * MIB + 7), *got = malloc(3 * MIB + 7);

	ck_assert(data && got && to >= 0);
	for (size_t i = 0; i < 3 * MIB + 7; i++)
		data[i] = (char)(i * 31 >> 7);
	unit_ok(io_write_full(from, data, 3 * MIB + 7));
	unit_ok(io_clone(from, to, 3 * MIB + 7));
	unit_ok(io_pread_full(to, got, 3 * MIB + 7, 0));
	ck_assert_int_eq(memcmp(data, got, 3 * MIB + 7), 0);
}
END_TEST

START_TEST(mkdir_p_makes_what_is_missing)
{
	cleanup_free char *absolute = unit_path(dir, "x/y");
	struct stat st;

	unit_ok(io_mkdir_p("a/b//c/"));
	unit_ok(io_mkdir_p("a/b/c"));
	ck_assert_int_eq(stat("a/b/c", &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0700);
	unit_ok(io_mkdir_p(absolute));
	ck_assert_int_eq(access("x/y", F_OK), 0);
	unit_ok(io_mkdir_p("/"));
	unit_ok(io_mkdir_p("."));
	write_file("f", "x", 1);
	unit_error(io_mkdir_p("f"), -ENOTDIR);
	unit_error(io_mkdir_p("f/g"), -ENOTDIR);
	unit_error(io_mkdir_p(""), -ENOENT);
}
END_TEST

START_TEST(remove_tree_takes_all_and_follows_nothing)
{
	unit_ok(io_mkdir_p("t/a/b"));
	unit_ok(io_mkdir_p("keep"));
	write_file("keep/f", "x", 1);
	write_file("t/a/f", "x", 1);
	ck_assert_int_eq(symlink("../keep", "t/link"), 0);
	ck_assert_int_eq(symlink("nowhere", "t/a/broken"), 0);
	ck_assert_int_eq(mkfifo("t/a/b/pipe", 0600), 0);
	unit_ok(io_remove_tree(AT_FDCWD, "t"));
	ck_assert_int_eq(access("t", F_OK), -1);
	has_content("keep/f", "x", 1);

	unit_ok(io_remove_tree(AT_FDCWD, "t"));
	ck_assert_int_eq(symlink("keep", "link"), 0);
	unit_ok(io_remove_tree(AT_FDCWD, "link"));
	has_content("keep/f", "x", 1);
	unit_ok(io_remove_tree(AT_FDCWD, "keep/f"));
	ck_assert_uint_eq(names_in("."), 1);
}
END_TEST

START_TEST(a_listing_that_fails_has_no_end)
{
	cleanup_closedir DIR *listing = NULL;
	const char *name;
	int got, names = 0;

	unit_ok(io_mkdir_p("t/a"));
	unit_ok(io_mkdir_p("t/b"));
	listing = opendir("t");
	while ((got = io_readdir(listing, &name)) > 0) {
		ck_assert(!strcmp(name, "a") || !strcmp(name, "b"));
		names++;
	}
	ck_assert_int_eq(got, 0);
	ck_assert_int_eq(names, 2);
	rewinddir(listing);
	readdir_fails_in = "/t";
	readdir_entries = (unsigned)_i;
	while ((got = io_readdir(listing, &name)) > 0)
		;
	ck_assert_int_eq(got, -EIO);
	/* Nothing is said to be removed that may be there. */
	unit_error(io_remove_tree(AT_FDCWD, "t"), -EIO);
	readdir_fails_in = NULL;
	unit_ok(io_remove_tree(AT_FDCWD, "t"));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_io");
	TCase *t = unit_case(s, "files");

	tcase_add_checked_fixture(t, enter_dir, leave_dir);
	tcase_add_test(t, reads_and_writes_at_offsets);
	tcase_add_test(t, full_device_is_an_error);
	tcase_add_test(t, read_file_appends_the_whole_file);
	tcase_add_test(t, read_file_that_fails_leaves_the_buffer);
	tcase_add_test(t, replace_file_makes_and_replaces);
	tcase_add_test(t, replace_file_keeps_who_reads_the_old_one);
	tcase_add_test(t, replace_file_that_fails_leaves_nothing);
	tcase_add_test(t, fsync_parent_finds_the_directory);

	tcase_add_test(t, truncate_of_what_is_empty_sets_the_time);

	t = unit_case(s, "clone");
	tcase_add_checked_fixture(t, enter_dir, leave_dir);
	tcase_add_test(t, clone_has_the_content_and_keeps_holes);
	tcase_add_test(t, clone_has_exactly_the_size_asked);
	tcase_add_test(t, clone_crosses_file_systems);

	t = unit_case(s, "directories");
	tcase_add_checked_fixture(t, enter_dir, leave_dir);
	tcase_add_test(t, mkdir_p_makes_what_is_missing);
	tcase_add_test(t, remove_tree_takes_all_and_follows_nothing);
	tcase_add_loop_test(t, a_listing_that_fails_has_no_end, 0, 5);
	return unit_run(s);
}
