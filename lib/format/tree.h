/* SPDX-License-Identifier: Apache-2.0 */
/* The tree: the whole listing of an epoch, as bytes, as a stream, and indexed in memory. */
#ifndef EPOCHFS_FORMAT_TREE_H
#define EPOCHFS_FORMAT_TREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "lib/util/buf.h"
#include "lib/util/hash.h"

/*
 *   tree    = "EFT" version flags entry* 0 count crc
 *   version = u8, 1
 *   flags   = u8; bit 0: TREE_ALLOW_LOCAL, the tree may hold `local` contents; bit 1: an entry has
 *             `holes`. A reader that knows no holes takes such a tree for one of a newer version;
 *             a tree without them is what it always was.
 *   count   = u32, number of entries
 *   crc     = u32, CRC-32C of all bytes before it
 *
 *   entry   = type depth name body
 *           | 8 depth name group         a further name (hard link) of the group's first entry
 *   type    = u8, enum tree_type
 *   depth   = varint; the root is the first entry, the only one of depth 0 and of an empty name, and
 *             a directory; the parent of an entry is the last directory of depth - 1 before it
 *   name    = text                       (varint length, the bytes, a NUL)
 *   body    = bits mode uid gid mtime [group] [xattrs] more [holes]
 *   bits    = u8; 1: `group` is there, 2: `xattrs` is there, 4: TREE_TORN, 8: TREE_LOG, 16: `holes`
 *             is there
 *   mode    = varint, permission bits, at most 07777
 *   uid gid = varints of 32 bits
 *   mtime   = u64, two's complement, nanoseconds since 1970
 *   group   = varint; the groups of hard links are numbered 1, 2, ... in the order of their first
 *             entries. Never a directory's.
 *   xattrs  = varint length, a non-empty list of xattrs.h
 *   more    = directory, fifo, socket: nothing
 *             char, block device: varint major, varint minor, of 32 bits
 *             symlink: text, 1 to 4095 bytes
 *             regular: content; TREE_TORN, TREE_LOG and `holes` are for these only
 *   content = 0                          empty
 *           | 1 varint length, bytes     inline, 1 to TREE_INLINE_MAX bytes
 *           | 2 varint size, hash        at least 1 byte, put together by that recipe
 *           | 3 varint size, varint id   a version that only this machine has
 *   holes   = varint, 1 to `size`, of content 2: so many bytes are in the recipe's runs of zeros.
 *             With it stat tells what the file takes without reading the recipe.
 *
 * Order: depth first, a directory before what is in it, siblings in strictly rising bytewise order
 * of their names; so one listing has exactly one encoding. Every name has 1 to 255 bytes, no '/',
 * no NUL, and is not "." or ".."; it need not be UTF-8. Names and targets end in NUL so that a
 * reader can hand out C strings that point into the encoding.
 *
 * A tree is stored as any content is: cut into chunks. Its identity is the hash of these bytes. A
 * tree with `local` contents never leaves the machine: readers refuse it unless they ask for it.
 */
#define TREE_NAME_MAX	 255
#define TREE_DEPTH_MAX	 1024
#define TREE_PATH_MAX	 (TREE_DEPTH_MAX * (TREE_NAME_MAX + 1))
#define TREE_TARGET_MAX	 4095
#define TREE_INLINE_MAX	 4096
#define TREE_ENTRIES_MAX (16u << 20)
#define TREE_ENCODED_MAX (2047u << 20)

enum tree_type {
	TREE_DIR = 1,
	TREE_REGULAR,
	TREE_SYMLINK,
	TREE_FIFO,
	TREE_SOCKET,
	TREE_CHAR,
	TREE_BLOCK,
};

enum tree_content {
	TREE_EMPTY = 0,
	TREE_INLINE,
	TREE_RECIPE,
	TREE_LOCAL,
};

/* Flags of an entry. */
#define TREE_TORN 4u /* the content is torn inside, though its writer closed it */
#define TREE_LOG  8u /* a log, taken as it stood */

/* Flag of writers and readers: contents of kind TREE_LOCAL are allowed. */
#define TREE_ALLOW_LOCAL 1u

/* One entry. What a reader gives points into the encoding (path: into the reader). */
struct tree_entry {
	uint32_t depth;	  /* the root: 0 */
	const char *name; /* NUL-terminated; "" for the root */
	size_t name_len;
	enum tree_type type;
	enum tree_content content; /* TREE_REGULAR only, else TREE_EMPTY */
	uint8_t flags;		   /* TREE_TORN, TREE_LOG */
	uint16_t mode;		   /* permission bits only, 07777 */
	uint32_t uid;
	uint32_t gid;
	uint32_t rdev_major; /* TREE_CHAR, TREE_BLOCK */
	uint32_t rdev_minor;
	int64_t mtime_ns;
	uint64_t size;	/* regular: content; symlink: target; else 0 */
	uint64_t holes; /* TREE_RECIPE: so many bytes of `size` are in runs of zeros */
	/*
	 * 0, or the same number for all names of one file with several names. A writer takes any
	 * numbers (an inode number, say) and numbers the groups itself; readers give those.
	 */
	uint64_t group;
	const void *xattrs; /* a list of xattrs.h; NULL and 0 where there are none */
	size_t xattrs_len;
	union {
		const char *target;	 /* TREE_SYMLINK, NUL-terminated */
		const void *inline_data; /* TREE_INLINE, `size` bytes */
		struct hash recipe;	 /* TREE_RECIPE */
		uint64_t version;	 /* TREE_LOCAL */
	} u;
};

