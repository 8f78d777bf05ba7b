/* SPDX-License-Identifier: Apache-2.0 */
/* Trees and their differences as JSON: what `show` and `diff` print, on a mount and on a remote alike. */
#ifndef EPOCHFS_META_LISTING_H
#define EPOCHFS_META_LISTING_H

#include <jansson.h>
#include "lib/format/tree.h"
#include "lib/meta/epoch_index.h"

/* [{"path","type","mode","size","mtime_ns"[,"target"][,"torn":true][,"log":true]}], in the order of the tree, without the root; NULL: no memory.
 * Types: file, directory, symlink, fifo, socket, block device, character device.
 * Bytes of names that are not UTF-8 are replaced (U+FFFD). */
json_t *listing_files(const struct tree *t);
/* {"added":[{"path","type","size"}],"changed":[{"path","type","size","old_size"[,"meta":true]}],"removed":[...],
 *  "bytes_added","bytes_removed"}; `meta`: only attributes differ. The root is `.`; directories of which only times changed are left out.
 * a NULL: all of b is added. */
int listing_diff(const struct tree *a, const struct tree *b, json_t **ret_diff);
/* An epoch as `log` gives it: the record's keys (record.h) without what says where its tree lies; "state" (epoch_state_name), "complete" as it
 * counts now, "continued": true where a later epoch continues it, "error". NULL: no memory. */
json_t *listing_epoch(const struct epoch_info *e);
/* What a status says of such an epoch: its number, step, times, state and size. NULL: no memory. */
json_t *listing_brief(const json_t *epoch);
/* A JSON string of bytes that need not be UTF-8. */
json_t *listing_string(const char *bytes);

#endif
