/* SPDX-License-Identifier: Apache-2.0 */
/* Tables and footers of packs. */
#include "lib/format/pack.h"
#include "tests/unit/unit.h"

static struct hash hash_no(int i)
{
	struct hash h;

	hash_of(&i, sizeof(i), &h);
	return h;
}

/* A pack of `count` frames of made-up bytes, as an uploader makes it. */
static void make_pack(int count, struct buf *pack, struct pack_table *t)
{
	pack_begin(pack);
	for (int i = 0; i < count; i++) {
		struct hash h = hash_no(i);

		for (int k = 0; k < 20 + i; k++)
			buf_put_u8(pack, (uint8_t)k);
		unit_ok(pack_table_add(t, &h, (uint32_t)(20 + i), (uint32_t)(100 + i)));
	}
	unit_ok(pack_finish(t, pack));
}

static int decode(const uint8_t *pack, size_t len, struct pack_table *ret_table)
{
	struct pack_footer f;
	int error;

	if (len < PACK_FOOTER_LEN)
		return -EBADMSG;
	error = pack_footer_decode(pack + len - PACK_FOOTER_LEN, len, &f);
	return error ? error : pack_table_decode(&f, pack + f.table_offset, ret_table);
}

START_TEST(the_table_comes_back)
{
	cleanup_pack_table struct pack_table t = {0}, got = {0};
	cleanup_buf struct buf pack = {0};
	struct hash id, got_id;

	make_pack(200, &pack, &t);
	ck_assert_uint_eq(pack.len, pack_len(&t));
	unit_ok(pack_header_check(pack.data));
	unit_ok(decode(pack.data, pack.len, &got));
	ck_assert_uint_eq(got.count, 200);
	for (size_t i = 0; i < 200; i++) {
		ck_assert(hash_equal(&got.entries[i].hash, &t.entries[i].hash));
		ck_assert_uint_eq(got.entries[i].offset, t.entries[i].offset);
		ck_assert_uint_eq(got.entries[i].stored_len, 20 + i);
		ck_assert_uint_eq(got.entries[i].plain_len, 100 + i);
		/* The made-up frames begin with 0, 1, 2. */
		ck_assert_mem_eq(pack.data + got.entries[i].offset, "\0\1\2", 3);
	}
	unit_ok(pack_table_id(&t, &id));
	unit_ok(pack_table_id(&got, &got_id));
	ck_assert(hash_equal(&id, &got_id));
}
END_TEST

START_TEST(the_id_names_the_content)
{
	cleanup_pack_table struct pack_table a = {0}, b = {0};
	cleanup_buf struct buf x = {0}, y = {0};
	struct hash id_a, id_b;

	make_pack(2, &x, &a);
	make_pack(3, &y, &b);
	unit_ok(pack_table_id(&a, &id_a));
	unit_ok(pack_table_id(&b, &id_b));
	ck_assert(!hash_equal(&id_a, &id_b));
}
END_TEST

START_TEST(limits_are_kept_when_adding)
{
	cleanup_pack_table struct pack_table t = {0};
	cleanup_buf struct buf out = {0};
	struct hash h = hash_no(1);
	int error;

	unit_error(pack_finish(&t, &out), -EINVAL);
	unit_error(pack_table_add(&t, &h, 0, 1), -EINVAL);
	unit_error(pack_table_add(&t, &h, CHUNK_FRAME_MAX + 1, 1), -EINVAL);
	unit_error(pack_table_add(&t, &h, 1, 0), -EINVAL);
	unit_error(pack_table_add(&t, &h, 1, CHUNK_PLAIN_MAX + 1), -EINVAL);
	while ((error = pack_table_add(&t, &h, CHUNK_FRAME_MAX, 1)) == 0)
		ck_assert_uint_le(pack_len(&t), PACK_LEN_MAX);
	ck_assert_int_eq(error, -EFBIG);
	ck_assert_uint_gt(pack_len(&t) + PACK_ROW_LEN + CHUNK_FRAME_MAX, PACK_LEN_MAX);
}
END_TEST

START_TEST(any_changed_bit_of_rows_and_footer_is_noticed)
{
	cleanup_pack_table struct pack_table t = {0}, got = {0};
	cleanup_buf struct buf pack = {0};

	make_pack(3, &pack, &t);
	for (size_t i = t.end * 8; i < pack.len * 8; i++) {
		int error;

		pack.data[i / 8] ^= (uint8_t)(1u << i % 8);
		error = decode(pack.data, pack.len, &got);
		ck_assert_msg(error == -EBADMSG || error == -EPROTONOSUPPORT, "bit %zu: %d", i,
			      error);
		pack.data[i / 8] ^= (uint8_t)(1u << i % 8);
	}
}
END_TEST

