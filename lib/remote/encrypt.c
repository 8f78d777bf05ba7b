/* SPDX-License-Identifier: Apache-2.0 */
/* How objects are encrypted, and the layer that does it. */
#include "lib/remote/encrypt.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "lib/remote/remote_ops.h"
#include "lib/util/log.h"

/* ---- keys and the format of objects: pure ---- */

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

#define READ_TRIES 3

struct encrypting {
	struct remote base;
	struct encryption *encryption;
};

static const struct encryption *encryption_of(const struct remote *r)
{
	return ((const struct encrypting *)r)->encryption;
}

static bool starts_with(const char *key, const char *prefix)
{
	return strncmp(key, prefix, strlen(prefix)) == 0;
}

/* What is read before there is a key. */
static bool is_open(const char *key)
{
	return strcmp(key, "epochfs.json") == 0 || starts_with(key, "keys/") ||
	       starts_with(key, "epochfs.probe-");
}

/* ---- writing ---- */

typedef int put_fn(struct remote *r, const char *key, const void *data, size_t len);

static int put_encrypted(struct remote *r, put_fn *put, const char *key, const void *data,
			 size_t len)
{
	cleanup_buf struct buf encrypted = {0};
	int error;

	if (is_open(key))
		return put(r->inner, key, data, len);
	error = encrypt_object(encryption_of(r), key, data, len, &encrypted);
	return error ? error : put(r->inner, key, encrypted.data, encrypted.len);
}

static int encrypt_put(struct remote *r, const char *key, const void *data, size_t len)
{
	return put_encrypted(r, remote_put, key, data, len);
}

static int encrypt_put_if_absent(struct remote *r, const char *key, const void *data, size_t len)
{
	return put_encrypted(r, remote_put_if_absent, key, data, len);
}

/* ---- reading ---- */

/* Plain bytes [offset, offset + len), as the segments that hold them. */
struct span {
	uint64_t first;	 /* segment */
	uint64_t at;	 /* where it lies */
	uint64_t stored; /* bytes from there, or REMOTE_TO_END */
	uint64_t skip;	 /* plain bytes of it before the offset */
	uint64_t len;
};

static struct span span_of(uint64_t offset, uint64_t len)
{
	struct span s = {.first = offset / ENCRYPTED_SEGMENT,
			 .skip = offset % ENCRYPTED_SEGMENT,
			 .stored = REMOTE_TO_END,
			 .len = len};

	s.at = s.first * ENCRYPTED_STORED;
	if (len <= REMOTE_GET_MAX)
		s.stored = (s.skip + len + ENCRYPTED_SEGMENT - 1) / ENCRYPTED_SEGMENT *
			   ENCRYPTED_STORED;
	return s;
}

/* One reading; what it appended to `out` is of no use after a failure. */
static int get_once(struct remote *r, const char *key, const struct span *s, struct buf *out,
		    bool *ret_damaged)
{
	bool ended = false, damaged = false, pack = starts_with(key, "packs/");
	size_t start = out->len, stored, plain;
	int error = remote_get(r->inner, key, s->at, s->stored, out);

	if (error)
		return error;
	stored = out->len - start;
	error = decrypt_segments(encryption_of(r), key, s->first, out->data + start, stored, &plain,
				 &ended, &damaged);
	if (error)
		return error;
	/* It came to an end without a last segment: it was cut. What begins behind the end is no fault. */
	damaged |= stored < s->stored && !ended && (stored || !s->first);
	if (damaged && !pack && plain)
		memset(out->data + start, 0, plain);
	plain = plain > s->skip ? plain - s->skip : 0;
	plain = plain > s->len ? s->len : plain;
	if (s->skip && plain)
		memmove(out->data + start, out->data + start + s->skip, plain);
	out->len = start + plain;
	*ret_damaged = damaged;
	return 0;
}

static int encrypt_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		       struct buf *out)
{
	const struct span s = span_of(offset, len);
	size_t start = out->len;
	bool damaged = true;
	int error = 0;

	if (is_open(key) || !len)
		return remote_get(r->inner, key, offset, len, out);
	for (int tries = 0; !error && damaged && tries < READ_TRIES; tries++) {
		out->len = start;
		error = get_once(r, key, &s, out, &damaged);
	}
	if (error)
		out->len = start;
	else if (damaged) /* of a pack, its reader says what was lost */
		log_write(
			starts_with(key, "packs/") ? LOG_LEVEL_DEBUG : LOG_LEVEL_WARN,
			"%s: %s is not what was encrypted under this volume's key: damaged, or put "
			"there by somebody else",
			remote_name(r), key);
	return error;
}

static uint64_t plain_size(const char *key, uint64_t size)
{
	uint64_t plain = 0;

	if (is_open(key))
		return size;
	return encrypted_plain_len(size, &plain) ? plain : 0;
}

static int encrypt_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	uint64_t size;
	int error = remote_size(r->inner, key, &size);

	if (!error)
		*ret_size = plain_size(key, size);
	return error;
}

/* ---- listing and the rest ---- */

struct listing {
	remote_list_fn *fn;
	void *arg;
};

static int pass_plain_size(void *arg, const char *key, uint64_t size)
{
	const struct listing *l = arg;

	return l->fn(l->arg, key, plain_size(key, size));
}

static int encrypt_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	struct listing l = {.fn = fn, .arg = arg};

	return remote_list(r->inner, prefix, pass_plain_size, &l);
}

static int encrypt_delete(struct remote *r, const char *key)
{
	return remote_delete(r->inner, key);
}

static int encrypt_delete_batch(struct remote *r, const char *const *keys, size_t *count)
{
	return remote_delete_batch(r->inner, keys, count);
}

static void encrypt_get_state(struct remote *r, struct remote_state *ret_state)
{
	remote_get_state(r->inner, ret_state);
}

static void encrypt_release(struct remote *r)
{
	encryption_unref(((struct encrypting *)r)->encryption);
}

static const struct remote_ops encrypt_ops = {
	.put = encrypt_put,
	.put_if_absent = encrypt_put_if_absent,
	.get = encrypt_get,
	.size = encrypt_size,
	.list = encrypt_list,
	.delete = encrypt_delete,
	.delete_batch = encrypt_delete_batch,
	.release = encrypt_release,
	.get_state = encrypt_get_state,
};

int remote_encrypt_new(struct remote *inner, struct encryption *encryption,
		       struct remote **ret_remote)
{
	struct encrypting *l = calloc(1, sizeof(*l));
	int error;

	if (!l)
		return -ENOMEM;
	error = remote_init(&l->base, &encrypt_ops, inner->name, inner);
	if (error) {
		free(l);
		return error;
	}
	l->encryption = encryption_ref(encryption);
	*ret_remote = &l->base;
	return 0;
}

void remote_address_many(const struct remote *r, const struct hash_job *jobs, size_t count)
{
	hash_of_many(jobs, count);
	while (r && r->ops != &encrypt_ops)
		r = r->inner;
	for (size_t i = 0; r && i < count; i++)
		encryption_address(encryption_of(r), jobs[i].ret_hash);
}

void remote_address(const struct remote *r, const void *data, size_t len, struct hash *ret_address)
{
	const struct hash_job job = {data, len, ret_address};

	remote_address_many(r, &job, 1);
}
