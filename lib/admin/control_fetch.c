/* SPDX-License-Identifier: Apache-2.0 */
/* Making a part of an epoch's file local, for `epochfs cache warm`. */
#include <errno.h>
#include <inttypes.h>

#include "lib/admin/control_internal.h"
#include "lib/epochs/epochs.h"

/* An epoch's tree of local versions gives way to the final one once the epoch is durable, and the versions
 * that it named may be gone by then. */
#define TREE_TRIES 4

/* Its content; NULL where it is no regular file, or an empty one. */
static int open_entry(struct volume *vol, uint64_t epoch, uint64_t entry,
		      struct content **ret_content)
{
	cleanup_tree struct tree *tree = NULL;
	cleanup_buf struct buf what = {0};
	struct tree_entry e;
	int error = epochs_tree(vol, epoch, &tree);

	if (error)
		return error;
	if (entry >= tree_count(tree))
		return -EINVAL;
	tree_get(tree, (uint32_t)entry, &e);
	*ret_content = NULL;
	if (e.type != TREE_REGULAR || e.content == TREE_EMPTY)
		return 0;
	buf_printf(&what, "epoch %" PRIu64 ": ", epoch);
	error = tree_path(tree, (uint32_t)entry, &what);
	return error ? error : content_get_entry(vol, &e, buf_str(&what), ret_content);
}

int control_fetch(struct volume *vol, const struct control_range *range, interrupted_fn interrupted,
		  void *arg)
{
	struct content *c = NULL;
	int error = -ENOENT;

	for (int i = 0; error == -ENOENT && i < TREE_TRIES; i++)
		error = open_entry(vol, range->epoch, range->entry, &c);
	if (!error && c)
		error = content_fetch(c, range->offset, range->length, interrupted, arg);
	content_put(c);
	return error;
}
