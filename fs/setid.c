/* SPDX-License-Identifier: Apache-2.0 */
#include "fs/setid.h"

#include <stdlib.h>

bool setid_may_drop(mode_t mode)
{
	return !S_ISDIR(mode) && mode & (S_ISUID | S_ISGID);
}

/* Groups of which nothing can be learned count as none. */
static bool is_of_group(fuse_req_t req, gid_t gid)
{
	gid_t few[64], *groups = few;
	int n, room = 64;
	bool found = false;

	if (fuse_req_ctx(req)->uid == 0 || fuse_req_ctx(req)->gid == gid)
		return true;
	n = fuse_req_getgroups(req, room, few);
	if (n > room) {
		room = n;
		groups = calloc((size_t)room, sizeof(*groups));
		n = groups ? fuse_req_getgroups(req, room, groups) : 0;
	}
	for (int i = 0; i < n && i < room && !found; i++)
		found = groups[i] == gid;
	if (groups != few)
		free(groups);
	return found;
}

mode_t setid_after_change(fuse_req_t req, mode_t mode, gid_t gid)
{
	if (S_ISDIR(mode))
		return mode;
	mode &= ~(mode_t)S_ISUID;
	if (mode & S_ISGID && (mode & S_IXGRP || !is_of_group(req, gid)))
		mode &= ~(mode_t)S_ISGID;
	return mode;
}

int setid_drop(fuse_req_t req, struct node *n)
{
	struct fs_mount *m = fs_of(req);
	struct live_change change = {.set = LIVE_SET_MODE};
	struct live_attr attr;
	mode_t less;
	int r;

	if (!setid_may_drop(noted_mode(n)) || fuse_req_ctx(req)->uid == 0)
		return 0;
	r = live_getattr(m->vol, n->a, node_body(n), &attr);
	if (r < 0)
		return r;
	less = setid_after_change(req, attr.mode, attr.gid);
	if (less == attr.mode)
		return 0;
	change.mode = less & 07777;
	r = live_setattr(m->vol, n->a, node_body(n), &change, &attr);
	if (r == 0)
		note_attr(n, &attr);
	return r;
}
