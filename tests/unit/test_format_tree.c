/* SPDX-License-Identifier: Apache-2.0 */
/* Trees: writer, reader, and the index in memory. */
#include "lib/format/tree_diff.h"
#include "tests/unit/tree_unit.h"

static struct tree *decode(struct buf *b)
{
	struct tree *t = NULL;
	size_t len;
	void *data = buf_steal(b, &len);

	unit_ok(tree_decode(data, len, TREE_ALLOW_LOCAL, &t));
	return t;
}

static void check_same(const struct tree_entry *got, const struct tree_entry *want)
{
	ck_assert_uint_eq(got->depth, want->depth);
	unit_same_bytes(got->name, got->name_len, want->name, want->name_len);
	ck_assert_uint_eq(strlen(got->name), got->name_len);
	ck_assert_int_eq(got->type, want->type);
	ck_assert_int_eq(got->content, want->content);
	ck_assert_uint_eq(got->size, want->size);
	ck_assert_uint_eq(got->holes, want->holes);
	ck_assert_uint_eq(got->rdev_major, want->rdev_major);
	ck_assert_uint_eq(got->rdev_minor, want->rdev_minor);
	ck_assert(tree_same_content(got, want));
	ck_assert(tree_same_meta(got, want));
}

/* ---- everything that an entry may be */

START_TEST(the_stream_gives_what_was_written)
{
	cleanup_buf struct buf b = {0};
	cleanup_tree_reader struct tree_reader *r = NULL;
	struct tree_entry e;

	make_all();
	encode(all, ALL_COUNT, TREE_ALLOW_LOCAL, &b);
	unit_ok(tree_reader_new(b.data, b.len, TREE_ALLOW_LOCAL, &r));
	for (size_t i = 0; i < ALL_COUNT; i++) {
		ck_assert_int_eq(tree_reader_next(r, &e), 1);
		check_same(&e, &all[i]);
		ck_assert_str_eq(tree_reader_path(r), all_paths[i]);
	}
	ck_assert_int_eq(tree_reader_next(r, &e), 0);
	ck_assert_int_eq(tree_reader_next(r, &e), 0);
	buf_free(&some_xattrs);
}
END_TEST

START_TEST(the_index_gives_what_was_written)
{
	cleanup_buf struct buf b = {0};
	cleanup_tree struct tree *t = NULL;
	struct tree_counts counts;

	make_all();
	encode(all, ALL_COUNT, TREE_ALLOW_LOCAL, &b);
	t = decode(&b);
	ck_assert_uint_eq(tree_count(t), ALL_COUNT);
	for (uint32_t i = 0; i < ALL_COUNT; i++) {
		cleanup_buf struct buf path = {0};
		struct tree_entry e;
		uint32_t id = TREE_NONE;

		tree_get(t, i, &e);
		check_same(&e, &all[i]);
		unit_ok(tree_path(t, i, &path));
		ck_assert_str_eq(buf_str(&path), all_paths[i]);
		unit_ok(tree_resolve(t, all_paths[i], &id));
		ck_assert_uint_eq(id, i);
	}
	tree_get_counts(t, &counts);
	ck_assert_uint_eq(counts.directories, 4);
	ck_assert_uint_eq(counts.files, 4);
	ck_assert_uint_eq(counts.symlinks, 1);
	ck_assert_uint_eq(counts.specials, 4);
	ck_assert_uint_eq(counts.bytes, (uint64_t)INT64_MAX + 3 + 5);
	buf_free(&some_xattrs);
}
END_TEST

