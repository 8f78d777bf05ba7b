/* SPDX-License-Identifier: Apache-2.0 */
/* Whole LevelDB databases are told from torn ones, byte by byte. */
#include "lib/util/hash.h"
#include "tests/unit/databases_unit.h"

static void remove_file(struct folder *f, const char *name)
{
	for (unsigned i = 0; i < f->count; i++)
		if (strcmp(f->file[i].name, name) == 0)
			f->file[i].name = "";
}

static void put_part(struct buf *b, uint8_t type, const void *data, size_t len)
{
	uint32_t crc = crc32c(crc32c(0, &type, 1), data, len);

	buf_put_u32(b, (crc >> 15 | crc << 17) + 0xa282ead8u);
	buf_put_u16(b, (uint16_t)len);
	buf_put_u8(b, type);
	buf_put(b, data, len);
}

static void put_record(struct buf *b, const struct buf *record)
{
	put_part(b, 1, record->data, record->len);
}

static void put_new_table(struct buf *b, unsigned level, uint64_t number, uint64_t size)
{
	buf_put_u8(b, 7);
	buf_put_varint(b, level);
	buf_put_varint(b, number);
	buf_put_varint(b, size);
	buf_put_bytes(b, "a\0\0\0\0\0\0\0\1", 9);
	buf_put_bytes(b, "z\0\0\0\0\0\0\0\1", 9);
}

static void put_old_table(struct buf *b, unsigned level, uint64_t number)
{
	buf_put_u8(b, 6);
	buf_put_varint(b, level);
	buf_put_varint(b, number);
}

/* What each manifest begins with. */
static void put_begin(struct buf *b, uint64_t log)
{
	buf_put_u8(b, 1);
	buf_put_bytes(b, "leveldb.BytewiseComparator", 26);
	buf_put_u8(b, 2);
	buf_put_varint(b, log);
	buf_put_u8(b, 9);
	buf_put_varint(b, 0);
	buf_put_u8(b, 3);
	buf_put_varint(b, log + 1);
	buf_put_u8(b, 4);
	buf_put_varint(b, 1000);
}

static void put_table(struct buf *b, size_t len)
{
	while (b->len < len - 8 && !buf_error(b))
		buf_put_u8(b, (uint8_t)b->len);
	buf_put_u64(b, 0xdb4775248b80fb57u);
}

/* Table 5 at level 0 was compacted to 8, at level 1; 7 is live at level 0, by the old name; the log is 9. */
static void make_leveldb(struct folder *f)
{
	cleanup_buf struct buf first = {0}, second = {0};
	struct buf *manifest;

	buf_put(add_file(f, "CURRENT"), "MANIFEST-000004\n", 16);
	add_file(f, "LOCK");
	manifest = add_file(f, "MANIFEST-000004");
	put_begin(&first, 6);
	put_new_table(&first, 0, 5, 1234);
	put_record(manifest, &first);
	buf_put_u8(&second, 2);
	buf_put_varint(&second, 9);
	buf_put_u8(&second, 5);
	buf_put_u8(&second, 0);
	buf_put_bytes(&second, "k", 1);
	put_old_table(&second, 0, 5);
	put_new_table(&second, 1, 8, 300);
	put_new_table(&second, 0, 7, 200);
	put_record(manifest, &second);
	put_table(add_file(f, "000008.ldb"), 300);
	put_table(add_file(f, "000007.sst"), 200);
	add_file(f, "000009.log");
	for (size_t i = 0; i < f->count; i++)
		unit_ok(buf_error(&f->file[i].data));
}

START_TEST(a_whole_leveldb)
{
	cleanup_folder struct folder f = {0};

	make_leveldb(&f);
	ck_assert_msg(check_folder(&f) == 0, "%s", f.told);
}
END_TEST

START_TEST(every_cut_of_a_manifest_is_torn)
{
	cleanup_folder struct folder f = {0};
	struct buf *manifest = &f.file[2].data;

	make_leveldb(&f);
	for (size_t len = manifest->len; len--;) {
		manifest->len = len;
		/* After its first record it is one of an older state, whose table is gone. */
		ck_assert_msg(check_folder(&f) == 1, "at %zu", len);
		ck_assert_msg(strncmp(f.told, "MANIFEST-000004: LevelDB: it", 28) == 0, "%s",
			      f.told);
	}
}
END_TEST

