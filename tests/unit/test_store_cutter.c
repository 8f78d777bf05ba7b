/* SPDX-License-Identifier: Apache-2.0 */
/* The cutter: cuts by content, zeros and holes, sources. */
#include "lib/store/cutter.h"

#include "tests/unit/cutting.h"

/* ---- by content */

START_TEST(content_is_cut_between_words)
{
	cleanup_buf struct buf b = {0};
	cleanup_free struct piece *p = NULL;
	size_t count;

	put_random(&b, 32 * MIB, 1);
	count = cut(&b, false, &p);
	for (size_t i = 0; i < count; i++) {
		ck_assert_uint_eq(p[i].segment.offset % 8, 0);
		if (i + 1 < count)
			ck_assert_uint_ge(p[i].segment.len, CUTTER_CHUNK_MIN);
	}
	/* 256 KiB on average. */
	ck_assert_uint_gt(count, 100);
	ck_assert_uint_lt(count, 160);
}
END_TEST

START_TEST(an_insertion_moves_only_the_cuts_near_it)
{
	cleanup_buf struct buf a = {0};
	cleanup_buf struct buf b = {0};

	put_random(&a, 16 * MIB, 2);
	buf_put(&b, a.data, 5 * MIB);
	put_random(&b, 4096 + 8, 3);
	buf_put(&b, a.data + 5 * MIB, 11 * MIB);
	ck_assert_uint_le(bytes_new(&a, &b), 2 * MIB);
	/* The removal of the same. */
	ck_assert_uint_le(bytes_new(&b, &a), 2 * MIB);
}
END_TEST

START_TEST(what_is_appended_leaves_the_start_alone)
{
	cleanup_buf struct buf a = {0};
	cleanup_buf struct buf b = {0};

	put_random(&a, 8 * MIB, 4);
	buf_put(&b, a.data, a.len);
	put_random(&b, 10, 5);
	ck_assert_uint_le(bytes_new(&a, &b), CUTTER_CHUNK_MAX + 10);
	b.data[4 * MIB] ^= 1;
	ck_assert_uint_le(bytes_new(&a, &b), 4 * MIB);
}
END_TEST

START_TEST(short_content_is_one_segment)
{
	static const size_t lens[] = {1, 7, 8, 100, 4096, 65535, 65536, 65543};

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		cleanup_buf struct buf b = {0};
		cleanup_free struct piece *p = NULL;

		put_random(&b, lens[i], lens[i]);
		ck_assert_uint_eq(cut(&b, false, &p), 1);
	}
}
END_TEST

START_TEST(nothing_has_no_segment)
{
	struct buf b = {0};
	cleanup_free struct piece *p = NULL;

	ck_assert_uint_eq(cut(&b, false, &p), 0);
}
END_TEST

START_TEST(one_word_over_and_over_is_cut_at_the_limits)
{
	cleanup_buf struct buf b = {0};
	cleanup_free struct piece *p = NULL;
	size_t count;

	for (size_t i = 0; i < MIB; i++)
		buf_put_u64(&b, UINT64_C(0x3f8000003f800000));
	count = cut(&b, false, &p);
	for (size_t i = 0; i + 1 < count; i++)
		ck_assert_uint_eq(p[i].segment.len, p[0].segment.len);
}
END_TEST

/* ---- zeros */

START_TEST(a_long_run_of_zeros_is_a_segment)
{
	cleanup_buf struct buf b = {0};
	cleanup_free struct piece *p = NULL;
	size_t count;

	put_random(&b, 100003, 1);
	b.data[100002] = 1;
	put_zeros(&b, 2 * MIB);
	buf_put_u8(&b, 1);
	put_random(&b, 100000, 2);
	count = cut(&b, false, &p);
	/* From the first whole word of zeros to the last. */
	ck_assert_uint_eq(count, 3);
	ck_assert_int_eq(p[1].segment.kind, SEGMENT_ZERO);
	ck_assert_uint_eq(p[1].segment.offset, 100008);
	ck_assert_uint_eq(p[1].segment.len, 2 * MIB - 8);
}
END_TEST

START_TEST(a_short_run_of_zeros_is_data)
{
	for (size_t less = 0; less < 2; less++) {
		cleanup_buf struct buf b = {0};
		cleanup_free struct piece *p = NULL;
		size_t count;

		buf_put_u64(&b, UINT64_MAX);
		put_zeros(&b, CUTTER_ZERO_MIN - 8 * less);
		buf_put_u64(&b, UINT64_MAX);
		count = cut(&b, false, &p);
		ck_assert_int_eq(kind_at(p, count, 8), less ? -1 : (int)SEGMENT_ZERO);
		for (size_t i = 0; less && i < count; i++)
			ck_assert_int_eq(p[i].segment.kind, SEGMENT_DATA);
	}
}
END_TEST

