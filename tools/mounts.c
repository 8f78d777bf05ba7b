/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/mounts.h"

#include <limits.h>
#include <mntent.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static bool is_ours(const struct mntent *m)
{
	const char *option = hasmntopt(m, "user_id");
	unsigned user = 0;

	return !strcmp(m->mnt_type, "fuse.epochfs") &&
	       (geteuid() == 0 ||
		(option && sscanf(option, "user_id=%u", &user) == 1 && user == geteuid()));
}

void mounts_each(mount_fn fn, void *arg)
{
	FILE *f = setmntent("/proc/self/mounts", "re");
	char text[2 * PATH_MAX];
	struct mntent m;

	while (f && getmntent_r(f, &m, text, sizeof(text)))
		if (is_ours(&m))
			fn(arg, m.mnt_dir);
	if (f)
		endmntent(f);
}
