/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: trees, as a stream and indexed, and their difference. */
#include "lib/format/tree.h"
#include "lib/format/tree_diff.h"
#include "tests/fuzz/fuzz.h"

static int fail_on_change(const struct tree_change *change, void *arg)
{
	(void)change;
	(void)arg;
	return -1;
}

/* What reader and index say of one entry is the same. */
static void check_entry(const struct tree *t, uint32_t id, const struct tree_entry *e,
			const char *path)
{
	cleanup_buf struct buf found_path = {0};
	struct tree_entry found;
	uint32_t found_id, count, parent = tree_parent(t, id);
	const uint32_t *children;

	tree_get(t, id, &found);
	fuzz_assert(found.depth == e->depth && found.type == e->type && found.size == e->size);
	fuzz_assert(found.holes == e->holes && e->holes <= e->size);
	fuzz_assert(found.name == e->name && found.group == e->group);
	fuzz_assert(tree_same_content(e, &found) && tree_same_meta(e, &found));
	fuzz_assert(tree_path(t, id, &found_path) == 0 && !strcmp(buf_str(&found_path), path));
	fuzz_assert(tree_resolve(t, path, &found_id) == 0 && found_id == id);
	fuzz_assert(id == 0 || tree_lookup(t, parent, e->name, e->name_len) == id);
	fuzz_assert(tree_identity(t, id) <= id);
	fuzz_assert(tree_nlink(t, id) >= (e->type == TREE_DIR ? 2 : 1));
	children = tree_children(t, id, &count);
	for (uint32_t i = 0; i < count; i++)
		fuzz_assert(tree_parent(t, children[i]) == id);
}

/* Takes the data. */
static void check_tree(uint8_t *data, size_t len)
{
	cleanup_tree_reader struct tree_reader *r = NULL;
	cleanup_tree_writer struct tree_writer *w = NULL;
	cleanup_tree struct tree *t = NULL;
	cleanup_buf struct buf again = {0};
	struct tree_entry e;
	unsigned int flags;
	uint32_t id = 0;
	int more;

	if (tree_decode(data, len, TREE_ALLOW_LOCAL, &t) < 0) {
		free(data);
		return;
	}
	flags = data[4] & TREE_ALLOW_LOCAL;
	fuzz_assert(tree_reader_new(data, len, flags, &r) == 0);
	fuzz_assert(tree_writer_new(&again, flags, &w) == 0);
	while ((more = tree_reader_next(r, &e)) == 1) {
		check_entry(t, id++, &e, tree_reader_path(r));
		fuzz_assert(tree_writer_add(w, &e) == 0);
	}
	fuzz_assert(more == 0 && id == tree_count(t));
	fuzz_assert(tree_writer_finish(w) == 0);
	fuzz_same(&again, data, len);
	fuzz_assert(tree_diff(t, t, fail_on_change, NULL) == 0);
}

/* A reader must not trust what comes before an error either. */
static void read_all(const uint8_t *data, size_t len)
{
	cleanup_tree_reader struct tree_reader *r = NULL;
	struct tree_entry e;

	if (tree_reader_new(data, len, 0, &r) == 0)
		while (tree_reader_next(r, &e) == 1)
			fuzz_assert(strlen(tree_reader_path(r)) <= TREE_PATH_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
	uint8_t *repaired = fuzz_copy(data, len);

	check_tree(fuzz_copy(data, len), len);
	fuzz_repair_crc(repaired, len);
	read_all(repaired, len);
	check_tree(repaired, len);
	return 0;
}
