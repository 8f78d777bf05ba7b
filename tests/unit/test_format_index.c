/* SPDX-License-Identifier: Apache-2.0 */
/* Index objects. */
#include "lib/format/index.h"
#include "tests/unit/unit.h"

static struct hash hash_no(int i)
{
	struct hash h;

	hash_of(&i, sizeof(i), &h);
	return h;
}

static struct pack_entry entry(int no, uint32_t offset, uint32_t stored, uint32_t plain)
{
	return (struct pack_entry){hash_no(no), offset, stored, plain};
}

START_TEST(all_packs_and_chunks_come_back)
{
	const struct pack_entry first[] = {entry(1, 4, 10, 50), entry(2, 14, 20, 60)};
	const struct pack_entry second[] = {entry(3, 100, CHUNK_FRAME_MAX, CHUNK_PLAIN_MAX),
					    entry(4, PACK_LEN_MAX - 7, 7, 1)};
	struct index_pack packs[] = {{hash_no(11), first, 2}, {hash_no(12), second, 2}};
	cleanup_buf struct buf b = {0};
	struct index_reader r;
	struct pack_entry e;
	struct hash pack;
	int more, seen = 0;

	unit_ok(index_encode(packs, 2, &b));
	ck_assert_int_lt(hash_compare(&packs[0].id, &packs[1].id), 0);
	unit_ok(index_reader_init(&r, b.data, b.len));
	for (; (more = index_reader_next(&r, &pack, &e)) == 1; seen++) {
		const struct index_pack *p = &packs[seen / 2];

		ck_assert(hash_equal(&pack, &p->id));
		ck_assert(hash_equal(&e.hash, &p->entries[seen % 2].hash));
		ck_assert_uint_eq(e.offset, p->entries[seen % 2].offset);
		ck_assert_uint_eq(e.stored_len, p->entries[seen % 2].stored_len);
		ck_assert_uint_eq(e.plain_len, p->entries[seen % 2].plain_len);
	}
	ck_assert_int_eq(more, 0);
	ck_assert_int_eq(seen, 4);
	ck_assert_int_eq(index_reader_next(&r, &pack, &e), 0);
}
END_TEST

START_TEST(the_order_of_the_packs_does_not_matter)
{
	const struct pack_entry a[] = {entry(1, 4, 10, 50)}, c[] = {entry(2, 4, 10, 50)};
	struct index_pack one[] = {{hash_no(11), a, 1}, {hash_no(12), c, 1}};
	struct index_pack other[] = {{hash_no(12), c, 1}, {hash_no(11), a, 1}};
	cleanup_buf struct buf x = {0}, y = {0};

	unit_ok(index_encode(one, 2, &x));
	unit_ok(index_encode(other, 2, &y));
	unit_same_bytes(x.data, x.len, y.data, y.len);
}
END_TEST

START_TEST(an_empty_index_comes_back)
{
	cleanup_buf struct buf b = {0};
	struct index_reader r;
	struct pack_entry e;
	struct hash pack;

	unit_ok(index_encode(NULL, 0, &b));
	unit_ok(index_reader_init(&r, b.data, b.len));
	ck_assert_int_eq(index_reader_next(&r, &pack, &e), 0);
}
END_TEST

static void check_refused(const struct pack_entry *entries, size_t count)
{
	struct index_pack p = {hash_no(1), entries, count};
	cleanup_buf struct buf b = {0};

	buf_put(&b, "before", 6);
	unit_error(index_encode(&p, 1, &b), -EINVAL);
	unit_same_bytes(b.data, b.len, "before", 6);
}

START_TEST(what_cannot_be_is_not_written)
{
	struct index_pack twice[2] = {{.id = hash_no(1)}, {.id = hash_no(1)}};
	const struct pack_entry good = entry(1, 4, 10, 50);
	cleanup_buf struct buf b = {0};

	twice[0].entries = twice[1].entries = &good;
	twice[0].count = twice[1].count = 1;
	unit_error(index_encode(twice, 2, &b), -EINVAL);
	check_refused(NULL, 0);
	check_refused((struct pack_entry[]){entry(1, 3, 10, 50)}, 1);
	check_refused((struct pack_entry[]){entry(1, 4, 0, 50)}, 1);
	check_refused((struct pack_entry[]){entry(1, 4, 10, 0)}, 1);
	check_refused((struct pack_entry[]){entry(1, 4, CHUNK_FRAME_MAX + 1, 1)}, 1);
	check_refused((struct pack_entry[]){entry(1, 4, 1, CHUNK_PLAIN_MAX + 1)}, 1);
	check_refused((struct pack_entry[]){entry(1, PACK_LEN_MAX, 1, 1)}, 1);
	check_refused((struct pack_entry[]){entry(1, UINT32_MAX, 1, 1)}, 1);
	check_refused((struct pack_entry[]){entry(1, 4, 10, 50), entry(2, 13, 10, 50)}, 2);
}
END_TEST

/* Reads to the end: 0 or the error. */
static int read_all(const uint8_t *data, size_t len)
{
	struct index_reader r;
	struct pack_entry e;
	struct hash pack;
	int more = index_reader_init(&r, data, len);

	if (more)
		return more;
	while ((more = index_reader_next(&r, &pack, &e)) == 1)
		continue;
	/* An error stays. */
	if (more)
		ck_assert_int_eq(index_reader_next(&r, &pack, &e), more);
	return more;
}

