/* SPDX-License-Identifier: Apache-2.0 */
/* Key slots: wrapping, and their JSON. */
#include "lib/format/key_slot.h"

#include <errno.h>
#include <string.h>

#include "lib/format/wire.h"
#include "lib/util/clock.h"
#include "lib/util/hash.h"
#include "lib/util/parse.h"

#define FILE_INFO "epochfs key file"

/* What a new passphrase costs to try: 128 MiB and about half a second. */
static const struct scrypt_cost usual_cost = {.n = 1 << 17, .r = 8, .p = 1};

static const char *const kinds[] = {[KEY_PASSPHRASE] = "passphrase", [KEY_FILE] = "key-file"};

const char *key_kind_name(enum key_kind kind)
{
	return kinds[kind];
}

/* ---- JSON ---- */

static int set_hex(json_t *object, const char *name, const uint8_t *bytes, size_t len)
{
	char hex[2 * KEY_WRAPPED_SIZE + 1];

	hex_encode(bytes, len, hex);
	return json_object_set_new(object, name, json_string(hex));
}

static json_t *cost_json(const struct scrypt_cost *c)
{
	return json_pack("{s:I, s:I, s:I}", "n", (json_int_t)c->n, "r", (json_int_t)c->r, "p",
			 (json_int_t)c->p);
}

/* With what wraps the key, or without. */
static int print(const struct key_slot *s, bool whole, struct buf *out)
{
	cleanup_json json_t *object = NULL, *uuid = json_string(s->uuid);
	char created[FORMAT_MAX], checked[37];

	if (s->created_ns < 0 || json_wire_uuid(uuid, checked) < 0 ||
	    (s->kind == KEY_PASSPHRASE && !scrypt_cost_valid(&s->cost)))
		return -EINVAL;
	format_time(s->created_ns, created);
	object = json_pack("{s:i, s:s, s:s, s:s}", "format", KEY_SLOT_FORMAT, "volume", s->uuid,
			   "kind", key_kind_name(s->kind), "created", created);
	if (!object || set_hex(object, "salt", s->salt, sizeof(s->salt)) ||
	    (s->kind == KEY_PASSPHRASE &&
	     json_object_set_new(object, "scrypt", cost_json(&s->cost))))
		return -ENOMEM;
	if (whole && (set_hex(object, "nonce", s->nonce, sizeof(s->nonce)) ||
		      set_hex(object, "wrapped", s->wrapped, sizeof(s->wrapped))))
		return -ENOMEM;
	return json_wire_print(object, KEY_SLOT_ENCODED_MAX, out);
}

int key_slot_encode(const struct key_slot *s, struct buf *out)
{
	return print(s, true, out);
}

static int get_hex(const json_t *object, const char *name, uint8_t *ret_bytes, size_t len)
{
	const char *hex = json_string_value(json_object_get(object, name));

	return hex && strlen(hex) == 2 * len && !hex_decode(hex, len, ret_bytes) ? 0 : -EBADMSG;
}

static int decode_kind(const json_t *object, struct key_slot *s)
{
	const char *kind = json_string_value(json_object_get(object, "kind"));
	const json_t *cost = json_object_get(object, "scrypt");

	if (!kind)
		return -EBADMSG;
	if (!strcmp(kind, kinds[KEY_FILE])) {
		s->kind = KEY_FILE;
		return 0;
	}
	if (strcmp(kind, kinds[KEY_PASSPHRASE]))
		return -EPROTONOSUPPORT;
	s->kind = KEY_PASSPHRASE;
	if (json_wire_u32(json_object_get(cost, "n"), 2, UINT32_MAX, &s->cost.n) < 0 ||
	    json_wire_u32(json_object_get(cost, "r"), 1, UINT32_MAX, &s->cost.r) < 0 ||
	    json_wire_u32(json_object_get(cost, "p"), 1, UINT32_MAX, &s->cost.p) < 0)
		return -EBADMSG;
	return scrypt_cost_valid(&s->cost) ? 0 : -EBADMSG;
}

