/* SPDX-License-Identifier: Apache-2.0 */
/* Object keys, tag names, the content of tags. */
#include "lib/format/names.h"
#include "tests/unit/unit.h"

#define HEX64 "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static struct hash the_hash(void)
{
	struct hash h;

	unit_ok(hash_from_hex(HEX64, &h));
	return h;
}

START_TEST(epoch_keys_come_back)
{
	char key[KEY_MAX];
	uint64_t number = 0;

	epoch_key(42, key);
	ck_assert_str_eq(key, "epochs/00000000000000000042.json");
	unit_ok(epoch_key_parse(key, &number));
	ck_assert_uint_eq(number, 42);
	epoch_key(INT64_MAX, key);
	ck_assert_str_eq(key, "epochs/09223372036854775807.json");
	unit_ok(epoch_key_parse(key, &number));
	ck_assert_uint_eq(number, INT64_MAX);
}
END_TEST

START_TEST(foreign_epoch_keys_are_refused)
{
	static const char *const bad[] = {
		"",
		"epochs/",
		"epochs/42.json",
		"epochs/00000000000000000000.json",
		"epochs/0000000000000000004x.json",
		"epochs/-0000000000000000042.json",
		"epochs/+0000000000000000042.json",
		"epochs/000000000000000000042.json",
		"epochs/09223372036854775808.json",
		"epochs/99999999999999999999.json",
		"epochs/00000000000000000042.json~",
		"epochs/00000000000000000042",
		"epoch/00000000000000000042.json",
		"/epochs/00000000000000000042.json",
	};
	uint64_t number = 7;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		unit_error(epoch_key_parse(bad[i], &number), -EINVAL);
	ck_assert_uint_eq(number, 7);
}
END_TEST

START_TEST(pack_keys_come_back)
{
	struct hash h = the_hash(), got;
	char key[KEY_MAX];

	pack_key(&h, key);
	ck_assert_str_eq(key, "packs/00/" HEX64);
	unit_ok(pack_key_parse(key, &got));
	ck_assert(hash_equal(&h, &got));
	unit_error(pack_key_parse("packs/01/" HEX64, &got), -EINVAL);
	unit_error(pack_key_parse("packs/" HEX64, &got), -EINVAL);
	unit_error(pack_key_parse("packs/00/" HEX64 "0", &got), -EINVAL);
	unit_error(pack_key_parse("packs/00/00", &got), -EINVAL);
	unit_error(pack_key_parse("packs/0", &got), -EINVAL);
	unit_error(pack_key_parse("packs/", &got), -EINVAL);
	unit_error(pack_key_parse("pack", &got), -EINVAL);
}
END_TEST

START_TEST(index_keys_come_back)
{
	struct hash h = the_hash(), got;
	char key[KEY_MAX];
	uint64_t epoch = 0;

	index_key(7, &h, key);
	ck_assert_str_eq(key, "index/00000000000000000007-" HEX64);
	unit_ok(index_key_parse(key, &epoch, &got));
	ck_assert_uint_eq(epoch, 7);
	ck_assert(hash_equal(&h, &got));
	epoch = 1;
	unit_error(index_key_parse("index/00000000000000000000-" HEX64, &epoch, &got), -EINVAL);
	unit_error(index_key_parse("index/00000000000000000007" HEX64, &epoch, &got), -EINVAL);
	unit_error(index_key_parse("index/00000000000000000007-" HEX64 "\n", &epoch, &got),
		   -EINVAL);
	unit_error(index_key_parse("index/7-" HEX64, &epoch, &got), -EINVAL);
	ck_assert_uint_eq(epoch, 1);
}
END_TEST

START_TEST(summary_keys_come_back)
{
	char key[KEY_MAX];
	uint64_t last = 0;

	summary_key(100, key);
	ck_assert_str_eq(key, "summaries/00000000000000000100.json");
	unit_ok(summary_key_parse(key, &last));
	ck_assert_uint_eq(last, 100);
	unit_error(summary_key_parse("summaries/00000000000000000000.json", &last), -EINVAL);
	unit_error(summary_key_parse("summaries/100.json", &last), -EINVAL);
	unit_error(summary_key_parse("epochs/00000000000000000100.json", &last), -EINVAL);
}
END_TEST

