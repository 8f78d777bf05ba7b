/* SPDX-License-Identifier: Apache-2.0 */
/* The list of a garbage collection: what it has condemned. */
#ifndef EPOCHFS_FORMAT_GC_LIST_H
#define EPOCHFS_FORMAT_GC_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"
#include "lib/util/hash.h"

/*
 * A JSON object under gc/<generation> (names.h), made with create-if-absent by a collection. The
 * highest generation is the list; what the protocol is, is in lib/meta/collection.h.
 *
 *   "format"      1
 *   "generation"  as in the key
 *   "run"         a UUID, generated for each list: no two have the same bytes
 *   "host"        who collected, for people
 *   "published"   RFC 3339, by that host's clock
 *   "condemning"  the highest generation that condemned anything, in this list or before: a writer
 *                 that has heeded it has nothing new to heed
 *   "groups"      what is condemned and still there, or was at the last look. Each group:
 *     "generation"  that condemned it; 0: not condemned, only seen: packs that no index object names
 *     "since"       RFC 3339, by the clock of who condemned it, or first saw it
 *     "packs"       ids, in hex
 *     "indexes"     index objects, as in their keys without "index/"
 *
 * Unknown keys are ignored. Each object is in one group at most once; the decoder leaves what comes
 * twice as it is, for the reader to take the first.
 */
#define GC_LIST_FORMAT	    1
#define GC_LIST_ENCODED_MAX (32u << 20)
#define GC_LIST_ITEMS_MAX   200000
#define GC_LIST_HOST_MAX    255

/* One object. */
struct gc_item {
	struct hash id;	     /* first: found by hash_index */
	uint64_t index;	     /* the number in an index object's key; 0: a pack */
	uint64_t generation; /* that condemned it; 0: only seen */
	int64_t since_ns;
};

/* Zero-initialise, free with gc_list_free or mark `cleanup_gc_list`. */
struct gc_list {
	uint64_t generation; /* 1 to INT64_MAX */
	uint64_t condemning;
	char run[37];
	char host[GC_LIST_HOST_MAX + 1];
	int64_t published_ns;
	struct gc_item *items;
	size_t count, cap;
};

void gc_list_free(struct gc_list *l);
#define cleanup_gc_list CLEANUP(gc_list_free)

/* Appends a copy: 0, -EFBIG, -ENOMEM. */
int gc_list_add(struct gc_list *l, const struct gc_item *item);

/* Whether both have the same items, in whatever order. Sorts them. */
bool gc_list_same(struct gc_list *a, struct gc_list *b);

/* Appends the text; sorts the items. 0, -EINVAL where a number, a time or a UUID is none, -EFBIG, -ENOMEM. */
int gc_list_encode(struct gc_list *l, struct buf *out);
/* 0; -EBADMSG: this is no list; -EPROTONOSUPPORT: of a newer format; -ENOMEM. */
int gc_list_decode(const void *data, size_t len, struct gc_list *ret_list);

#endif
