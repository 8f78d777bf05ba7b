/* SPDX-License-Identifier: Apache-2.0 */
/* Encrypting and decrypting objects. */
#include "lib/remote/encrypted.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define ADDRESS_LABEL "epochfs address"
#define CHECK_LABEL   "epochfs check"
#define OBJECT_LABEL  "epochfs object"

struct encryption {
	atomic_uint refs;
	struct mac *address;
	struct mac *check;
	uint8_t *object; /* CRYPTO_KEY_SIZE bytes of secret_alloc */
};

/* ---- the keys of a volume ---- */

static int derive(const uint8_t *master, const char *uuid, const char *label,
		  uint8_t ret_key[CRYPTO_KEY_SIZE])
{
	return hkdf_sha256(master, CRYPTO_KEY_SIZE, uuid, strlen(uuid), label, strlen(label),
			   ret_key, CRYPTO_KEY_SIZE);
}

static int derive_mac(const uint8_t *master, const char *uuid, const char *label,
		      struct mac **ret_mac)
{
	uint8_t key[CRYPTO_KEY_SIZE];
	int error = derive(master, uuid, label, key);

	if (!error)
		error = mac_new(key, sizeof(key), ret_mac);
	secret_wipe(key, sizeof(key));
	return error;
}

int encryption_new(const uint8_t master[CRYPTO_KEY_SIZE], const char *uuid,
		   struct encryption **ret_encryption)
{
	struct encryption *s = calloc(1, sizeof(*s));
	int error;

	if (!s)
		return -ENOMEM;
	atomic_init(&s->refs, 1);
	s->object = secret_alloc(CRYPTO_KEY_SIZE);
	error = s->object ? derive(master, uuid, OBJECT_LABEL, s->object) : -ENOMEM;
	if (!error)
		error = derive_mac(master, uuid, ADDRESS_LABEL, &s->address);
	if (!error)
		error = derive_mac(master, uuid, CHECK_LABEL, &s->check);
	if (error) {
		encryption_unref(s);
		return error;
	}
	*ret_encryption = s;
	return 0;
}

struct encryption *encryption_ref(struct encryption *s)
{
	atomic_fetch_add(&s->refs, 1);
	return s;
}

void encryption_unref(struct encryption *s)
{
	if (!s || atomic_fetch_sub(&s->refs, 1) > 1)
		return;
	mac_free(s->address);
	mac_free(s->check);
	secret_release(s->object, CRYPTO_KEY_SIZE);
	free(s);
}

void encryption_address(const struct encryption *s, struct hash *hash)
{
	const struct hash plain = *hash;

	mac_of(s->address, NULL, 0, plain.bytes, HASH_SIZE, hash);
}

void encryption_check(const struct encryption *s, const void *data, size_t len,
		      struct hash *ret_check)
{
	mac_of(s->check, NULL, 0, data, len, ret_check);
}

/* ---- lengths ---- */

uint64_t encrypted_len(uint64_t plain_len)
{
	return plain_len + (plain_len / ENCRYPTED_SEGMENT + 1) * ENCRYPTED_OVERHEAD;
}

bool encrypted_plain_len(uint64_t len, uint64_t *ret_plain_len)
{
	uint64_t whole = len / ENCRYPTED_STORED, rest = len % ENCRYPTED_STORED;

	if (rest < ENCRYPTED_OVERHEAD)
		return false;
	*ret_plain_len = whole * ENCRYPTED_SEGMENT + rest - ENCRYPTED_OVERHEAD;
	return true;
}

/* ---- the keys of an object ---- */

struct object_keys {
	struct aead *aead;
	struct mac *nonces; /* NULL: only to open */
};

static void object_keys_free(struct object_keys *k)
{
	aead_free(k->aead);
	mac_free(k->nonces);
}

static int object_keys(const struct encryption *s, const char *key, bool encrypting,
		       struct object_keys *ret_keys)
{
	uint8_t bytes[2 * CRYPTO_KEY_SIZE];
	struct object_keys k = {0};
	int error = hkdf_sha256(s->object, CRYPTO_KEY_SIZE, "", 0, key, strlen(key), bytes,
				sizeof(bytes));

	if (!error)
		error = aead_new(bytes, &k.aead);
	if (!error && encrypting)
		error = mac_new(bytes + CRYPTO_KEY_SIZE, CRYPTO_KEY_SIZE, &k.nonces);
	secret_wipe(bytes, sizeof(bytes));
	if (error)
		object_keys_free(&k);
	else
		*ret_keys = k;
	return error;
}

