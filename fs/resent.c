/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that are sent again: was it done already? */
#include "fs/resent.h"

#include <errno.h>
#include <string.h>
#include "fs/loop.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"

static bool has_target(struct fs_mount *m, uint64_t ino, const char *target)
{
	cleanup_buf struct buf found = {0};

	return live_readlink(m->vol, ino, &found) == 0 && strcmp(buf_str(&found), target) == 0;
}

int resent_made(fuse_req_t req, int error, uint64_t parent, const char *name,
		const struct live_attr *made, const char *target, struct live_attr *ret_attr)
{
	struct fs_mount *m = fs_of(req);
	struct live_attr attr;

	if (error != -EEXIST || !loop_request_resent() ||
	    live_lookup(m->vol, parent, name, fuse_req_ctx(req)->pid, &attr) < 0)
		return error;
	if ((attr.mode & S_IFMT) != (made->mode & S_IFMT) || (made->ino && attr.ino != made->ino) ||
	    (target && !has_target(m, attr.ino, target)))
		return error;
	*ret_attr = attr;
	return 0;
}

int resent_removed(int error, int missing)
{
	return error == missing && loop_request_resent() ? 0 : error;
}

int resent_renamed(fuse_req_t req, int error, uint64_t new_parent, const char *new_name)
{
	struct live_attr attr;

	if (error != -ENOENT || !loop_request_resent())
		return error;
	return live_lookup(fs_of(req)->vol, new_parent, new_name, fuse_req_ctx(req)->pid, &attr);
}

int resent_xattr(fuse_req_t req, int error, uint64_t ino, const char *name, const void *value,
		 size_t size)
{
	cleanup_buf struct buf found = {0};

	if (error != -EEXIST || !loop_request_resent())
		return error;
	if (live_getxattr(fs_of(req)->vol, ino, name, &found) == 0 && found.len == size &&
	    memcmp(found.data ? (const void *)found.data : "", value, size) == 0)
		return 0;
	return error;
}

int resent_unknown(int error)
{
	return error < 0 && loop_request_resent() ? -EIO : error;
}
