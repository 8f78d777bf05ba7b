/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: the trees of several nodes put together, each as a stranger's part may have it. */
#include "lib/format/tree.h"
#include "lib/meta/nodes_decide.h"
#include "tests/fuzz/fuzz.h"

#define TREES 3 /* the base, and two nodes' */

/* The input: the length of a tree in two bytes, the tree, three times; the last takes the rest. */
static struct tree *take_tree(const uint8_t **data, size_t *len, bool last)
{
	struct tree *tree = NULL;
	size_t want = *len;
	uint8_t *copy;

	if (!last) {
		if (*len < 2)
			return NULL;
		want = (*data)[0] | (size_t)(*data)[1] << 8;
		*data += 2;
		*len -= 2;
		want = want < *len ? want : *len;
	}
	copy = fuzz_copy(*data, want);
	*data += want;
	*len -= want;
	fuzz_repair_crc(copy, want);
	if (tree_decode(copy, want, 0, &tree) < 0)
		free(copy);
	return tree;
}

static void merge(struct tree *const *trees)
{
	struct nodes_tree parts[2] = {
		{.node = "a", .tree = trees[1], .base = trees[0], .base_number = 1},
		{.node = "b", .tree = trees[2], .base = trees[0], .base_number = 1}};
	cleanup_nodes_merged struct nodes_merged merged = {0};
	cleanup_tree struct tree *result = NULL;
	uint8_t *copy;

	if (nodes_merge(parts, 2, &merged) < 0)
		return;
	/* What is made of them is a tree that any reader takes. */
	copy = fuzz_copy(merged.tree.data, merged.tree.len);
	fuzz_assert(tree_decode(copy, merged.tree.len, 0, &result) == 0);
	fuzz_assert(merged.conflict_count <= NODES_CONFLICTS_MAX + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	struct tree *trees[TREES] = {NULL};

	for (size_t i = 0; i < TREES; i++)
		trees[i] = take_tree(&data, &len, i + 1 == TREES);
	if (trees[1] && trees[2])
		merge(trees);
	for (size_t i = 0; i < TREES; i++)
		tree_unref(trees[i]);
	return 0;
}