static void put_number(uint64_t number, uint8_t ret_bytes[8])
{
	for (int i = 0; i < 8; i++)
		ret_bytes[i] = (uint8_t)(number >> 8 * i);
}

/* ---- encrypting ---- */

/* Segments that are hashed together. */
#define SEGMENTS_TAKEN 8

struct piece {
	const uint8_t *plain;
	size_t len;
	struct hash hash;
};

static int encrypt_piece(struct object_keys *k, uint64_t number, const struct piece *p, uint8_t *to)
{
	uint8_t bytes[8];
	struct hash mac;

	put_number(number, bytes);
	mac_of(k->nonces, bytes, sizeof(bytes), p->hash.bytes, HASH_SIZE, &mac);
	memcpy(to, mac.bytes, CRYPTO_NONCE_SIZE);
	return aead_encrypt(k->aead, to, bytes, sizeof(bytes), p->plain, p->len,
			    to + CRYPTO_NONCE_SIZE, to + CRYPTO_NONCE_SIZE + p->len);
}

/* Up to SEGMENTS_TAKEN, from segment `first` on: how many. */
static size_t take_pieces(const uint8_t *plain, size_t len, uint64_t first,
			  struct piece ret_pieces[SEGMENTS_TAKEN])
{
	struct hash_job jobs[SEGMENTS_TAKEN];
	size_t count = 0;

	for (uint64_t i = first; i <= len / ENCRYPTED_SEGMENT && count < SEGMENTS_TAKEN; i++) {
		struct piece *p = &ret_pieces[count];
		size_t left = len - i * ENCRYPTED_SEGMENT;

		p->plain = plain + i * ENCRYPTED_SEGMENT;
		p->len = left < ENCRYPTED_SEGMENT ? left : ENCRYPTED_SEGMENT;
		jobs[count++] = (struct hash_job){p->plain, p->len, &p->hash};
	}
	hash_of_many(jobs, count);
	return count;
}

int encrypt_object(const struct encryption *s, const char *key, const void *plain, size_t len,
		   struct buf *out)
{
	CLEANUP(object_keys_free) struct object_keys k = {0};
	struct piece pieces[SEGMENTS_TAKEN];
	size_t at = out->len, count;
	int error = buf_reserve(out, encrypted_len(len));

	if (!error)
		error = object_keys(s, key, true, &k);
	for (uint64_t i = 0; !error && i <= len / ENCRYPTED_SEGMENT; i += count) {
		count = take_pieces(plain, len, i, pieces);
		for (size_t j = 0; !error && j < count; j++) {
			error = encrypt_piece(&k, i + j, &pieces[j], out->data + at);
			at += pieces[j].len + ENCRYPTED_OVERHEAD;
		}
	}
	if (!error)
		out->len = at;
	return error;
}

/* ---- opening ---- */

/* A segment where it lies; its plain bytes stay between the nonce and the tag. */
static int decrypt_segment(struct object_keys *k, uint64_t number, uint8_t *stored,
			   size_t plain_len)
{
	uint8_t bytes[8], *text = stored + CRYPTO_NONCE_SIZE;

	put_number(number, bytes);
	return aead_decrypt(k->aead, stored, bytes, sizeof(bytes), text, plain_len,
			    text + plain_len, text);
}

int decrypt_segments(const struct encryption *s, const char *key, uint64_t first, void *data,
		     size_t len, size_t *ret_len, bool *ret_ended, bool *ret_damaged)
{
	CLEANUP(object_keys_free) struct object_keys k = {0};
	uint8_t *from = data, *to = data;
	bool ended = false, damaged = false;
	int error = object_keys(s, key, false, &k);

	for (uint64_t i = first; !error && len; i++) {
		size_t stored = len < ENCRYPTED_STORED ? len : ENCRYPTED_STORED;
		size_t n = stored < ENCRYPTED_OVERHEAD ? 0 : stored - ENCRYPTED_OVERHEAD;

		error = stored < ENCRYPTED_OVERHEAD ? -EBADMSG : decrypt_segment(&k, i, from, n);
		if (!error)
			memmove(to, from + CRYPTO_NONCE_SIZE, n);
		if (error == -EBADMSG) {
			memset(to, 0, n);
			damaged = true;
			error = 0;
		}
		ended = n < ENCRYPTED_SEGMENT;
		from += stored;
		to += n;
		len -= stored;
	}
	if (error)
		return error;
	*ret_len = (size_t)(to - (uint8_t *)data);
	*ret_ended = ended;
	*ret_damaged = damaged;
	return 0;
}