START_TEST(tag_names_are_checked)
{
	static const char *const good[] = {"best",    "v1.0",	"42a", "a b",	 "a_b",
					   "latest2", "Latest", "-",   "step=5", "\xc3\xa9\xff\n"};
	static const char *const bad[] = {"",  ".",  "..",     ".hidden", ".control", "a/b",
					  "/", "42", "000042", "latest",  "current",  "torn"};
	char key[KEY_MAX], found[TAG_NAME_MAX + 1];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert_msg(tag_name_valid(good[i]), "%s", good[i]);
		unit_ok(tag_key(good[i], key));
		unit_ok(tag_key_parse(key, found));
		ck_assert_str_eq(found, good[i]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert_msg(!tag_name_valid(bad[i]), "%s", bad[i]);
		unit_error(tag_key(bad[i], key), -EINVAL);
		snprintf(key, sizeof(key), "tags/%s", bad[i]);
		unit_error(tag_key_parse(key, found), -EINVAL);
	}
}
END_TEST

START_TEST(long_tag_names_must_fit_one_component_of_a_key)
{
	char name[TAG_NAME_MAX + 2], key[KEY_MAX], found[TAG_NAME_MAX + 1];

	memset(name, 'n', sizeof(name));
	name[TAG_NAME_MAX + 1] = '\0';
	unit_error(tag_key(name, key), -EINVAL);
	name[TAG_NAME_MAX] = '\0';
	unit_ok(tag_key(name, key));
	ck_assert_uint_eq(strlen(key), 5 + TAG_NAME_MAX);
	unit_ok(tag_key_parse(key, found));
	ck_assert_str_eq(found, name);
	name[0] = ' '; /* three bytes in the key */
	unit_error(tag_key(name, key), -EINVAL);
	name[TAG_NAME_MAX - 2] = '\0';
	unit_ok(tag_key(name, key));
	ck_assert_uint_eq(strlen(key), 5 + TAG_NAME_MAX);
}
END_TEST

START_TEST(a_tag_has_one_key)
{
	static const char *const bad[] = {
		"best",	     "tags/",	      "tags/a b",   "tags/a_",	      "tags/a_2",
		"tags/a_2F", "tags/a_2fb",    "tags/a_00b", "tags/_2ehidden", "tags/_62est",
		"tags/a_zz", "tags/\xc3\xa9", "tags/a/b",   "tags/4_32",      "tags/best\n"};
	char key[KEY_MAX], found[TAG_NAME_MAX + 1] = "untouched";

	unit_ok(tag_key("a b_\xc3\xa9.x-1", key));
	ck_assert_str_eq(key, "tags/a_20b_5f_c3_a9.x-1");
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		unit_error(tag_key_parse(bad[i], found), -EINVAL);
	ck_assert_str_eq(found, "untouched");
}
END_TEST

START_TEST(tags_hold_a_number)
{
	static const char *const bad[] = {"",
					  "\n",
					  "0",
					  "0\n",
					  "042\n",
					  "-1\n",
					  "4 2",
					  "42 ",
					  "42\n\n",
					  "forty",
					  "9223372036854775808",
					  "11111111111111111111111111"};
	char text[TAG_TEXT_MAX];
	uint64_t number = 0;

	tag_text(INT64_MAX, text);
	ck_assert_str_eq(text, "9223372036854775807\n");
	unit_ok(tag_text_parse(text, strlen(text), &number));
	ck_assert_uint_eq(number, INT64_MAX);
	unit_ok(tag_text_parse("42", 2, &number));
	ck_assert_uint_eq(number, 42);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		unit_error(tag_text_parse(bad[i], strlen(bad[i]), &number), -EBADMSG);
	unit_error(tag_text_parse("42\0\n", 4, &number), -EBADMSG);
	unit_error(tag_text_parse("42\0", 3, &number), -EBADMSG);
	ck_assert_uint_eq(number, 42);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_names");
	TCase *t = unit_case(s, "names");

	tcase_add_test(t, epoch_keys_come_back);
	tcase_add_test(t, foreign_epoch_keys_are_refused);
	tcase_add_test(t, pack_keys_come_back);
	tcase_add_test(t, index_keys_come_back);
	tcase_add_test(t, summary_keys_come_back);
	tcase_add_test(t, tag_names_are_checked);
	tcase_add_test(t, long_tag_names_must_fit_one_component_of_a_key);
	tcase_add_test(t, a_tag_has_one_key);
	tcase_add_test(t, tags_hold_a_number);
	return unit_run(s);
}
