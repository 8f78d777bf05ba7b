/* SPDX-License-Identifier: Apache-2.0 */
/* The pack: chunk frames one after another, with a checksummed table at the end. */
#ifndef EPOCHFS_FORMAT_PACK_H
#define EPOCHFS_FORMAT_PACK_H

#include <stddef.h>
#include <stdint.h>
#include "lib/format/chunk.h"
#include "lib/util/buf.h"
#include "lib/util/hash.h"

/*
 *   pack   = "EFP" version frame{count} row{count} footer
 *   version = u8, 1
 *   frame  = a chunk frame of chunk.h
 *   row    = hash stored plain           for each frame in turn: the chunk's hash (32 bytes), u32
 *                                        length of the frame, u32 length of the plain bytes
 *   footer = table count crc "EFPT" version zero{3}
 *   table  = u64, offset of the first row
 *   count  = u32, number of rows, at least 1
 *   crc    = u32, CRC-32C of the rows and of `table` and `count`
 *
 * The frames fill the space between the header and the table without a gap, so that a frame's
 * offset is the sum of what lies before it. A pack's id is the SHA-256 of its rows: it names the
 * content. Its object is "packs/<first 2 hex>/<64 hex>" (names.h).
 */
#define PACK_HEADER_LEN 4
#define PACK_ROW_LEN	(HASH_SIZE + 8)
#define PACK_FOOTER_LEN 24
/* At most so long; uploaders close a pack far earlier. */
#define PACK_LEN_MAX (1u << 30)

/* Where a chunk lies in its pack. */
struct pack_entry {
	struct hash hash;
	uint32_t offset;     /* of the frame in the pack */
	uint32_t stored_len; /* of the frame */
	uint32_t plain_len;
};

/* Zero-initialise, free with pack_table_free or mark `cleanup_pack_table`. */
struct pack_table {
	struct pack_entry *entries; /* by offset */
	size_t count;
	size_t cap;
	uint32_t end; /* offset after the last frame; 0 while there is none */
};

void pack_table_free(struct pack_table *t);
#define cleanup_pack_table CLEANUP(pack_table_free)

/*
 * Writing: pack_begin once, then for each chunk append its frame to the pack and call
 * pack_table_add, then pack_finish. `out` may be emptied in between (to a file); the table counts.
 */
void pack_begin(struct buf *out);
/* Notes the next frame: 0, -EINVAL (a length), -EFBIG (pack too long), -ENOMEM. */
int pack_table_add(struct pack_table *t, const struct hash *hash, uint32_t stored_len,
		   uint32_t plain_len);
/* Appends rows and footer: 0, -EINVAL for an empty table, -ENOMEM. */
int pack_finish(const struct pack_table *t, struct buf *out);
/* The whole pack's length. */
uint64_t pack_len(const struct pack_table *t);
/* The pack's id: 0 or -ENOMEM. */
int pack_table_id(const struct pack_table *t, struct hash *ret_id);

/* Reading: the footer tells where the rows lie. */
struct pack_footer {
	uint64_t table_offset;
	uint32_t count;
	uint32_t table_len; /* of the rows, in bytes */
	uint32_t crc;
};

/* Decodes the last PACK_FOOTER_LEN bytes of a pack of `pack_len` bytes: 0, -EBADMSG,
 * -EPROTONOSUPPORT. */
int pack_footer_decode(const uint8_t tail[PACK_FOOTER_LEN], uint64_t pack_len,
		       struct pack_footer *ret_footer);
/* Decodes the rows, which are f->table_len bytes at f->table_offset, and checks them against the
 * footer: 0, -EBADMSG, -ENOMEM. Compare pack_table_id with the object's name after it. */
int pack_table_decode(const struct pack_footer *f, const void *rows, struct pack_table *ret_table);
/* Checks the pack's first PACK_HEADER_LEN bytes: 0, -EBADMSG, -EPROTONOSUPPORT. */
int pack_header_check(const uint8_t head[PACK_HEADER_LEN]);

#endif
