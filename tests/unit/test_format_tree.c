/* SPDX-License-Identifier: Apache-2.0 */
/* Trees: writer, reader, and the index in memory. */
#include "lib/format/tree.h"
#include "lib/format/tree_diff.h"
#include "lib/format/xattrs.h"
#include "tests/unit/unit.h"

static struct tree_entry make(uint32_t depth, const char *name, enum tree_type type)
{
	return (struct tree_entry){
		.depth = depth,
		.name = name,
		.name_len = strlen(name),
		.type = type,
		.mode = type == TREE_DIR ? 0755 : 0640,
		.uid = 1000,
		.gid = 100,
		.mtime_ns = INT64_C(1700000000123456789),
	};
}

static struct tree_entry make_symlink(uint32_t depth, const char *name, const char *target)
{
	struct tree_entry e = make(depth, name, TREE_SYMLINK);

	e.u.target = target;
	e.size = strlen(target);
	return e;
}

static struct tree_entry make_inline(uint32_t depth, const char *name, const char *text)
{
	struct tree_entry e = make(depth, name, TREE_REGULAR);

	e.content = TREE_INLINE;
	e.u.inline_data = text;
	e.size = strlen(text);
	return e;
}

static struct tree_entry make_big(uint32_t depth, const char *name, uint64_t size, const char *seed)
{
	struct tree_entry e = make(depth, name, TREE_REGULAR);

	e.content = TREE_RECIPE;
	e.size = size;
	hash_of(seed, strlen(seed), &e.u.recipe);
	return e;
}

static struct tree_entry with_group(struct tree_entry e, uint64_t group)
{
	e.group = group;
	return e;
}

static void encode(const struct tree_entry *entries, size_t count, unsigned int flags,
		   struct buf *out)
{
	cleanup_tree_writer struct tree_writer *w = NULL;

	unit_ok(tree_writer_new(out, flags, &w));
	for (size_t i = 0; i < count; i++)
		unit_ok(tree_writer_add(w, &entries[i]));
	unit_ok(tree_writer_finish(w));
}

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

static struct buf some_xattrs;
static struct tree_entry all[16];
static const char *const all_paths[] = {"",	"blk",	 "chr",	       "d",    "d/e",
					"d/in", "d/sub", "d/sub/link", "fifo", "m.pt",
					"sock", "sym",	 "sym2",       "v",    "\xff\xfe"};
#define ALL_COUNT (sizeof(all_paths) / sizeof(all_paths[0]))

static void make_all(void)
{
	size_t n = 0;

	unit_ok(xattrs_set(&some_xattrs, "user.key", "value", 5));
	all[n] = make(0, "", TREE_DIR);
	all[n].mode = 07777;
	all[n].xattrs = some_xattrs.data;
	all[n++].xattrs_len = some_xattrs.len;
	all[n] = make(1, "blk", TREE_BLOCK);
	all[n].rdev_major = 8;
	all[n++].rdev_minor = UINT32_MAX;
	all[n] = make(1, "chr", TREE_CHAR);
	all[n++].rdev_major = UINT32_MAX;
	all[n++] = make(1, "d", TREE_DIR);
	all[n++] = make(2, "e", TREE_REGULAR);
	all[n] = with_group(make_inline(2, "in", "abc"), 99);
	all[n].xattrs = some_xattrs.data;
	all[n++].xattrs_len = some_xattrs.len;
	all[n++] = make(2, "sub", TREE_DIR);
	all[n] = all[5];
	all[n].depth = 3;
	all[n].name = "link";
	all[n++].name_len = 4;
	all[n++] = make(1, "fifo", TREE_FIFO);
	all[n] = make_big(1, "m.pt", INT64_MAX, "seed");
	all[n].holes = INT64_MAX - 5;
	all[n].mtime_ns = -1;
	all[n].uid = UINT32_MAX;
	all[n].gid = UINT32_MAX;
	all[n++].flags = TREE_TORN | TREE_LOG;
	all[n++] = make(1, "sock", TREE_SOCKET);
	all[n++] = with_group(make_symlink(1, "sym", "d/in"), 7);
	all[n++] = with_group(make_symlink(1, "sym2", "d/in"), 7);
	all[n] = make(1, "v", TREE_REGULAR);
	all[n].content = TREE_LOCAL;
	all[n].size = 5;
	all[n++].u.version = UINT64_MAX;
	all[n++] = make(1, "\xff\xfe", TREE_DIR);
	ck_assert_uint_eq(n, ALL_COUNT);
}

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
	while (tree_reader_next(r, &e) == 1)
		continue;
	ck_assert_str_eq(tree_reader_path(r), buf_str(&path));
}
END_TEST