START_TEST(every_flipped_bit_of_a_manifest_is_found)
{
	cleanup_folder struct folder f = {0};
	struct buf *manifest = &f.file[2].data;

	make_leveldb(&f);
	for (size_t i = 0; i < manifest->len; i++) {
		manifest->data[i] ^= 0x10;
		ck_assert_msg(check_folder(&f) == 1, "at %zu", i);
		manifest->data[i] ^= 0x10;
	}
}
END_TEST

START_TEST(what_a_leveldb_lacks_is_named)
{
	static const struct {
		const char *name, *told;
	} cases[] = {
		{"MANIFEST-000004",
		 "CURRENT: LevelDB: it names MANIFEST-000004, which is not there"},
		{"000008.ldb", "MANIFEST-000004: LevelDB: it names 000008.ldb, which is not there"},
		{"000007.sst", "MANIFEST-000004: LevelDB: it names 000007.ldb, which is not there"},
		{"000009.log", "MANIFEST-000004: LevelDB: it names 000009.log, which is not there: "
			       "what was written last is lost"},
		{"LOCK", ""},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		cleanup_folder struct folder f = {0};

		make_leveldb(&f);
		remove_file(&f, cases[i].name);
		expect(&f, cases[i].told);
	}
}
END_TEST

START_TEST(several_missing_tables_are_one_problem)
{
	cleanup_folder struct folder f = {0};

	make_leveldb(&f);
	remove_file(&f, "000007.sst");
	remove_file(&f, "000008.ldb");
	ck_assert_uint_eq(check_folder(&f), 1);
	ck_assert_ptr_nonnull(strstr(f.told, " and 1 more that are not there"));
}
END_TEST

START_TEST(a_table_that_is_cut_or_ends_otherwise)
{
	cleanup_folder struct folder f = {0};
	struct buf *table = &f.file[3].data;

	make_leveldb(&f);
	table->data[299] ^= 1;
	expect(&f, "000008.ldb: LevelDB: it does not end as a table does");
	table->data[299] ^= 1;
	table->len--;
	expect(&f, "000008.ldb: LevelDB: it has 299 bytes, and its manifest says 300");
	table->len = 0;
	expect(&f, "000008.ldb: LevelDB: it has 0 bytes, and its manifest says 300");
}
END_TEST

START_TEST(current_names_something_else)
{
	static const char *const texts[] = {"", "MANIFEST-000004", "MANIFEST-\n", "../MANIFEST-1\n",
					    "MANIFEST-4x\n"};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++) {
		cleanup_folder struct folder f = {0};

		make_leveldb(&f);
		buf_reset(&f.file[0].data);
		buf_put(&f.file[0].data, texts[i], strlen(texts[i]));
		expect(&f, "CURRENT: LevelDB: it does not name a manifest");
		/* Many programs have such a file. */
		remove_file(&f, "LOCK");
		expect(&f, "");
	}
}
END_TEST

