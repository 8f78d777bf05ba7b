/* SPDX-License-Identifier: Apache-2.0 */
/* Encrypted objects: what they look like in the remote, and what becomes of those that somebody changed. */
#include "lib/net/open.h"
#include "lib/remote/encrypt.h"

#include "lib/util/log.h"
#include "tests/unit/unit.h"

#define UUID  "0f8fad5b-d9cb-469f-a165-70867728950e"
#define OTHER "1f8fad5b-d9cb-469f-a165-70867728950e"
#define KEY   "epochs/00000000000000000001.json"
#define PACK  "packs/ab/ab"

static struct encryption *encryption_with(uint8_t first, const char *uuid)
{
	uint8_t master[CRYPTO_KEY_SIZE] = {first};
	struct encryption *s;

	unit_ok(encryption_new(master, uuid, &s));
	return s;
}

/* A remote in memory as it is, and the same through the layer. */
struct pair {
	struct remote *plain, *encrypted;
};

static struct pair open_pair(uint8_t master)
{
	struct encryption *s = encryption_with(master, UUID);
	struct pair p;

	unit_ok(remote_open("memory:encrypted", &p.plain));
	unit_ok(remote_encrypt_new(remote_ref(p.plain), s, &p.encrypted));
	encryption_unref(s);
	return p;
}

static void close_pair(struct pair *p)
{
	remote_close(p->encrypted);
	remote_close(p->plain);
}

static uint8_t *pattern(size_t len)
{
	uint8_t *data = malloc(len + 1);

	for (size_t i = 0; i < len; i++)
		data[i] = (uint8_t)(1 + (i * 131 + i / 255) % 255);
	return data;
}

/* The first of these bytes that are not zero, or `len`. */
static size_t zeros(const uint8_t *data, size_t len)
{
	size_t i = 0;

	while (i < len && !data[i])
		i++;
	return i;
}

START_TEST(lengths_follow_from_one_another)
{
	static const size_t plain[] = {0, 1, 32767, 32768, 32769, 65536, 1000000};
	uint64_t len;

	for (size_t i = 0; i < sizeof(plain) / sizeof(plain[0]); i++) {
		ck_assert(encrypted_plain_len(encrypted_len(plain[i]), &len));
		ck_assert_uint_eq(len, plain[i]);
	}
	ck_assert_uint_eq(encrypted_len(0), ENCRYPTED_OVERHEAD);
	ck_assert_uint_eq(encrypted_len(32768), 32768 + 2 * ENCRYPTED_OVERHEAD);
	/* No object is so long: the last segment has its overhead, too. */
	ck_assert(!encrypted_plain_len(0, &len));
	ck_assert(!encrypted_plain_len(ENCRYPTED_OVERHEAD - 1, &len));
	ck_assert(!encrypted_plain_len(ENCRYPTED_STORED, &len));
	ck_assert(!encrypted_plain_len(ENCRYPTED_STORED + ENCRYPTED_OVERHEAD - 1, &len));
}
END_TEST

START_TEST(what_is_put_is_not_there_in_plain)
{
	struct buf cleanup_buf stored = {0}, got = {0};
	const char *text = "a secret that everybody would know again";
	struct pair p = open_pair(1);
	uint64_t size;

	unit_ok(remote_put(p.encrypted, KEY, text, strlen(text)));
	unit_ok(remote_get(p.plain, KEY, 0, REMOTE_TO_END, &stored));
	ck_assert_uint_eq(stored.len, strlen(text) + ENCRYPTED_OVERHEAD);
	ck_assert_ptr_null(memmem(stored.data, stored.len, "secret", 6));
	unit_ok(remote_get(p.encrypted, KEY, 0, REMOTE_TO_END, &got));
	ck_assert_str_eq(buf_str(&got), text);
	unit_ok(remote_size(p.encrypted, KEY, &size));
	ck_assert_uint_eq(size, strlen(text));
	close_pair(&p);
}
END_TEST

