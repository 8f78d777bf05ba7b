/* SPDX-License-Identifier: Apache-2.0 */
/* HKDF, scrypt, HMAC and AES-256-GCM against published vectors, and what must be refused. */
#include "lib/util/crypto.h"

#include "tests/unit/unit.h"

static size_t from_hex(const char *hex, uint8_t *ret_bytes)
{
	size_t len = strlen(hex) / 2;

	unit_ok(hex_decode(hex, len, ret_bytes));
	return len;
}

#define assert_hex(bytes, len, hex)                                                                \
	do {                                                                                       \
		char text_[1024];                                                                  \
		hex_encode(bytes, len, text_);                                                     \
		ck_assert_str_eq(text_, hex);                                                      \
	} while (0)

/* RFC 5869, A.1 and A.3. */
START_TEST(hkdf_gives_the_published_keys)
{
	uint8_t secret[22], salt[13], info[10], key[42];
	size_t secret_len = from_hex("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", secret);
	size_t salt_len = from_hex("000102030405060708090a0b0c", salt);
	size_t info_len = from_hex("f0f1f2f3f4f5f6f7f8f9", info);

	unit_ok(hkdf_sha256(secret, secret_len, salt, salt_len, info, info_len, key, sizeof(key)));
	assert_hex(key, sizeof(key),
		   "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b8871"
		   "85865");
	unit_ok(hkdf_sha256(secret, secret_len, "", 0, "", 0, key, sizeof(key)));
	assert_hex(key, sizeof(key),
		   "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61"
		   "a96c8");
}
END_TEST

/* RFC 7914, 12. */
START_TEST(scrypt_gives_the_published_keys)
{
	const struct scrypt_cost small = {.n = 16, .r = 1, .p = 1};
	const struct scrypt_cost usual = {.n = 1024, .r = 8, .p = 16};
	uint8_t key[64];

	unit_ok(scrypt_key("", 0, "", 0, &small, key, sizeof(key)));
	assert_hex(key, sizeof(key),
		   "77d6576238657b203b19ca42c18a0497f16b4844e3074ae8dfdffa3fede21442fcd0069ded0948f"
		   "8326a753a0fc81f17e8d3e0fb2e0d3628cf35e20c38d18906");
	unit_ok(scrypt_key("password", 8, "NaCl", 4, &usual, key, sizeof(key)));
	assert_hex(key, sizeof(key),
		   "fdbabe1c9d3472007856e7190d01e9fe7c6ad7cbc8237830e77376634b3731622eaf30d92e22a38"
		   "86ff109279d9830dac727afb94a83ee6d8360cbdfa2cc0640");
}
END_TEST

START_TEST(what_scrypt_would_take_is_bounded)
{
	static const struct scrypt_cost bad[] = {
		{0, 8, 1},	    {1, 8, 1},
		{3, 8, 1},	    {1 << 17, 0, 1},
		{1 << 17, 8, 0},    {1 << 17, 17, 1},
		{1 << 19, 8, 1},    {1u << 31, 1, 1},
		{1 << 17, 8, 5},    {1 << 10, 8, 513},
		{2, 1u << 31, 1},   {1 << 10, 8, UINT32_MAX},
		{2, 1, UINT32_MAX}, {1u << 31, UINT32_MAX, 1},
	};
	const struct scrypt_cost most = {1 << 18, 8, 2}, longest = {1 << 17, 8, 4};
	uint8_t key[32];

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		ck_assert(!scrypt_cost_valid(&bad[i]));
		unit_error(scrypt_key("x", 1, "salt", 4, &bad[i], key, sizeof(key)), -EINVAL);
	}
	ck_assert(scrypt_cost_valid(&most));
	ck_assert(scrypt_cost_valid(&longest));
}
END_TEST

