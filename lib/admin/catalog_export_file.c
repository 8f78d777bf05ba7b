/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring: files of all types, regular ones several at once, and their attributes. */
#include "lib/admin/catalog_export.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/format/xattrs.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/util/thread.h"

#define THREADS_MAX 256

/* One file's content on its way. The store's threads call the sink, several at once. */
struct filling {
	struct export *x;
	int fd;
	const struct recipe *recipe;
	atomic_int write_error; /* of this machine's disk, where an error is not the remote's */
	atomic_ullong written;
};

static int write_segment(void *arg, size_t number, const void *plain, size_t len)
{
	struct filling *f = arg;
	const struct recipe_segment *segment = &f->recipe->segments[number];
	int error = len == segment->length ? io_pwrite_full(f->fd, plain, len, segment->offset)
					   : -EBADMSG;

	if (error) {
		atomic_store(&f->write_error, error);
		return error;
	}
	atomic_fetch_add(&f->written, len);
	export_advance(f->x, 0, len);
	return 0;
}

/* A line for a person, where the error's own is not enough. */
struct reason {
	char text[160];
};

static int explain(const struct filling *f, int error, const struct store_failure *failure,
		   struct reason *why)
{
	int write_error = atomic_load(&f->write_error);

	if (!error || write_error)
		return write_error;
	error = catalog_errno(f->x->catalog, error);
	if (error == -EBADMSG && failure->pack[0])
		snprintf(why->text, sizeof(why->text),
			 "its data is damaged or missing in the remote, in pack %s", failure->pack);
	else if (error == -EBADMSG)
		snprintf(why->text, sizeof(why->text),
			 "its data is damaged or missing in the remote");
	else if (error == -EHOSTUNREACH)
		snprintf(why->text, sizeof(why->text),
			 "the remote does not answer; no further file is tried");
	return error;
}

static int fill_from_store(struct filling *f, const struct tree_entry *e, struct reason *why)
{
	struct store *store = f->x->catalog->store;
	cleanup_recipe struct recipe recipe = {0};
	struct store_failure failure = {.pack = ""};
	int error = store_get_recipe(store, &e->u.recipe, &recipe, &failure);

	if (!error && recipe.size != e->size) {
		snprintf(why->text, sizeof(why->text),
			 "its recipe is of another size: the tree is damaged");
		return -EBADMSG;
	}
	f->recipe = &recipe;
	/* Runs of zeros stay the holes that ftruncate made. */
	if (!error)
		error = store_get_segments(store, &recipe, 0, recipe.count, write_segment, f,
					   &failure);
	return explain(f, error, &failure, why);
}

static int fill(struct export *x, int fd, const struct tree_entry *e, struct reason *why)
{
	struct filling f = {.x = x, .fd = fd};
	int error = 0;

	if (ftruncate(fd, (off_t)e->size))
		return -errno;
	if (e->content == TREE_INLINE)
		error = io_pwrite_full(fd, e->u.inline_data, e->size, 0);
	else if (e->content == TREE_RECIPE)
		error = fill_from_store(&f, e, why);
	if (!error)
		export_advance(x, 1, e->size - atomic_load(&f.written));
	return error;
}

static int restore_file(struct export *x, int dir, const struct tree_entry *e, struct reason *why)
{
	struct export_file f;
	int error = export_check_free(x, dir, e->name);

	if (!error && export_keep(x, dir, e))
		return 0;
	if (!error)
		error = export_file_new(dir, &f);
	if (error)
		return error;
	error = fill(x, f.fd, e, why);
	if (!error)
		error = export_attr_fd(x, f.fd, e);
	if (!error)
		return export_file_publish(x, dir, &f, e->name);
	export_file_drop(dir, &f);
	return error;
}

static void restore_one(struct export *x, uint32_t id, struct export_cursor *cursor)
{
	struct reason why = {.text = ""};
	struct tree_entry e;
	int dir, error;

	if (export_lies_below_failure(x, id)) {
		export_failed_quietly(x, id, -EEXIST);
		return;
	}
	tree_get(x->tree, id, &e);
	error = export_parent_fd(x, id, cursor, &dir);
	if (!error)
		error = restore_file(x, dir, &e, &why);
	if (!error) {
		export_set_state(x, id, EXPORT_DONE);
		return;
	}
	if (error == -EHOSTUNREACH)
		atomic_store(&x->stopped, true);
	export_failed(x, id, error, why.text[0] ? why.text : NULL);
}

static void *restore_files(void *arg)
{
	struct export *x = arg;
	cleanup_cursor struct export_cursor cursor = EXPORT_CURSOR;

	for (;;) {
		unsigned i = atomic_fetch_add(&x->next, 1);

		if (i >= x->file_count)
			return NULL;
		if (atomic_load(&x->stopped))
			export_failed_quietly(x, x->files[i], -EHOSTUNREACH);
		else
			restore_one(x, x->files[i], &cursor);
	}
}