START_TEST(hard_links_are_one_file)
{
	cleanup_buf struct buf b = {0};
	cleanup_tree struct tree *t = NULL;
	struct tree_entry first, link;
	uint32_t a = 0, c = 0;

	make_all();
	encode(all, ALL_COUNT, TREE_ALLOW_LOCAL, &b);
	t = decode(&b);
	unit_ok(tree_resolve(t, "d/in", &a));
	unit_ok(tree_resolve(t, "d/sub/link", &c));
	ck_assert_uint_ne(a, c);
	ck_assert_uint_eq(tree_identity(t, a), a);
	ck_assert_uint_eq(tree_identity(t, c), a);
	ck_assert_uint_eq(tree_nlink(t, a), 2);
	ck_assert_uint_eq(tree_nlink(t, c), 2);
	tree_get(t, a, &first);
	tree_get(t, c, &link);
	ck_assert_uint_eq(first.group, 1);
	ck_assert_uint_eq(link.group, 1);
	ck_assert_ptr_eq(first.u.inline_data, link.u.inline_data);
	unit_ok(tree_resolve(t, "sym2", &c));
	tree_get(t, c, &link);
	ck_assert_str_eq(link.u.target, "d/in");
	ck_assert_uint_eq(link.group, 2);
	/* Directories: 2 and one for each subdirectory. */
	ck_assert_uint_eq(tree_nlink(t, 0), 4);
	unit_ok(tree_resolve(t, "d", &c));
	ck_assert_uint_eq(tree_nlink(t, c), 3);
	unit_ok(tree_resolve(t, "fifo", &c));
	ck_assert_uint_eq(tree_nlink(t, c), 1);
	buf_free(&some_xattrs);
}
END_TEST

START_TEST(the_callers_group_numbers_do_not_change_the_tree)
{
	cleanup_buf struct buf x = {0}, y = {0};
	struct tree_entry e[601];

	e[0] = make(0, "", TREE_DIR);
	for (int round = 0; round < 2; round++) {
		static char names[600][16];

		for (int i = 0; i < 600; i++) {
			uint64_t group = (uint64_t)(i % 300) + 1;

			snprintf(names[i], sizeof(names[i]), "%04d", i);
			e[i + 1] = with_group(make_inline(1, names[i], "x"),
					      round ? group << 40 | 5 : group);
		}
		encode(e, 601, 0, round ? &y : &x);
	}
	unit_same_bytes(x.data, x.len, y.data, y.len);
}
END_TEST

START_TEST(what_the_reader_gives_makes_the_same_tree_again)
{
	cleanup_buf struct buf b = {0}, again = {0};
	cleanup_tree_reader struct tree_reader *r = NULL;
	cleanup_tree_writer struct tree_writer *w = NULL;
	struct tree_entry e;

	make_all();
	encode(all, ALL_COUNT, TREE_ALLOW_LOCAL, &b);
	/* After bytes that are not its own. */
	buf_put(&again, "before", 6);
	unit_ok(tree_reader_new(b.data, b.len, TREE_ALLOW_LOCAL, &r));
	unit_ok(tree_writer_new(&again, TREE_ALLOW_LOCAL, &w));
	while (tree_reader_next(r, &e) == 1)
		unit_ok(tree_writer_add(w, &e));
	unit_ok(tree_writer_finish(w));
	unit_same_bytes(again.data + 6, again.len - 6, b.data, b.len);
	buf_free(&some_xattrs);
}
END_TEST

/* ---- names and directories */