START_TEST(what_is_read_before_there_is_a_key_stays_plain)
{
	static const char *const keys[] = {"epochfs.json", "keys/0123456789abcdef.json",
					   "epochfs.probe-0123"};
	struct pair p = open_pair(1);

	for (size_t i = 0; i < 3; i++) {
		struct buf cleanup_buf got = {0};

		unit_ok(remote_put(p.encrypted, keys[i], "plain", 5));
		unit_ok(remote_get(p.plain, keys[i], 0, REMOTE_TO_END, &got));
		ck_assert_str_eq(buf_str(&got), "plain");
	}
	close_pair(&p);
}
END_TEST

/* Repeated uploads, and a create whose answer was lost, rest on it. */
START_TEST(equal_bytes_are_encrypted_alike_under_one_key_only)
{
	struct encryption *a = encryption_with(1, UUID), *b = encryption_with(1, UUID),
			  *c = encryption_with(2, UUID), *d = encryption_with(1, OTHER);
	struct buf cleanup_buf one = {0}, again = {0}, elsewhere = {0}, master = {0}, volume = {0};

	unit_ok(encrypt_object(a, KEY, "same", 4, &one));
	unit_ok(encrypt_object(b, KEY, "same", 4, &again));
	unit_ok(encrypt_object(a, KEY "x", "same", 4, &elsewhere));
	unit_ok(encrypt_object(c, KEY, "same", 4, &master));
	unit_ok(encrypt_object(d, KEY, "same", 4, &volume));
	unit_same_bytes(one.data, one.len, again.data, again.len);
	ck_assert_mem_ne(one.data, elsewhere.data, CRYPTO_NONCE_SIZE);
	ck_assert_mem_ne(one.data, master.data, CRYPTO_NONCE_SIZE);
	ck_assert_mem_ne(one.data, volume.data, CRYPTO_NONCE_SIZE);
	encryption_unref(a);
	encryption_unref(b);
	encryption_unref(c);
	encryption_unref(d);
}
END_TEST

/* Two texts under one nonce would give away the key of the tags. */
START_TEST(other_bytes_have_other_nonces)
{
	uint8_t *data = calloc(1, 3 * ENCRYPTED_SEGMENT);
	struct encryption *s = encryption_with(1, UUID);
	struct buf cleanup_buf a = {0}, b = {0};

	unit_ok(encrypt_object(s, PACK, data, 3 * ENCRYPTED_SEGMENT, &a));
	/* Equal segments of one object, by their number. */
	ck_assert_mem_ne(a.data, a.data + ENCRYPTED_STORED, CRYPTO_NONCE_SIZE);
	ck_assert_mem_ne(a.data + ENCRYPTED_STORED, a.data + 2 * ENCRYPTED_STORED,
			 CRYPTO_NONCE_SIZE);
	data[ENCRYPTED_SEGMENT] = 1;
	unit_ok(encrypt_object(s, PACK, data, 3 * ENCRYPTED_SEGMENT, &b));
	ck_assert_mem_eq(a.data, b.data, ENCRYPTED_STORED);
	ck_assert_mem_ne(a.data + ENCRYPTED_STORED, b.data + ENCRYPTED_STORED, CRYPTO_NONCE_SIZE);
	free(data);
	encryption_unref(s);
}
END_TEST

START_TEST(addresses_are_of_the_key)
{
	struct encryption *s = encryption_with(1, UUID);
	struct hash by_key, by_remote, plain, sha256;
	struct remote *retry;
	struct pair p = open_pair(1);

	unit_ok(remote_retry_new(remote_ref(p.encrypted), NULL, &retry));
	remote_address(retry, "content", 7, &by_remote);
	remote_address(p.plain, "content", 7, &plain);
	hash_of("content", 7, &sha256);
	by_key = sha256;
	encryption_address(s, &by_key);
	ck_assert(hash_equal(&by_key, &by_remote));
	ck_assert(hash_equal(&plain, &sha256));
	ck_assert(!hash_equal(&by_key, &sha256));
	remote_close(retry);
	close_pair(&p);
	encryption_unref(s);
}
END_TEST

