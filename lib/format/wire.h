/* SPDX-License-Identifier: Apache-2.0 */
/* What the binary formats share: magic and version, shortest varints, texts, hashes. */
#ifndef EPOCHFS_FORMAT_WIRE_H
#define EPOCHFS_FORMAT_WIRE_H

#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"
#include "lib/util/hash.h"

/*
 * For lib/format only. The readers below set r->failed (lib/util/buf.h) where the bytes are
 * malformed, and are stricter than reader_varint: one value has one encoding.
 */

/* Three letters and the version: 0; -EBADMSG for other letters, -EPROTONOSUPPORT for a newer
 * version. */
int wire_magic(struct reader *r, const char magic[4], uint8_t version);
void wire_put_magic(struct buf *out, const char magic[4], uint8_t version);

/* A varint in its shortest form, at most `max`. */
uint64_t wire_varint(struct reader *r, uint64_t max);
/* A varint length of at most `max`, and that many bytes. NULL where it failed. */
const uint8_t *wire_bytes(struct reader *r, size_t max, size_t *ret_len);
/* A length of at most `max`, bytes without a NUL, and a NUL. NULL where it failed. */
const char *wire_text(struct reader *r, size_t max, size_t *ret_len);
void wire_put_text(struct buf *out, const char *text, size_t len);
void wire_hash(struct reader *r, struct hash *ret_hash);

/* Appends the CRC-32C of what `out` holds from `start` on. */
void wire_put_crc(struct buf *out, size_t start);
/* Takes the CRC off the end of the data and compares it: 0 and the length before it, or -EBADMSG. */
int wire_check_crc(const void *data, size_t len, size_t *ret_len);

#endif
