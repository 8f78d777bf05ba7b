/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of trees share: entries, encoding, and a tree with everything that an entry may be. */
#ifndef EPOCHFS_TESTS_TREE_UNIT_H
#define EPOCHFS_TESTS_TREE_UNIT_H

#include "lib/format/tree.h"
#include "lib/format/xattrs.h"
#include "tests/unit/unit.h"

__attribute__((unused)) static struct tree_entry make(uint32_t depth, const char *name,
						      enum tree_type type)
{
	return (struct tree_entry){
		.depth = depth,
		.name = name,
		.name_len = strlen(name),
		.type = type,
		.mode = type == TREE_DIR ? 0755 : 0640,
		.uid = 1000,
		.gid = 100,
		.mtime_ns = INT64_C(1700000000123456789),
	};
}

__attribute__((unused)) static struct tree_entry make_symlink(uint32_t depth, const char *name,
							      const char *target)
{
	struct tree_entry e = make(depth, name, TREE_SYMLINK);

	e.u.target = target;
	e.size = strlen(target);
	return e;
}

__attribute__((unused)) static struct tree_entry make_inline(uint32_t depth, const char *name,
							     const char *text)
{
	struct tree_entry e = make(depth, name, TREE_REGULAR);

	e.content = TREE_INLINE;
	e.u.inline_data = text;
	e.size = strlen(text);
	return e;
}

__attribute__((unused)) static struct tree_entry make_big(uint32_t depth, const char *name,
							  uint64_t size, const char *seed)
{
	struct tree_entry e = make(depth, name, TREE_REGULAR);

	e.content = TREE_RECIPE;
	e.size = size;
	hash_of(seed, strlen(seed), &e.u.recipe);
	return e;
}

__attribute__((unused)) static struct tree_entry with_group(struct tree_entry e, uint64_t group)
{
	e.group = group;
	return e;
}

__attribute__((unused)) static void encode(const struct tree_entry *entries, size_t count,
					   unsigned int flags, struct buf *out)
{
	cleanup_tree_writer struct tree_writer *w = NULL;

	unit_ok(tree_writer_new(out, flags, &w));
	for (size_t i = 0; i < count; i++)
		unit_ok(tree_writer_add(w, &entries[i]));
	unit_ok(tree_writer_finish(w));
}

/* ---- everything that an entry may be */

static struct buf some_xattrs;
static struct tree_entry all[16];
static const char *const all_paths[] = {"",	"blk",	 "chr",	       "d",    "d/e",
					"d/in", "d/sub", "d/sub/link", "fifo", "m.pt",
					"sock", "sym",	 "sym2",       "v",    "\xff\xfe"};
#define ALL_COUNT (sizeof(all_paths) / sizeof(all_paths[0]))

__attribute__((unused)) static void make_all(void)
{
	size_t n = 0;

	unit_ok(xattrs_set(&some_xattrs, "user.key", "value", 5));
	all[n] = make(0, "", TREE_DIR);
	all[n].mode = 07777;
	all[n].xattrs = some_xattrs.data;
	all[n++].xattrs_len = some_xattrs.len;
	all[n] = make(1, "blk", TREE_BLOCK);
	all[n].rdev_major = 8;
	all[n++].rdev_minor = UINT32_MAX;
	all[n] = make(1, "chr", TREE_CHAR);
	all[n++].rdev_major = UINT32_MAX;
	all[n++] = make(1, "d", TREE_DIR);
	all[n++] = make(2, "e", TREE_REGULAR);
	all[n] = with_group(make_inline(2, "in", "abc"), 99);
	all[n].xattrs = some_xattrs.data;
	all[n++].xattrs_len = some_xattrs.len;
	all[n++] = make(2, "sub", TREE_DIR);
	all[n] = all[5];
	all[n].depth = 3;
	all[n].name = "link";
	all[n++].name_len = 4;
	all[n++] = make(1, "fifo", TREE_FIFO);
	all[n] = make_big(1, "m.pt", INT64_MAX, "seed");
	all[n].holes = INT64_MAX - 5;
	all[n].mtime_ns = -1;
	all[n].uid = UINT32_MAX;
	all[n].gid = UINT32_MAX;
	all[n++].flags = TREE_TORN | TREE_LOG;
	all[n++] = make(1, "sock", TREE_SOCKET);
	all[n++] = with_group(make_symlink(1, "sym", "d/in"), 7);
	all[n++] = with_group(make_symlink(1, "sym2", "d/in"), 7);
	all[n] = make(1, "v", TREE_REGULAR);
	all[n].content = TREE_LOCAL;
	all[n].size = 5;
	all[n++].u.version = UINT64_MAX;
	all[n++] = make(1, "\xff\xfe", TREE_DIR);
	ck_assert_uint_eq(n, ALL_COUNT);
}

#endif
