/* SPDX-License-Identifier: Apache-2.0 */
/* Trees that the writer does not make and the reader does not take. */
#include "tests/unit/tree_unit.h"

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
	Suite *s = suite_create("format_tree_refused");
	TCase *t = unit_case(s, "refused");

	tcase_add_test(t, the_writer_keeps_the_order);
	tcase_add_test(t, the_writer_refuses_bad_names);
	tcase_add_test(t, the_writer_refuses_bad_fields);
	tcase_add_test(t, the_reader_keeps_the_order);
	tcase_add_test(t, the_reader_refuses_bad_names);
	tcase_add_test(t, the_reader_refuses_bad_fields);
	tcase_add_test(t, the_reader_refuses_bad_groups);
	tcase_add_test(t, the_reader_checks_header_and_count);
	tcase_add_test(t, the_reader_refuses_bad_holes);
	tcase_add_test(t, any_changed_or_missing_byte_is_noticed);
	tcase_add_test(t, an_error_of_the_stream_stays);
	return unit_run(s);
}