/* RFC 4231, 4.2 and 4.3. */
START_TEST(hmac_gives_the_published_values)
{
	uint8_t key[20];
	struct mac *m;
	struct hash got;

	from_hex("0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b0b", key);
	unit_ok(mac_new(key, sizeof(key), &m));
	for (int again = 0; again < 2; again++) {
		mac_of(m, "Hi ", 3, "There", 5, &got);
		assert_hex(got.bytes, HASH_SIZE,
			   "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
	}
	mac_free(m);
	unit_ok(mac_new("Jefe", 4, &m));
	mac_of(m, NULL, 0, "what do ya want for nothing?", 28, &got);
	assert_hex(got.bytes, HASH_SIZE,
		   "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
	mac_free(m);
}
END_TEST

/* Test case 16 of McGrew and Viega, "The Galois/Counter Mode of Operation". */
#define GCM_KEY	  "feffe9928665731c6d6a8f9467308308feffe9928665731c6d6a8f9467308308"
#define GCM_NONCE "cafebabefacedbaddecaf888"
#define GCM_AAD	  "feedfacedeadbeeffeedfacedeadbeefabaddad2"
#define GCM_PLAIN                                                                                  \
	"d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e24" \
	"49a6b525b16aedf5aa0de657ba637b39"
#define GCM_ENCRYPTED                                                                              \
	"522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b10" \
	"56828838c5f61e6393ba7a0abcc9f662"
#define GCM_TAG "76fc6ece0f4e1768cddf8853bb2d551b"

struct gcm {
	uint8_t key[32], nonce[12], aad[20], plain[60], encrypted[60], tag[16];
	struct aead *aead;
};

static struct gcm gcm_case(void)
{
	struct gcm g;

	from_hex(GCM_KEY, g.key);
	from_hex(GCM_NONCE, g.nonce);
	from_hex(GCM_AAD, g.aad);
	from_hex(GCM_PLAIN, g.plain);
	from_hex(GCM_ENCRYPTED, g.encrypted);
	from_hex(GCM_TAG, g.tag);
	unit_ok(aead_new(g.key, &g.aead));
	return g;
}

START_TEST(gcm_gives_the_published_bytes_both_ways)
{
	struct gcm g = gcm_case();
	uint8_t bytes[60], tag[16];

	for (int again = 0; again < 2; again++) {
		memcpy(bytes, g.plain, sizeof(bytes));
		unit_ok(aead_encrypt(g.aead, g.nonce, g.aad, sizeof(g.aad), bytes, sizeof(bytes),
				     bytes, tag));
		unit_same_bytes(bytes, sizeof(bytes), g.encrypted, sizeof(g.encrypted));
		unit_same_bytes(tag, sizeof(tag), g.tag, sizeof(g.tag));
		unit_ok(aead_decrypt(g.aead, g.nonce, g.aad, sizeof(g.aad), bytes, sizeof(bytes),
				     tag, bytes));
		unit_same_bytes(bytes, sizeof(bytes), g.plain, sizeof(g.plain));
	}
	aead_free(g.aead);
}
END_TEST

START_TEST(nothing_is_encrypted_too)
{
	struct gcm g = gcm_case();
	uint8_t tag[16], none;

	unit_ok(aead_encrypt(g.aead, g.nonce, "", 0, "", 0, &none, tag));
	unit_ok(aead_decrypt(g.aead, g.nonce, "", 0, "", 0, tag, &none));
	tag[0] ^= 1;
	unit_error(aead_decrypt(g.aead, g.nonce, "", 0, "", 0, tag, &none), -EBADMSG);
	aead_free(g.aead);
}
END_TEST

/* One bit of the nonce, of what is encrypted with it, of the encrypted bytes, of the tag. */
START_TEST(a_bit_that_changed_is_noticed)
{
	struct gcm g = gcm_case();
	uint8_t *const parts[] = {g.nonce, g.aad, g.encrypted, g.tag};
	const size_t lens[] = {12, 20, 60, 16};
	uint8_t to[60];

	for (size_t i = 0; i < 4; i++) {
		for (size_t bit = 0; bit < 8 * lens[i]; bit++) {
			parts[i][bit / 8] ^= (uint8_t)(1 << bit % 8);
			unit_error(aead_decrypt(g.aead, g.nonce, g.aad, sizeof(g.aad), g.encrypted,
						sizeof(g.encrypted), g.tag, to),
				   -EBADMSG);
			parts[i][bit / 8] ^= (uint8_t)(1 << bit % 8);
		}
	}
	unit_ok(aead_decrypt(g.aead, g.nonce, g.aad, sizeof(g.aad), g.encrypted,
			     sizeof(g.encrypted), g.tag, to));
	aead_free(g.aead);
}
END_TEST

START_TEST(secrets_are_compared_and_wiped)
{
	uint8_t *a = secret_alloc(5000), b[5000] = {0};

	ck_assert_ptr_nonnull(a);
	ck_assert(secret_equal(a, b, sizeof(b)));
	a[4999] = 1;
	ck_assert(!secret_equal(a, b, sizeof(b)));
	secret_wipe(a, 5000);
	ck_assert(secret_equal(a, b, sizeof(b)));
	secret_release(a, 5000);
	secret_release(NULL, 5000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_crypto");
	TCase *t = unit_case(s, "crypto");

	tcase_add_test(t, hkdf_gives_the_published_keys);
	tcase_add_test(t, scrypt_gives_the_published_keys);
	tcase_add_test(t, what_scrypt_would_take_is_bounded);
	tcase_add_test(t, hmac_gives_the_published_values);
	tcase_add_test(t, gcm_gives_the_published_bytes_both_ways);
	tcase_add_test(t, nothing_is_encrypted_too);
	tcase_add_test(t, a_bit_that_changed_is_noticed);
	tcase_add_test(t, secrets_are_compared_and_wiped);
	return unit_run(s);
}
