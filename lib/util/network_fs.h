/* SPDX-License-Identifier: Apache-2.0 */
/* File systems that a network lies behind. */
#ifndef EPOCHFS_UTIL_NETWORK_FS_H
#define EPOCHFS_UTIL_NETWORK_FS_H

#include <sys/vfs.h>

/* What it is called, such as "NFS"; NULL: none that we know of. */
const char *network_fs_name(const struct statfs *st);

#endif
