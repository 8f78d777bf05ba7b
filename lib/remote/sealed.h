/* SPDX-License-Identifier: Apache-2.0 */
/* How the objects of an encrypted volume are sealed: keys, segments, addresses. Pure; the layer that
 * applies it to a remote is seal.h. */
#ifndef EPOCHFS_REMOTE_SEALED_H
#define EPOCHFS_REMOTE_SEALED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"
#include "lib/util/crypto.h"
#include "lib/util/hash.h"

/*
 * A volume has one random master key. Three keys come from it by HKDF-SHA-256, with the volume's UUID as
 * salt and a label as info:
 *
 *   "epochfs address"  content is addressed by HMAC-SHA-256, under this key, of its SHA-256, where a plain
 *                      volume takes that itself: who has no key cannot tell whether a file that he knows is there
 *   "epochfs check"    binds epochfs.json to the master key (format/volume_info.h)
 *   "epochfs object"   seals objects
 *
 * An object is sealed under keys of its own: HKDF-SHA-256 of the object key, without a salt, with the
 * object's key in the remote ("packs/ab/ab12...") as info, gives 64 bytes: 32 for AES-256-GCM and 32
 * for nonces. So an object that is moved to another key does not open, and the nonces of one object say
 * nothing of another's.
 *
 *   object  = segment{n}
 *   segment = nonce{12} text tag{16}
 *   text    = AES-256-GCM of SEALED_SEGMENT plain bytes; of the last segment fewer, from 0 on
 *   nonce   = the first 12 bytes of HMAC-SHA-256, under the nonce key, of the segment's number (u64, from
 *             0, little-endian) and the SHA-256 of its plain bytes
 *
 * with the segment's number as additional data. Exactly the last segment is short, so that an object
 * that was cut is noticed, and its plain length follows from its length. The nonce comes from the content:
 * equal bytes under one key in the remote are sealed alike, which repeated uploads rest on, and two
 * different texts have one nonce only where HMAC collides (2^-97 a pair, and only pairs within one key in
 * the remote count).
 */
#define SEALED_SEGMENT	((size_t)32 << 10)
#define SEALED_OVERHEAD (CRYPTO_NONCE_SIZE + CRYPTO_TAG_SIZE)
/* A whole segment as it is stored. */
#define SEALED_STORED (SEALED_SEGMENT + SEALED_OVERHEAD)

/* The keys of a volume. Never changed once made: any number of threads. */
struct seal;

/* 0, or the errors of crypto.h. `master` is not kept. */
int seal_new(const uint8_t master[CRYPTO_KEY_SIZE], const char *uuid, struct seal **ret_seal);
struct seal *seal_ref(struct seal *s);
/* Gives a reference back; the last one wipes the keys. NULL is allowed. */
void seal_unref(struct seal *s);
static inline void cleanup_seal_fn(struct seal **s)
{
	seal_unref(*s);
}
#define cleanup_seal CLEANUP(cleanup_seal_fn)

/* Makes the SHA-256 of plain content its address. */
void seal_address(const struct seal *s, struct hash *hash);
/* The value that says of these bytes that who wrote them had the master key. */
void seal_check(const struct seal *s, const void *data, size_t len, struct hash *ret_check);

/* What so many plain bytes take. */
uint64_t sealed_len(uint64_t plain_len);
/* The reverse: false where no object has this length. */
bool sealed_plain_len(uint64_t len, uint64_t *ret_plain_len);

/* Appends the sealed object that has this key in the remote: 0, or the errors of crypto.h; then `out`
 * is as it was. */
int seal_object(const struct seal *s, const char *key, const void *plain, size_t len,
		struct buf *out);

/*
 * Opens segments `first` and following, of the object with this key in the remote, which are the `len`
 * bytes at `data`; the last may be short. The plain bytes come to lie at `data` itself, *ret_len of them: of a
 * segment that is not what was sealed under this key and number, or is cut, zeros, as many as there would be; then
 * *ret_damaged. *ret_ended: the last one was a short one, so the object ends there. 0, or the errors of crypto.h; then
 * the bytes at `data` are of no use.
 */
int seal_open(const struct seal *s, const char *key, uint64_t first, void *data, size_t len,
	      size_t *ret_len, bool *ret_ended, bool *ret_damaged);

#endif