START_TEST(zeros_alone_are_one_segment)
{
	static const size_t lens[] = {CUTTER_ZERO_MIN, CUTTER_ZERO_MIN + 3, 20 * MIB + 5};

	for (size_t i = 0; i < sizeof(lens) / sizeof(lens[0]); i++) {
		for (int holes = 0; holes < 2; holes++) {
			cleanup_buf struct buf b = {0};
			cleanup_free struct piece *p = NULL;

			put_zeros(&b, lens[i]);
			ck_assert_uint_eq(cut(&b, holes, &p), 1);
			ck_assert_int_eq(p[0].segment.kind, SEGMENT_ZERO);
		}
	}
}
END_TEST

/* A TiB of hole with one byte in it. */
#define LONELY ((UINT64_C(1) << 39) + 12345)

static ssize_t lonely_pread(void *arg, void *data, size_t len, uint64_t offset)
{
	++*(unsigned *)arg;
	memset(data, 0, len);
	if (LONELY >= offset && LONELY < offset + len)
		((uint8_t *)data)[LONELY - offset] = 1;
	return (ssize_t)len;
}

static uint64_t lonely_next_data(void *arg, uint64_t offset)
{
	(void)arg;
	if (offset <= (LONELY & ~UINT64_C(4095)))
		return LONELY & ~UINT64_C(4095);
	return offset < (LONELY | 4095) ? offset : UINT64_MAX;
}

START_TEST(a_hole_of_any_length_costs_nothing)
{
	unsigned reads = 0;
	struct cutter_source source = {.size = UINT64_C(1) << 40,
				       .pread = lonely_pread,
				       .next_data = lonely_next_data,
				       .arg = &reads};
	cleanup_cutter struct cutter *c = NULL;
	struct segment s;

	unit_ok(cutter_open(&source, &c));
	ck_assert_int_eq(cutter_next(c, &s), 1);
	ck_assert_int_eq(s.kind, SEGMENT_ZERO);
	ck_assert_uint_eq(s.len, LONELY & ~UINT64_C(7));
	ck_assert_int_eq(cutter_next(c, &s), 1);
	ck_assert_int_eq(s.kind, SEGMENT_DATA);
	ck_assert_uint_eq(s.len, 8);
	ck_assert_int_eq(cutter_next(c, &s), 1);
	ck_assert_int_eq(s.kind, SEGMENT_ZERO);
	ck_assert_uint_eq(s.offset + s.len, UINT64_C(1) << 40);
	ck_assert_int_eq(cutter_next(c, &s), 0);
	ck_assert_int_eq(cutter_next(c, &s), 0);
	ck_assert_uint_lt(reads, 10);
}
END_TEST

/* ---- files, and errors */

START_TEST(a_sparse_file_is_cut_as_its_content)
{
	cleanup_free char *dir = unit_dir();
	cleanup_free char *path = unit_path(dir, "sparse");
	cleanup_close int fd = open(path, O_RDWR | O_CREAT, 0600);
	struct cutter_file file = {.fd = fd};
	cleanup_buf struct buf b = {0};
	cleanup_cutter struct cutter *c = NULL;
	cleanup_free struct piece *p = NULL;
	cleanup_free struct piece *want = NULL;
	size_t count;

	put_random(&b, 300000, 1);
	put_zeros(&b, 9 * MIB);
	put_random(&b, 5 * MIB, 2);
	put_zeros(&b, MIB);
	unit_ok(io_pwrite_full(fd, b.data, 300000, 0));
	unit_ok(io_pwrite_full(fd, b.data + 300000 + 9 * MIB, 5 * MIB, 300000 + 9 * MIB));
	unit_ok(ftruncate(fd, (off_t)b.len));
	file.size = b.len;
	unit_ok(cutter_open_file(&file, &c));
	count = collect(c, &b, &p);
	ck_assert_uint_eq(cut(&b, false, &want), count);
	for (size_t i = 0; i < count; i++)
		ck_assert_uint_eq(p[i].segment.offset, want[i].segment.offset);
}
END_TEST

static bool count_reads(void *arg)
{
	++*(int *)arg;
	return false;
}