START_TEST(every_range_is_what_the_plain_object_has)
{
	static const uint64_t offsets[] = {0, 1, 32767, 32768, 32769, 65535, 99999, 100000, 200000};
	static const uint64_t lens[] = {0, 1, 2, 32768, 65537, 100000, REMOTE_TO_END};
	size_t len = 100000;
	uint8_t *data = pattern(len);
	struct pair p = open_pair(1);

	unit_ok(remote_put(p.encrypted, PACK, data, len));
	unit_ok(remote_put(p.plain, "other", data, len));
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		for (size_t j = 0; j < sizeof(lens) / sizeof(lens[0]); j++) {
			struct buf cleanup_buf got = {0}, want = {0};

			buf_put(&got, "kept", 4);
			buf_put(&want, "kept", 4);
			unit_ok(remote_get(p.encrypted, PACK, offsets[i], lens[j], &got));
			unit_ok(remote_get(p.plain, "other", offsets[i], lens[j], &want));
			unit_same_bytes(got.data, got.len, want.data, want.len);
		}
	}
	free(data);
	close_pair(&p);
}
END_TEST

/* What is at KEY now gives only zeros. */
static void assert_refused(struct pair *p, const char *key)
{
	struct buf cleanup_buf got = {0};

	unit_ok(remote_get(p->encrypted, key, 0, REMOTE_TO_END, &got));
	ck_assert_uint_eq(zeros(got.data, got.len), got.len);
}

START_TEST(a_changed_bit_anywhere_makes_zeros)
{
	struct buf cleanup_buf stored = {0};
	struct pair p = open_pair(1);

	unit_ok(remote_put(p.encrypted, KEY, "{\"epoch\": 1}", 12));
	unit_ok(remote_get(p.plain, KEY, 0, REMOTE_TO_END, &stored));
	for (size_t i = 0; i < 8 * stored.len; i++) {
		stored.data[i / 8] ^= (uint8_t)(1 << i % 8);
		unit_ok(remote_put(p.plain, KEY, stored.data, stored.len));
		assert_refused(&p, KEY);
		stored.data[i / 8] ^= (uint8_t)(1 << i % 8);
	}
	close_pair(&p);
}
END_TEST

START_TEST(an_object_under_another_key_makes_zeros)
{
	struct buf cleanup_buf stored = {0};
	struct pair p = open_pair(1);

	unit_ok(remote_put(p.encrypted, "epochs/1", "the first", 9));
	unit_ok(remote_put(p.encrypted, "epochs/2", "the second", 10));
	unit_ok(remote_get(p.plain, "epochs/1", 0, REMOTE_TO_END, &stored));
	unit_ok(remote_put(p.plain, "epochs/2", stored.data, stored.len));
	assert_refused(&p, "epochs/2");
	close_pair(&p);
}
END_TEST

START_TEST(another_volume_s_key_makes_zeros)
{
	struct pair p = open_pair(1), other = open_pair(2);

	unit_ok(remote_put(p.encrypted, KEY, "ours", 4));
	assert_refused(&other, KEY);
	close_pair(&other);
	close_pair(&p);
}
END_TEST

/* At each length below its own, and with something behind its end. */
START_TEST(an_object_that_was_cut_or_grew_makes_zeros)
{
	size_t len = 2 * ENCRYPTED_SEGMENT + 10;
	uint8_t *data = pattern(len);
	struct buf cleanup_buf stored = {0};
	struct pair p = open_pair(1);

	unit_ok(remote_put(p.encrypted, KEY, data, len));
	unit_ok(remote_get(p.plain, KEY, 0, REMOTE_TO_END, &stored));
	for (size_t cut = 0; cut < stored.len; cut += cut % ENCRYPTED_STORED < 60 ? 1 : 1009) {
		unit_ok(remote_put(p.plain, KEY, stored.data, cut));
		assert_refused(&p, KEY);
	}
	unit_ok(remote_put(p.plain, KEY, stored.data, ENCRYPTED_STORED));
	assert_refused(&p, KEY);
	unit_ok(remote_put(p.plain, KEY, stored.data, 2 * ENCRYPTED_STORED));
	assert_refused(&p, KEY);
	buf_put(&stored, data, 100);
	unit_ok(remote_put(p.plain, KEY, stored.data, stored.len));
	assert_refused(&p, KEY);
	free(data);
	close_pair(&p);
}
END_TEST