START_TEST(any_changed_or_missing_byte_is_noticed)
{
	const struct pack_entry a[] = {entry(1, 4, 10, 50), entry(2, 14, 20, 60)};
	struct index_pack p = {hash_no(11), a, 2};
	cleanup_buf struct buf b = {0};

	unit_ok(index_encode(&p, 1, &b));
	unit_ok(read_all(b.data, b.len));
	for (size_t i = 0; i < b.len; i++) {
		int error;

		unit_error(read_all(b.data, i), -EBADMSG);
		b.data[i] ^= 0x40;
		error = read_all(b.data, b.len);
		ck_assert(error == -EBADMSG || error == -EPROTONOSUPPORT);
		b.data[i] ^= 0x40;
	}
}
END_TEST

struct raw_chunk {
	uint64_t gap, stored, plain;
};

/* One pack of one chunk, with a right CRC, and `more` bytes after it. */
static int read_raw(uint64_t packs, uint64_t chunks, struct raw_chunk c, size_t more)
{
	cleanup_buf struct buf b = {0};
	struct hash h = hash_no(5);

	buf_put(&b, "EFI\1", 4);
	buf_put_varint(&b, packs);
	buf_put(&b, h.bytes, HASH_SIZE);
	buf_put_varint(&b, chunks);
	buf_put(&b, h.bytes, HASH_SIZE);
	buf_put_varint(&b, c.gap);
	buf_put_varint(&b, c.stored);
	buf_put_varint(&b, c.plain);
	while (more--)
		buf_put_u8(&b, 0);
	buf_put_u32(&b, crc32c(0, b.data, b.len));
	return read_all(b.data, b.len);
}

START_TEST(each_broken_rule_is_malformed)
{
	const struct raw_chunk good = {0, 10, 50};

	unit_ok(read_raw(1, 1, good, 0));
	unit_error(read_raw(1, 1, good, 1), -EBADMSG);
	unit_error(read_raw(0, 1, good, 0), -EBADMSG);
	unit_error(read_raw(2, 1, good, 0), -EBADMSG);
	unit_error(read_raw(UINT64_MAX, 1, good, 0), -EBADMSG);
	unit_error(read_raw(1, 0, good, 0), -EBADMSG);
	unit_error(read_raw(1, 2, good, 0), -EBADMSG);
	unit_error(read_raw(1, UINT64_MAX, good, 0), -EBADMSG);
	unit_error(read_raw(1, 1, (struct raw_chunk){0, 0, 50}, 0), -EBADMSG);
	unit_error(read_raw(1, 1, (struct raw_chunk){0, 10, 0}, 0), -EBADMSG);
	unit_error(read_raw(1, 1, (struct raw_chunk){0, CHUNK_FRAME_MAX + 1, 50}, 0), -EBADMSG);
	unit_error(read_raw(1, 1, (struct raw_chunk){0, 10, CHUNK_PLAIN_MAX + 1}, 0), -EBADMSG);
	unit_ok(read_raw(1, 1, (struct raw_chunk){PACK_LEN_MAX - 14, 10, 50}, 0));
	unit_error(read_raw(1, 1, (struct raw_chunk){PACK_LEN_MAX - 13, 10, 50}, 0), -EBADMSG);
	unit_error(read_raw(1, 1, (struct raw_chunk){UINT64_MAX, 10, 50}, 0), -EBADMSG);
	/* The same pack twice: the bytes after the first chunk are a whole pack. */
	{
		cleanup_buf struct buf b = {0};
		struct hash h = hash_no(5);

		buf_put(&b, "EFI\1\2", 5);
		for (int i = 0; i < 2; i++) {
			buf_put(&b, h.bytes, HASH_SIZE);
			buf_put_u8(&b, 1);
			buf_put(&b, h.bytes, HASH_SIZE);
			buf_put(&b, "\0\12\62", 3);
		}
		buf_put_u32(&b, crc32c(0, b.data, b.len));
		unit_error(read_all(b.data, b.len), -EBADMSG);
	}
}
END_TEST

START_TEST(foreign_and_newer_objects_are_told_apart)
{
	unit_error(read_all((const uint8_t *)"EFI\2", 4), -EPROTONOSUPPORT);
	unit_error(read_all((const uint8_t *)"EFP\1\0\0\0\0\0", 9), -EBADMSG);
	/* The CRC of nothing at all lies inside the header. */
	unit_error(read_all((const uint8_t *)"\0\0\0\0", 4), -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_index");
	TCase *t = unit_case(s, "index");

	tcase_add_test(t, all_packs_and_chunks_come_back);
	tcase_add_test(t, the_order_of_the_packs_does_not_matter);
	tcase_add_test(t, an_empty_index_comes_back);
	tcase_add_test(t, what_cannot_be_is_not_written);
	tcase_add_test(t, any_changed_or_missing_byte_is_noticed);
	tcase_add_test(t, each_broken_rule_is_malformed);
	tcase_add_test(t, foreign_and_newer_objects_are_told_apart);
	return unit_run(s);
}
