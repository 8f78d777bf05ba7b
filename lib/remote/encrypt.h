/* SPDX-License-Identifier: Apache-2.0 */
/* The layer that encrypts what goes to the remote of an encrypted volume, and opens what comes back. */
#ifndef EPOCHFS_REMOTE_ENCRYPT_H
#define EPOCHFS_REMOTE_ENCRYPT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/remote/remote.h"
#include "lib/util/buf.h"
#include "lib/util/crypto.h"
#include "lib/util/hash.h"

/* ---- keys and the format of objects: pure ---- */

/*
 * A volume has one random master key. Three keys come from it by HKDF-SHA-256, with the volume's UUID as
 * salt and a label as info:
 *
 *   "epochfs address"  content is addressed by HMAC-SHA-256, under this key, of its SHA-256, where a plain
 *                      volume takes that itself: who has no key cannot tell whether a file that he knows is there
 *   "epochfs check"    binds epochfs.json to the master key (format/volume_info.h)
 *   "epochfs object"   encrypts objects
 *
 * An object is encrypted under keys of its own: HKDF-SHA-256 of the object key, without a salt, with the
 * object's key in the remote ("packs/ab/ab12...") as info, gives 64 bytes: 32 for AES-256-GCM and 32
 * for nonces. So an object that is moved to another key does not open, and the nonces of one object say
 * nothing of another's.
 *
 *   object  = segment{n}
 *   segment = nonce{12} text tag{16}
 *   text    = AES-256-GCM of ENCRYPTED_SEGMENT plain bytes; of the last segment fewer, from 0 on
 *   nonce   = the first 12 bytes of HMAC-SHA-256, under the nonce key, of the segment's number (u64, from
 *             0, little-endian) and the SHA-256 of its plain bytes
 *
 * with the segment's number as additional data. Exactly the last segment is short, so that an object
 * that was cut is noticed, and its plain length follows from its length. The nonce comes from the content:
 * equal bytes under one key in the remote are encrypted alike, which repeated uploads rest on, and two
 * different texts have one nonce only where HMAC collides (2^-96 a pair, and only pairs within one key in
 * the remote count).
 */
#define ENCRYPTED_SEGMENT  ((size_t)32 << 10)
#define ENCRYPTED_OVERHEAD (CRYPTO_NONCE_SIZE + CRYPTO_TAG_SIZE)
/* A whole segment as it is stored. */
#define ENCRYPTED_STORED (ENCRYPTED_SEGMENT + ENCRYPTED_OVERHEAD)

/* The keys of a volume. Never changed once made: any number of threads. */
struct encryption;

/* 0, or the errors of crypto.h. `master` is not kept. */
int encryption_new(const uint8_t master[CRYPTO_KEY_SIZE], const char *uuid,
		   struct encryption **ret_encryption);
struct encryption *encryption_ref(struct encryption *s);
/* Gives a reference back; the last one wipes the keys. NULL is allowed. */
void encryption_unref(struct encryption *s);
static inline void cleanup_encryption_fn(struct encryption **s)
{
	encryption_unref(*s);
}
#define cleanup_encryption CLEANUP(cleanup_encryption_fn)

/* Makes the SHA-256 of plain content its address. */
void encryption_address(const struct encryption *s, struct hash *hash);
/* The value that says of these bytes that who wrote them had the master key. */
void encryption_check(const struct encryption *s, const void *data, size_t len,
		      struct hash *ret_check);

/* What so many plain bytes take. */
uint64_t encrypted_len(uint64_t plain_len);
/* The reverse: false where no object has this length. */
bool encrypted_plain_len(uint64_t len, uint64_t *ret_plain_len);

/* Appends the encrypted object that has this key in the remote: 0, or the errors of crypto.h; then `out`
 * is as it was. */
int encrypt_object(const struct encryption *s, const char *key, const void *plain, size_t len,
		   struct buf *out);

/*
 * Opens segments `first` and following, of the object with this key in the remote, which are the `len`
 * bytes at `data`; the last may be short. The plain bytes come to lie at `data` itself, *ret_len of them: of a
 * segment that is not what was encrypted under this key and number, or is cut, zeros, as many as there would be; then
 * *ret_damaged. *ret_ended: the last one was a short one, so the object ends there. 0, or the errors of crypto.h; then
 * the bytes at `data` are of no use.
 */
int decrypt_segments(const struct encryption *s, const char *key, uint64_t first, void *data,
		     size_t len, size_t *ret_len, bool *ret_ended, bool *ret_damaged);

/*
 * Every object is encrypted but those that are read before there is a key: epochfs.json, what
 * lies below keys/, and probes (epochfs.probe-*). Sizes are those of the plain bytes, in listings too;
 * of what can be no encrypted object it is 0. Ranges are read with the segments around them. Keys in the remote stay
 * as they are.
 *
 * What was not encrypted here under that key in the remote, or was cut, comes as zeros, with a line in the log (of a pack, at debug level), once three
 * readings have brought it: no decoder takes zeros, so each treats it as it treats damage. Below packs/, where
 * each chunk is checked against its address by who reads it, only the segments that do not open are zeros:
 * a damaged one costs the chunks that lie in it, and no others. Anywhere else the whole object is.
 *
 * It may lie above or below a retry layer: equal bytes are encrypted alike, so a create whose answer was lost is
 * recognised by either.
 *
 * Takes over the caller's reference to `inner` on success, and leaves it alone on failure; a reference to `encryption`
 * is added. 0 or -ENOMEM.
 */
int remote_encrypt_new(struct remote *inner, struct encryption *encryption,
		       struct remote **ret_remote);

#endif