/* ---- what the writer refuses */

/* The entries before the last are right; the last is refused, and the tree is as if it had not come. */
static void check_refused(const struct tree_entry *entries, size_t count)
{
	cleanup_buf struct buf b = {0}, without = {0};
	cleanup_tree_writer struct tree_writer *w = NULL;

	unit_ok(tree_writer_new(&b, 0, &w));
	for (size_t i = 0; i + 1 < count; i++)
		unit_ok(tree_writer_add(w, &entries[i]));
	unit_error(tree_writer_add(w, &entries[count - 1]), -EINVAL);
	if (count == 1) {
		unit_error(tree_writer_finish(w), -EINVAL);
		return;
	}
	unit_ok(tree_writer_finish(w));
	encode(entries, count - 1, 0, &without);
	unit_same_bytes(b.data, b.len, without.data, without.len);
}

#define CHECK_REFUSED(...)                                                                         \
	check_refused((struct tree_entry[]){__VA_ARGS__},                                          \
		      sizeof((struct tree_entry[]){__VA_ARGS__}) / sizeof(struct tree_entry))

START_TEST(the_writer_keeps_the_order)
{
	const struct tree_entry root = make(0, "", TREE_DIR), dir = make(1, "d", TREE_DIR),
				file = make_inline(1, "f", "x");

	CHECK_REFUSED(dir);
	CHECK_REFUSED(make(0, "", TREE_REGULAR));
	CHECK_REFUSED(make(0, "name", TREE_DIR));
	CHECK_REFUSED(root, root);
	CHECK_REFUSED(root, make(2, "f", TREE_REGULAR));
	CHECK_REFUSED(root, file, make(2, "g", TREE_REGULAR));
	CHECK_REFUSED(root, file, file);
	CHECK_REFUSED(root, file, dir);
	CHECK_REFUSED(root, dir, make(2, "z", TREE_REGULAR), make(2, "y", TREE_REGULAR));
	CHECK_REFUSED(root, dir, make(2, "z", TREE_DIR), make(1, "c", TREE_REGULAR));
	CHECK_REFUSED(root, make(1, "ab", TREE_REGULAR), make(1, "a", TREE_REGULAR));
	CHECK_REFUSED(root, make(1, "\xff", TREE_REGULAR), make(1, "z", TREE_REGULAR));
}
END_TEST

START_TEST(the_writer_refuses_bad_names)
{
	const struct tree_entry root = make(0, "", TREE_DIR);
	struct tree_entry nul = make(1, "a", TREE_REGULAR);

	nul.name = "a\0b";
	nul.name_len = 3;
	CHECK_REFUSED(root, nul);
	CHECK_REFUSED(root, make(1, "", TREE_REGULAR));
	CHECK_REFUSED(root, make(1, ".", TREE_REGULAR));
	CHECK_REFUSED(root, make(1, "..", TREE_REGULAR));
	CHECK_REFUSED(root, make(1, "a/b", TREE_REGULAR));
	unit_ok(tree_name_check("...", 3));
	unit_ok(tree_name_check(".a", 2));
	unit_ok(tree_name_check("\n\xff", 2));
}
END_TEST

static struct tree_entry changed(struct tree_entry e, size_t offset, size_t size, uint64_t value)
{
	memcpy((char *)&e + offset, &value, size);
	return e;
}

