/* SPDX-License-Identifier: Apache-2.0 */
/* Keys and encrypting: a thin layer over libcrypto. */
#include "lib/util/crypto.h"

#include <errno.h>
#include <limits.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- memory for secrets ---- */

void *secret_alloc(size_t len)
{
	void *p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return NULL;
	/* Both as well as they go: a kernel or a limit that refuses costs the protection, not the use. */
	madvise(p, len, MADV_DONTDUMP);
	mlock(p, len);
	return p;
}

void secret_release(void *secret, size_t len)
{
	if (!secret)
		return;
	OPENSSL_cleanse(secret, len);
	munmap(secret, len);
}

void secret_wipe(void *secret, size_t len)
{
	OPENSSL_cleanse(secret, len);
}

bool secret_equal(const void *a, const void *b, size_t len)
{
	return CRYPTO_memcmp(a, b, len) == 0;
}

/* ---- keys from secrets ---- */

/* libcrypto's queue of errors of this thread is emptied: nobody else reads it. */
static int failed(int error)
{
	ERR_clear_error();
	return error;
}

static OSSL_PARAM octets(const char *name, const void *data, size_t len)
{
	return OSSL_PARAM_construct_octet_string(name, (void *)(uintptr_t)data, len);
}

int hkdf_sha256(const void *secret, size_t secret_len, const void *salt, size_t salt_len,
		const void *info, size_t info_len, void *ret_key, size_t key_len)
{
	char digest[] = "SHA256";
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest, 0),
		octets(OSSL_KDF_PARAM_KEY, secret, secret_len),
		octets(OSSL_KDF_PARAM_SALT, salt, salt_len),
		octets(OSSL_KDF_PARAM_INFO, info, info_len),
		OSSL_PARAM_construct_end(),
	};
	EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
	EVP_KDF_CTX *ctx = kdf ? EVP_KDF_CTX_new(kdf) : NULL;
	int error = 0;

	if (!kdf)
		error = failed(-ENOTSUP);
	else if (!ctx || EVP_KDF_derive(ctx, ret_key, key_len, params) != 1)
		error = failed(-ENOMEM);
	EVP_KDF_CTX_free(ctx);
	EVP_KDF_free(kdf);
	return error;
}

static uint64_t scrypt_memory(const struct scrypt_cost *cost)
{
	return UINT64_C(128) * cost->n * cost->r;
}

bool scrypt_cost_valid(const struct scrypt_cost *cost)
{
	uint64_t blocks = (uint64_t)cost->n * cost->r;

	if (cost->n < 2 || (cost->n & (cost->n - 1)) || !cost->r || !cost->p)
		return false;
	return blocks <= SCRYPT_MEMORY_MAX / 128 && cost->p <= SCRYPT_WORK_MAX / blocks;
}

int scrypt_key(const void *passphrase, size_t len, const void *salt, size_t salt_len,
	       const struct scrypt_cost *cost, void *ret_key, size_t key_len)
{
	uint64_t more = UINT64_C(128) * cost->r * (cost->p + 2); /* libcrypto counts these, too */

	if (!scrypt_cost_valid(cost))
		return -EINVAL;
	if (EVP_PBE_scrypt(passphrase, len, salt, salt_len, cost->n, cost->r, cost->p,
			   scrypt_memory(cost) + more, ret_key, key_len) != 1)
		return failed(-ENOMEM);
	return 0;
}

/* ---- HMAC ---- */

struct mac {
	EVP_MAC *mac;
	EVP_MAC_CTX *keyed; /* never fed: copied for each use */
};

int mac_new(const void *key, size_t key_len, struct mac **ret_mac)
{
	char digest[] = "SHA256";
	const OSSL_PARAM params[] = {
		OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
		OSSL_PARAM_construct_end(),
	};
	struct mac *m = calloc(1, sizeof(*m));
	int error = -ENOMEM;

	if (!m)
		return error;
	m->mac = EVP_MAC_fetch(NULL, "HMAC", NULL);
	if (!m->mac)
		error = -ENOTSUP;
	else
		m->keyed = EVP_MAC_CTX_new(m->mac);
	if (!m->keyed || EVP_MAC_init(m->keyed, key, key_len, params) != 1) {
		mac_free(m);
		return failed(error);
	}
	*ret_mac = m;
	return 0;
}

void mac_free(struct mac *m)
{
	if (!m)
		return;
	EVP_MAC_CTX_free(m->keyed);
	EVP_MAC_free(m->mac);
	free(m);
}

