/* SPDX-License-Identifier: Apache-2.0 */
/* The lease's object. */
#include "lib/format/lease.h"
#include "lib/format/names.h"
#include "tests/unit/unit.h"

static struct lease_info usual(void)
{
	return (struct lease_info){
		.generation = 3,
		.holder = "d4ac0c06-4ac8-41c2-bda5-26f85e46d2a9",
		.boot_id = "02cbd938-16fb-4c85-a6c8-1e1b055a3515",
		.host = "gpu07",
		.node = "node7",
		.mountpoint = "/mnt/ckpt",
		.pid = 12,
		.pid_started = 34,
		.pid_namespace = 4026531836,
		.since_ns = INT64_C(1700000000000000001),
		.renewed = 17,
		.ttl_ns = 60 * NS_PER_S,
		.released = true,
		.pending = 2,
	};
}

START_TEST(all_of_it_comes_back)
{
	struct lease_info l = usual(), got = {0};
	cleanup_buf struct buf b = {0};

	unit_ok(lease_encode(&l, &b));
	ck_assert_ptr_nonnull(strstr(buf_str(&b), "\"since\": \"2023-11-14T22:13:20.000000001Z\""));
	ck_assert_ptr_nonnull(strstr(buf_str(&b), "\"ttl_ms\": 60000"));
	unit_ok(lease_decode(b.data, b.len, &got));
	ck_assert_mem_eq(&got, &l, sizeof(l));
}
END_TEST

START_TEST(long_names_are_cut_and_bad_bytes_replaced)
{
	struct lease_info l = usual(), got = {0};
	cleanup_buf struct buf b = {0};

	memset(l.mountpoint, 0xff, LEASE_PATH_MAX);
	strcpy(l.host, "a\033[2Jb\nc\xc2\x9b");
	unit_ok(lease_encode(&l, &b));
	unit_ok(lease_decode(b.data, b.len, &got));
	ck_assert_str_eq(got.host, "a?[2Jb?c??");
	ck_assert_uint_eq(strlen(got.mountpoint), LEASE_PATH_MAX / 3 * 3);
}
END_TEST

START_TEST(what_cannot_be_is_not_written)
{
	struct lease_info cases[] = {usual(), usual(), usual(), usual(), usual(), usual()};
	cleanup_buf struct buf b = {0};

	cases[0].generation = 0;
	cases[1].generation = UINT64_MAX;
	cases[2].ttl_ns = NS_PER_S - 1;
	cases[3].ttl_ns = LEASE_TTL_MAX_NS + 1;
	cases[4].holder[0] = '\0';
	cases[5].boot_id[3] = 'x';
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		unit_error(lease_encode(&cases[i], &b), -EINVAL);
	ck_assert_uint_eq(b.len, 0);
}
END_TEST

/* The usual text with `from` replaced, which must be there. */
static int decode_with(const char *from, const char *to)
{
	struct lease_info l = usual(), got = {.pid = 99};
	cleanup_buf struct buf b = {0}, changed = {0};
	const char *at;
	int error;

	unit_ok(lease_encode(&l, &b));
	at = strstr(buf_str(&b), from);
	ck_assert_msg(at != NULL, "%s", from);
	buf_put(&changed, buf_str(&b), (size_t)(at - buf_str(&b)));
	buf_printf(&changed, "%s%s", to, at + strlen(from));
	error = lease_decode(changed.data, changed.len, &got);
	ck_assert(!error || got.pid == 99);
	return error;
}

START_TEST(malformed_ones_are_refused)
{
	static const char *const cases[][2] = {
		{"\"generation\": 3", "\"generation\": 0"},
		{"\"generation\": 3", "\"generation\": -3"},
		{"\"generation\": 3", "\"generation\": \"3\""},
		{"\"ttl_ms\": 60000", "\"ttl_ms\": 999"},
		{"\"ttl_ms\": 60000", "\"ttl_ms\": 3600001"},
		{"\"released\": true", "\"released\": 1"},
		{"\"holder\": \"d", "\"holder\": \"D"},
		{"\"boot_id\"", "\"boot\""},
		{"\"since\": \"2", "\"since\": \"x"},
		{"\"host\": \"gpu07\"", "\"host\": 7"},
		{"\"host\": \"gpu07\"", "\"host\": \"a\\u0000b\""},
		{"\"pid\": 12", "\"pid\": 1.5"},
		{"}", "}}"},
	};
	struct lease_info got;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		unit_error(decode_with(cases[i][0], cases[i][1]), -EBADMSG);
	unit_error(decode_with("\"format\": 1", "\"format\": 2"), -EBADMSG);
	unit_error(decode_with("\"format\": 1", "\"format\": 3"), -EPROTONOSUPPORT);
	unit_error(lease_decode("", 0, &got), -EBADMSG);
	unit_ok(decode_with("\"format\": 1", "\"format\": 1, \"news\": []"));
}
END_TEST

START_TEST(keys_come_back_and_others_are_refused)
{
	static const char *const bad[] = {"lease/3.json",
					  "lease/00000000000000000000.json",
					  "lease/00000000000000000003",
					  "epochs/00000000000000000003.json",
					  "lease/99999999999999999999.json",
					  "lease/"};
	char key[KEY_MAX];
	uint64_t generation = 0;

	lease_key(INT64_MAX, key);
	ck_assert_str_eq(key, "lease/09223372036854775807.json");
	unit_ok(lease_key_parse(key, &generation));
	ck_assert_uint_eq(generation, INT64_MAX);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		unit_error(lease_key_parse(bad[i], &generation), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_lease");
	TCase *t = unit_case(s, "lease");

	tcase_add_test(t, all_of_it_comes_back);
	tcase_add_test(t, long_names_are_cut_and_bad_bytes_replaced);
	tcase_add_test(t, what_cannot_be_is_not_written);
	tcase_add_test(t, malformed_ones_are_refused);
	tcase_add_test(t, keys_come_back_and_others_are_refused);
	return unit_run(s);
}
