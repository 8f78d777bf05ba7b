/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the catalog share. Private to catalog*.c. */
#ifndef EPOCHFS_ADMIN_CATALOG_INTERNAL_H
#define EPOCHFS_ADMIN_CATALOG_INTERNAL_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include "lib/admin/catalog.h"
#include "lib/format/tree.h"
#include "lib/meta/epoch_index.h"
#include "lib/meta/opening.h"
#include "lib/remote/remote.h"
#include "lib/store/store.h"

/* How long each call of the command waits for a remote that does not answer. */
#define CATALOG_PATIENCE (15 * NS_PER_S)

struct catalog_hold; /* catalog_drop.c */

struct catalog {
	struct remote *remote; /* retries for CATALOG_PATIENCE */
	unsigned connections;  /* transfers at once */
	char uuid[37];
	/* The records, read once when they are first asked for, ascending; and what follows from them. */
	bool listed;
	struct epoch_record *records;
	size_t count, cap;
	struct epoch_index epochs;
	struct catalog_hold *hold; /* the lease, while this is the writer */
	/* Opened when content or a tree is first asked for; `index` is in memory and belongs to it. */
	struct store *store;
	struct store_index index;
};

/* The same for any remote, whatever it holds. */
int catalog_connect_any(const char *url, const struct remote_limits *limits,
			struct remote **ret_remote, struct opening_message *m);

/* Puts over *r what opens it, where the volume is encrypted. */
int catalog_unlock(struct remote **r, const struct volume_info *info,
		   const struct remote_limits *limits, struct opening_message *m);

/* Opens the store if it is not yet. */
int catalog_store(struct catalog *c);
/* The record of an epoch, the catalog's: -ENOENT, -EBADMSG where it is damaged. */
int catalog_record(struct catalog *c, uint64_t number, const struct epoch_record **ret_record);
/* The records are read again when they are next asked for. */
void catalog_forget(struct catalog *c);
/* An epoch that is no longer there. */
void catalog_forget_epoch(struct catalog *c, uint64_t number);
/*
 * What an error of the store or the remote means to a person: -EBADMSG what is stored is damaged or
 * missing, -EHOSTUNREACH the remote does not answer, -EACCES it does not allow it, else as it is.
 */
int catalog_errno(const struct catalog *c, int error);

/* ---- Reading a part of a content from the remote. ---- */

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
