/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: files, names, link targets, xattrs. */
#include "lib/state/state.h"

#include "tests/unit/state_unit.h"

START_TEST(a_file_comes_back_whole)
{
	struct state_file f = {.mode = S_IFREG | 0640,
			       .uid = UINT32_MAX,
			       .gid = 7,
			       .rdev = 0x12345,
			       .nlink = 3,
			       .size = (uint64_t)1 << 40,
			       .mtime_ns = -5,
			       .ctime_ns = INT64_MAX,
			       .atime_ns = INT64_MIN,
			       .live = 11,
			       .closed = 12,
			       .body = 13,
			       .born = 14,
			       .parent = 15};
	struct state_file got = {0};
	uint64_t ino;

	unit_ok(state_file_new(s, &f, &ino));
	unit_ok(state_file_get(s, ino, &got));
	ck_assert_mem_eq(&got, &f, sizeof(f));
	f.size = 1;
	f.live = 99;
	f.parent = 3;
	unit_ok(state_file_set(s, &f));
	reopen();
	unit_ok(state_file_get(s, ino, &got));
	ck_assert_mem_eq(&got, &f, sizeof(f));
	unit_ok(state_file_remove(s, ino));
	unit_error(state_file_get(s, ino, &got), -ENOENT);
	unit_error(state_file_set(s, &f), -ENOENT);
	unit_error(state_file_remove(s, ino), -ENOENT);
}
END_TEST

static int count_xattr(void *arg, const char *name, const void *value, size_t len)
{
	(void)name;
	(void)value;
	(void)len;
	++*(int *)arg;
	return 0;
}

START_TEST(a_removed_file_takes_target_and_xattrs_along)
{
	uint64_t ino = new_file(S_IFLNK | 0777);
	cleanup_buf struct buf b = {0};
	int count = 0;

	unit_error(state_symlink_get(s, ino, &b), -ENOENT);
	unit_ok(state_symlink_set(s, ino, "to\xff/here", 8));
	unit_ok(state_symlink_get(s, ino, &b));
	unit_same_bytes(b.data, b.len, "to\xff/here", 8);
	unit_ok(state_xattr_set(s, ino, "user.a", "1", 1));
	unit_ok(state_file_remove(s, ino));
	buf_reset(&b);
	unit_error(state_symlink_get(s, ino, &b), -ENOENT);
	unit_ok(state_xattr_list(s, ino, count_xattr, &count));
	ck_assert_int_eq(count, 0);
}
END_TEST

START_TEST(files_are_counted)
{
	uint64_t a = new_file(S_IFREG);

	new_file(S_IFREG);
	ck_assert_uint_eq(state_file_count(s), 2);
	unit_ok(state_file_remove(s, a));
	ck_assert_uint_eq(state_file_count(s), 1);
	reopen();
	ck_assert_uint_eq(state_file_count(s), 1);
}
END_TEST

START_TEST(names_are_bytes)
{
	char longest[256];
	struct state_name n;

	memset(longest, 0xfe, 255);
	longest[255] = '\0';
	unit_ok(state_name_add(s, 1, longest, 5));
	unit_ok(state_name_add(s, 1, "\xff\x01", 6));
	unit_ok(state_name_add(s, 1, "A", 7));
	unit_ok(state_name_add(s, 1, "a", 8));
	unit_ok(state_name_add(s, 2, "a", 9));
	unit_ok(state_name_get(s, 1, longest, &n));
	ck_assert_uint_eq(n.ino, 5);
	ck_assert_uint_eq(n.parent, 1);
	unit_ok(state_name_get(s, 1, "\xff\x01", &n));
	ck_assert_uint_eq(n.ino, 6);
	unit_ok(state_name_get(s, 1, "a", &n));
	ck_assert_uint_eq(n.ino, 8);
	unit_error(state_name_get(s, 1, "", &n), -ENOENT);
	unit_ok(state_name_remove(s, 1, "a"));
	unit_error(state_name_remove(s, 1, "a"), -ENOENT);
	unit_error(state_name_get(s, 1, "a", &n), -ENOENT);
	unit_ok(state_name_get(s, 2, "a", &n));
	ck_assert_uint_eq(n.ino, 9);
}
END_TEST

START_TEST(a_lookup_gives_name_and_file)
{
	uint64_t ino = new_file(S_IFREG | 0611);
	struct state_name n = {0};
	struct state_file f = {0};

	unit_ok(state_name_add(s, 9, "a", ino));
	unit_ok(state_name_add(s, 9, "ghost", ino + 1));
	unit_ok(state_name_lookup(s, 9, "a", &n, &f));
	ck_assert_uint_eq(n.ino, ino);
	ck_assert_uint_eq(n.parent, 9);
	ck_assert_uint_eq(f.ino, ino);
	ck_assert_uint_eq(f.mode, S_IFREG | 0611);
	unit_error(state_name_lookup(s, 9, "b", &n, &f), -ENOENT);
	unit_error(state_name_lookup(s, 9, "ghost", &n, &f), -ENOENT);
}
END_TEST

