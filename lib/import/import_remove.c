/* SPDX-License-Identifier: Apache-2.0 */
/* Importing without a directory: the newest epoch again, without one path. */
#include "lib/import/import_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "lib/util/cleanup.h"

static int find(struct import_job *j, uint32_t *ret_id)
{
	const char *path = j->how->remove;

	if (!j->parent.number)
		return opening_fail(j->message, -ENOENT,
				    "%s: there is no epoch to remove '%s' from",
				    remote_name(j->imp->vol->remote), path);
	if (!j->parent_tree)
		return opening_fail(j->message, -EIO,
				    "the tree of epoch %" PRIu64
				    " cannot be read; nothing was removed",
				    j->parent.number);
	if (tree_resolve(j->parent_tree, path, ret_id))
		return opening_fail(j->message, -ENOENT, "epoch %" PRIu64 " has no path '%s'",
				    j->parent.number, path);
	if (*ret_id == 0)
		return opening_fail(j->message, -EINVAL, "'%s' names all of the epoch", path);
	return 0;
}

/* What lies below goes with it. */
static void leave_below(struct scan *s, uint32_t removed)
{
	s->nodes[removed].left = true;
	for (size_t i = removed + 1; i < s->count; i++)
		if (s->nodes[s->nodes[i].parent].left)
			s->nodes[i].left = true;
}

/* A file that has one name left is in no group of names: a listing has one encoding. */
static int set_groups(struct scan *s, const struct tree *tree)
{
	cleanup_free uint32_t *names = calloc(s->count, sizeof(*names)); /* by the first name */

	if (!names)
		return -ENOMEM;
	for (uint32_t id = 0; id < s->count; id++)
		if (!s->nodes[id].left)
			names[tree_identity(tree, id)]++;
	for (uint32_t id = 0; id < s->count; id++)
		if (names[tree_identity(tree, id)] > 1)
			s->nodes[id].group = tree_identity(tree, id) + 1;
	return 0;
}

int import_take_parent(struct import_job *j)
{
	uint32_t removed;
	int error = find(j, &removed);

	if (!error)
		error = scan_of_tree(j->parent_tree, &j->scan);
	if (error)
		return error;
	leave_below(&j->scan, removed);
	return set_groups(&j->scan, j->parent_tree);
}
