/* SPDX-License-Identifier: Apache-2.0 */
/* Whole LMDB databases are told from torn ones, byte by byte. */
#include "tests/unit/databases_unit.h"

#define PAGE 512u

static ssize_t source_read(void *arg, void *data, size_t len, uint64_t offset)
{
	return read_buf(arg, data, len, offset);
}

static int check_lmdb(struct buf *b)
{
	const struct tail_source in = {.read = source_read, .arg = b};
	const char *why = NULL;
	int result = lmdb_check(&in, b->len, &why);

	ck_assert((why != NULL) == (result == 1));
	return result;
}

static void pad_to(struct buf *b, size_t len)
{
	while (b->len < len && !buf_error(b))
		buf_put_u8(b, 0);
	ck_assert_uint_eq(b->len, len);
}

static void put_page_header(struct buf *b, uint64_t number, unsigned flags, unsigned lower)
{
	buf_put_u64(b, number);
	buf_put_u16(b, 0);
	buf_put_u16(b, (uint16_t)flags);
	buf_put_u16(b, (uint16_t)lower);
	buf_put_u16(b, PAGE);
}

static void put_meta(struct buf *b, uint64_t number, uint64_t transaction, uint64_t last,
		     uint64_t free_root, uint64_t main_root)
{
	size_t at = b->len;

	put_page_header(b, number, 8, 0);
	buf_put_u32(b, 0xbeefc0de);
	buf_put_u32(b, 1);
	buf_put_u64(b, 0);
	buf_put_u64(b, 1 << 20);
	buf_put_u32(b, PAGE);
	pad_to(b, at + 16 + 24 + 40);
	buf_put_u64(b, free_root);
	pad_to(b, at + 16 + 24 + 88);
	buf_put_u64(b, main_root);
	buf_put_u64(b, last);
	buf_put_u64(b, transaction);
	pad_to(b, at + PAGE);
}

static void put_free_list(struct buf *b, const uint64_t *pages, size_t count)
{
	buf_put_u64(b, count);
	for (size_t i = 0; i < count; i++)
		buf_put_u64(b, pages[i]);
}

/* Free pages 7 and 4 in a node, 6 and 5 on page 3, and the main tree on page 2; the branch of free pages is 4, its leaf 5: six pages
 * in the file, and two that are free behind it. */
static void make_lmdb(struct buf *b)
{
	static const uint64_t here[] = {7, 1}, elsewhere[] = {6, 1};
	size_t at;

	put_meta(b, 0, 8, 5, UINT64_MAX, 2);
	put_meta(b, 1, 9, 7, 4, 2);
	put_page_header(b, 2, 2, 16);
	pad_to(b, 3 * (size_t)PAGE);
	put_page_header(b, 3, 4, 1);
	put_free_list(b, elsewhere, 2);
	pad_to(b, 4 * (size_t)PAGE);
	put_page_header(b, 4, 1, 18);
	buf_put_u16(b, 100);
	pad_to(b, 4 * (size_t)PAGE + 100);
	buf_put_u32(b, 5);
	buf_put_u32(b, 0);
	pad_to(b, 5 * (size_t)PAGE);
	at = b->len;
	put_page_header(b, 5, 2, 20);
	buf_put_u16(b, 100);
	buf_put_u16(b, 200);
	pad_to(b, at + 100);
	buf_put_u32(b, 24);
	buf_put_u16(b, 0);
	buf_put_u16(b, 8);
	buf_put_u64(b, 8);
	put_free_list(b, here, 2);
	pad_to(b, at + 200);
	buf_put_u32(b, 24);
	buf_put_u16(b, 1);
	buf_put_u16(b, 8);
	buf_put_u64(b, 9);
	buf_put_u64(b, 3);
	pad_to(b, at + PAGE);
	unit_ok(buf_error(b));
}

START_TEST(a_whole_lmdb)
{
	cleanup_buf struct buf b = {0}, fresh = {0};

	make_lmdb(&b);
	ck_assert_int_eq(check_lmdb(&b), 0);
	pad_to(&b, 8 * (size_t)PAGE);
	ck_assert_int_eq(check_lmdb(&b), 0);
	put_meta(&fresh, 0, 0, 1, UINT64_MAX, UINT64_MAX);
	put_meta(&fresh, 1, 0, 1, UINT64_MAX, UINT64_MAX);
	ck_assert_int_eq(check_lmdb(&fresh), 0);
}
END_TEST