/* Once a page of it lies in the page cache, the kernel no longer says of preallocated space that it is none. */
START_TEST(preallocated_space_is_not_read)
{
	cleanup_free char *dir = unit_dir();
	cleanup_free char *path = unit_path(dir, "preallocated");
	cleanup_close int fd = open(path, O_RDWR | O_CREAT, 0600);
	int reads = 0;
	struct cutter_file file = {
		.fd = fd, .size = 128 * MIB + 1, .stopped = count_reads, .arg = &reads};
	cleanup_cutter struct cutter *c = NULL;
	uint64_t zeros = 0;
	struct segment s;

	if (fallocate(fd, 0, 0, 128 * MIB) < 0 || lseek(fd, 0, SEEK_DATA) >= 0)
		unit_skip("this file system does not preallocate, or takes that for data");
	unit_ok(io_pwrite_full(fd, "begin", 5, 0));
	unit_ok(io_pwrite_full(fd, "x", 1, 128 * MIB));
	unit_ok(fsync(fd));
	unit_ok(cutter_open_file(&file, &c));
	while (cutter_next(c, &s) == 1)
		zeros += s.kind == SEGMENT_ZERO ? s.len : 0;
	ck_assert_uint_gt(zeros, 127 * MIB);
	ck_assert_int_lt(reads, 16); /* all of it takes 32 */
}
END_TEST

static bool stop_at_the_third(void *arg)
{
	return ++*(int *)arg >= 3;
}

START_TEST(cutting_ends_when_it_is_told_to)
{
	cleanup_free char *dir = unit_dir();
	cleanup_free char *path = unit_path(dir, "zeros");
	cleanup_close int fd = open(path, O_RDWR | O_CREAT, 0600);
	int reads = 0;
	struct cutter_file file = {
		.fd = fd, .size = 32 * MIB, .stopped = stop_at_the_third, .arg = &reads};
	cleanup_cutter struct cutter *c = NULL;
	cleanup_buf struct buf b = {0};
	struct segment s;

	/* One run of zeros, which are there: one segment. */
	put_zeros(&b, 32 * MIB);
	unit_ok(io_pwrite_full(fd, b.data, b.len, 0));
	unit_ok(cutter_open_file(&file, &c));
	unit_error(cutter_next(c, &s), -ECANCELED);
	ck_assert_int_eq(reads, 3);
}
END_TEST

START_TEST(a_file_shorter_than_said_is_an_error)
{
	cleanup_free char *dir = unit_dir();
	cleanup_free char *path = unit_path(dir, "short");
	cleanup_close int fd = open(path, O_RDWR | O_CREAT, 0600);
	struct cutter_file file = {.fd = fd, .size = 6};
	struct cutter *c = NULL;
	int r;

	unit_ok(io_pwrite_full(fd, "short", 5, 0));
	unit_error(cutter_open_file(&file, &c), -ENODATA);
	ck_assert_ptr_null(c);
	/* It ends in a hole. */
	unit_ok(ftruncate(fd, 20 * MIB));
	file.size = 20 * MIB + 1;
	unit_ok(cutter_open_file(&file, &c));
	for (struct segment s; (r = cutter_next(c, &s)) == 1;)
		;
	unit_error(r, -ENODATA);
	cutter_close(c);
}
END_TEST

static ssize_t failing_pread(void *arg, void *data, size_t len, uint64_t offset)
{
	uint64_t *limit = arg;

	if (offset + len > *limit)
		return -EIO;
	memset(data, 'x', len);
	return (ssize_t)len;
}

START_TEST(an_error_of_the_source_is_passed_on)
{
	uint64_t limit = 5 * MIB;
	struct cutter_source source = {.size = 20 * MIB, .pread = failing_pread, .arg = &limit};
	cleanup_cutter struct cutter *c = NULL;
	struct segment s;
	int r;

	unit_ok(cutter_open(&source, &c));
	while ((r = cutter_next(c, &s)) == 1)
		ck_assert_uint_le(s.offset + s.len, limit);
	ck_assert_int_eq(r, -EIO);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_cutter");
	TCase *t;

	t = unit_case(s, "content");
	tcase_add_test(t, content_is_cut_between_words);
	tcase_add_test(t, an_insertion_moves_only_the_cuts_near_it);
	tcase_add_test(t, what_is_appended_leaves_the_start_alone);
	tcase_add_test(t, short_content_is_one_segment);
	tcase_add_test(t, nothing_has_no_segment);
	tcase_add_test(t, one_word_over_and_over_is_cut_at_the_limits);
	t = unit_case(s, "zeros");
	tcase_add_test(t, a_long_run_of_zeros_is_a_segment);
	tcase_add_test(t, a_short_run_of_zeros_is_data);
	tcase_add_test(t, zeros_alone_are_one_segment);
	tcase_add_test(t, a_hole_of_any_length_costs_nothing);
	t = unit_case(s, "sources");
	tcase_add_test(t, a_sparse_file_is_cut_as_its_content);
	tcase_add_test(t, preallocated_space_is_not_read);
	tcase_add_test(t, cutting_ends_when_it_is_told_to);
	tcase_add_test(t, a_file_shorter_than_said_is_an_error);
	tcase_add_test(t, an_error_of_the_source_is_passed_on);
	return unit_run(s);
}
