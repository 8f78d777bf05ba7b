/* SPDX-License-Identifier: Apache-2.0 */
/* Single entries of a tree as bytes, and their order: what tree writer, reader and index share. */
#ifndef EPOCHFS_FORMAT_TREE_WIRE_H
#define EPOCHFS_FORMAT_TREE_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/format/tree.h"
#include "lib/util/buf.h"

/* For lib/format only. */
#define TREE_MAGIC	 "EFT"
#define TREE_VERSION	 1
#define TREE_HEADER_LEN	 5 /* magic, version, flags */
#define TREE_TRAILER_LEN 9 /* end mark, count, crc */
#define TREE_END	 0 /* in place of a type: no more entries */
#define TREE_LINK	 8 /* in place of a type: a further name of a group */

/* Flag of the header beside TREE_ALLOW_LOCAL: an entry has holes. */
#define TREE_HAS_HOLES 2u

/* The shortest entry: a link of depth 1 with a name of one byte. */
#define TREE_ENTRY_LEN_MIN 6

/* 0 or -EINVAL: do the fields that are not depth, name and group fit the format? */
int tree_body_check(const struct tree_entry *e, unsigned int flags);
/* Appends an entry that passed the checks; e->group is the group's number in this tree. */
void tree_put_entry(const struct tree_entry *e, struct buf *out);
/* The same for a further name of a group. */
void tree_put_link(const struct tree_entry *e, struct buf *out);

/*
 * Reads the next entry; sets r->failed where a field is malformed. Not checked are what needs other
 * entries (order, numbers of groups), name and xattrs. true where it is a further name of a group:
 * then only depth, name and group are set.
 */
bool tree_get_entry(struct reader *r, unsigned int flags, struct tree_entry *ret_entry);

/* Which entry may come next. Names are offsets into the encoding, whose start is given. */
struct tree_order {
	bool root;	  /* it was there */
	uint32_t deepest; /* depth that the next entry may have */
	struct {
		size_t offset;
		size_t len; /* 0: no sibling yet */
	} last[TREE_DEPTH_MAX + 2];
};

/* May an entry of this depth, name and kind come now? */
bool tree_order_allows(const struct tree_order *o, const uint8_t *start,
		       const struct tree_entry *e);
/* It came, with its name at that offset. */
void tree_order_note(struct tree_order *o, const struct tree_entry *e, size_t name_offset);

/* Bytewise order of two names, a shorter one before its continuations. */
int tree_name_compare(const char *a, size_t a_len, const char *b, size_t b_len);

#endif
