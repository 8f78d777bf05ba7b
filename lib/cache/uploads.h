/* SPDX-License-Identifier: Apache-2.0 */
/* What is told to whoever uploads. */
#ifndef EPOCHFS_CACHE_UPLOADS_H
#define EPOCHFS_CACHE_UPLOADS_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/cache/context.h"

/* vol->uploads, set before there are threads; NULL where nothing is uploaded. Any thread, any lock held. */
struct upload_ops {
	void (*kick)(struct volume *vol);
	void (*closed)(struct volume *vol, uint64_t version, uint64_t size);
	bool (*gave_up)(struct volume *vol);
};

/* There is work: an epoch was sealed, a tag changed, an epoch was dropped. */
static inline void uploads_kick(struct volume *vol)
{
	if (vol->uploads)
		vol->uploads->kick(vol);
}

/* A version was closed that is no log and no edit in place. */
static inline void uploads_closed(struct volume *vol, uint64_t version, uint64_t size)
{
	if (vol->uploads)
		vol->uploads->closed(vol, version, size);
}

/* Another writer is there: nothing is uploaded any more by this mount. */
static inline bool uploads_gave_up(struct volume *vol)
{
	return vol->uploads && vol->uploads->gave_up(vol);
}

#endif