/* A record of 100,000 bytes: its parts in four blocks, with too little room for a header at the end of the first. */
START_TEST(a_record_over_several_blocks)
{
	cleanup_folder struct folder f = {0};
	cleanup_buf struct buf begin = {0}, big = {0};
	struct buf *manifest;
	size_t at = 0;

	buf_put(add_file(&f, "CURRENT"), "MANIFEST-1\n", 11);
	manifest = add_file(&f, "MANIFEST-1");
	put_begin(&begin, 0);
	buf_put_u8(&begin, 1);
	buf_put_varint(&begin, 32768 - 7 - 5 - begin.len - 3);
	while (begin.len < 32768 - 7 - 5 && !buf_error(&begin))
		buf_put_u8(&begin, 'x');
	put_record(manifest, &begin);
	ck_assert_uint_eq(manifest->len, 32763);
	buf_put(manifest, "\0\0\0\0\0", 5);
	for (unsigned i = 1; big.len < 100000 && !buf_error(&big); i++)
		put_new_table(&big, i % 7, i, 50);
	for (unsigned i = 2; i < 10000; i++)
		for (unsigned level = 0; level < 7; level++)
			put_old_table(&big, level, i);
	while (at < big.len) {
		size_t part = big.len - at < 32761 ? big.len - at : 32761;

		put_part(manifest, at == 0 ? 2 : at + part < big.len ? 3 : 4, big.data + at, part);
		at += part;
	}
	ck_assert_uint_gt(manifest->len, 4 * 32768);
	put_table(add_file(&f, "000001.ldb"), 50);
	expect(&f, "");
	for (size_t len = manifest->len - 1; len > 40000; len -= 7001) {
		manifest->len = len;
		expect(&f, "MANIFEST-1: LevelDB: its last record is cut off");
	}
	manifest->len = 2 * (size_t)32768;
	expect(&f, "MANIFEST-1: LevelDB: its last record is cut off");
}
END_TEST

START_TEST(parts_that_do_not_follow_one_another)
{
	static const uint8_t types[][2] = {{3, 4}, {4, 1}, {2, 1}, {2, 2}};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++) {
		cleanup_folder struct folder f = {0};

		make_leveldb(&f);
		put_part(&f.file[2].data, types[i][0], "", 0);
		put_part(&f.file[2].data, types[i][1], "", 0);
		ck_assert_uint_eq(check_folder(&f), 1);
		ck_assert_ptr_nonnull(strstr(f.told, "do not follow one another"));
	}
}
END_TEST

START_TEST(the_rest_of_a_block_that_was_never_written)
{
	cleanup_folder struct folder f = {0};

	make_leveldb(&f);
	while (f.file[2].data.len < 20000 && !buf_error(&f.file[2].data))
		buf_put_u8(&f.file[2].data, 0);
	expect(&f, "");
}
END_TEST

START_TEST(another_database_that_began_as_leveldb)
{
	static const struct {
		uint8_t type;
		const char *data;
		size_t len;
	} cases[] = {{1, "\x67\0\5\1", 4}, {1, "\xc8\1\0", 3}, {1, "\7\7\5\1\0\0", 6},
		     {1, "\7\0", 2},	   {5, "\1", 1},       {1, "\6\x7f\1", 3}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		cleanup_folder struct folder f = {0};

		make_leveldb(&f);
		remove_file(&f, "000008.ldb");
		put_part(&f.file[2].data, cases[i].type, cases[i].data, cases[i].len);
		ck_assert_msg(check_folder(&f) == 0, "%zu: %s", i, f.told);
	}
}
END_TEST

START_TEST(damage_that_is_told_elsewhere)
{
	cleanup_folder struct folder f = {0};
	const struct database_dir dir = {
		.find = folder_find, .read = folder_read, .problem = folder_problem, .arg = &f};

	make_leveldb(&f);
	f.read_error = -EBADMSG;
	expect(&f, "");
	f.read_error = -EHOSTUNREACH;
	unit_error(database_check_dir(&dir), -EHOSTUNREACH);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_leveldb");
	TCase *t = unit_case(s, "leveldb");

	tcase_add_test(t, a_whole_leveldb);
	tcase_add_test(t, every_cut_of_a_manifest_is_torn);
	tcase_add_test(t, every_flipped_bit_of_a_manifest_is_found);
	tcase_add_test(t, what_a_leveldb_lacks_is_named);
	tcase_add_test(t, several_missing_tables_are_one_problem);
	tcase_add_test(t, a_table_that_is_cut_or_ends_otherwise);
	tcase_add_test(t, current_names_something_else);
	tcase_add_test(t, a_record_over_several_blocks);
	tcase_add_test(t, parts_that_do_not_follow_one_another);
	tcase_add_test(t, the_rest_of_a_block_that_was_never_written);
	tcase_add_test(t, another_database_that_began_as_leveldb);
	tcase_add_test(t, damage_that_is_told_elsewhere);
	return unit_run(s);
}
