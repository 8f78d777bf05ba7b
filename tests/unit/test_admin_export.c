/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring without a mount: what comes back, and what is there already. */
#include "lib/admin/catalog.h"

#include <stdatomic.h>
#include <sys/xattr.h>

#include "lib/format/xattrs.h"
#include "tests/unit/export_unit.h"

/* ---- what comes back ---- */

struct watched {
	struct catalog_progress last;
	unsigned calls;
	atomic_int inside;
};

static void watch(void *arg, const struct catalog_progress *p)
{
	struct watched *w = arg;

	ck_assert_int_eq(atomic_fetch_add(&w->inside, 1), 0);
	ck_assert_uint_ge(p->bytes, w->last.bytes);
	ck_assert_uint_ge(p->files, w->last.files);
	w->last = *p;
	w->calls++;
	atomic_fetch_sub(&w->inside, 1);
}

START_TEST(contents_and_progress)
{
	struct watched w = {.calls = 0};
	struct catalog_export how = {
		.progress = watch, .arg = &w, .threads = (unsigned)(_i ? 4 : 1)};

	make_three();
	unit_ok(restore_epoch(1, how));
	ck_assert_uint_eq(failed, 0);
	holds("model/a", a_bytes, BIG);
	holds("model/b", b_bytes, BIG + 777);
	holds_text("top", "small");
	ck_assert_uint_eq(w.last.files, 3);
	ck_assert_uint_eq(w.last.files_total, 3);
	ck_assert_uint_eq(w.last.bytes, 2 * BIG + 777 + 5);
	ck_assert_uint_eq(w.last.bytes_total, 2 * BIG + 777 + 5);
	ck_assert_uint_gt(w.calls, 3);
	ck_assert_int_eq(count_names("."), 2);
	ck_assert_int_eq(count_names("model"), 2);
	free_three();
}
END_TEST

START_TEST(many_files_by_many_threads)
{
	char name[16], text[16];

	made_begin(&made);
	for (int i = 0; i < 500; i++) {
		snprintf(name, sizeof(name), "f%04d", i);
		snprintf(text, sizeof(text), "text %d", i);
		made_add(&made, 1, name, made_inline(text));
	}
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.threads = 8}));
	ck_assert_int_eq(count_names("."), 500);
	holds_text("f0000", "text 0");
	holds_text("f0321", "text 321");
	holds_text("f0499", "text 499");
}
END_TEST

START_TEST(a_directory_or_a_file_alone)
{
	make_three();
	unit_ok(restore_epoch(1, (struct catalog_export){.path = "/model/"}));
	ck_assert_int_eq(count_names("."), 1);
	holds("model/b", b_bytes, BIG + 777);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = "model/a"}));
	ck_assert_int_eq(count_names("."), 2);
	holds("a", a_bytes, BIG);
	free_three();
}
END_TEST

START_TEST(a_missing_path_restores_nothing)
{
	make_three();
	unit_error(restore_epoch(1, (struct catalog_export){.path = "model/c"}), -ENOENT);
	ck_assert_uint_eq(failed, 0);
	unit_error(restore_epoch(1, (struct catalog_export){.path = "top/x"}), -ENOENT);
	unit_error(restore_epoch(1, (struct catalog_export){.path = "../x"}), -ENOENT);
	unit_error(restore_epoch(2, (struct catalog_export){.path = ""}), -ENOENT);
	ck_assert_int_eq(count_names("."), 0);
	free_three();
}
END_TEST