START_TEST(directories_list_in_order_and_find_names)
{
	const struct tree_entry e[] = {make(0, "", TREE_DIR),	 make(1, "a", TREE_DIR),
				       make_inline(2, "x", "1"), make(1, "a-b", TREE_REGULAR),
				       make(1, "ab", TREE_DIR),	 make(2, "deep", TREE_DIR),
				       make(3, "x", TREE_FIFO),	 make(1, "b", TREE_REGULAR)};
	cleanup_buf struct buf b = {0};
	cleanup_tree struct tree *t = NULL;
	const uint32_t *ids;
	uint32_t count, id;

	encode(e, 8, 0, &b);
	t = decode(&b);
	ids = tree_children(t, 0, &count);
	ck_assert_uint_eq(count, 4);
	ck_assert_mem_eq(ids, ((uint32_t[]){1, 3, 4, 7}), 4 * sizeof(*ids));
	ck_assert_ptr_null(tree_children(t, 3, &count));
	ck_assert_uint_eq(count, 0);
	ck_assert_uint_eq(tree_lookup(t, 0, "ab", 2), 4);
	ck_assert_uint_eq(tree_lookup(t, 0, "abc", 2), 4);
	ck_assert_uint_eq(tree_lookup(t, 0, "a", 1), 1);
	ck_assert_uint_eq(tree_lookup(t, 0, "", 0), TREE_NONE);
	ck_assert_uint_eq(tree_lookup(t, 0, "aa", 2), TREE_NONE);
	ck_assert_uint_eq(tree_lookup(t, 0, "z", 1), TREE_NONE);
	ck_assert_uint_eq(tree_lookup(t, 1, "x", 1), 2);
	ck_assert_uint_eq(tree_lookup(t, 3, "x", 1), TREE_NONE);
	ck_assert_uint_eq(tree_parent(t, 0), 0);
	ck_assert_uint_eq(tree_parent(t, 6), 5);
	unit_ok(tree_resolve(t, "//ab/deep//x", &id));
	ck_assert_uint_eq(id, 6);
	unit_ok(tree_resolve(t, "/", &id));
	ck_assert_uint_eq(id, 0);
	unit_ok(tree_resolve(t, "a/", &id));
	unit_error(tree_resolve(t, "a/y", &id), -ENOENT);
	unit_error(tree_resolve(t, "b/y", &id), -ENOTDIR);
	unit_error(tree_resolve(t, "a/x/y", &id), -ENOTDIR);
	ck_assert_uint_eq(id, 1);
}
END_TEST

START_TEST(references_keep_the_tree)
{
	const struct tree_entry root = make(0, "", TREE_DIR);
	cleanup_buf struct buf b = {0};
	struct tree *t;
	size_t len;

	encode(&root, 1, 0, &b);
	t = decode(&b);
	ck_assert_ptr_eq(tree_ref(t), t);
	tree_unref(t);
	ck_assert_uint_eq(tree_count(t), 1);
	ck_assert_mem_eq(tree_data(t, &len), "EFT\1", 4);
	tree_unref(t);
	tree_unref(NULL);
}
END_TEST

START_TEST(a_large_tree_comes_back)
{
	enum { DIRS = 100, FILES = 1000 };
	cleanup_buf struct buf b = {0};
	cleanup_tree_writer struct tree_writer *w = NULL;
	cleanup_tree struct tree *t = NULL;
	struct tree_entry e = make(0, "", TREE_DIR);
	struct tree_counts counts;
	char name[32];
	uint32_t id = 0;

	unit_ok(tree_writer_new(&b, 0, &w));
	unit_ok(tree_writer_add(w, &e));
	for (int d = 0; d < DIRS; d++) {
		snprintf(name, sizeof(name), "dir-%03d", d);
		e = make(1, name, TREE_DIR);
		unit_ok(tree_writer_add(w, &e));
		for (int f = 0; f < FILES; f++) {
			snprintf(name, sizeof(name), "file-%05d", f);
			e = make_big(2, name, (uint64_t)f + 1, name);
			unit_ok(tree_writer_add(w, &e));
		}
	}
	unit_ok(tree_writer_finish(w));
	t = decode(&b);
	tree_get_counts(t, &counts);
	ck_assert_uint_eq(counts.directories, DIRS + 1);
	ck_assert_uint_eq(counts.files, DIRS * FILES);
	unit_ok(tree_resolve(t, "dir-042/file-00999", &id));
	ck_assert_uint_eq(id, 1 + 42 * (FILES + 1) + 1 + 999);
	tree_get(t, id, &e);
	ck_assert_uint_eq(e.size, 1000);
}
END_TEST

