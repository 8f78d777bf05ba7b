/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing tags and drops to the remote. Private to the uploader. */
#ifndef EPOCHFS_VOLUME_UPLOAD_CHANGES_H
#define EPOCHFS_VOLUME_UPLOAD_CHANGES_H

#include "lib/volume/internal.h"

/* Every drop and tag that the remote has not seen; a tag of an epoch that is not durable yet waits for it. 0 or the remote's -errno;
 * -ESTALE: the lease is lost. */
int upload_changes(struct volume *vol, struct remote *remote);

#endif