START_TEST(of_a_pack_only_the_damaged_segment_is_lost)
{
	size_t len = 5 * ENCRYPTED_SEGMENT + 100, bad = 2 * ENCRYPTED_SEGMENT;
	uint8_t *data = pattern(len);
	struct buf cleanup_buf stored = {0}, got = {0};
	struct pair p = open_pair(1);

	unit_ok(remote_put(p.encrypted, PACK, data, len));
	unit_ok(remote_get(p.plain, PACK, 0, REMOTE_TO_END, &stored));
	stored.data[2 * ENCRYPTED_STORED + 500] ^= 4;
	unit_ok(remote_put(p.plain, PACK, stored.data, stored.len));
	unit_ok(remote_get(p.encrypted, PACK, 0, REMOTE_TO_END, &got));
	ck_assert_uint_eq(got.len, len);
	ck_assert_mem_eq(got.data, data, bad);
	ck_assert_uint_eq(zeros(got.data + bad, ENCRYPTED_SEGMENT), ENCRYPTED_SEGMENT);
	ck_assert_mem_eq(got.data + bad + ENCRYPTED_SEGMENT, data + bad + ENCRYPTED_SEGMENT,
			 len - bad - ENCRYPTED_SEGMENT);
	free(data);
	close_pair(&p);
}
END_TEST

static int note_size(void *arg, const char *key, uint64_t size)
{
	if (!strcmp(key, PACK))
		*(uint64_t *)arg = size;
	return 0;
}

START_TEST(sizes_are_of_the_plain_bytes)
{
	uint64_t size = 1;
	struct pair p = open_pair(1);

	unit_ok(remote_put(p.encrypted, PACK, "12345", 5));
	unit_ok(remote_list(p.encrypted, "packs/", note_size, &size));
	ck_assert_uint_eq(size, 5);
	unit_ok(remote_put(p.plain, PACK, "12345", 5));
	unit_ok(remote_list(p.encrypted, "packs/", note_size, &size));
	ck_assert_uint_eq(size, 0);
	unit_ok(remote_size(p.encrypted, PACK, &size));
	ck_assert_uint_eq(size, 0);
	close_pair(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_encrypt");
	TCase *t = unit_case(s, "encrypting");

	tcase_add_test(t, lengths_follow_from_one_another);
	tcase_add_test(t, what_is_put_is_not_there_in_plain);
	tcase_add_test(t, what_is_read_before_there_is_a_key_stays_plain);
	tcase_add_test(t, equal_bytes_are_encrypted_alike_under_one_key_only);
	tcase_add_test(t, other_bytes_have_other_nonces);
	tcase_add_test(t, addresses_are_of_the_key);
	tcase_add_test(t, every_range_is_what_the_plain_object_has);
	tcase_add_test(t, sizes_are_of_the_plain_bytes);
	log_set_level(LOG_LEVEL_ERROR);
	t = unit_case(s, "changed by somebody");
	tcase_add_test(t, a_changed_bit_anywhere_makes_zeros);
	tcase_add_test(t, an_object_under_another_key_makes_zeros);
	tcase_add_test(t, another_volume_s_key_makes_zeros);
	tcase_add_test(t, an_object_that_was_cut_or_grew_makes_zeros);
	tcase_add_test(t, of_a_pack_only_the_damaged_segment_is_lost);
	return unit_run(s);
}