#define WITH(e, field, value)                                                                      \
	changed(e, offsetof(struct tree_entry, field), sizeof((e).field), value)

START_TEST(the_writer_refuses_bad_fields)
{
	static char large[TREE_INLINE_MAX + 1], target[TREE_TARGET_MAX + 2];
	const struct tree_entry root = make(0, "", TREE_DIR), big = make_big(1, "f", 5, ""),
				file = make(1, "f", TREE_REGULAR), link = make_symlink(1, "f", "t");
	struct tree_entry e = make_inline(1, "f", "x");

	e.u.inline_data = large;
	e.size = sizeof(large);
	CHECK_REFUSED(root, e);
	e.size = 0;
	CHECK_REFUSED(root, e);
	memset(target, 't', sizeof(target) - 1);
	e = make_symlink(1, "f", target);
	CHECK_REFUSED(root, e);
	CHECK_REFUSED(root, make_symlink(1, "f", ""));
	CHECK_REFUSED(root, WITH(big, size, 0));
	CHECK_REFUSED(root, WITH(big, size, (uint64_t)INT64_MAX + 1));
	CHECK_REFUSED(root, WITH(big, content, TREE_LOCAL));
	CHECK_REFUSED(root, WITH(big, content, 4));
	CHECK_REFUSED(root, WITH(big, flags, 1));
	CHECK_REFUSED(root, WITH(big, mode, 010000));
	CHECK_REFUSED(root, WITH(big, holes, 6));
	CHECK_REFUSED(root, WITH(make_inline(1, "f", "x"), holes, 1));
	CHECK_REFUSED(root, WITH(make(1, "f", TREE_FIFO), holes, 1));
	CHECK_REFUSED(root, WITH(file, size, 1));
	CHECK_REFUSED(root, WITH(file, type, 0));
	CHECK_REFUSED(root, WITH(file, type, 8));
	CHECK_REFUSED(root, WITH(link, flags, TREE_TORN));
	CHECK_REFUSED(root, WITH(link, content, TREE_RECIPE));
	CHECK_REFUSED(root, with_group(make(1, "d", TREE_DIR), 5));
	CHECK_REFUSED(root, with_group(file, 5), with_group(make_symlink(1, "g", "t"), 5));
	e = file;
	e.xattrs = "\1b\0\0\1a\0\0";
	e.xattrs_len = 8;
	CHECK_REFUSED(root, e);
}
END_TEST

/* ---- what the reader refuses */

struct raw {
	uint8_t type;
	uint64_t depth;
	const char *name;
	size_t name_len;
	const char *rest;
	size_t rest_len;
};

/* Bits, mode, uid, gid, mtime. */
#define BODY "\0\0\0\0\0\0\0\0\0\0\0\0"
#define RAW(type, depth, name, rest)                                                               \
	(struct raw)                                                                               \
	{                                                                                          \
		type, depth, name, sizeof(name) - 1, rest, sizeof(rest) - 1                        \
	}

/* A tree of a root and these entries, with a right CRC: what decoding gives. */
static int decode_raw(uint8_t version, uint8_t flags, uint32_t count, const struct raw *raw,
		      size_t n)
{
	cleanup_buf struct buf b = {0};
	struct tree *t = NULL;
	size_t len;
	void *data;
	int error;

	buf_put(&b, "EFT", 3);
	buf_put_u8(&b, version);
	buf_put_u8(&b, flags);
	buf_put(&b, "\1\0\0\0" BODY, 4 + sizeof(BODY) - 1);
	for (size_t i = 0; i < n; i++) {
		buf_put_u8(&b, raw[i].type);
		buf_put_varint(&b, raw[i].depth);
		buf_put_bytes(&b, raw[i].name, raw[i].name_len);
		buf_put(&b, "", 1);
		buf_put(&b, raw[i].rest, raw[i].rest_len);
	}
	buf_put_u8(&b, 0);
	buf_put_u32(&b, count);
	buf_put_u32(&b, crc32c(0, b.data, b.len));
	data = buf_steal(&b, &len);
	error = tree_decode(data, len, 0, &t);
	if (error)
		free(data);
	tree_unref(t);
	return error;
}

