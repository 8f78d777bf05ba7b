/* SPDX-License-Identifier: Apache-2.0 */
/* The directory of a volume's cache: where it is, what is in it, and whether it is still there. */
#ifndef EPOCHFS_CACHE_CACHE_DIR_H
#define EPOCHFS_CACHE_CACHE_DIR_H

#include "lib/meta/opening.h"
#include "lib/meta/options.h"
#include "lib/util/buf.h"

struct volume;

/* In a volume's cache directory: the name of its remote as people may see it, without a line's end. Nothing depends on it. */
#define CACHE_REMOTE	 "remote"
#define CACHE_REMOTE_MAX 4096

/* The directory that holds the caches of all volumes, as the options and the environment say it: 0, -ENOMEM, or -EINVAL where they do not. */
int volume_cache_root(const struct volume_options *options, struct buf *out);
/* The directory of all caches: the option's, or the user's own (XDG base directories). In `out`. */
int cache_root(const struct volume_options *o, struct buf *out, struct opening_message *m);
/* Warns where the directory lies on a network file system, and names places that are faster. */
void cache_warn_of_network(int fd, const char *path);
/* Makes, locks and opens cache-dir/<uuid>/ and what is in it: sets the descriptors, and the path in
 * `out`. */
int cache_open(struct volume *vol, struct buf *out, struct opening_message *m);
/* Makes and opens objects/ and trees/ in it: 0 or -errno. */
int cache_open_parts(struct volume *vol);

/* Says once in the log where the cache directory is not what its path leads to any more. Now and then. */
void cache_look(struct volume *vol);
/* Why a file could not be made in the cache, as -errno: `error` itself, but -EIO, and a line in the
 * log the first time, where somebody removed the cache directory under the mount. (cache_dir.c) */
int cache_errno(struct volume *vol, int error);

#endif
