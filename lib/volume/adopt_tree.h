/* SPDX-License-Identifier: Apache-2.0 */
/* The live tree made anew from an epoch's tree. Private to lib/volume. */
#ifndef EPOCHFS_VOLUME_ADOPT_TREE_H
#define EPOCHFS_VOLUME_ADOPT_TREE_H

#include "lib/format/tree.h"
#include "lib/volume/internal.h"

/*
 * Replaces all files and names of the live tree by those of this durable epoch, in one transaction, and makes it the current one. Nothing may be open.
 * The versions that the old files had stay as cache where they are durable.
 */
int adopt_tree(struct volume *vol, uint64_t number, const struct tree *tree);

#endif