static unsigned thread_count(const struct export *x)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned count = x->how->threads;

	if (!count)
		count = cores < 1 ? 1 : (unsigned)cores;
	if (count > x->file_count)
		count = x->file_count;
	return count < THREADS_MAX ? count : THREADS_MAX;
}

/* The caller is one of the threads. */
void export_files(struct export *x)
{
	unsigned wanted = thread_count(x), started = 0;
	pthread_t threads[THREADS_MAX];

	while (started + 1 < wanted && thread_start(&threads[started], NULL, restore_files, x) == 0)
		started++;
	restore_files(x);
	while (started)
		pthread_join(threads[--started], NULL);
}

/* ---- Restoring: owners, extended attributes, modes, times. ---- */

#define PROC_PATH_MAX 40

/* What a descriptor of O_PATH lets us do only by a path: this one leads to exactly what it holds, also to a symlink itself. */
static const char *proc_path(int fd, char ret_path[PROC_PATH_MAX])
{
	snprintf(ret_path, PROC_PATH_MAX, "/proc/self/fd/%d", fd);
	return ret_path;
}

/* True where the owner is now the tree's. */
static bool set_owner(const struct export *x, int fd, const struct tree_entry *e)
{
	/* An owner that this machine or user namespace cannot have is kept from nobody: the file is ours then. So is one of
	 * (uint32_t)-1, which would mean to leave it as it is. */
	return x->owners && e->uid != UINT32_MAX && e->gid != UINT32_MAX &&
	       fchownat(fd, "", e->uid, e->gid, AT_EMPTY_PATH) == 0;
}

/* Setuid and setgid of a file lend its owner's rights: given only with that owner. */
static mode_t allowed_mode(const struct export *x, const struct tree_entry *e, bool owned)
{
	return e->type == TREE_REGULAR && !(owned && x->privileged) ? e->mode & 01777 : e->mode;
}

/* Attributes that this file system or user cannot have. */
static bool is_refused(int error)
{
	return error == ENOTSUP || error == EPERM || error == EACCES || error == EINVAL;
}

/* security.* lends rights as setuid does, trusted.* changes what file systems above this one believe, system.* are ACLs. */
static bool is_users(const char *name)
{
	return strncmp(name, "user.", strlen("user.")) == 0;
}

bool export_lends_rights(const struct tree_entry *e)
{
	struct xattrs_iter it = xattrs_iter_of(e->xattrs, e->xattrs_len);
	const char *name;
	const void *value;
	size_t len;

	if (e->type == TREE_CHAR || e->type == TREE_BLOCK ||
	    (e->type == TREE_REGULAR && e->mode & 06000))
		return true;
	while (xattrs_next(&it, &name, &value, &len))
		if (!is_users(name))
			return true;
	return false;
}

static int set_xattr(int fd, bool by_path, const char *name, const void *value, size_t len)
{
	char path[PROC_PATH_MAX];
	int result = by_path ? setxattr(proc_path(fd, path), name, value, len, 0)
			     : fsetxattr(fd, name, value, len, 0);

	if (!result)
		return 0;
	if (!is_refused(errno))
		return -errno;
	log_debug("attribute %s cannot be kept here: %s", name, strerror(errno));
	return 0;
}

static int set_xattrs(const struct export *x, int fd, bool by_path, const struct tree_entry *e,
		      bool owned)
{
	struct xattrs_iter it = xattrs_iter_of(e->xattrs, e->xattrs_len);
	const char *name;
	const void *value;
	size_t len;
	int error = 0;

	while (!error && xattrs_next(&it, &name, &value, &len))
		if (is_users(name) || (owned && x->privileged))
			error = set_xattr(fd, by_path, name, value, len);
	return error;
}

int export_attr_fd(const struct export *x, int fd, const struct tree_entry *e)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, clock_timespec(e->mtime_ns)};
	bool owned = set_owner(x, fd, e);
	int error = set_xattrs(x, fd, false, e, owned);

	if (error)
		return error;
	if (fchmod(fd, allowed_mode(x, e, owned)) || futimens(fd, times))
		return -errno;
	return 0;
}

/* The same of anything by a descriptor of O_PATH: symlinks (no mode), fifos, sockets, devices. */
static int export_attr_path(const struct export *x, int fd, const struct tree_entry *e)
{
	const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, clock_timespec(e->mtime_ns)};
	bool owned = set_owner(x, fd, e);
	char path[PROC_PATH_MAX];
	int error = set_xattrs(x, fd, true, e, owned);

	if (error)
		return error;
	proc_path(fd, path);
	if (e->type != TREE_SYMLINK && chmod(path, allowed_mode(x, e, owned)))
		return -errno;
	return utimensat(fd, "", times, AT_EMPTY_PATH) ? -errno : 0;
}

/* ---- Restoring: hard links, symlinks, fifos, sockets, device nodes. ---- */

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
