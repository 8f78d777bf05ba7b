/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of restoring share. Private to catalog_export*.c. */
#ifndef EPOCHFS_ADMIN_CATALOG_EXPORT_H
#define EPOCHFS_ADMIN_CATALOG_EXPORT_H

#include <stdatomic.h>
#include "lib/admin/catalog_internal.h"
#include "lib/util/lock.h"

/*
 * The tree is untrusted, and so may the directory be: every directory on the way is opened
 * by its name in the one above it and never through a symlink; what is made is made under a fresh
 * name and gets its attributes by descriptor; and it replaces by rename, which follows nothing.
 * Symlinks come last.
 */

enum export_state { EXPORT_PENDING, EXPORT_DONE, EXPORT_FAILED };

struct export
{
	struct catalog *catalog;
	const struct catalog_export *how;
	uint64_t number;
	struct tree *tree;
	uint32_t top,
		end; /* what is restored: entries [top, end) of the tree, `top` with all below it */
	bool owners; /* root: they are the tree's */
	bool privileged; /* root, who asked for it: device nodes, setuid and setgid, other xattrs than user.* */
	uint8_t *state; /* enum export_state of each; written by whoever restores that one */
	/* The first name in [top, end) of each group of hard links: it is made, the others are links to it. */
	uint32_t *first_of_group;
	uint32_t *files; /* the regular files, each by its first name */
	uint32_t file_count;
	atomic_uint next;    /* of `files` */
	atomic_bool stopped; /* the remote is away: no further file is tried */

	/* Guards what follows; `how->progress` is called under it. */
	struct mutex lock;
	struct catalog_progress progress;
	uint64_t failed;
	int first_error;
};

static inline enum export_state export_state_of(const struct export *x, uint32_t id)
{
	return (enum export_state)x->state[id - x->top];
}
/* Nothing can be restored below a directory that could not be made, and that was said once. */
static inline bool export_lies_below_failure(const struct export *x, uint32_t id)
{
	return id != x->top && export_state_of(x, tree_parent(x->tree, id)) == EXPORT_FAILED;
}
static inline void export_set_state(struct export *x, uint32_t id, enum export_state state)
{
	x->state[id - x->top] = (uint8_t)state;
}
/* Marks an entry as failed, counts that and says why; NULL: what the error says. Any thread. */
void export_failed(struct export *x, uint32_t id, int error, const char *why);
/* The same without a line. */
void export_failed_quietly(struct export *x, uint32_t id, int error);
void export_advance(struct export *x, uint64_t files, uint64_t bytes);

/* ---- places: catalog_export_place.c ---- */

/* A directory that was opened last; fd -1: none. One thread each. */
struct export_cursor {
	uint32_t dir;
	int fd;
};
/* The directory of an entry, opened with O_PATH; the cursor's. -EEXIST where something that is no directory is on the way. */
int export_parent_fd(const struct export *x, uint32_t id, struct export_cursor *c, int *ret_fd);
void export_cursor_close(struct export_cursor *c);
#define EXPORT_CURSOR                                                                              \
	{                                                                                          \
		.dir = TREE_NONE, .fd = -1                                                         \
	}
#define cleanup_cursor CLEANUP(export_cursor_close)
/* Opens a directory by its name, not through a symlink; flags beside that, O_PATH or O_RDONLY. */
int export_open_dir(int dir, const char *name, int flags, int *ret_fd);

/*
 * A file that is being restored has no name, where the file system can do that (O_TMPFILE), so that
 * a killed run leaves nothing. Elsewhere it has a temporary one and is locked (flock) while its
 * writer lives; export_sweep removes those that are not.
 */
#define EXPORT_TEMPORARY_MAX 40
struct export_file {
	int fd;
	char temporary[EXPORT_TEMPORARY_MAX]; /* "": it has no name */
};
int export_file_new(int dir, struct export_file *ret_file);
/* Gives it its name and closes it. On failure nothing of it is left. */
int export_file_publish(const struct export *x, int dir, struct export_file *f, const char *name);
/* Without a name to give. */
void export_file_drop(int dir, struct export_file *f);
/* Removes what killed runs have left in this directory. */
void export_sweep(int dir);

/* A name that nobody guesses: 0 or -errno. */
int export_temporary_name(char ret_name[EXPORT_TEMPORARY_MAX]);
/* -EEXIST where something has the name and nothing may be replaced. */
int export_check_free(const struct export *x, int dir, const char *name);
/* Gives what was made its name. On failure the temporary one is gone. */
int export_publish(const struct export *x, int dir, const char *temporary, const char *name);

/* ---- files that are there: catalog_export.c ---- */

/*
 * Where files may be replaced: whether the one that has the name holds what the epoch's does, by its hashes; then it is kept, and has the
 * attributes of the epoch's now. False for one that is not ours to change, has names elsewhere (to root also where the
 * epoch has links: one of them may be anybody's file, and would get the epoch's owner and mode), or user attributes that the epoch's has not.
 */
bool export_keep(struct export *x, int dir, const struct tree_entry *e);

/* ---- attributes: catalog_export_file.c ---- */

/* Whether an entry has something that only `privileged` restores: it is a device node, or a setuid or setgid file, or has xattrs but user.*. */
bool export_lends_rights(const struct tree_entry *e);

/* Owner, xattrs, mode, mtime of an open file or directory, in this order: each may undo the next otherwise. */
int export_attr_fd(const struct export *x, int fd, const struct tree_entry *e);

/* ---- the kinds ---- */

/* catalog_export_file.c: regular files, by as many threads as asked for. */
void export_files(struct export *x);
/* catalog_export_file.c: hard links, symlinks, fifos, sockets, device nodes. */
void export_others(struct export *x);

#endif