START_TEST(every_cut_of_an_lmdb_is_torn)
{
	cleanup_buf struct buf b = {0};

	make_lmdb(&b);
	while (b.len-- > 152)
		ck_assert_msg(check_lmdb(&b) == 1, "at %zu", b.len);
}
END_TEST

static void expect_torn(size_t at, uint8_t value)
{
	cleanup_buf struct buf b = {0};

	make_lmdb(&b);
	ck_assert_uint_ne(b.data[at], value);
	b.data[at] = value;
	ck_assert_msg(check_lmdb(&b) == 1, "at %zu", at);
}

START_TEST(an_lmdb_that_is_damaged)
{
	expect_torn(40, 1);		   /* page sizes */
	expect_torn(41, 1);		   /* 256 */
	expect_torn(PAGE + 16, 0);	   /* the second's magic number */
	expect_torn(PAGE + 20, 2);	   /* version */
	expect_torn(PAGE + 10, 0);	   /* flags */
	expect_torn(PAGE + 41, 4);	   /* page size */
	expect_torn(PAGE + 136, 8);	   /* the last page: one more that is not free */
	expect_torn(PAGE + 136 + 7, 0xff); /* many */
	expect_torn(PAGE + 80, 6);	   /* roots behind the end */
	expect_torn(PAGE + 128, 7);
	expect_torn(PAGE + 128, 3); /* no tree */
	expect_torn(2 * PAGE, 9);   /* its number */
	expect_torn(4 * PAGE, 9);   /* the same of the free pages */
	expect_torn(4 * PAGE + 100, 6);
	expect_torn(4 * PAGE + 100, 4); /* a branch that is its own child */
	expect_torn(4 * PAGE + 12, 0);
	expect_torn(4 * PAGE + 13, 0xff);
	expect_torn(4 * PAGE + 16, 1);
	expect_torn(4 * PAGE + 17, 2);
	expect_torn(5 * PAGE + 10, 0);
	expect_torn(5 * PAGE + 100 + 16, 0xff); /* longer than its node */
	expect_torn(5 * PAGE + 100 + 24, 3);	/* other pages are free */
	expect_torn(5 * PAGE + 101, 2);		/* longer than its page */
	expect_torn(5 * PAGE + 200 + 16, 6);	/* behind the end */
	expect_torn(3 * PAGE + 17, 1);
	expect_torn(3 * PAGE + 24, 7);
}
END_TEST

START_TEST(what_is_no_lmdb)
{
	cleanup_buf struct buf b = {0};

	ck_assert_int_eq(check_lmdb(&b), 0);
	make_lmdb(&b);
	b.data[20] = 2; /* a version to come */
	b.len = 2 * (size_t)PAGE;
	ck_assert_int_eq(check_lmdb(&b), 0);
	b.data[20] = 1;
	ck_assert_int_eq(check_lmdb(&b), 1);
	b.data[16] = 0;
	ck_assert_int_eq(check_lmdb(&b), 0);
}
END_TEST

START_TEST(an_lmdb_by_its_name)
{
	cleanup_folder struct folder f = {0};
	struct buf *data = add_file(&f, "data.mdb");

	make_lmdb(data);
	data->data[16] = 0;
	expect(&f, "");
	add_file(&f, "lock.mdb");
	expect(&f, "data.mdb: torn: LMDB's first meta page is missing or damaged");
	data->len = 0;
	expect(&f, "data.mdb: torn: LMDB's first meta page is missing or damaged");
	/* of a 32-bit machine of the other byte order */
	buf_reset(data);
	buf_put(data, "\0\0\0\0\0\0\0\x08\0\0\0\0\xbe\xef\xc0\xde\0\0\0\1", 20);
	expect(&f, "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_lmdb");
	TCase *t = unit_case(s, "lmdb");

	tcase_add_test(t, a_whole_lmdb);
	tcase_add_test(t, every_cut_of_an_lmdb_is_torn);
	tcase_add_test(t, an_lmdb_that_is_damaged);
	tcase_add_test(t, what_is_no_lmdb);
	tcase_add_test(t, an_lmdb_by_its_name);
	return unit_run(s);
}