#define CHECK_RAW(want, ...)                                                                       \
	do {                                                                                       \
		const struct raw raw_[] = {__VA_ARGS__};                                           \
		size_t n_ = sizeof(raw_) / sizeof(raw_[0]);                                        \
		unit_error(decode_raw(1, 0, (uint32_t)n_ + 1, raw_, n_), want);                    \
	} while (0)

START_TEST(the_reader_keeps_the_order)
{
	const struct raw dir = RAW(1, 1, "d", BODY), file = RAW(2, 1, "f", BODY "\0");

	CHECK_RAW(0, dir, file);
	CHECK_RAW(0, dir, RAW(2, 2, "z", BODY "\0"), file);
	CHECK_RAW(-EBADMSG, file, dir);
	CHECK_RAW(-EBADMSG, file, file);
	CHECK_RAW(-EBADMSG, RAW(1, 0, "", BODY));
	CHECK_RAW(-EBADMSG, file, RAW(2, 2, "g", BODY "\0"));
	CHECK_RAW(-EBADMSG, dir, RAW(2, 3, "g", BODY "\0"));
	CHECK_RAW(-EBADMSG, dir, RAW(2, UINT64_MAX, "g", BODY "\0"));
}
END_TEST

START_TEST(the_reader_refuses_bad_names)
{
	CHECK_RAW(-EBADMSG, RAW(2, 1, "", BODY "\0"));
	CHECK_RAW(-EBADMSG, RAW(2, 1, ".", BODY "\0"));
	CHECK_RAW(-EBADMSG, RAW(2, 1, "..", BODY "\0"));
	CHECK_RAW(-EBADMSG, RAW(2, 1, "a/b", BODY "\0"));
	CHECK_RAW(-EBADMSG, RAW(2, 1, "/", BODY "\0"));
	CHECK_RAW(-EBADMSG, RAW(2, 1, "a\0b", BODY "\0"));
	CHECK_RAW(0, RAW(2, 1, "...", BODY "\0"));
}
END_TEST

START_TEST(the_reader_refuses_bad_fields)
{
	CHECK_RAW(-EBADMSG, RAW(0, 1, "f", BODY "\0"));
	CHECK_RAW(-EBADMSG, RAW(9, 1, "f", BODY "\0"));
	CHECK_RAW(-EBADMSG, RAW(2, 1, "f", BODY "\4"));
	CHECK_RAW(-EBADMSG, RAW(2, 1, "f", BODY "\1\0"));
	CHECK_RAW(0, RAW(2, 1, "f", BODY "\1\1x"));
	CHECK_RAW(-EBADMSG, RAW(2, 1, "f", BODY "\1\2x"));
	CHECK_RAW(-EBADMSG, RAW(2, 1, "f", BODY "\1\x81\0x"));
	CHECK_RAW(-EBADMSG, RAW(2, 1, "f", BODY "\2\0abcdefghabcdefghabcdefghabcdefgh"));
	CHECK_RAW(0, RAW(2, 1, "f", BODY "\2\1abcdefghabcdefghabcdefghabcdefgh"));
	CHECK_RAW(-EBADMSG, RAW(2, 1, "f", BODY "\2\1abcdefghabcdefghabcdefghabcdefg"));
	/* A version of this machine, in a tree that does not say so. */
	CHECK_RAW(-EBADMSG, RAW(2, 1, "f", BODY "\3\1\1"));
	CHECK_RAW(0, RAW(3, 1, "f", BODY "\1t\0"));
	CHECK_RAW(-EBADMSG, RAW(3, 1, "f", BODY "\0\0"));
	CHECK_RAW(-EBADMSG, RAW(3, 1, "f", BODY "\2t\0\0"));
	/* Unknown bits; torn directories; mode, uid. */
	CHECK_RAW(-EBADMSG, RAW(1, 1, "f", "\x10\0\0\0\0\0\0\0\0\0\0\0"));
	CHECK_RAW(-EBADMSG, RAW(1, 1, "f", "\4\0\0\0\0\0\0\0\0\0\0\0"));
	CHECK_RAW(-EBADMSG, RAW(1, 1, "f", "\0\x80\x20\0\0\0\0\0\0\0\0\0\0"));
	CHECK_RAW(-EBADMSG, RAW(1, 1, "f", "\0\0\x80\x80\x80\x80\x10\0\0\0\0\0\0\0\0\0"));
	/* Xattrs: announced and empty, malformed. */
	CHECK_RAW(-EBADMSG, RAW(1, 1, "f", "\2\0\0\0\0\0\0\0\0\0\0\0\0"));
	CHECK_RAW(0, RAW(1, 1, "f", "\2\0\0\0\0\0\0\0\0\0\0\0\4\1a\0\0"));
	CHECK_RAW(-EBADMSG, RAW(1, 1, "f", "\2\0\0\0\0\0\0\0\0\0\0\0\4\1a\1\0"));
}
END_TEST