START_TEST(a_name_that_is_set_keeps_its_id)
{
	struct state_name n, m;
	cleanup_buf struct buf name = {0};
	uint64_t parent = 0;

	unit_ok(state_name_add(s, 1, "a", 5));
	unit_ok(state_name_get(s, 1, "a", &n));
	ck_assert_uint_eq(n.covered, 0);
	unit_error(state_name_covering(s, 0, &parent, &name), -ENOENT);
	unit_ok(state_name_set(s, 1, "a", 6, 5));
	unit_ok(state_name_get(s, 1, "a", &m));
	ck_assert_uint_eq(m.id, n.id);
	ck_assert_uint_eq(m.ino, 6);
	ck_assert_uint_eq(m.covered, 5);
	unit_ok(state_name_covering(s, 5, &parent, &name));
	ck_assert_uint_eq(parent, 1);
	ck_assert_str_eq(buf_str(&name), "a");
	unit_error(state_name_set(s, 1, "b", 6, 0), -ENOENT);
}
END_TEST

struct listed {
	char names[64][256];
	uint64_t ids[64];
	int count, stop_at;
	bool missing;
};

static int list_name(void *arg, const struct state_name *n, const char *name,
		     const struct state_file *f)
{
	struct listed *l = arg;

	strcpy(l->names[l->count], name);
	l->ids[l->count++] = n->id;
	if (!f)
		l->missing = true;
	else
		ck_assert_uint_eq(f->ino, n->ino);
	return l->count == l->stop_at ? 1000 + l->count : 0;
}

START_TEST(a_directory_is_listed_newest_first_and_in_order_of_names)
{
	static const char *const names[] = {"b", "a", "\xff", "aa", "B"};
	static const char *const sorted[] = {"B", "a", "aa", "b", "\xff"};
	struct listed l = {.stop_at = -1}, m = {.stop_at = 2}, k = {.stop_at = -1};

	for (size_t i = 0; i < 5; i++)
		unit_ok(state_name_add(s, 3, names[i], new_file(S_IFREG)));
	unit_ok(state_name_add(s, 4, "other", new_file(S_IFREG)));
	unit_ok(state_dir_list(s, 3, 0, list_name, &l));
	ck_assert_int_eq(l.count, 5);
	ck_assert(!l.missing);
	for (int i = 0; i < 5; i++) {
		ck_assert_str_eq(l.names[i], names[4 - i]);
		ck_assert(i == 0 || l.ids[i] < l.ids[i - 1]);
	}
	ck_assert_int_eq(state_dir_list(s, 3, l.ids[1], list_name, &m), 1002);
	ck_assert_str_eq(m.names[0], names[2]);
	ck_assert_str_eq(m.names[1], names[1]);
	unit_ok(state_dir_list_sorted(s, 3, list_name, &k));
	for (int i = 0; i < 5; i++)
		ck_assert_str_eq(k.names[i], sorted[i]);
	unit_ok(state_dir_empty(s, 5));
	unit_error(state_dir_empty(s, 4), -ENOTEMPTY);
}
END_TEST

static int list_below(void *arg, const struct state_name *n, const char *name,
		      const struct state_file *f)
{
	(void)name;
	(void)f;
	++*(int *)arg;
	return state_dir_list_sorted(s, n->ino, list_below, arg);
}

START_TEST(a_listing_may_list_what_is_below)
{
	uint64_t above = new_file(S_IFDIR);
	int count = 0;

	for (int depth = 0; depth < 300; depth++) {
		uint64_t below = new_file(S_IFDIR);

		unit_ok(state_name_add(s, above, "sub", below));
		unit_ok(state_name_add(s, above, "twin", new_file(S_IFREG)));
		above = below;
	}
	unit_ok(state_dir_list_sorted(s, 1, list_below, &count));
	ck_assert_int_eq(count, 600);
}
END_TEST

START_TEST(directories_know_their_depth_and_height)
{
	struct state_file root = {.mode = S_IFDIR, .parent = ROOT_INO}, f;
	uint64_t ino = 0, top = 0, depth = 0, height = 0;

	unit_ok(state_file_new(s, &root, &ino));
	for (int i = 0; i < 300; i++) {
		f = (struct state_file){.mode = S_IFDIR, .parent = ino};
		unit_ok(state_file_new(s, &f, &ino));
		if (i == 99)
			top = ino;
	}
	unit_ok(state_dir_depth(s, ROOT_INO, &depth));
	ck_assert_uint_eq(depth, 0);
	unit_ok(state_dir_depth(s, ino, &depth));
	ck_assert_uint_eq(depth, 300);
	unit_ok(state_dir_height(s, ROOT_INO, &height));
	ck_assert_uint_eq(height, 300);
	unit_ok(state_dir_height(s, ino, &height));
	ck_assert_uint_eq(height, 0);
	/* Moved right below the root. */
	unit_ok(state_file_get(s, top, &f));
	f.parent = ROOT_INO;
	unit_ok(state_file_set(s, &f));
	unit_ok(state_dir_depth(s, ino, &depth));
	ck_assert_uint_eq(depth, 201);
	unit_ok(state_dir_height(s, ROOT_INO, &height));
	ck_assert_uint_eq(height, 201);
}
END_TEST

