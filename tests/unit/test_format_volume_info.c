/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs.json. */
#include "lib/format/chunk.h"
#include "lib/format/volume_info.h"
#include "lib/util/clock.h"
#include "tests/unit/unit.h"

#define UUID "0f8fad5b-d9cb-469f-a165-70867728950e"

START_TEST(a_new_volume_comes_back)
{
	cleanup_buf struct buf b = {0};
	struct volume_info v, other, got;
	int64_t before = clock_wall_ns();

	unit_ok(volume_info_make(&v));
	unit_ok(volume_info_make(&other));
	ck_assert_str_ne(v.uuid, other.uuid);
	ck_assert_int_ge(v.created_ns, before);
	ck_assert_uint_eq(v.chunk_min, 64 << 10);
	ck_assert_uint_eq(v.chunk_avg, 256 << 10);
	ck_assert_uint_eq(v.chunk_max, 1 << 20);
	unit_ok(volume_info_encode(&v, &b));
	unit_ok(volume_info_decode(b.data, b.len, &got));
	ck_assert_str_eq(got.uuid, v.uuid);
	ck_assert_uint_eq(got.chunk_min, v.chunk_min);
	ck_assert_uint_eq(got.chunk_avg, v.chunk_avg);
	ck_assert_uint_eq(got.chunk_max, v.chunk_max);
	ck_assert_int_eq(got.created_ns, v.created_ns);
}
END_TEST

START_TEST(people_can_read_it)
{
	const struct volume_info v = {.uuid = UUID,
				      .chunk_min = 65536,
				      .chunk_avg = 262144,
				      .chunk_max = 1048576,
				      .created_ns = INT64_C(1700000000000000001)};
	cleanup_buf struct buf b = {0};

	unit_ok(volume_info_encode(&v, &b));
	ck_assert_str_eq(buf_str(&b), "{\n"
				      "  \"format\": 1,\n"
				      "  \"uuid\": \"" UUID "\",\n"
				      "  \"hash\": \"sha256\",\n"
				      "  \"chunker\": {\n"
				      "    \"algorithm\": \"gear64\",\n"
				      "    \"min\": 65536,\n"
				      "    \"average\": 262144,\n"
				      "    \"max\": 1048576\n"
				      "  },\n"
				      "  \"created\": \"2023-11-14T22:13:20.000000001Z\"\n"
				      "}\n");
}
END_TEST

static void check_chunks(uint32_t min, uint32_t avg, uint32_t max, int error)
{
	const struct volume_info v = {.uuid = UUID,
				      .chunk_min = min,
				      .chunk_avg = avg,
				      .chunk_max = max,
				      .created_ns = 1};
	cleanup_buf struct buf b = {0};

	unit_error(volume_info_encode(&v, &b), error);
}

START_TEST(chunk_sizes_must_make_sense)
{
	check_chunks(4096, 4096, 4096, 0);
	check_chunks(65536, 262144, CHUNK_PLAIN_MAX, 0);
	check_chunks(4088, 4096, 8192, -EINVAL);
	check_chunks(65536, 65528, 1048576, -EINVAL);
	check_chunks(65536, 262144, 262136, -EINVAL);
	check_chunks(65536, 262144, CHUNK_PLAIN_MAX + 8, -EINVAL);
	check_chunks(65540, 262144, 1048576, -EINVAL);
	check_chunks(65536, 262140, 1048576, -EINVAL);
	check_chunks(65536, 262144, 1048580, -EINVAL);
}
END_TEST

static int decode(const char *text)
{
	struct volume_info v;

	return volume_info_decode(text, strlen(text), &v);
}

#define CHUNKER                                                                                    \
	"\"chunker\":{\"algorithm\":\"gear64\",\"min\":65536,\"average\":65536,\"max\":65536}"
#define CREATED "\"created\":\"2026-01-01T00:00:00Z\""
#define HASH	"\"hash\":\"sha256\""

START_TEST(what_is_no_volume_is_told_from_a_newer_one)
{
	unit_ok(decode("{\"format\":1,\"uuid\":\"" UUID "\"," HASH "," CHUNKER "," CREATED
		       ",\"later\":[1]}"));
	unit_error(decode("{\"format\":2}"), -EPROTONOSUPPORT);
	unit_error(decode("{\"format\":1,\"uuid\":\"" UUID "\",\"hash\":\"blake3\"," CHUNKER
			  "," CREATED "}"),
		   -EPROTONOSUPPORT);
	unit_error(decode("{\"format\":1,\"uuid\":\"" UUID "\"," HASH
			  ",\"chunker\":{\"algorithm\":\"rabin\"}," CREATED "}"),
		   -EPROTONOSUPPORT);
	unit_error(decode(""), -EBADMSG);
	unit_error(decode("{}"), -EBADMSG);
	unit_error(decode("[1]"), -EBADMSG);
	unit_error(decode("<html>"), -EBADMSG);
	unit_error(decode("{\"format\":0}"), -EBADMSG);
	unit_error(decode("{\"format\":\"1\"}"), -EBADMSG);
	unit_error(decode("{\"format\":1.0}"), -EBADMSG);
	unit_error(decode("{\"format\":1}"), -EBADMSG);
	unit_error(decode("{\"format\":1," HASH "," CHUNKER "," CREATED "}"), -EBADMSG);
	unit_error(decode("{\"format\":1,\"uuid\":\"" UUID "\"," CHUNKER "," CREATED "}"),
		   -EBADMSG);
	unit_error(decode("{\"format\":1,\"uuid\":\"" UUID "\"," HASH "," CREATED "}"), -EBADMSG);
	unit_error(decode("{\"format\":1,\"uuid\":\"" UUID "\"," HASH "," CHUNKER "}"), -EBADMSG);
}
END_TEST

