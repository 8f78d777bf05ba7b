/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a part of a content from the remote. */
#ifndef EPOCHFS_ADMIN_CATALOG_PART_H
#define EPOCHFS_ADMIN_CATALOG_PART_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "lib/admin/catalog.h"
#include "lib/format/tree.h"
#include "lib/store/store.h"

/* Private to catalog*.c. Bytes [from, from + len) of a content, and where they go. */
struct content_window {
	uint64_t from;
	size_t len;
	uint8_t *data;
};

/* Takes what these bytes, which lie at `offset`, have of the window. */
void content_window_put(const struct content_window *w, uint64_t offset, const void *data,
			size_t len);

/*
 * Up to len bytes at offset, fewer only at the content's end: the count, or an error of the store (catalog_errno says what it
 * means). `recipe` is the entry's where it has one (TREE_RECIPE). Each chunk that is touched is fetched whole; nothing is kept.
 */
ssize_t catalog_read_part(struct catalog *c, const struct tree_entry *entry,
			  const struct recipe *recipe, void *data, size_t len, uint64_t offset,
			  struct store_failure *ret_failure);

#endif
