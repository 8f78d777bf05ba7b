/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of garbage collections in a remote (format/gc_list.h): for collections and for writers. */
#ifndef EPOCHFS_META_GC_LISTS_H
#define EPOCHFS_META_GC_LISTS_H

#include "lib/format/gc_list.h"
#include "lib/remote/remote.h"

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
