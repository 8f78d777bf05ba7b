/* SPDX-License-Identifier: Apache-2.0 */
/* The directory tree of the file remote: its root, and the way from there to an object. */
#include "lib/remote/file_tree.h"

#include <errno.h>
#include <string.h>
#include "lib/remote/remote_ops.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

void place_close(struct file_place *p)
{
	if (p->root >= 0)
		close(p->root);
	if (p->dir >= 0)
		close(p->dir);
}

int tree_error(struct file_tree *t, int err)
{
	/* A network file system gave the root up: it is opened again next time. */
	if (err == ESTALE || err == ENOTCONN) {
		SCOPED_LOCK(&t->lock);

		if (t->root >= 0)
			close(steal_fd(&t->root));
	}
	if (err == ELOOP || err == ENOTDIR || err == EISDIR)
		return -EPERM;
	return remote_errno_of(err);
}

int tree_sync_dir(int dir)
{
	if (fsync(dir) == 0 || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)
		return 0;
	return -errno;
}

void tree_share(int fd, mode_t mode)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && fchmod(fd, (st.st_mode & S_ISGID) | mode) < 0)
		log_debug("cannot set permissions: %s", strerror(errno));
}

int tree_missing(const struct file_tree *t, const struct file_place *p)
{
	struct stat st;

	if (fstat(p->root, &st) == 0 && st.st_nlink > 0)
		return -ENOENT;
	log_debug("%s: the directory was removed", t->path);
	return -EIO;
}

/* ---- the root */

static int make_root(const struct file_tree *t)
{
	if (mkdir(t->path, 0700) < 0 && errno != EEXIST)
		return -errno;
	return io_fsync_parent(AT_FDCWD, t->path);
}

/* 0, or a negative errno as the system gave it; -ENOENT: not there. */
static int open_root_locked(struct file_tree *t)
{
	cleanup_close int fd = open(t->path, TREE_DIR_FLAGS);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (t->seen && st.st_ino != t->ino) {
		log_warn("%s: another directory is there than before; mount again to use it",
			 t->path);
		return -EIO;
	}
	t->seen = true;
	t->ino = st.st_ino;
	t->mode = st.st_mode & 0777;
	t->root = steal_fd(&fd);
	return 0;
}

/* Gives p a descriptor of the root. -ENOENT: it was never there, and is not to be made. */
static int enter_root_locked(struct file_tree *t, bool create, struct file_place *p)
{
	int r = t->root < 0 ? open_root_locked(t) : 0;

	if (r == -ENOENT && create && !t->seen) {
		r = make_root(t);
		if (r == 0)
			r = open_root_locked(t);
	}
	if (r == -ENOENT)
		return t->seen || create ? -EIO : -ENOENT;
	if (r < 0)
		return remote_errno_of(-r);
	p->root = fcntl(t->root, F_DUPFD_CLOEXEC, 0);
	p->dir = fcntl(t->root, F_DUPFD_CLOEXEC, 0);
	p->mode = t->mode;
	return p->root < 0 || p->dir < 0 ? remote_errno_of(errno) : 0;
}

/* ---- the way down; these give a negative errno as the system gave it */

static int make_dir(const struct file_place *p, const char *name)
{
	cleanup_close int fd = -1;

	if (mkdirat(p->dir, name, 0700) < 0)
		return errno == EEXIST ? 0 : -errno;
	fd = openat(p->dir, name, TREE_DIR_FLAGS | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	tree_share(fd, p->mode | 0700);
	return tree_sync_dir(p->dir);
}

static int enter(struct file_place *p, const char *name, bool create)
{
	int fd = openat(p->dir, name, TREE_DIR_FLAGS | O_NOFOLLOW);

	if (fd < 0 && errno == ENOENT && create) {
		int r = make_dir(p, name);

		if (r < 0)
			return r;
		fd = openat(p->dir, name, TREE_DIR_FLAGS | O_NOFOLLOW);
	}
	if (fd < 0)
		return -errno;
	close(p->dir);
	p->dir = fd;
	return 0;
}

/* From the root to the directory that holds the key. */
static int walk(const char *key, bool create, struct file_place *p)
{
	const char *slash;
	int r = 0;

	while (r == 0 && (slash = strchr(key, '/'))) {
		char name[REMOTE_KEY_MAX + 1];

		memcpy(name, key, (size_t)(slash - key));
		name[slash - key] = '\0';
		r = enter(p, name, create);
		key = slash + 1;
	}
	p->name = key;
	return r;
}

int tree_find(struct file_tree *t, const char *key, struct file_place *p)
{
	int r;

	mutex_lock(&t->lock);
	r = enter_root_locked(t, false, p);
	mutex_unlock(&t->lock);
	if (r < 0)
		return r;
	r = walk(key, false, p);
	if (r == -ENOENT)
		return tree_missing(t, p);
	return r < 0 ? tree_error(t, -r) : 0;
}

int tree_make(struct file_tree *t, const char *key, struct file_place *p)
{
	int r;

	mutex_lock(&t->lock);
	r = enter_root_locked(t, true, p);
	if (r == 0)
		r = walk(key, true, p);
	mutex_unlock(&t->lock);
	if (r == -ENOENT)
		return -EIO;
	return r < 0 ? tree_error(t, -r) : 0;
}

/* ---- beginning and end */

/* -ENOENT unless there is a directory in which a missing root can be made. */
static int check_above(const char *path)
{
	cleanup_free char *above = strdup(path);
	struct stat st;
	char *slash;

	if (!above)
		return -ENOMEM;
	slash = strrchr(above, '/');
	slash[slash == above] = '\0';
	if (lstat(path, &st) == 0)
		return -ENOENT; /* a dangling symlink */
	if (stat(above, &st) < 0)
		return errno == EACCES ? -EACCES : -ENOENT;
	return S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
}

int tree_init(struct file_tree *t, char *path)
{
	int r;

	*t = (struct file_tree){.path = path, .root = -1};
	mutex_init(&t->lock, LOCK_REMOTE_FILE_TREE);
	mutex_lock(&t->lock);
	r = open_root_locked(t);
	mutex_unlock(&t->lock);
	if (r == -ENOENT)
		r = check_above(path);
	if (r == 0)
		return 0;
	mutex_destroy(&t->lock);
	if (r == -ENAMETOOLONG || r == -ELOOP)
		return -EINVAL;
	return r == -ENOTDIR ? r : remote_errno_of(-r);
}

void tree_release(struct file_tree *t)
{
	if (t->root >= 0)
		close(t->root);
	mutex_destroy(&t->lock);
	free(t->path);
}
