/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a garbage collection. */
#include "lib/format/gc_list.h"
#include "lib/format/names.h"
#include "lib/util/clock.h"
#include "tests/unit/unit.h"

#define HEX_A "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
#define HEX_B "ff112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"

static struct gc_item item(const char *hex, uint64_t index, uint64_t generation, int64_t since_ns)
{
	struct gc_item i = {.index = index, .generation = generation, .since_ns = since_ns};

	unit_ok(hash_from_hex(hex, &i.id));
	return i;
}

static struct gc_list usual(void)
{
	struct gc_list l = {.generation = 7,
			    .condemning = 6,
			    .run = "d4ac0c06-4ac8-41c2-bda5-26f85e46d2a9",
			    .host = "gpu07",
			    .published_ns = INT64_C(1700000000000000001)};
	const struct gc_item items[] = {item(HEX_A, 0, 6, 2 * NS_PER_S),
					item(HEX_B, 12, 6, 2 * NS_PER_S),
					item(HEX_B, 0, 0, 3 * NS_PER_S)};

	for (size_t i = 0; i < 3; i++)
		unit_ok(gc_list_add(&l, &items[i]));
	return l;
}

START_TEST(all_of_it_comes_back)
{
	cleanup_gc_list struct gc_list l = usual(), got = {0};
	cleanup_buf struct buf b = {0};

	unit_ok(gc_list_encode(&l, &b));
	ck_assert_ptr_nonnull(strstr(buf_str(&b), "\"00000000000000000012-" HEX_B "\""));
	unit_ok(gc_list_decode(b.data, b.len, &got));
	ck_assert_uint_eq(got.generation, 7);
	ck_assert_uint_eq(got.condemning, 6);
	ck_assert_int_eq(got.published_ns, l.published_ns);
	ck_assert_str_eq(got.run, l.run);
	ck_assert_str_eq(got.host, "gpu07");
	ck_assert_uint_eq(got.count, 3);
	for (size_t i = 0; i < 3; i++) {
		ck_assert(hash_equal(&got.items[i].id, &l.items[i].id));
		ck_assert_uint_eq(got.items[i].index, l.items[i].index);
		ck_assert_uint_eq(got.items[i].generation, l.items[i].generation);
		ck_assert_int_eq(got.items[i].since_ns, l.items[i].since_ns);
	}
}
END_TEST

START_TEST(an_empty_one_is_a_list)
{
	cleanup_gc_list struct gc_list l = usual(), got = {0};
	cleanup_buf struct buf b = {0};

	l.count = 0;
	unit_ok(gc_list_encode(&l, &b));
	unit_ok(gc_list_decode(b.data, b.len, &got));
	ck_assert_uint_eq(got.count, 0);
}
END_TEST

START_TEST(what_cannot_be_is_not_written)
{
	cleanup_buf struct buf b = {0};

	for (int i = 0; i < 6; i++) {
		cleanup_gc_list struct gc_list l = usual();

		l.generation = i == 0 ? 0 : i == 1 ? UINT64_MAX : l.generation;
		l.condemning = i == 2 ? 8 : i == 3 ? 5 : l.condemning;
		l.items[0].since_ns = i == 4 ? -1 : l.items[0].since_ns;
		l.run[0] = i == 5 ? 'x' : l.run[0];
		unit_error(gc_list_encode(&l, &b), -EINVAL);
	}
	ck_assert_uint_eq(b.len, 0);
}
END_TEST

/* The usual text with `from` replaced, which must be there. */
static int decode_with(const char *from, const char *to)
{
	cleanup_gc_list struct gc_list l = usual(), got = {.generation = 99};
	cleanup_buf struct buf b = {0}, changed = {0};
	const char *at;
	int error;

	unit_ok(gc_list_encode(&l, &b));
	at = strstr(buf_str(&b), from);
	ck_assert_msg(at != NULL, "%s", from);
	buf_put(&changed, buf_str(&b), (size_t)(at - buf_str(&b)));
	buf_printf(&changed, "%s%s", to, at + strlen(from));
	error = gc_list_decode(changed.data, changed.len, &got);
	ck_assert(!error || got.generation == 99);
	return error;
}

START_TEST(malformed_ones_are_refused)
{
	static const char *const cases[][2] = {
		{"\"generation\": 7", "\"generation\": 0"},
		{"\"generation\": 7", "\"generation\": 5"},
		{"\"generation\": 6", "\"generation\": 7"},
		{"\"condemning\": 6", "\"condemning\": 8"},
		{"\"condemning\"", "\"condemned\""},
		{"\"run\": \"d", "\"run\": \"D"},
		{"\"host\": \"gpu07\"", "\"host\": \"a\\u0000b\""},
		{"\"published\": \"2", "\"published\": \"x"},
		{"\"since\": \"1", "\"since\": \"x"},
		{"\"groups\"", "\"group\""},
		{"\"packs\": [", "\"packs\": [7, "},
		{"\"packs\"", "\"pack\""},
		{"\"" HEX_A, "\"../" HEX_A},
		{"\"" HEX_A, "\"A0" HEX_A},
		{"\"00000000000000000012-", "\"00000000000000000000-"},
		{"\"00000000000000000012-", "\"12-"},
		{"}", "}}"},
	};
	struct gc_list got;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		unit_error(decode_with(cases[i][0], cases[i][1]), -EBADMSG);
	unit_error(decode_with("\"format\": 1", "\"format\": 2"), -EPROTONOSUPPORT);
	unit_error(gc_list_decode("", 0, &got), -EBADMSG);
}
END_TEST

START_TEST(the_host_is_fit_for_a_terminal)
{
	cleanup_gc_list struct gc_list l = usual(), got = {0};
	cleanup_buf struct buf b = {0};

	strcpy(l.host, "a\033[2Jb\xff");
	unit_ok(gc_list_encode(&l, &b));
	unit_ok(gc_list_decode(b.data, b.len, &got));
	ck_assert_str_eq(got.host, "a?[2Jb???");
}
END_TEST

START_TEST(there_is_an_end_to_it)
{
	cleanup_gc_list struct gc_list l = usual();
	const struct gc_item one = l.items[0];
	int error = 0;

	while (!error)
		error = gc_list_add(&l, &one);
	unit_error(error, -EFBIG);
	ck_assert_uint_eq(l.count, GC_LIST_ITEMS_MAX);
}
END_TEST

START_TEST(keys_come_back_and_others_are_refused)
{
	static const char *const bad[] = {"gc/3.json", "gc/00000000000000000000.json",
					  "gc/00000000000000000003",
					  "lease/00000000000000000003.json", "gc/"};
	char key[KEY_MAX];
	uint64_t generation = 0;

	gc_key(INT64_MAX, key);
	ck_assert_str_eq(key, "gc/09223372036854775807.json");
	unit_ok(gc_key_parse(key, &generation));
	ck_assert_uint_eq(generation, INT64_MAX);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		unit_error(gc_key_parse(bad[i], &generation), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_gc_list");
	TCase *t = unit_case(s, "gc_list");

	tcase_add_test(t, all_of_it_comes_back);
	tcase_add_test(t, an_empty_one_is_a_list);
	tcase_add_test(t, what_cannot_be_is_not_written);
	tcase_add_test(t, malformed_ones_are_refused);
	tcase_add_test(t, the_host_is_fit_for_a_terminal);
	tcase_add_test(t, there_is_an_end_to_it);
	tcase_add_test(t, keys_come_back_and_others_are_refused);
	return unit_run(s);
}