START_TEST(a_footer_must_fit_the_length_of_the_pack)
{
	cleanup_pack_table struct pack_table t = {0};
	cleanup_buf struct buf pack = {0};
	struct pack_footer f;
	uint8_t *tail;

	make_pack(3, &pack, &t);
	tail = pack.data + pack.len - PACK_FOOTER_LEN;
	unit_ok(pack_footer_decode(tail, pack.len, &f));
	ck_assert_uint_eq(f.count, 3);
	ck_assert_uint_eq(f.table_offset, t.end);
	ck_assert_uint_eq(f.table_len, 3 * PACK_ROW_LEN);
	unit_error(pack_footer_decode(tail, pack.len - 1, &f), -EBADMSG);
	unit_error(pack_footer_decode(tail, pack.len + 1, &f), -EBADMSG);
	unit_error(pack_footer_decode(tail, 0, &f), -EBADMSG);
	unit_error(pack_footer_decode(tail, UINT64_MAX, &f), -EBADMSG);
	tail[20] = 2;
	unit_error(pack_footer_decode(tail, pack.len, &f), -EPROTONOSUPPORT);
}
END_TEST

/* Rows of the given lengths under a footer whose CRC is right. */
static int decode_rows(uint64_t table_offset, uint32_t stored, uint32_t plain, uint32_t count)
{
	cleanup_pack_table struct pack_table got = {0};
	cleanup_buf struct buf b = {0};
	struct pack_footer f;
	uint8_t row[PACK_ROW_LEN] = {0};

	for (uint32_t i = 0; i < count; i++) {
		buf_put(&b, row, HASH_SIZE);
		buf_put_u32(&b, stored);
		buf_put_u32(&b, plain);
	}
	buf_put_u64(&b, table_offset);
	buf_put_u32(&b, count);
	buf_put_u32(&b, crc32c(0, b.data, b.len));
	buf_put(&b, "EFPT\1\0\0", 8);
	unit_ok(buf_error(&b));
	if (pack_footer_decode(b.data + b.len - PACK_FOOTER_LEN, table_offset + b.len, &f) < 0)
		return -ENOENT;
	return pack_table_decode(&f, b.data, &got);
}

START_TEST(rows_must_fill_the_space_before_the_table)
{
	unit_ok(decode_rows(4 + 30, 10, 7, 3));
	unit_error(decode_rows(4 + 31, 10, 7, 3), -EBADMSG);
	unit_error(decode_rows(4 + 29, 10, 7, 3), -EBADMSG);
	unit_error(decode_rows(4 + 30, 0, 7, 3), -EBADMSG);
	unit_error(decode_rows(4 + 30, 10, 0, 3), -EBADMSG);
	unit_error(decode_rows(4 + 30, 10, CHUNK_PLAIN_MAX + 1, 3), -EBADMSG);
	unit_error(decode_rows(4 + 30, UINT32_MAX, 7, 3), -EBADMSG);
	/* Refused by the footer alone. */
	unit_error(decode_rows(4, 10, 7, 0), -ENOENT);
	unit_error(decode_rows(0, 10, 7, 3), -ENOENT);
	unit_error(decode_rows(UINT64_MAX - 100, 10, 7, 3), -ENOENT);
}
END_TEST

START_TEST(foreign_and_newer_packs_are_told_apart)
{
	unit_ok(pack_header_check((const uint8_t *)"EFP\1"));
	unit_error(pack_header_check((const uint8_t *)"EFP\2"), -EPROTONOSUPPORT);
	unit_error(pack_header_check((const uint8_t *)"EFP\0"), -EBADMSG);
	unit_error(pack_header_check((const uint8_t *)"PK\3\4"), -EBADMSG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_pack");
	TCase *t = unit_case(s, "pack");

	tcase_add_test(t, the_table_comes_back);
	tcase_add_test(t, the_id_names_the_content);
	tcase_add_test(t, limits_are_kept_when_adding);
	tcase_add_test(t, any_changed_bit_of_rows_and_footer_is_noticed);
	tcase_add_test(t, a_footer_must_fit_the_length_of_the_pack);
	tcase_add_test(t, rows_must_fill_the_space_before_the_table);
	tcase_add_test(t, foreign_and_newer_packs_are_told_apart);
	return unit_run(s);
}
