/* SPDX-License-Identifier: Apache-2.0 */
/* Bringing tags and drops to the remote. Private to the uploader. */
#ifndef EPOCHFS_UPLOAD_UPLOAD_CHANGES_H
#define EPOCHFS_UPLOAD_UPLOAD_CHANGES_H

#include "lib/cache/context.h"

/* Tags and drops that the remote has not seen, but not so many that an epoch would wait for long: ret_more says whether some are
 * left. A tag of an epoch that is not durable yet waits for it, and a drop for what makes it bearable. 0 or the remote's -errno;
 * -ESTALE: the lease is lost. */
int upload_changes(struct volume *vol, struct remote *remote, bool *ret_more);

#endif
