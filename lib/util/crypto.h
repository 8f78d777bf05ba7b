/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and encrypting, by libcrypto: HKDF, scrypt, HMAC, AES-256-GCM, and memory for secrets. */
#ifndef EPOCHFS_UTIL_CRYPTO_H
#define EPOCHFS_UTIL_CRYPTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/hash.h"

/*
 * Everything here gives 0, -ENOMEM, or what it names. A libcrypto that lacks one of these (a build
 * without scrypt, a provider that is not loaded) gives -ENOTSUP.
 */
#define CRYPTO_KEY_SIZE	  32
#define CRYPTO_NONCE_SIZE 12
#define CRYPTO_TAG_SIZE	  16

/* ---- memory for secrets ---- */

/* `len` zero bytes on pages of their own: not in core dumps, and not swapped out where the limit on
 * locked memory allows that. NULL: no memory. */
void *secret_alloc(size_t len);
/* Wipes, then frees. NULL is allowed. */
void secret_release(void *secret, size_t len);
/* Overwrites, in a way that no compiler leaves out. */
void secret_wipe(void *secret, size_t len);
/* Takes as long whatever the bytes are. */
bool secret_equal(const void *a, const void *b, size_t len);

/* ---- keys from secrets ---- */

/* HKDF-SHA-256, extract and expand (RFC 5869), of at most 8160 bytes. */
int hkdf_sha256(const void *secret, size_t secret_len, const void *salt, size_t salt_len,
		const void *info, size_t info_len, void *ret_key, size_t key_len);

/* scrypt's cost (RFC 7914). Its memory is 128 * n * r bytes. */
struct scrypt_cost {
	uint32_t n; /* a power of 2, at least 2 */
	uint32_t r;
	uint32_t p;
};
/* What will ever be computed, since the cost may be untrusted: 256 MiB, and n * r * p, on which the time
 * depends: some 2 s. */
#define SCRYPT_MEMORY_MAX (UINT64_C(256) << 20)
#define SCRYPT_WORK_MAX	  (UINT64_C(4) << 20)
/* Whether the cost keeps these bounds. */
bool scrypt_cost_valid(const struct scrypt_cost *cost);
/* scrypt of a passphrase: -EINVAL where the cost is not valid. Takes what the cost says, and blocks. */
int scrypt_key(const void *passphrase, size_t len, const void *salt, size_t salt_len,
	       const struct scrypt_cost *cost, void *ret_key, size_t key_len);

/* ---- HMAC-SHA-256 (RFC 2104) ---- */

/* HMAC under one key, for any number of threads at once. */
struct mac;
int mac_new(const void *key, size_t key_len, struct mac **ret_mac);
void mac_free(struct mac *m); /* NULL is allowed */
/* Of `head` and `data`, one after the other. Aborts only where libcrypto has no memory, as hash_of. */
void mac_of(const struct mac *m, const void *head, size_t head_len, const void *data, size_t len,
	    struct hash *ret_mac);

/* ---- AES-256-GCM (NIST SP 800-38D) ---- */

/* Encrypting under one key; one thread at a time. A nonce must never come again with other bytes. */
struct aead;
int aead_new(const uint8_t key[CRYPTO_KEY_SIZE], struct aead **ret_aead);
void aead_free(struct aead *a); /* NULL is allowed */
/* `to` gets len bytes; it may be `plain` itself. `aad` is not hidden, but encrypted with it. */
int aead_encrypt(struct aead *a, const uint8_t nonce[CRYPTO_NONCE_SIZE], const void *aad,
		 size_t aad_len, const void *plain, size_t len, void *to,
		 uint8_t ret_tag[CRYPTO_TAG_SIZE]);
/* The reverse: -EBADMSG where a bit of anything is not as it was encrypted; then `to` holds nothing of use. */
int aead_decrypt(struct aead *a, const uint8_t nonce[CRYPTO_NONCE_SIZE], const void *aad,
		 size_t aad_len, const void *encrypted, size_t len,
		 const uint8_t tag[CRYPTO_TAG_SIZE], void *to);

#endif
