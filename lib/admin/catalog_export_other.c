/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring: hard links, symlinks, fifos, sockets, device nodes. */
#include "lib/admin/catalog_export.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static mode_t type_bits(const struct tree_entry *e)
{
	switch (e->type) {
	case TREE_SYMLINK:
		return S_IFLNK;
	case TREE_FIFO:
		return S_IFIFO;
	case TREE_SOCKET:
		return S_IFSOCK;
	case TREE_CHAR:
		return S_IFCHR;
	default:
		return S_IFBLK;
	}
}

static int make_node(int dir, const char *temporary, const struct tree_entry *e)
{
	dev_t device = makedev(e->rdev_major, e->rdev_minor);
	int result = e->type == TREE_SYMLINK ? symlinkat(e->u.target, dir, temporary)
					     : mknodat(dir, temporary, type_bits(e) | 0600, device);

	return result ? -errno : 0;
}

/* By a descriptor: whoever may write in the directory may have put something else under the name. */
static int set_attributes(const struct export *x, int dir, const char *temporary,
			  const struct tree_entry *e)
{
	cleanup_close int fd = openat(dir, temporary, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st))
		return -errno;
	if ((st.st_mode & S_IFMT) != type_bits(e) || st.st_nlink != 1)
		return -EEXIST;
	return export_attr_path(x, fd, e);
}

static int restore_node(const struct export *x, int dir, const struct tree_entry *e)
{
	char temporary[EXPORT_TEMPORARY_MAX];
	int error = export_check_free(x, dir, e->name);

	if (!error)
		error = export_temporary_name(temporary);
	if (!error)
		error = make_node(dir, temporary, e);
	if (error)
		return error;
	error = set_attributes(x, dir, temporary, e);
	if (error) {
		unlinkat(dir, temporary, 0);
		return error;
	}
	return export_publish(x, dir, temporary, e->name);
}

/* A further name of a file whose first one was restored just now. */
static int restore_link(const struct export *x, int dir, uint32_t first, const char *name)
{
	cleanup_cursor struct export_cursor cursor = EXPORT_CURSOR;
	char temporary[EXPORT_TEMPORARY_MAX];
	struct tree_entry e;
	int from, error = export_check_free(x, dir, name);

	if (!error)
		error = export_temporary_name(temporary);
	if (!error)
		error = export_parent_fd(x, first, &cursor, &from);
	if (error)
		return error;
	tree_get(x->tree, first, &e);
	if (linkat(from, e.name, dir, temporary, 0))
		return -errno;
	return export_publish(x, dir, temporary, name);
}

static void restore_other(struct export *x, uint32_t id, const struct tree_entry *e,
			  struct export_cursor *cursor)
{
	uint32_t first = e->group ? x->first_of_group[e->group] : id;
	int dir, error;

	if (!x->privileged && (e->type == TREE_CHAR || e->type == TREE_BLOCK)) {
		export_set_state(x, id, EXPORT_DONE);
		return;
	}
	if (export_lies_below_failure(x, id)) {
		export_failed_quietly(x, id, -EEXIST);
		return;
	}
	if (first != id && export_state_of(x, first) != EXPORT_DONE) {
		export_failed(x, id, -EEXIST, "the file that it is a link to was not restored");
		return;
	}
	error = export_parent_fd(x, id, cursor, &dir);
	if (!error)
		error = first != id ? restore_link(x, dir, first, e->name)
				    : restore_node(x, dir, e);
	if (!error)
		export_set_state(x, id, EXPORT_DONE);
	else
		export_failed(x, id, error, NULL);
}

void export_others(struct export *x)
{
	cleanup_cursor struct export_cursor cursor = EXPORT_CURSOR;

	for (uint32_t id = x->top; id < x->end; id++) {
		struct tree_entry e;

		tree_get(x->tree, id, &e);
		if (e.type != TREE_DIR && export_state_of(x, id) == EXPORT_PENDING)
			restore_other(x, id, &e, &cursor);
	}
}
