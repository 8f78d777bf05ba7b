/* SPDX-License-Identifier: Apache-2.0 */
/* The key slot: an encrypted volume's master key, wrapped under a passphrase or a key file. */
#ifndef EPOCHFS_FORMAT_KEY_SLOT_H
#define EPOCHFS_FORMAT_KEY_SLOT_H

#include <stddef.h>
#include <stdint.h>
#include "lib/format/names.h"
#include "lib/util/buf.h"
#include "lib/util/crypto.h"

/*
 * keys/<16 hex digits>.json (names.h), one for each passphrase or key file that opens the volume; the digits, its
 * id, are random. One JSON object:
 *
 *   "format"   1
 *   "volume"   the volume's UUID: what an attempt to make a volume left behind is no key of another
 *   "kind"     "passphrase" or "key-file"
 *   "created"  RFC 3339
 *   "salt"     32 hex digits, random
 *   "scrypt"   { "n", "r", "p" }, of a passphrase: what crypto.h allows, so untrusted input cannot make a reader
 *              take more memory or time than that
 *   "nonce"    24 hex digits, random
 *   "wrapped"  96 hex digits: the master key by AES-256-GCM, then the tag
 *
 * The key that wraps is scrypt of the passphrase with that salt, or HKDF-SHA-256 of the key file's bytes with that
 * salt and the info "epochfs key file". The additional data are the id, a newline, and the text of the
 * object without "nonce" and "wrapped": so nothing of a slot can be changed, and none be renamed. Unknown members are
 * ignored.
 */
#define KEY_SLOT_FORMAT	     1
#define KEY_SLOT_ENCODED_MAX 4096u
#define KEY_SALT_SIZE	     16
#define KEY_WRAPPED_SIZE     (CRYPTO_KEY_SIZE + CRYPTO_TAG_SIZE)

enum key_kind {
	KEY_PASSPHRASE,
	KEY_FILE,
};

struct key_slot {
	char uuid[37];
	enum key_kind kind;
	int64_t created_ns;
	uint8_t salt[KEY_SALT_SIZE];
	struct scrypt_cost cost; /* of a passphrase */
	uint8_t nonce[CRYPTO_NONCE_SIZE];
	uint8_t wrapped[KEY_WRAPPED_SIZE];
};

/* "passphrase" or "key-file". */
const char *key_kind_name(enum key_kind kind);

/*
 * A new slot of this id for the volume: `master` wrapped under `secret`, with the cost that new passphrases have (128 MiB,
 * half a second). 0 or -errno of crypto.h or of the random source.
 */
int key_slot_wrap(const char *id, const char *uuid, enum key_kind kind, const void *secret,
		  size_t len, const uint8_t master[CRYPTO_KEY_SIZE], struct key_slot *ret_slot);
/* The master key: -EBADMSG where `secret` is not the one, or the slot is not what was written under that id. */
int key_slot_unwrap(const struct key_slot *s, const char *id, const void *secret, size_t len,
		    uint8_t ret_master[CRYPTO_KEY_SIZE]);

/* Appends the JSON text: 0, -EINVAL, -ENOMEM. */
int key_slot_encode(const struct key_slot *s, struct buf *out);
/* 0; -EBADMSG: this is no key slot; -EPROTONOSUPPORT: a newer format or an unknown kind; -ENOMEM. */
int key_slot_decode(const void *data, size_t len, struct key_slot *ret_slot);

#endif