START_TEST(the_reader_refuses_bad_groups)
{
	const struct raw first = RAW(2, 1, "f", "\1\0\0\0\0\0\0\0\0\0\0\0\1\0");

	CHECK_RAW(0, first);
	CHECK_RAW(0, first, RAW(8, 1, "g", "\1"));
	CHECK_RAW(-EBADMSG, first, RAW(8, 1, "g", "\0"));
	CHECK_RAW(-EBADMSG, first, RAW(8, 1, "g", "\2"));
	CHECK_RAW(-EBADMSG, RAW(8, 1, "e", "\1"), first);
	CHECK_RAW(-EBADMSG, RAW(2, 1, "f", "\1\0\0\0\0\0\0\0\0\0\0\0\2\0"));
	CHECK_RAW(-EBADMSG, RAW(2, 1, "f", "\1\0\0\0\0\0\0\0\0\0\0\0\0\0"));
	CHECK_RAW(-EBADMSG, first, RAW(2, 1, "g", "\1\0\0\0\0\0\0\0\0\0\0\0\1\0"));
	/* A directory in a group; something below a link. */
	CHECK_RAW(-EBADMSG, RAW(1, 1, "d", "\1\0\0\0\0\0\0\0\0\0\0\0\1"));
	CHECK_RAW(-EBADMSG, first, RAW(8, 1, "g", "\1"), RAW(1, 2, "h", BODY));
}
END_TEST

START_TEST(the_reader_checks_header_and_count)
{
	const struct raw file = RAW(2, 1, "f", BODY "\0");

	unit_ok(decode_raw(1, 0, 2, &file, 1));
	unit_error(decode_raw(1, 0, 1, &file, 1), -EBADMSG);
	unit_error(decode_raw(1, 0, 3, &file, 1), -EBADMSG);
	unit_error(decode_raw(1, 0, 0, &file, 1), -EBADMSG);
	unit_error(decode_raw(1, 0, UINT32_MAX, &file, 1), -EBADMSG);
	unit_error(decode_raw(2, 0, 2, &file, 1), -EPROTONOSUPPORT);
	unit_error(decode_raw(0, 0, 2, &file, 1), -EBADMSG);
	unit_error(decode_raw(1, 4, 2, &file, 1), -EPROTONOSUPPORT);
	/* A tree of this machine, where a remote one is expected. */
	unit_error(decode_raw(1, TREE_ALLOW_LOCAL, 2, &file, 1), -EBADMSG);
}
END_TEST

#define RECIPE "abcdefghabcdefghabcdefghabcdefgh"
#define HOLED  "\x10\0\0\0\0\0\0\0\0\0\0\0"

