/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, CRC-32C, hex and random ids, by published vectors. */
#include "lib/util/hash.h"

#include "lib/util/cleanup.h"
#include "tests/unit/unit.h"

/* FIPS 180-4 examples (NIST "SHA256.pdf") and the digest of nothing. */
static const struct {
	const char *text;
	const char *hex;
} sha256[] = {
	{"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
	{"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
	{"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
	 "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
};

START_TEST(sha256_of_the_published_examples)
{
	struct hash h;
	char hex[HASH_HEX];

	hash_of(sha256[_i].text, strlen(sha256[_i].text), &h);
	hash_to_hex(&h, hex);
	ck_assert_str_eq(hex, sha256[_i].hex);
}
END_TEST

START_TEST(sha256_of_a_million_a)
{
	cleanup_free char *a = malloc(1000000);
	struct hash h;
	char hex[HASH_HEX];

	ck_assert_ptr_nonnull(a);
	memset(a, 'a', 1000000);
	hash_of(a, 1000000, &h);
	hash_to_hex(&h, hex);
	ck_assert_str_eq(hex, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
END_TEST

static void check_many(const struct hash_job *jobs, size_t count)
{
	struct hash alone;

	hash_of_many(jobs, count);
	for (size_t i = 0; i < count; i++) {
		hash_of(jobs[i].data, jobs[i].len, &alone);
		ck_assert(hash_equal(&alone, jobs[i].ret_hash));
	}
}

START_TEST(many_at_once_are_as_each_alone)
{
	enum { LONGEST = 400, COUNT = 5 };
	uint8_t data[COUNT][LONGEST + 1];
	struct hash hashes[COUNT];
	struct hash_job jobs[COUNT];

	for (size_t i = 0; i < sizeof(data); i++)
		data[i / sizeof(data[0])][i % sizeof(data[0])] = (uint8_t)(i * 7 + i / 256);
	/* Every length of padding, beside lengths that are the same and that are not, not aligned. */
	for (size_t len = 0; len <= LONGEST; len++) {
		for (size_t i = 0; i < COUNT; i++)
			jobs[i] = (struct hash_job){data[i] + i % 2, (len + i * i * 61) % LONGEST,
						    &hashes[i]};
		for (size_t count = 0; count <= COUNT; count++)
			check_many(jobs, count);
		jobs[1].len = len;
		jobs[0].len = len;
		check_many(jobs, 2);
	}
}
END_TEST

START_TEST(many_long_ones)
{
	enum { LEN = 1 << 20 };
	cleanup_free uint8_t *a = malloc(LEN);
	struct hash hashes[3];
	const struct hash_job jobs[] = {
		{a, LEN, &hashes[0]}, {a, LEN - 77, &hashes[1]}, {a, LEN / 2, &hashes[2]}};

	ck_assert_ptr_nonnull(a);
	for (size_t i = 0; i < LEN; i++)
		a[i] = (uint8_t)(i * i >> 7);
	check_many(jobs, 3);
}
END_TEST

START_TEST(hashes_compare_bytewise)
{
	struct hash a = {{0}}, b = {{0}};

	ck_assert(hash_equal(&a, &b));
	ck_assert_int_eq(hash_compare(&a, &b), 0);
	b.bytes[HASH_SIZE - 1] = 1;
	ck_assert(!hash_equal(&a, &b));
	ck_assert_int_lt(hash_compare(&a, &b), 0);
	a.bytes[0] = 0x80; /* unsigned: above 0 */
	ck_assert_int_gt(hash_compare(&a, &b), 0);
}
END_TEST

START_TEST(hex_comes_back)
{
	struct hash h, back;
	char hex[HASH_HEX];

	hash_of("x", 1, &h);
	hash_to_hex(&h, hex);
	unit_ok(hash_from_hex(hex, &back));
	ck_assert(hash_equal(&h, &back));
}
END_TEST

START_TEST(hex_that_is_not_exactly_a_hash_is_refused)
{
	static const char good[] =
		"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
	struct hash untouched, h;
	char bad[HASH_HEX + 1];

	memset(&untouched, 0x5a, sizeof(untouched));
	h = untouched;
	unit_error(hash_from_hex("", &h), -EINVAL);
	snprintf(bad, sizeof(bad), "%s", good);
	bad[63] = '\0';
	unit_error(hash_from_hex(bad, &h), -EINVAL);
	snprintf(bad, sizeof(bad), "%s0", good);
	unit_error(hash_from_hex(bad, &h), -EINVAL);
	for (const char *p = "EgG/: @`\x80"; *p; p++) {
		snprintf(bad, sizeof(bad), "%s", good);
		bad[63] = *p;
		unit_error(hash_from_hex(bad, &h), -EINVAL);
	}
	ck_assert(hash_equal(&h, &untouched));
}
END_TEST

START_TEST(hex_decode_looks_at_its_digits_only)
{
	uint8_t bytes[3] = {1, 1, 1};

	unit_ok(hex_decode("00ff7frest", 3, bytes));
	unit_same_bytes(bytes, sizeof(bytes), "\x00\xff\x7f", 3);
	unit_error(hex_decode("00ff7", 3, bytes), -EINVAL);
	unit_same_bytes(bytes, sizeof(bytes), "\x00\xff\x7f", 3);
}
END_TEST

/* RFC 3720, B.4, and the check value of the CRC catalogue. */
START_TEST(crc32c_of_the_published_examples)
{
	uint8_t bytes[32];

	ck_assert_uint_eq(crc32c(0, "", 0), 0);
	ck_assert_uint_eq(crc32c(0, "123456789", 9), 0xe3069283u);
	memset(bytes, 0, sizeof(bytes));
	ck_assert_uint_eq(crc32c(0, bytes, sizeof(bytes)), 0x8a9136aau);
	memset(bytes, 0xff, sizeof(bytes));
	ck_assert_uint_eq(crc32c(0, bytes, sizeof(bytes)), 0x62a8ab43u);
	for (uint8_t i = 0; i < 32; i++)
		bytes[i] = i;
	ck_assert_uint_eq(crc32c(0, bytes, sizeof(bytes)), 0x46dd794eu);
	for (uint8_t i = 0; i < 32; i++)
		bytes[i] = (uint8_t)(31 - i);
	ck_assert_uint_eq(crc32c(0, bytes, sizeof(bytes)), 0x113fdb5cu);
}
END_TEST

START_TEST(crc32c_in_pieces_is_the_crc32c_of_the_whole)
{
	static const char text[] = "an epoch points to a tree; a tree lists entries";
	uint32_t whole = crc32c(0, text, sizeof(text));

	for (size_t cut = 0; cut <= sizeof(text); cut++) {
		uint32_t crc = crc32c(0, text, cut);

		ck_assert_uint_eq(crc32c(crc, text + cut, sizeof(text) - cut), whole);
	}
}
END_TEST

START_TEST(uuids_are_version_4_and_differ)
{
	char a[37], b[37];

	unit_ok(uuid_make(a));
	unit_ok(uuid_make(b));
	ck_assert_str_ne(a, b);
	ck_assert_uint_eq(strlen(a), 36);
	ck_assert_uint_eq(strspn(a, "0123456789abcdef-"), 36);
	ck_assert(a[8] == '-' && a[13] == '-' && a[18] == '-' && a[23] == '-');
	ck_assert_int_eq(a[14], '4');
	ck_assert_ptr_nonnull(strchr("89ab", a[19]));
}
END_TEST

START_TEST(random_bytes_fill_all)
{
	uint8_t bytes[4096], again[4096];

	unit_ok(random_bytes(bytes, sizeof(bytes)));
	unit_ok(random_bytes(again, sizeof(again)));
	/* By chance: never in the life of the universe. */
	ck_assert_mem_ne(bytes, again, 32);
	ck_assert_mem_ne(bytes + sizeof(bytes) - 32, again + sizeof(again) - 32, 32);
	unit_ok(random_bytes(NULL, 0));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_hash");
	TCase *t = unit_case(s, "sha256");

	tcase_add_loop_test(t, sha256_of_the_published_examples, 0,
			    (int)(sizeof(sha256) / sizeof(sha256[0])));
	tcase_add_test(t, sha256_of_a_million_a);
	tcase_add_test(t, many_at_once_are_as_each_alone);
	tcase_add_test(t, many_long_ones);
	tcase_add_test(t, hashes_compare_bytewise);

	t = unit_case(s, "hex");
	tcase_add_test(t, hex_comes_back);
	tcase_add_test(t, hex_that_is_not_exactly_a_hash_is_refused);
	tcase_add_test(t, hex_decode_looks_at_its_digits_only);

	t = unit_case(s, "crc32c");
	tcase_add_test(t, crc32c_of_the_published_examples);
	tcase_add_test(t, crc32c_in_pieces_is_the_crc32c_of_the_whole);

	t = unit_case(s, "random");
	tcase_add_test(t, uuids_are_version_4_and_differ);
	tcase_add_test(t, random_bytes_fill_all);
	return unit_run(s);
}