START_TEST(the_deepest_path_is_whole)
{
	cleanup_buf struct buf b = {0}, path = {0};
	cleanup_tree_writer struct tree_writer *w = NULL;
	cleanup_tree struct tree *t = NULL;
	cleanup_tree_reader struct tree_reader *r = NULL;
	struct tree_entry e = make(0, "", TREE_DIR);
	char name[TREE_NAME_MAX + 2];
	uint32_t id = 0;
	size_t len;
	const void *data;
	int got;

	memset(name, 'n', sizeof(name));
	name[TREE_NAME_MAX] = '\0';
	unit_ok(tree_writer_new(&b, 0, &w));
	unit_ok(tree_writer_add(w, &e));
	for (uint32_t depth = 1; depth <= TREE_DEPTH_MAX; depth++) {
		e = make(depth, name, TREE_DIR);
		unit_ok(tree_writer_add(w, &e));
	}
	e = make(TREE_DEPTH_MAX + 1, name, TREE_DIR);
	unit_error(tree_writer_add(w, &e), -EINVAL);
	e = make(1, "o", TREE_DIR);
	name[TREE_NAME_MAX] = 'n';
	name[TREE_NAME_MAX + 1] = '\0';
	e.name = name;
	e.name_len = TREE_NAME_MAX + 1;
	unit_error(tree_writer_add(w, &e), -EINVAL);
	unit_ok(tree_writer_finish(w));
	t = decode(&b);
	unit_ok(tree_path(t, TREE_DEPTH_MAX, &path));
	ck_assert_uint_eq(path.len, TREE_PATH_MAX - 1);
	unit_ok(tree_resolve(t, buf_str(&path), &id));
	ck_assert_uint_eq(id, TREE_DEPTH_MAX);
	data = tree_data(t, &len);
	unit_ok(tree_reader_new(data, len, 0, &r));
	while ((got = tree_reader_next(r, &e)) == 1)
		continue;
	ck_assert_int_eq(got, 0);
	ck_assert_str_eq(tree_reader_path(r), buf_str(&path));
}
END_TEST

/* ---- holes */

/* A release that knows no holes reads all trees that have none. */
START_TEST(a_tree_without_holes_is_what_it_always_was)
{
	struct tree_entry e[] = {make(0, "", TREE_DIR), make_big(1, "f", 7, "seed")};
	cleanup_buf struct buf without = {0}, with = {0};

	encode(e, 2, 0, &without);
	e[1].holes = 3;
	encode(e, 2, 0, &with);
	ck_assert_uint_eq(without.data[4], 0);
	ck_assert_uint_eq(with.data[4], 2);
	ck_assert_uint_eq(with.len, without.len + 1);
}
END_TEST

START_TEST(blocks_are_of_whole_pages_without_the_holes)
{
	ck_assert_uint_eq(tree_blocks(0, 0), 0);
	ck_assert_uint_eq(tree_blocks(1, 0), 8);
	ck_assert_uint_eq(tree_blocks(4096, 0), 8);
	ck_assert_uint_eq(tree_blocks(4097, 0), 16);
	ck_assert_uint_eq(tree_blocks(UINT64_C(1) << 40, UINT64_C(1) << 40), 0);
	ck_assert_uint_eq(tree_blocks(UINT64_C(1) << 40, (UINT64_C(1) << 40) - 1), 8);
	ck_assert_uint_eq(tree_blocks(INT64_MAX, 0), UINT64_C(1) << 54);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_tree");
	TCase *t = unit_case(s, "tree");

	tcase_add_test(t, the_stream_gives_what_was_written);
	tcase_add_test(t, the_index_gives_what_was_written);
	tcase_add_test(t, hard_links_are_one_file);
	tcase_add_test(t, the_callers_group_numbers_do_not_change_the_tree);
	tcase_add_test(t, what_the_reader_gives_makes_the_same_tree_again);
	tcase_add_test(t, directories_list_in_order_and_find_names);
	tcase_add_test(t, references_keep_the_tree);
	tcase_add_test(t, a_large_tree_comes_back);
	tcase_add_test(t, the_deepest_path_is_whole);
	t = unit_case(s, "holes");
	tcase_add_test(t, a_tree_without_holes_is_what_it_always_was);
	tcase_add_test(t, blocks_are_of_whole_pages_without_the_holes);
	return unit_run(s);
}