START_TEST(a_uuid_is_no_path)
{
	static const char *const bad[] = {"",
					  "../../../../../../../../../../../etc",
					  "0F8FAD5B-D9CB-469F-A165-70867728950E",
					  "0f8fad5b-d9cb-469f-a165-70867728950",
					  "0f8fad5b-d9cb-469f-a165-70867728950e0",
					  "0f8fad5b/d9cb-469f-a165-70867728950e"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		cleanup_buf struct buf b = {0}, none = {0};
		struct volume_info v = {.chunk_min = 65536,
					.chunk_avg = 65536,
					.chunk_max = 65536,
					.created_ns = 1};

		buf_printf(&b, "{\"format\":1,\"uuid\":\"%s\"," HASH "," CHUNKER "," CREATED "}",
			   bad[i]);
		unit_error(decode(buf_str(&b)), -EBADMSG);
		snprintf(v.uuid, sizeof(v.uuid), "%s", bad[i]);
		if (strlen(bad[i]) == strlen(v.uuid))
			unit_error(volume_info_encode(&v, &none), -EINVAL);
	}
}
END_TEST

START_TEST(its_length_is_bounded)
{
	cleanup_buf struct buf b = {0};
	struct volume_info v;

	buf_printf(&b, "{\"format\":1,\"uuid\":\"" UUID "\"," HASH "," CHUNKER "," CREATED "}");
	while (b.len < VOLUME_INFO_ENCODED_MAX && !buf_error(&b))
		buf_put_u8(&b, ' ');
	unit_ok(buf_error(&b));
	unit_ok(volume_info_decode(b.data, b.len, &v));
	buf_put_u8(&b, ' ');
	unit_error(volume_info_decode(b.data, b.len, &v), -EBADMSG);
}
END_TEST

/* An encrypted volume; `encryption` stands for all of that member. */
#define ENCRYPTED(hash, encryption)                                                                \
	"{\"format\": 1, \"uuid\": \"" UUID "\", \"hash\": \"" hash "\", \"chunker\": {"           \
	"\"algorithm\": \"gear64\", \"min\": 65536, \"average\": 262144, \"max\": 1048576}, "      \
	"\"created\": \"2023-11-14T22:13:20Z\"" encryption "}"
#define CHECK_HEX "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
#define SEALED(cipher, segment, check)                                                             \
	", \"encryption\": {\"cipher\": \"" cipher "\", \"segment\": " segment                     \
	", \"check\": \"" check "\"}"

START_TEST(an_encrypted_volume_says_so_and_how)
{
	const char *text = ENCRYPTED("hmac-sha256", SEALED("aes-256-gcm", "32768", CHECK_HEX));
	cleanup_buf struct buf whole = {0}, unchecked = {0}, other = {0};
	struct volume_info v, again;

	unit_ok(volume_info_decode(text, strlen(text), &v));
	ck_assert(v.encrypted);
	ck_assert_uint_eq(v.check.bytes[31], 31);
	unit_ok(volume_info_encode(&v, &whole));
	unit_ok(volume_info_decode(whole.data, whole.len, &again));
	ck_assert(again.encrypted && hash_equal(&v.check, &again.check));
	/* What the check is made of does not hold it, and is all else. */
	unit_ok(volume_info_unchecked(&v, &unchecked));
	ck_assert_ptr_null(strstr(buf_str(&unchecked), CHECK_HEX));
	v.chunk_avg += 8;
	unit_ok(volume_info_unchecked(&v, &other));
	ck_assert_str_ne(buf_str(&unchecked), buf_str(&other));
}
END_TEST

START_TEST(encryption_that_is_not_known_is_refused)
{
	unit_ok(decode(ENCRYPTED("sha256", "")));
	unit_error(decode(ENCRYPTED("hmac-sha256", "")), -EBADMSG);
	unit_error(decode(ENCRYPTED("sha256", SEALED("aes-256-gcm", "32768", CHECK_HEX))),
		   -EBADMSG);
	unit_error(decode(ENCRYPTED("hmac-sha256", SEALED("rot13", "32768", CHECK_HEX))),
		   -EPROTONOSUPPORT);
	unit_error(decode(ENCRYPTED("hmac-sha256", SEALED("aes-256-gcm", "65536", CHECK_HEX))),
		   -EPROTONOSUPPORT);
	unit_error(decode(ENCRYPTED("hmac-sha256", SEALED("aes-256-gcm", "32768", "00"))),
		   -EBADMSG);
	unit_error(decode(ENCRYPTED("hmac-sha256", SEALED("aes-256-gcm", "\"x\"", CHECK_HEX))),
		   -EBADMSG);
	unit_error(decode(ENCRYPTED("sha3", "")), -EPROTONOSUPPORT);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("format_volume_info");
	TCase *t = unit_case(s, "volume_info");

	tcase_add_test(t, a_new_volume_comes_back);
	tcase_add_test(t, people_can_read_it);
	tcase_add_test(t, chunk_sizes_must_make_sense);
	tcase_add_test(t, what_is_no_volume_is_told_from_a_newer_one);
	tcase_add_test(t, a_uuid_is_no_path);
	tcase_add_test(t, its_length_is_bounded);
	tcase_add_test(t, an_encrypted_volume_says_so_and_how);
	tcase_add_test(t, encryption_that_is_not_known_is_refused);
	return unit_run(s);
}
