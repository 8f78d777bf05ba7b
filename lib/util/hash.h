/* SPDX-License-Identifier: Apache-2.0 */
/* SHA-256 content addresses, CRC-32C checksums, random ids, and their text form. */
#ifndef EPOCHFS_UTIL_HASH_H
#define EPOCHFS_UTIL_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HASH_SIZE 32
#define HASH_HEX  (2 * HASH_SIZE + 1) /* with the NUL */

/* A SHA-256 (FIPS 180-4, computed by libcrypto). */
struct hash {
	uint8_t bytes[HASH_SIZE];
};

/* The hash of these bytes. Aborts only where libcrypto has no SHA-256 at all. Thread-safe. */
void hash_of(const void *data, size_t len, struct hash *ret_hash);
struct hash_job {
	const void *data;
	size_t len;
	struct hash *ret_hash;
};
/*
 * hash_of for each. Where the processor has SHA instructions, two are computed at a time, which is up to
 * 1.75 times as fast as one after the other.
 */
void hash_of_many(const struct hash_job *jobs, size_t count);
bool hash_equal(const struct hash *a, const struct hash *b);
/* memcmp order. */
int hash_compare(const struct hash *a, const struct hash *b);
void hash_to_hex(const struct hash *h, char ret_hex[HASH_HEX]);
/* 0, or -EINVAL where `hex` is not exactly 64 lower-case hex digits followed by NUL. */
int hash_from_hex(const char *hex, struct hash *ret_hash);

/* Lower-case hex of any bytes; ret_hex has room for 2 * len + 1. */
void hex_encode(const void *data, size_t len, char *ret_hex);
/* Exactly 2 * len lower-case hex digits at `hex` (what follows is not looked at): 0 or -EINVAL. */
int hex_decode(const char *hex, size_t len, void *ret_data);

/* CRC-32C (Castagnoli, RFC 3720), by the SSE4.2 instruction where the processor has it. `crc` is 0
 * at the start, or what the last call gave for the bytes before. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);

/* FNV-1a, of one byte after another from FNV1A_BEGIN on: for tables of names in memory, and where two of one hash do no harm. */
#define FNV1A_BEGIN UINT64_C(0xcbf29ce484222325)
static inline uint64_t fnv1a(uint64_t h, uint8_t byte)
{
	return (h ^ byte) * UINT64_C(0x100000001b3);
}

/* Fills with random bytes of the operating system: 0 or -errno. */
int random_bytes(void *ret_data, size_t len);
/* A random (version 4) UUID in text, 36 characters and NUL. */
int uuid_make(char ret_uuid[37]);

#endif
