/* SPDX-License-Identifier: Apache-2.0 */
/* What a scan reads beside stat: extended attributes and the targets of symlinks. Private to import*.c. */
#ifndef EPOCHFS_IMPORT_IMPORT_ATTR_H
#define EPOCHFS_IMPORT_IMPORT_ATTR_H

#include "lib/import/import_scan.h"

/*
 * Sets xattrs and target of the node, which is `name` in the directory. Kept are user.*, trusted.* (root sees them) and security.capability, as far as a tree has room for
 * them; others are this machine's. 0 or -errno; -ESTALE where it has become something else.
 */
int import_attr_read(int dir_fd, const char *name, const struct stat *st, struct scan *s,
		     size_t number);

#endif