void mac_of(const struct mac *m, const void *head, size_t head_len, const void *data, size_t len,
	    struct hash *ret_mac)
{
	EVP_MAC_CTX *ctx = EVP_MAC_CTX_dup(m->keyed);
	size_t size = 0;

	if (!ctx || (head_len && EVP_MAC_update(ctx, head, head_len) != 1) ||
	    (len && EVP_MAC_update(ctx, data, len) != 1) ||
	    EVP_MAC_final(ctx, ret_mac->bytes, &size, HASH_SIZE) != 1 || size != HASH_SIZE) {
		fputs("epochfs: libcrypto makes no HMAC: out of memory\n", stderr);
		abort();
	}
	EVP_MAC_CTX_free(ctx);
}

/* ---- AES-256-GCM ---- */

struct aead {
	EVP_CIPHER_CTX *ctx;
	bool encrypting; /* what the key was last set for */
	uint8_t key[CRYPTO_KEY_SIZE];
};

static int set_key(struct aead *a, bool encrypting)
{
	if (EVP_CipherInit_ex(a->ctx, EVP_aes_256_gcm(), NULL, a->key, NULL, encrypting) != 1)
		return failed(-ENOTSUP);
	a->encrypting = encrypting;
	return 0;
}

int aead_new(const uint8_t key[CRYPTO_KEY_SIZE], struct aead **ret_aead)
{
	struct aead *a = calloc(1, sizeof(*a));
	int error = -ENOMEM;

	if (!a)
		return error;
	memcpy(a->key, key, sizeof(a->key));
	a->ctx = EVP_CIPHER_CTX_new();
	if (a->ctx)
		error = set_key(a, false);
	if (error) {
		aead_free(a);
		return error;
	}
	*ret_aead = a;
	return 0;
}

void aead_free(struct aead *a)
{
	if (!a)
		return;
	EVP_CIPHER_CTX_free(a->ctx); /* wipes its own */
	OPENSSL_cleanse(a, sizeof(*a));
	free(a);
}

/* The key, the nonce, then what is encrypted but not hidden. */
static int begin(struct aead *a, bool encrypting, const uint8_t nonce[CRYPTO_NONCE_SIZE],
		 const void *aad, size_t aad_len, size_t len)
{
	int n = 0, error = 0;

	if (aad_len > INT_MAX || len > INT_MAX)
		return -EINVAL;
	if (a->encrypting != encrypting)
		error = set_key(a, encrypting);
	if (error)
		return error;
	if (EVP_CipherInit_ex(a->ctx, NULL, NULL, NULL, nonce, encrypting) != 1 ||
	    (aad_len && EVP_CipherUpdate(a->ctx, NULL, &n, aad, (int)aad_len) != 1))
		return failed(-ENOMEM);
	return 0;
}

int aead_encrypt(struct aead *a, const uint8_t nonce[CRYPTO_NONCE_SIZE], const void *aad,
		 size_t aad_len, const void *plain, size_t len, void *to,
		 uint8_t ret_tag[CRYPTO_TAG_SIZE])
{
	int n = 0, error = begin(a, true, nonce, aad, aad_len, len);

	if (error)
		return error;
	if ((len && EVP_EncryptUpdate(a->ctx, to, &n, plain, (int)len) != 1) ||
	    EVP_EncryptFinal_ex(a->ctx, (uint8_t *)to + n, &n) != 1 ||
	    EVP_CIPHER_CTX_ctrl(a->ctx, EVP_CTRL_AEAD_GET_TAG, CRYPTO_TAG_SIZE, ret_tag) != 1)
		return failed(-ENOMEM);
	return 0;
}

int aead_decrypt(struct aead *a, const uint8_t nonce[CRYPTO_NONCE_SIZE], const void *aad,
		 size_t aad_len, const void *encrypted, size_t len,
		 const uint8_t tag[CRYPTO_TAG_SIZE], void *to)
{
	int n = 0, error = begin(a, false, nonce, aad, aad_len, len);

	if (error)
		return error;
	if (EVP_CIPHER_CTX_ctrl(a->ctx, EVP_CTRL_AEAD_SET_TAG, CRYPTO_TAG_SIZE,
				(void *)(uintptr_t)tag) != 1 ||
	    (len && EVP_DecryptUpdate(a->ctx, to, &n, encrypted, (int)len) != 1))
		return failed(-ENOMEM);
	return EVP_DecryptFinal_ex(a->ctx, (uint8_t *)to + n, &n) == 1 ? 0 : failed(-EBADMSG);
}