/* 0 or -EINVAL: may these bytes be a name in a tree? */
int tree_name_check(const char *name, size_t len);

/*
 * Writing. Entries come in the order that the format asks for, the root first. One thread at a
 * time. `out` must stay until tree_writer_finish; what it held before stays before the tree.
 */
struct tree_writer;
int tree_writer_new(struct buf *out, unsigned int flags, struct tree_writer **ret_writer);
void tree_writer_free(struct tree_writer *w);
static inline void cleanup_tree_writer_fn(struct tree_writer **w)
{
	tree_writer_free(*w);
}
#define cleanup_tree_writer CLEANUP(cleanup_tree_writer_fn)
/*
 * Adds an entry: depth, name and the rest of it. Of a further name of a group only depth, name,
 * group and type (which must be that of the first) are looked at. 0; -EINVAL where order, a limit
 * or a field is wrong; -EFBIG where the tree grows too large; -ENOMEM. After an error nothing was
 * added.
 */
int tree_writer_add(struct tree_writer *w, const struct tree_entry *e);
/* Ends the tree: 0, -EINVAL without a root, -ENOMEM. Only tree_writer_free may follow. */
int tree_writer_finish(struct tree_writer *w);

/*
 * Reading one entry after another, without allocating for each. The data must stay until
 * tree_reader_free. -EBADMSG where it is malformed, -EPROTONOSUPPORT for a newer version, or
 * -ENOMEM. One thread at a time.
 */
struct tree_reader;
/* Checks the header and the CRC. `flags`: TREE_ALLOW_LOCAL or 0. */
int tree_reader_new(const void *data, size_t len, unsigned int flags,
		    struct tree_reader **ret_reader);
void tree_reader_free(struct tree_reader *r);
/* Whether these bytes can be the beginning of a tree. */
bool tree_begins(const void *data, size_t len);
static inline void cleanup_tree_reader_fn(struct tree_reader **r)
{
	tree_reader_free(*r);
}
#define cleanup_tree_reader CLEANUP(cleanup_tree_reader_fn)
/* 1 and the entry; 0 at the end; -EBADMSG or -ENOMEM. A further name of a group comes with all
 * fields of the first. */
int tree_reader_next(struct tree_reader *r, struct tree_entry *ret_entry);
/* What st_blocks says of `size` bytes of which so many are holes: whole pages, in blocks of 512. */
uint64_t tree_blocks(uint64_t size, uint64_t holes);
/* The path of the entry that came last, from the root, without a leading '/' ("" for the root);
 * until the next call. */
const char *tree_reader_path(const struct tree_reader *r);

/*
 * A decoded tree: immutable, counted by references, read by any number of threads without a lock.
 * About 20 bytes an entry beside the encoding. Entries have numbers from 0 (the root) to count - 1
 * in the order of the encoding, the same each time these bytes are decoded.
 */
struct tree;
#define TREE_NONE UINT32_MAX /* no such entry */

struct tree_counts {
	uint64_t directories; /* with the root */
	uint64_t files;	      /* regular; each hard-linked file once */
	uint64_t symlinks;
	uint64_t specials;
	uint64_t bytes; /* the files' sizes */
};

/* Decodes all, and takes over `data` (of malloc) where it succeeds: 0, -EBADMSG, -EPROTONOSUPPORT,
 * -ENOMEM. */
int tree_decode(void *data, size_t len, unsigned int flags, struct tree **ret_tree);
/* A tree of nothing but this root (name "", type TREE_DIR): 0, -EINVAL, -ENOMEM. */
int tree_of_root(const struct tree_entry *root, struct tree **ret_tree);
struct tree *tree_ref(struct tree *t);
/* NULL is allowed. */
void tree_unref(struct tree *t);
static inline void cleanup_tree_fn(struct tree **t)
{
	tree_unref(*t);
}
#define cleanup_tree CLEANUP(cleanup_tree_fn)

/* The encoding, whose hash is the tree's identity; lives as long as the tree. */
const void *tree_data(const struct tree *t, size_t *ret_len);
uint32_t tree_count(const struct tree *t);
void tree_get_counts(const struct tree *t, struct tree_counts *ret_counts);
/* The entry of that number (< count); its pointers live as long as the tree. */
void tree_get(const struct tree *t, uint32_t id, struct tree_entry *ret_entry);
/* The parent's number; the root is its own. */
uint32_t tree_parent(const struct tree *t, uint32_t id);
/* The number of the first name of the same file: equal for hard links, else `id` itself. */
uint32_t tree_identity(const struct tree *t, uint32_t id);
/* What st_nlink says: names of a file; 2 + subdirectories of a directory. */
uint32_t tree_nlink(const struct tree *t, uint32_t id);
/* The numbers of what is in a directory, in the order of names; NULL and 0 for anything else. */
const uint32_t *tree_children(const struct tree *t, uint32_t dir, uint32_t *ret_count);
/* O(log n); TREE_NONE where the directory has no such name, or `dir` is none. */
uint32_t tree_lookup(const struct tree *t, uint32_t dir, const char *name, size_t len);
/* By a path from the root; empty components are skipped, symlinks are not followed: 0, -ENOENT,
 * -ENOTDIR. */
int tree_resolve(const struct tree *t, const char *path, uint32_t *ret_id);
/* Appends the path from the root without a leading '/': 0 or -ENOMEM. */
int tree_path(const struct tree *t, uint32_t id, struct buf *out);

#endif
