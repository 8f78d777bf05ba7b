/* SPDX-License-Identifier: Apache-2.0 */
/* What lies in an ordinary directory: names and attributes, in the order of a tree. Private to import*.c. */
#ifndef EPOCHFS_IMPORT_IMPORT_SCAN_H
#define EPOCHFS_IMPORT_IMPORT_SCAN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>
#include "lib/format/tree.h"
#include "lib/meta/rules.h"
#include "lib/util/buf.h"
#include "lib/util/hash.h"

/*
 * A scan reads no content. It follows no symlink; what is mounted below is part of it. About 250 bytes a name stay in memory.
 * The names .epochs (of a mount) and .epochfs-export-* (export's own) are left out.
 */
enum scan_content {
	SCAN_UNREAD, /* a regular file whose content is not known yet */
	SCAN_EMPTY,
	SCAN_INLINE,
	SCAN_RECIPE,
};

struct scan_node {
	uint32_t depth;	 /* the root: 0 */
	uint32_t parent; /* its number; the root is its own */
	size_t name;	 /* in scan.names */
	uint32_t mode;	 /* with the type */
	uint32_t uid, gid, nlink;
	uint32_t rdev_major, rdev_minor;
	uint64_t dev, ino, size;
	int64_t mtime_ns, ctime_ns;
	uint64_t group;		   /* the same for all names of a file with several here; else 0 */
	size_t xattrs, xattrs_len; /* in scan.extra, a list of xattrs.h */
	size_t target;		   /* of a symlink, in scan.extra */

	/* What reading it found; of a group, at its first name. */
	enum scan_content content;
	void *data; /* SCAN_INLINE: `size` bytes, owned */
	struct hash recipe;
	uint64_t holes; /* of SCAN_RECIPE: in its runs of zeros */
	bool log;	/* taken as it stands */
	bool torn;	/* inside, by its tail; then `why`, static */
	const char *why;
	bool left;    /* not in the epoch */
	bool holds;   /* a directory: something in it is in the epoch */
	bool changes; /* changed while it was read, each time */
	uint32_t
		former; /* TREE_NONE, or the entry of the epoch before that is taken in its place */
};

struct scan {
	struct scan_node *nodes; /* the root first */
	size_t count, cap;
	struct buf names, extra;
	bool moved;    /* something came or went meanwhile */
	char *trouble; /* the path that an error was of; owned */
};

void scan_free(struct scan *s);
#define cleanup_scan CLEANUP(scan_free)

/*
 * Lists what is in the directory. 0; -EFBIG where it is too large or deep for a tree; else -errno, and `trouble` says
 * where: then the scan is not to be used. `rules` tell which files are logs.
 */
int scan_directory(int root_fd, const struct rules *rules, struct scan *ret_scan);

/* The same of a tree, by its numbers; each node takes its entry (`former`). 0 or -ENOMEM. */
int scan_of_tree(const struct tree *tree, struct scan *ret_scan);

/* Is the name one that is left out? */
bool scan_is_ours(const char *name);
const char *scan_name(const struct scan *s, const struct scan_node *n);
/* Appends the path from the root, without a leading '/': 0 or -ENOMEM. */
int scan_path(const struct scan *s, size_t number, struct buf *out);
/* Sets what fstat tells, but the type. */
void scan_node_stat(struct scan_node *n, const struct stat *st);
/* Is it the same file with the same content, as far as its attributes tell? */
bool scan_same_file(const struct scan_node *a, const struct scan_node *b);

/*
 * Whether both scans found the same: names, kinds, attributes, times; of logs not their sizes and times. The number of the first node of `a` that differs comes back
 * (a->count: more came behind it) where they do not.
 */
bool scan_equal(const struct scan *a, const struct scan *b, size_t *ret_first);
/* The same of names, kinds and identities alone. */
bool scan_same_names(const struct scan *a, const struct scan *b);

/* What was read of files that have not changed since goes from one scan to the other. 0 or -ENOMEM. */
int scan_carry(struct scan *from, struct scan *to);

/* What a scan reads beside stat: extended attributes and the targets of symlinks. Private to import*.c. */

/*
 * Sets xattrs and target of the node, which is `name` in the directory. Kept are user.*, trusted.* (root sees them) and security.capability, as far as a tree has room for
 * them; others are this machine's. 0 or -errno; -ESTALE where it has become something else.
 */
int import_attr_read(int dir_fd, const char *name, const struct stat *st, struct scan *s,
		     size_t number);

#endif
