/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256, CRC-32C, random ids and hex. */
#include "lib/util/hash.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

void hash_of(const void *data, size_t len, struct hash *ret_hash)
{
	unsigned int size = 0;

	if (EVP_Digest(data, len, ret_hash->bytes, &size, EVP_sha256(), NULL) != 1 ||
	    size != HASH_SIZE) {
		fputs("epochfs: libcrypto offers no SHA-256\n", stderr);
		abort();
	}
}

bool hash_equal(const struct hash *a, const struct hash *b)
{
	return memcmp(a->bytes, b->bytes, HASH_SIZE) == 0;
}

int hash_compare(const struct hash *a, const struct hash *b)
{
	return memcmp(a->bytes, b->bytes, HASH_SIZE);
}

void hex_encode(const void *data, size_t len, char *ret_hex)
{
	static const char digits[] = "0123456789abcdef";
	const uint8_t *p = data;

	for (size_t i = 0; i < len; i++) {
		ret_hex[2 * i] = digits[p[i] >> 4];
		ret_hex[2 * i + 1] = digits[p[i] & 15];
	}
	ret_hex[2 * len] = '\0';
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

int hex_decode(const char *hex, size_t len, void *ret_data)
{
	uint8_t *out = ret_data;

	for (size_t i = 0; i < 2 * len; i++)
		if (hex_digit(hex[i]) < 0)
			return -EINVAL;
	for (size_t i = 0; i < len; i++)
		out[i] = (uint8_t)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
	return 0;
}

void hash_to_hex(const struct hash *h, char ret_hex[HASH_HEX])
{
	hex_encode(h->bytes, HASH_SIZE, ret_hex);
}

int hash_from_hex(const char *hex, struct hash *ret_hash)
{
	if (strlen(hex) != 2 * (size_t)HASH_SIZE)
		return -EINVAL;
	return hex_decode(hex, HASH_SIZE, ret_hash->bytes);
}

#define CRC32C_POLYNOMIAL 0x82f63b78u

static uint32_t crc32c_portable(uint32_t crc, const uint8_t *p, size_t len)
{
	while (len--) {
		crc ^= *p++;
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (crc & 1 ? CRC32C_POLYNOMIAL : 0);
	}
	return crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t crc32c_sse42(uint32_t crc, const uint8_t *p,
							       size_t len)
{
	uint64_t wide = crc, word;

	for (; len >= sizeof(word); p += sizeof(word), len -= sizeof(word)) {
		memcpy(&word, p, sizeof(word));
		wide = __builtin_ia32_crc32di(wide, word);
	}
	crc = (uint32_t)wide;
	for (; len; p++, len--)
		crc = __builtin_ia32_crc32qi(crc, *p);
	return crc;
}
#endif

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
	crc = ~crc;
#if defined(__x86_64__)
	if (__builtin_cpu_supports("sse4.2"))
		return ~crc32c_sse42(crc, data, len);
#endif
	return ~crc32c_portable(crc, data, len);
}

int random_bytes(void *ret_data, size_t len)
{
	uint8_t *p = ret_data;

	while (len) {
		ssize_t n = getrandom(p, len, 0);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

int uuid_make(char ret_uuid[37])
{
	uint8_t b[16];
	char hex[33];
	int error = random_bytes(b, sizeof(b));

	if (error)
		return error;
	b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
	b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
	hex_encode(b, sizeof(b), hex);
	snprintf(ret_uuid, 37, "%.8s-%.4s-%.4s-%.4s-%.12s", hex, hex + 8, hex + 12, hex + 16,
		 hex + 20);
	return 0;
}
