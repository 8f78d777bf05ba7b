/* SPDX-License-Identifier: Apache-2.0 */
/* What epochs need of a remote, and the lists of what a collection has condemned. For lib/ alone. */
#ifndef EPOCHFS_META_GC_MARK_H
#define EPOCHFS_META_GC_MARK_H

#include "lib/format/gc_list.h"
#include "lib/remote/remote.h"
#include "lib/store/gc.h"
#include "lib/util/buf.h"

/* The records that name trees, as they were listed: those of epochs, and those of nodes' parts (nodes.h). */
struct gc_records {
	struct remote_keys parts;
	struct buf
		numbers; /* uint64_t each, ascending: all that are listed, then those that are no tombstones */
	uint64_t highest; /* of all, 0: none */
	uint64_t live;	  /* epochs that are there */
};
void gc_records_free(struct gc_records *r);
bool gc_records_has(const struct gc_records *r, uint64_t number);

/* Before anything else of a pass. The remote's errors. */
int gc_records_list(struct remote *remote, struct gc_records *ret_records);
/*
 * Marks all that they need; so many threads, each with a tree in memory. -EBADMSG: something is damaged or missing, and `why` says what; or the remote's.
 * The records that turn out to be tombstones are left out of `r` from then on.
 */
int gc_mark(struct remote *remote, struct store_gc *g, struct gc_records *r, unsigned readers,
	    void (*progress)(void *arg, const char *phase, uint64_t done, uint64_t total),
	    void *arg, struct buf *why);

/* The lists of garbage collections in a remote (format/gc_list.h): for collections and for writers. */

/* Older lists are history; so many generations stay. */
#define GC_LISTS_KEEP 8

/* The highest generation, 0: there is none. The remote's errors. */
int gc_lists_highest(struct remote *remote, uint64_t *ret_generation);
/* The list in force: -ENOENT: there is none; -EBADMSG: it is damaged, and its generation is set; -EPROTONOSUPPORT; or the remote's. */
int gc_lists_look(struct remote *remote, struct gc_list *ret_list);
/* Makes this the list in force. -EEXIST: another one has come before it; -EOPNOTSUPP: the remote has no create-if-absent; or the remote's. */
int gc_lists_publish(struct remote *remote, struct gc_list *list);
/* Removes history. */
int gc_lists_tidy(struct remote *remote, uint64_t highest);

#endif
