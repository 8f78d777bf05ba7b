/* SPDX-License-Identifier: Apache-2.0 */
/* The index object: in which packs, and where in them, chunks lie. */
#ifndef EPOCHFS_FORMAT_INDEX_H
#define EPOCHFS_FORMAT_INDEX_H

#include <stddef.h>
#include <stdint.h>
#include "lib/format/pack.h"
#include "lib/util/buf.h"
#include "lib/util/hash.h"

/*
 *   index   = "EFI" version packs pack{packs} crc
 *   version = u8, 1
 *   packs   = varint, number of packs
 *   pack    = id chunks chunk{chunks}   in strictly rising order of the ids (32 bytes)
 *   chunks  = varint, at least 1
 *   chunk   = hash gap stored plain     in rising order of offsets
 *   hash    = 32 bytes
 *   gap     = varint, bytes between the end of the frame before (at first: the pack's header) and
 *             this frame; 0 in an index that lists all of a pack
 *   stored plain = varints, lengths of the frame and of the plain bytes
 *   crc     = u32, CRC-32C of all bytes before it
 *
 * An index object is named "index/<epoch, 20 digits>-<SHA-256 of its bytes>" (names.h). Several may
 * list the same chunk; all of them are right. Merging objects is decoding them, joining the packs
 * and encoding them again.
 */
#define INDEX_ENCODED_MAX (1u << 30)

/* A pack for index_encode. */
struct index_pack {
	struct hash id;
	const struct pack_entry *entries; /* by offset */
	size_t count;
};

/* Appends an index of these packs, in any order (`packs` is sorted in place), to `out`: 0, -EINVAL
 * (a pack twice, no chunk, frames that overlap), -EFBIG, -ENOMEM. */
int index_encode(struct index_pack *packs, size_t count, struct buf *out);

/* Reads an index one chunk after another; no memory to free. The data must stay. */
struct index_reader {
	struct reader r;
	uint64_t packs_left;
	uint64_t chunks_left;
	struct hash pack;
	uint32_t end; /* of the frame before, in the pack */
	bool first;
};

/* Checks header and CRC: 0, -EBADMSG, -EPROTONOSUPPORT. */
int index_reader_init(struct index_reader *ret_reader, const void *data, size_t len);
/* 1 with the next chunk and its pack's id; 0 at the end; -EBADMSG. */
int index_reader_next(struct index_reader *r, struct hash *ret_pack, struct pack_entry *ret_entry);

#endif
