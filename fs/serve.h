/* SPDX-License-Identifier: Apache-2.0 */
/* Finding our own mount in the system's list. Private to fs/. */
#ifndef EPOCHFS_FS_SERVE_H
#define EPOCHFS_FS_SERVE_H

#include "fs/fs.h"

/* Right after mounting: notes the device number that tells our mount from others. */
void serve_find_device(struct fs_mount *m);

#endif