START_TEST(the_reader_refuses_bad_holes)
{
	const struct raw dense = RAW(2, 1, "a", BODY "\2\7" RECIPE);
	const struct raw some = RAW(2, 1, "f", HOLED "\2\7" RECIPE "\3");
	const struct raw bad[] = {
		RAW(2, 1, "f", HOLED "\2\7" RECIPE "\0"),
		RAW(2, 1, "f", HOLED "\2\7" RECIPE "\x08"),
		RAW(2, 1, "f", HOLED "\2\7" RECIPE "\xff\xff\xff\xff\xff\xff\xff\xff\xff\1"),
		RAW(2, 1, "f", HOLED "\2\7" RECIPE),
		RAW(2, 1, "f", HOLED "\1\1x\1"),
		RAW(2, 1, "f", HOLED "\0\0"),
		RAW(1, 1, "f", HOLED "\1"),
		RAW(3, 1, "f", HOLED "\1t\0\1"),
	};
	const struct raw all_of_it = RAW(2, 1, "f", HOLED "\2\7" RECIPE "\7");

	unit_ok(decode_raw(1, 2, 2, &some, 1));
	unit_ok(decode_raw(1, 2, 3, (const struct raw[]){dense, some}, 2));
	unit_ok(decode_raw(1, 2, 2, &all_of_it, 1));
	/* The header says just what is so. */
	unit_error(decode_raw(1, 0, 2, &some, 1), -EBADMSG);
	unit_error(decode_raw(1, 2, 2, &dense, 1), -EBADMSG);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		unit_error(decode_raw(1, 2, 2, &bad[i], 1), -EBADMSG);
}
END_TEST

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

START_TEST(any_changed_or_missing_byte_is_noticed)
{
	cleanup_buf struct buf b = {0};
	struct tree *t = NULL;

	make_all();
	encode(all, ALL_COUNT, TREE_ALLOW_LOCAL, &b);
	for (size_t i = 0; i < b.len; i++) {
		int error;

		unit_error(tree_decode(b.data, i, TREE_ALLOW_LOCAL, &t), -EBADMSG);
		b.data[i] ^= 0x20;
		error = tree_decode(b.data, b.len, TREE_ALLOW_LOCAL, &t);
		ck_assert(error == -EBADMSG || error == -EPROTONOSUPPORT);
		b.data[i] ^= 0x20;
	}
	ck_assert_ptr_null(t);
	unit_error(tree_decode(b.data, b.len, 0, &t), -EBADMSG);
	buf_free(&some_xattrs);
}
END_TEST

START_TEST(an_error_of_the_stream_stays)
{
	static const uint8_t bad[] = "EFT\1\0\1\0\0\0" BODY "\2\1\1/\0" BODY "\0\0\2\0\0";
	cleanup_buf struct buf b = {0};
	cleanup_tree_reader struct tree_reader *r = NULL;
	struct tree_entry e;

	buf_put(&b, bad, sizeof(bad)); /* its NUL is the last byte of the count */
	buf_put_u32(&b, crc32c(0, b.data, b.len));
	unit_ok(tree_reader_new(b.data, b.len, 0, &r));
	ck_assert_int_eq(tree_reader_next(r, &e), 1);
	ck_assert_int_eq(tree_reader_next(r, &e), -EBADMSG);
	ck_assert_int_eq(tree_reader_next(r, &e), -EBADMSG);
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
	t = unit_case(s, "refused");
	tcase_add_test(t, the_writer_keeps_the_order);
	tcase_add_test(t, the_writer_refuses_bad_names);
	tcase_add_test(t, the_writer_refuses_bad_fields);
	tcase_add_test(t, the_reader_keeps_the_order);
	tcase_add_test(t, the_reader_refuses_bad_names);
	tcase_add_test(t, the_reader_refuses_bad_fields);
	tcase_add_test(t, the_reader_refuses_bad_groups);
	tcase_add_test(t, the_reader_checks_header_and_count);
	tcase_add_test(t, the_reader_refuses_bad_holes);
	tcase_add_test(t, a_tree_without_holes_is_what_it_always_was);
	tcase_add_test(t, blocks_are_of_whole_pages_without_the_holes);
	tcase_add_test(t, any_changed_or_missing_byte_is_noticed);
	tcase_add_test(t, an_error_of_the_stream_stays);
	return unit_run(s);
}