static int rename_names(void *arg, const struct state_name *n, const char *name,
			const struct state_file *f)
{
	char other[300];

	ck_assert_ptr_nonnull(f);
	++*(int *)arg;
	unit_ok(state_name_remove(s, n->parent, name));
	snprintf(other, sizeof(other), "%s-moved", name);
	return state_name_add(s, n->parent, other, n->ino);
}

START_TEST(the_names_of_a_file_may_change_while_they_are_told)
{
	uint64_t ino = new_file(S_IFREG);
	int count = 0;

	unit_ok(state_name_add(s, 1, "a", ino));
	unit_ok(state_name_add(s, 2, "b", ino));
	unit_ok(state_name_add(s, 2, "c", ino + 1));
	unit_ok(state_names_of(s, ino, rename_names, &count));
	ck_assert_int_eq(count, 2);
}
END_TEST

START_TEST(a_name_that_changes_keeps_its_id)
{
	uint64_t ino = new_file(S_IFREG);
	struct state_name before, after;

	unit_ok(state_name_add(s, 2, "a", ino));
	unit_ok(state_name_set(s, 2, "a", ino, 77));
	unit_ok(state_name_get(s, 2, "a", &before));
	unit_ok(state_name_change(s, 2, "a", "b"));
	unit_error(state_name_get(s, 2, "a", &after), -ENOENT);
	unit_ok(state_name_get(s, 2, "b", &after));
	ck_assert_uint_eq(after.id, before.id);
	ck_assert_uint_eq(after.ino, ino);
	ck_assert_uint_eq(after.covered, 0);
	unit_error(state_name_change(s, 2, "a", "c"), -ENOENT);
}
END_TEST

START_TEST(a_name_without_a_file_is_told_so)
{
	struct listed l = {.stop_at = -1};

	unit_ok(state_name_add(s, 1, "ghost", 12345));
	unit_ok(state_dir_list(s, 1, 0, list_name, &l));
	ck_assert_int_eq(l.count, 1);
	ck_assert(l.missing);
}
END_TEST

START_TEST(xattrs_come_back)
{
	cleanup_buf struct buf b = {0};
	char big[65536];
	int count = 0;

	memset(big, 'v', sizeof(big));
	unit_error(state_xattr_get(s, 1, "user.a", &b), -ENODATA);
	unit_ok(state_xattr_set(s, 1, "user.a", "x\0y", 3));
	unit_ok(state_xattr_set(s, 1, "user.empty", NULL, 0));
	unit_ok(state_xattr_set(s, 1, "user.big", big, sizeof(big)));
	unit_ok(state_xattr_get(s, 1, "user.a", &b));
	unit_same_bytes(b.data, b.len, "x\0y", 3);
	buf_reset(&b);
	unit_ok(state_xattr_get(s, 1, "user.empty", &b));
	ck_assert_uint_eq(b.len, 0);
	unit_ok(state_xattr_get(s, 1, "user.big", &b));
	unit_same_bytes(b.data, b.len, big, sizeof(big));
	unit_ok(state_xattr_list(s, 1, count_xattr, &count));
	ck_assert_int_eq(count, 3);
	unit_ok(state_xattr_remove(s, 1, "user.a"));
	unit_error(state_xattr_remove(s, 1, "user.a"), -ENODATA);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("state_files");
	TCase *t;

	t = fixture(suite, "files and names");
	tcase_add_test(t, a_file_comes_back_whole);
	tcase_add_test(t, a_removed_file_takes_target_and_xattrs_along);
	tcase_add_test(t, files_are_counted);
	tcase_add_test(t, names_are_bytes);
	tcase_add_test(t, a_lookup_gives_name_and_file);
	tcase_add_test(t, a_name_that_is_set_keeps_its_id);
	tcase_add_test(t, a_directory_is_listed_newest_first_and_in_order_of_names);
	tcase_add_test(t, a_listing_may_list_what_is_below);
	tcase_add_test(t, directories_know_their_depth_and_height);
	tcase_add_test(t, the_names_of_a_file_may_change_while_they_are_told);
	tcase_add_test(t, a_name_that_changes_keeps_its_id);
	tcase_add_test(t, a_name_without_a_file_is_told_so);
	tcase_add_test(t, xattrs_come_back);
	return unit_run(suite);
}