int key_slot_decode(const void *data, size_t len, struct key_slot *ret_slot)
{
	cleanup_json json_t *object = NULL;
	struct key_slot s = {0};
	int error = json_wire_parse(data, len, KEY_SLOT_ENCODED_MAX, KEY_SLOT_FORMAT, &object);

	if (error)
		return error;
	if (json_wire_uuid(json_object_get(object, "volume"), s.uuid) < 0 ||
	    json_wire_time(json_object_get(object, "created"), &s.created_ns) < 0 ||
	    get_hex(object, "salt", s.salt, sizeof(s.salt)) < 0 ||
	    get_hex(object, "nonce", s.nonce, sizeof(s.nonce)) < 0 ||
	    get_hex(object, "wrapped", s.wrapped, sizeof(s.wrapped)) < 0)
		return -EBADMSG;
	error = decode_kind(object, &s);
	if (!error)
		*ret_slot = s;
	return error;
}

/* ---- wrapping ---- */

static int wrapping_key(const struct key_slot *s, const void *secret, size_t len,
			uint8_t ret_key[CRYPTO_KEY_SIZE])
{
	if (s->kind == KEY_PASSPHRASE)
		return scrypt_key(secret, len, s->salt, sizeof(s->salt), &s->cost, ret_key,
				  CRYPTO_KEY_SIZE);
	return hkdf_sha256(secret, len, s->salt, sizeof(s->salt), FILE_INFO, strlen(FILE_INFO),
			   ret_key, CRYPTO_KEY_SIZE);
}

/* What wraps, ready to encrypt or decrypt, and what is encrypted with the key. */
static int prepare(const struct key_slot *s, const char *id, const void *secret, size_t len,
		   struct buf *aad, struct aead **ret_aead)
{
	uint8_t key[CRYPTO_KEY_SIZE];
	int error;

	buf_printf(aad, "%s\n", id);
	error = print(s, false, aad);
	if (!error)
		error = wrapping_key(s, secret, len, key);
	if (!error)
		error = aead_new(key, ret_aead);
	secret_wipe(key, sizeof(key));
	return error;
}

int key_slot_wrap(const char *id, const char *uuid, enum key_kind kind, const void *secret,
		  size_t len, const uint8_t master[CRYPTO_KEY_SIZE], struct key_slot *ret_slot)
{
	struct key_slot s = {.kind = kind, .created_ns = clock_wall_ns()};
	cleanup_buf struct buf aad = {0};
	struct aead *aead = NULL;
	int error;

	memcpy(s.uuid, uuid, sizeof(s.uuid));
	if (kind == KEY_PASSPHRASE)
		s.cost = usual_cost;
	error = random_bytes(s.salt, sizeof(s.salt));
	if (!error)
		error = random_bytes(s.nonce, sizeof(s.nonce));
	if (!error)
		error = prepare(&s, id, secret, len, &aad, &aead);
	if (!error)
		error = aead_encrypt(aead, s.nonce, aad.data, aad.len, master, CRYPTO_KEY_SIZE,
				     s.wrapped, s.wrapped + CRYPTO_KEY_SIZE);
	aead_free(aead);
	if (!error)
		*ret_slot = s;
	return error;
}

int key_slot_unwrap(const struct key_slot *s, const char *id, const void *secret, size_t len,
		    uint8_t ret_master[CRYPTO_KEY_SIZE])
{
	cleanup_buf struct buf aad = {0};
	uint8_t master[CRYPTO_KEY_SIZE];
	struct aead *aead = NULL;
	int error = prepare(s, id, secret, len, &aad, &aead);

	if (!error)
		error = aead_decrypt(aead, s->nonce, aad.data, aad.len, s->wrapped, CRYPTO_KEY_SIZE,
				     s->wrapped + CRYPTO_KEY_SIZE, master);
	aead_free(aead);
	if (!error)
		memcpy(ret_master, master, sizeof(master));
	secret_wipe(master, sizeof(master));
	return error;
}