START_TEST(modes_times_and_xattrs)
{
	cleanup_buf struct buf list = {0};
	struct tree_entry e = made_inline("text"), dir = {.type = TREE_DIR, .mode = 0500};
	struct stat st;
	char value[16];

	unit_ok(xattrs_set(&list, "user.note", "kept", 4));
	e.mode = 0440;
	e.mtime_ns = -1500000001;
	e.xattrs = list.data;
	e.xattrs_len = list.len;
	dir.mtime_ns = 1234567890123456789;
	made_begin(&made);
	made_add(&made, 1, "dir", dir);
	made_add(&made, 2, "file", e);
	made_add(&made, 2, "later", made_inline("x"));
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	st = stat_of("dir/file");
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0440);
	ck_assert_int_eq(clock_ns(st.st_mtim), -1500000001);
	st = stat_of("dir");
	ck_assert_uint_eq(st.st_mode, S_IFDIR | 0500);
	ck_assert_int_eq(clock_ns(st.st_mtim), 1234567890123456789);
	/* The directory was empty: it is the tree's root now. */
	st = stat_of(".");
	ck_assert_uint_eq(st.st_mode, S_IFDIR | 0755);
	ck_assert_int_eq(clock_ns(st.st_mtim), 5);
	ck_assert_int_eq(fchdir(to), 0);
	if (getxattr("dir/file", "user.note", value, sizeof(value)) < 0)
		ck_assert_int_eq(errno, ENOTSUP); /* the file system below has none */
	else
		ck_assert_mem_eq(value, "kept", 4);
	/* Once more over it: the directory forbids writing now. */
	unit_ok(restore_epoch(1, (struct catalog_export){.force = true}));
	ck_assert_uint_eq(stat_of("dir").st_mode, S_IFDIR | 0500);
	ck_assert_int_eq(fchmodat(to, "dir", 0700, 0), 0);
}
END_TEST

START_TEST(a_directory_in_use_keeps_its_own_attributes)
{
	put_text("mine", "mine");
	ck_assert_int_eq(fchmod(to, 0711), 0);
	made_epoch(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	ck_assert_uint_eq(stat_of(".").st_mode, S_IFDIR | 0711);
	holds_text("file", "text");
	holds_text("mine", "mine");
}
END_TEST

START_TEST(hard_links_stay_one_file)
{
	struct tree_entry e = made_inline("shared"), further = {.group = 1};

	e.group = 1;
	made_begin(&made);
	made_dir(&made, 1, "a");
	made_add(&made, 2, "first", e);
	made_dir(&made, 1, "b");
	made_add(&made, 2, "second", further);
	made_add(&made, 2, "third", further);
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	ck_assert_uint_eq(stat_of("a/first").st_nlink, 3);
	ck_assert_uint_eq(stat_of("a/first").st_ino, stat_of("b/third").st_ino);
	/* Again over it, in one go. */
	unit_ok(restore_epoch(1, (struct catalog_export){.force = true}));
	ck_assert_uint_eq(stat_of("a/first").st_nlink, 3);
	ck_assert_int_eq(count_names("b"), 2);
	/* A part that lacks the first name. */
	ck_assert_int_eq(renameat(to, "b", to, "whole-b"), 0);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = "b"}));
	ck_assert_uint_eq(stat_of("b/second").st_nlink, 2);
	ck_assert_uint_eq(stat_of("b/second").st_ino, stat_of("b/third").st_ino);
	holds_text("b/third", "shared");
}
END_TEST

START_TEST(symlinks_fifos_sockets)
{
	char text[64] = "";
	struct stat st;

	made_begin(&made);
	made_add(&made, 1, "fifo",
		 (struct tree_entry){.type = TREE_FIFO, .mode = 0622, .mtime_ns = 77});
	made_add(&made, 1, "link", link_to("nowhere/at all"));
	made_add(&made, 1, "socket", (struct tree_entry){.type = TREE_SOCKET, .mode = 0700});
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	st = stat_of("fifo");
	ck_assert_uint_eq(st.st_mode, S_IFIFO | 0622);
	ck_assert_int_eq(clock_ns(st.st_mtim), 77);
	ck_assert_uint_eq(stat_of("socket").st_mode, S_IFSOCK | 0700);
	st = stat_of("link");
	ck_assert_uint_eq(st.st_mode & S_IFMT, S_IFLNK);
	ck_assert_int_eq(clock_ns(st.st_mtim), 9000000007);
	ck_assert_int_eq(readlinkat(to, "link", text, sizeof(text) - 1), 14);
	ck_assert_str_eq(text, "nowhere/at all");
	unit_ok(restore_epoch(1, (struct catalog_export){.force = true}));
	ck_assert_int_eq(count_names("."), 3);
}
END_TEST

