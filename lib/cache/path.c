/* SPDX-License-Identifier: Apache-2.0 */
/* The path of a file of the live tree, for messages. */
#include "lib/cache/context.h"

#include <stdio.h>

struct path_name {
	uint64_t parent;
	char name[256];
};

static int first_name(void *arg, const struct state_name *n, const char *name,
		      const struct state_file *f)
{
	struct path_name *p = arg;

	(void)f;
	p->parent = n->parent;
	snprintf(p->name, sizeof(p->name), "%s", name);
	return 1;
}

void volume_path_locked(struct volume *vol, uint64_t ino, struct buf *out)
{
	struct path_name p;

	if (ino == ROOT_INO || state_names_of(vol->state, ino, first_name, &p) != 1)
		return;
	if (p.parent != ino && p.parent != ROOT_INO) {
		size_t before = out->len;

		volume_path_locked(vol, p.parent, out);
		if (out->len > before)
			buf_printf(out, "/");
	}
	buf_printf(out, "%s", p.name);
}