START_TEST(holes_stay_holes)
{
	size_t len = 64 * MIB;
	uint8_t *data = calloc(1, len), *mark = random_content(64 * KIB, 3);
	struct stat st;

	memcpy(data + len - 64 * KIB, mark, 64 * KIB);
	made_begin(&made);
	made_add(&made, 1, "sparse", made_content(&made, data, len));
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = ""}));
	st = stat_of("sparse");
	ck_assert_int_eq(st.st_size, len);
	ck_assert_int_lt(st.st_blocks * 512, 4 * MIB);
	holds("sparse", data, len);
	free(data);
	free(mark);
}
END_TEST

START_TEST(an_empty_epoch_and_empty_files)
{
	made_begin(&made);
	made_end(&made, whole);
	made_begin(&made);
	made_add(&made, 1, "empty", (struct tree_entry){.type = TREE_REGULAR});
	made_end(&made, whole);
	unit_ok(restore_epoch(1, (struct catalog_export){.path = "/"}));
	ck_assert_int_eq(count_names("."), 0);
	unit_ok(restore_epoch(2, (struct catalog_export){.path = "/"}));
	holds("empty", "", 0);
}
END_TEST

/* ---- what is there already ---- */

START_TEST(nothing_is_replaced_without_force)
{
	make_three();
	put_text("top", "mine");
	unit_error(restore_epoch(1, (struct catalog_export){.path = ""}), -EEXIST);
	ck_assert_uint_eq(failed, 1);
	holds_text("top", "mine");
	holds("model/a", a_bytes, BIG);
	ck_assert_int_eq(count_names("."), 2);
	free_three();
}
END_TEST

START_TEST(force_replaces_files)
{
	make_three();
	put_text("top", "mine");
	ck_assert_int_eq(mkdirat(to, "model", 0700), 0);
	put_text("model/mine", "mine");
	unit_ok(restore_epoch(1, (struct catalog_export){.force = true}));
	holds_text("top", "small");
	holds_text("model/mine", "mine");
	holds("model/a", a_bytes, BIG);
	free_three();
}
END_TEST

START_TEST(force_does_not_remove_a_directory)
{
	make_three();
	ck_assert_int_eq(mkdirat(to, "top", 0700), 0);
	put_text("top/mine", "mine");
	unit_error(restore_epoch(1, (struct catalog_export){.force = true}), -EISDIR);
	ck_assert_uint_eq(failed, 1);
	holds_text("top/mine", "mine");
	ck_assert_int_eq(count_names("."), 2);
	free_three();
}
END_TEST

/* A file under the name of a directory fails that one and all below it, and nothing else. */
START_TEST(a_file_in_the_way_of_a_directory)
{
	make_three();
	put_text("model", "mine");
	unit_error(restore_epoch(1, (struct catalog_export){.force = true}), -EEXIST);
	ck_assert_uint_eq(failed, 3);
	holds_text("model", "mine");
	holds_text("top", "small");
	free_three();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("admin_export");
	TCase *back = unit_case(s, "what comes back"), *there = unit_case(s, "what is there");

	tcase_add_checked_fixture(back, setup, teardown);
	tcase_add_checked_fixture(there, setup, teardown);
	tcase_add_loop_test(back, contents_and_progress, 0, 2);
	tcase_add_test(back, many_files_by_many_threads);
	tcase_add_test(back, a_directory_or_a_file_alone);
	tcase_add_test(back, a_missing_path_restores_nothing);
	tcase_add_test(back, modes_times_and_xattrs);
	tcase_add_test(back, a_directory_in_use_keeps_its_own_attributes);
	tcase_add_test(back, hard_links_stay_one_file);
	tcase_add_test(back, symlinks_fifos_sockets);
	tcase_add_test(back, holes_stay_holes);
	tcase_add_test(back, an_empty_epoch_and_empty_files);
	tcase_add_test(there, nothing_is_replaced_without_force);
	tcase_add_test(there, force_replaces_files);
	tcase_add_test(there, force_does_not_remove_a_directory);
	tcase_add_test(there, a_file_in_the_way_of_a_directory);
	return unit_run(s);
}
