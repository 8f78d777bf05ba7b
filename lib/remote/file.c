/* SPDX-License-Identifier: Apache-2.0 */
/* The remote that is a directory: an object is a file, a key its path below the root.
 *
 * Writing. The bytes go to `.tmp-RANDOM` in the root and are fsynced; rename(2) puts them in place,
 * or link(2) where the name must be new (renameat2 RENAME_NOREPLACE on file systems without links);
 * the directory is fsynced. Temporaries lie in the root, not beside the object, so that those which
 * a crash left are found by reading one small directory. The first write of a remote removes what
 * is older than an hour by the file system's own clock.
 *
 * Reading. Nothing but a regular file is an object; the head of the tree below says what else is not trusted.
 */
#include "lib/remote/remote_ops.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>

#include "lib/remote/rate.h"
#include "lib/util/hash.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include "lib/util/cleanup.h"

/* The directory tree of the file remote: its root, and the way from there to an object. Private to
 * it. */

#define TREE_DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC)

/*
 * The root stays open, so that unmounting its file system under a running volume is EBUSY and
 * cannot make the remote look empty. Where it had to be opened again (a network file system that
 * came back), it must have the same inode number: the bare mount point has another. A root that is
 * not there yet is made by the first tree_make; one that was there and is gone is -EIO from then
 * on. While its path does not lead to it, as after a rename or a lazy unmount, what is read of it is right, but nothing is written or deleted: whoever looks for it by its name would not find
 * that. When it is back, all goes on.
 *
 * Trust: the tree may hold what somebody else put there, so no symlink below the root is followed.
 * The root itself may be reached through symlinks.
 *
 * Permissions of what is made here are the root's (0700 where it is made too), not the process's
 * umask, which a FUSE daemon sets to 0.
 */
struct file_tree {
	char *path; /* of the root: absolute, without a `/` at the end unless that is all */
	/* Guards what follows, and is held while directories are made, so that nobody returns with
	 * an object in one whose own name is not yet on disk. Nothing else is locked under it. */
	struct mutex lock;
	int root;  /* -1: not open */
	bool seen; /* the root has been there */
	ino_t ino;
	mode_t mode; /* permission bits of the root */
};

/* Takes `path` over on success. 0, or why this cannot be a root: -ENOENT where the directory above
 * it is missing too, -ENOTDIR, -EACCES, -EINVAL, -EIO, -ENOMEM. */
static int tree_init(struct file_tree *t, char *path);
static void tree_release(struct file_tree *t);

/* Where an object lies; descriptors are the place's own. */
struct file_place {
	int root;
	int dir; /* the directory that holds it */
	const char
		*name; /* in dir: the key's last component (points into the key); "" for a prefix */
	mode_t mode;   /* permission bits of the root */
};

static void place_close(struct file_place *p);
#define cleanup_place CLEANUP(place_close)
#define NO_PLACE      ((struct file_place){.root = -1, .dir = -1})

/* To the directory in which the object of this key would lie, or that a prefix names: 0, -ENOENT
 * where there is no such directory, or another error of remote.h. */
static int tree_find(struct file_tree *t, const char *key, struct file_place *p);
/* The same, but makes what is missing on the way, durably; -EIO where tree_check_path says so. */
static int tree_make(struct remote *r, struct file_tree *t, const char *key, struct file_place *p);
/* What a missing name means: -ENOENT, or -EIO where it is because the whole root was removed. */
static int tree_missing(const struct file_tree *t, const struct file_place *p);

/* -EIO, with its reason, where the root's path is known not to lead to the root of `p`; to be asked before anything is changed there, and before it is called durable. */
static int tree_check_path(struct remote *r, const struct file_tree *t, const struct file_place *p);

/* Maps the errno (positive) of a system call below the root to a negative one of remote.h. */
static int tree_error(struct file_tree *t, int err);
/* fsync of a directory, where its file system can; 0 or -errno. */
static int tree_sync_dir(int dir);
/* Gives what we made the permission bits `mode`; no error where the file system has none of its
 * own. */
static void tree_share(int fd, mode_t mode);

#define TEMP_PREFIX   ".tmp-"
#define TEMP_MAX      32
#define STALE_AFTER_S 3600

struct file {
	struct remote base;
	struct file_tree tree;
	atomic_bool swept; /* stale temporaries were removed */
	struct rate upload, download;
};

static struct file *file_of(struct remote *r)
{
	return (struct file *)r;
}

/* ---- writing */

/* A temporary file in the root, removed at the scope's end unless its name was cleared. */
struct temp {
	int root;
	char name[TEMP_MAX];
};

static void temp_drop(const struct temp *t)
{
	if (t->name[0])
		unlinkat(t->root, t->name, 0);
}

#define cleanup_temp CLEANUP(temp_drop)

static void sweep_one(const struct file *f, int root, const char *name, time_t now)
{
	struct stat st;

	if (strncmp(name, TEMP_PREFIX, strlen(TEMP_PREFIX)) != 0 ||
	    fstatat(root, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode) ||
	    now - st.st_mtime < STALE_AFTER_S)
		return;
	if (unlinkat(root, name, 0) == 0)
		log_debug("%s: removed %s, left by a crash", f->base.name, name);
}

/* Removes stale temporaries, once; `fresh` is a file just made there, whose time is the file
 * system's now. What cannot be removed does no harm. */
static void sweep(struct file *f, int root, int fresh)
{
	cleanup_closedir DIR *d = NULL;
	const char *name;
	struct stat st;
	int fd;

	if (atomic_exchange(&f->swept, true))
		return;
	fd = openat(root, ".", TREE_DIR_FLAGS);
	d = fd < 0 ? NULL : fdopendir(fd);
	if (!d || fstat(fresh, &st) < 0) {
		if (!d && fd >= 0)
			close(fd);
		return;
	}
	while (io_readdir(d, &name) > 0)
		sweep_one(f, root, name, st.st_mtime);
}

static int write_paced(struct file *f, int fd, const uint8_t *data, size_t len)
{
	int r = 0;

	while (r == 0 && len) {
		size_t n = rate_piece(&f->upload, len);

		r = rate_wait(&f->upload, &f->base, n);
		if (r == 0)
			r = io_write_full(fd, data, n);
		data += n;
		len -= n;
	}
	return r;
}

/* Fills t with a durable temporary file that holds the bytes. */
static int write_temp(struct file *f, const struct file_place *p, const void *data, size_t len,
		      struct temp *t)
{
	cleanup_close int fd = -1;
	uint8_t random[8];
	char id[17];
	int r = random_bytes(random, sizeof(random));

	if (r < 0)
		return -EIO;
	hex_encode(random, sizeof(random), id);
	snprintf(t->name, sizeof(t->name), TEMP_PREFIX "%s", id);
	t->root = p->root;
	fd = openat(p->root, t->name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0) {
		t->name[0] = '\0';
		return errno == ENOENT ? -EIO : tree_error(&f->tree, errno);
	}
	sweep(f, p->root, fd);
	tree_share(fd, (p->mode & 0666) | 0600);
	r = write_paced(f, fd, data, len);
	if (r == 0 && fsync(fd) < 0)
		r = -errno;
	return r < 0 && r != -ECANCELED ? tree_error(&f->tree, -r) : r;
}

/* After what has changed the directory of a place: is it durable, and where it is looked for? */
static int settle(struct file *f, const struct file_place *p)
{
	int err = tree_sync_dir(p->dir);

	return err < 0 ? tree_error(&f->tree, -err) : tree_check_path(&f->base, &f->tree, p);
}

static int file_put(struct remote *r, const char *key, const void *data, size_t len)
{
	struct file_place cleanup_place p = NO_PLACE;
	struct temp cleanup_temp t = {0};
	struct file *f = file_of(r);
	int err = tree_make(r, &f->tree, key, &p);

	if (err == 0)
		err = write_temp(f, &p, data, len, &t);
	if (err < 0)
		return err;
	if (renameat(p.root, t.name, p.dir, p.name) < 0)
		return errno == ENOENT ? -EIO : tree_error(&f->tree, errno);
	t.name[0] = '\0';
	return settle(f, &p);
}

/* For file systems without hard links. */
static int rename_if_absent(struct file *f, struct temp *t, const struct file_place *p)
{
	if (renameat2(p->root, t->name, p->dir, p->name, RENAME_NOREPLACE) < 0) {
		if (errno == EINVAL || errno == ENOSYS)
			return -EOPNOTSUPP;
		return errno == ENOENT ? -EIO : tree_error(&f->tree, errno);
	}
	t->name[0] = '\0';
	return 0;
}

static int link_if_absent(struct file *f, struct temp *t, const struct file_place *p)
{
	struct stat st;

	if (linkat(p->root, t->name, p->dir, p->name, 0) == 0)
		return 0;
	switch (errno) {
	case EPERM:
	case ENOSYS:
	case EOPNOTSUPP:
		return rename_if_absent(f, t, p);
	case EEXIST:
		/* NFS may repeat a request whose answer was lost: a second link is ours. */
		if (fstatat(p->root, t->name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink > 1)
			return 0;
		return -EEXIST;
	case ENOENT:
		return -EIO;
	default:
		return tree_error(&f->tree, errno);
	}
}

static int file_put_if_absent(struct remote *r, const char *key, const void *data, size_t len)
{
	struct file_place cleanup_place p = NO_PLACE;
	struct temp cleanup_temp t = {0};
	struct file *f = file_of(r);
	struct stat st;
	int err = tree_make(r, &f->tree, key, &p);

	if (err < 0)
		return err;
	if (fstatat(p.dir, p.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST; /* saves writing what would be thrown away */
	err = write_temp(f, &p, data, len, &t);
	if (err == 0)
		err = link_if_absent(f, &t, &p);
	return err < 0 ? err : settle(f, &p);
}

static int file_delete(struct remote *r, const char *key)
{
	struct file_place cleanup_place p = NO_PLACE;
	struct file *f = file_of(r);
	int err = tree_find(&f->tree, key, &p);

	if (err == 0)
		err = tree_check_path(r, &f->tree, &p);
	if (err < 0)
		return err == -ENOENT ? 0 : err;
	if (unlinkat(p.dir, p.name, 0) < 0) {
		if (errno == ENOENT)
			err = tree_missing(&f->tree, &p);
		else
			err = errno == EISDIR ? -ENOENT : tree_error(&f->tree, errno);
		return err == -ENOENT ? 0 : err;
	}
	return settle(f, &p);
}

/* ---- reading */

/* What lies there: 0 for an object, -ENOENT for a directory, -EPERM for what we do not touch. */
static int check_object(const struct stat *st)
{
	if (S_ISREG(st->st_mode))
		return 0;
	return S_ISDIR(st->st_mode) ? -ENOENT : -EPERM;
}

/* Fewer only where the file ends; -errno. `out` has room. */
static int read_paced(struct file *f, int fd, uint64_t offset, size_t len, struct buf *out)
{
	while (len) {
		size_t piece = rate_piece(&f->download, len);
		int r = rate_wait(&f->download, &f->base, piece);
		ssize_t n = r < 0 ? r : io_pread_some(fd, out->data + out->len, piece, offset);

		if (n < 0)
			return (int)n;
		out->len += (size_t)n;
		offset += (uint64_t)n;
		len = (size_t)n < piece ? 0 : len - piece;
	}
	return 0;
}

static int file_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		    struct buf *out)
{
	struct file_place cleanup_place p = NO_PLACE;
	cleanup_close int fd = -1;
	struct file *f = file_of(r);
	size_t before = out->len;
	struct stat st;
	int err = tree_find(&f->tree, key, &p);

	if (err < 0)
		return err;
	fd = openat(p.dir, p.name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? tree_missing(&f->tree, &p) : tree_error(&f->tree, errno);
	if (fstat(fd, &st) < 0)
		return tree_error(&f->tree, errno);
	err = check_object(&st);
	if (err < 0 || offset >= (uint64_t)st.st_size)
		return err;
	if (len > (uint64_t)st.st_size - offset)
		len = (uint64_t)st.st_size - offset;
	if (len > REMOTE_GET_MAX)
		return -EFBIG;
	if (buf_reserve(out, len) < 0)
		return -ENOMEM;
	err = read_paced(f, fd, offset, len, out);
	if (err < 0)
		out->len = before;
	return err < 0 && err != -ECANCELED ? tree_error(&f->tree, -err) : err;
}

static int file_size(struct remote *r, const char *key, uint64_t *ret_size)
{
	struct file_place cleanup_place p = NO_PLACE;
	struct file *f = file_of(r);
	struct stat st;
	int err = tree_find(&f->tree, key, &p);

	if (err < 0)
		return err;
	if (fstatat(p.dir, p.name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? tree_missing(&f->tree, &p) : tree_error(&f->tree, errno);
	err = check_object(&st);
	if (err == 0)
		*ret_size = (uint64_t)st.st_size;
	return err;
}

struct listing {
	struct file *f;
	remote_list_fn *fn;
	void *arg;
	char key[REMOTE_KEY_MAX + 1]; /* of the entry in hand */
};

static int list_dir(struct listing *l, int dir, size_t used);

/* One name in `dir`, whose own key is the first `used` bytes of l->key. */
static int list_entry(struct listing *l, int dir, size_t used, const char *name)
{
	size_t len = strlen(name);
	struct stat st;
	int fd;

	if (len > REMOTE_KEY_MAX - used)
		return 0;
	memcpy(l->key + used, name, len + 1);
	if (!remote_key_valid(l->key))
		return 0;
	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return errno == ENOENT ? 0 : tree_error(&l->f->tree, errno);
	if (S_ISREG(st.st_mode))
		return l->fn(l->arg, l->key, (uint64_t)st.st_size);
	if (!S_ISDIR(st.st_mode) || used + len + 1 >= REMOTE_KEY_MAX)
		return 0;
	fd = openat(dir, name, TREE_DIR_FLAGS | O_NOFOLLOW);
	if (fd < 0)
		return errno == ENOENT || errno == ENOTDIR ? 0 : tree_error(&l->f->tree, errno);
	memcpy(l->key + used + len, "/", 2);
	return list_dir(l, fd, used + len + 1);
}

/* Takes the descriptor over. */
static int list_dir(struct listing *l, int dir, size_t used)
{
	cleanup_closedir DIR *d = fdopendir(dir);
	const char *name;
	int r = 0, got;

	if (!d) {
		close(dir);
		return -ENOMEM;
	}
	while (r == 0 && (got = io_readdir(d, &name)) != 0)
		r = got < 0 ? tree_error(&l->f->tree, -got) : list_entry(l, dirfd(d), used, name);
	return r;
}

static int file_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	struct listing l = {.f = file_of(r), .fn = fn, .arg = arg};
	struct file_place cleanup_place p = NO_PLACE;
	size_t len = strlen(prefix);
	int err = tree_find(&l.f->tree, prefix, &p);
	int fd;

	if (err < 0)
		return err == -ENOENT ? 0 : err;
	/* Not p.dir itself: the root's duplicates share one position in the directory. */
	fd = openat(p.dir, ".", TREE_DIR_FLAGS);
	if (fd >= 0) {
		memcpy(l.key, prefix, len + 1);
		err = list_dir(&l, fd, len);
	} else if (errno != ENOENT) {
		err = tree_error(&l.f->tree, errno);
	}
	/* A directory that was removed lists as an empty one. */
	return err == 0 && tree_missing(&l.f->tree, &p) == -EIO ? -EIO : err;
}

/* ---- opening */

static void file_release(struct remote *r)
{
	struct file *f = file_of(r);

	rate_destroy(&f->upload);
	rate_destroy(&f->download);
	tree_release(&f->tree);
}

static const struct remote_ops file_ops = {
	.put = file_put,
	.put_if_absent = file_put_if_absent,
	.get = file_get,
	.size = file_size,
	.list = file_list,
	.delete = file_delete,
	.upload_check = "written by this machine; nothing is compared",
	.release = file_release,
};

/* The absolute path that the URL names: file:/abs, file:///abs and file://localhost/abs are the
 * same. */
static int path_of(const struct remote_url *url, char **ret_path)
{
	static const char host[] = "//localhost/";
	cleanup_free char *path = NULL;
	const char *rest = url->rest;
	int r;

	if (url->query)
		return -EINVAL;
	if (url->plain) {
		path = strdup(rest);
		r = path ? 0 : -ENOMEM;
	} else {
		if (strncmp(rest, host, strlen(host)) == 0)
			rest += strlen(host) - 1;
		else if (strncmp(rest, "///", 3) == 0)
			rest += 2;
		else if (strncmp(rest, "//", 2) == 0)
			return -EINVAL;
		r = remote_url_decode(rest, &path);
	}
	if (r < 0)
		return r;
	if (path[0] != '/')
		return -EINVAL;
	for (size_t len = strlen(path); len > 1 && path[len - 1] == '/';)
		path[--len] = '\0';
	*ret_path = steal_ptr(path);
	return 0;
}

int remote_file_open(const struct remote_url *url, const char *text,
		     const struct remote_limits *limits, struct remote **ret_remote)
{
	cleanup_free struct file *f = calloc(1, sizeof(*f));
	cleanup_free char *path = NULL;
	int r;

	if (!f)
		return -ENOMEM;
	r = path_of(url, &path);
	if (r == 0)
		r = tree_init(&f->tree, path);
	if (r < 0)
		return r;
	path = NULL;
	r = remote_init(&f->base, &file_ops, text, NULL);
	if (r < 0) {
		tree_release(&f->tree);
		return r;
	}
	rate_init(&f->upload, limits->upload_rate);
	rate_init(&f->download, limits->download_rate);
	*ret_remote = &steal_ptr(f)->base;
	return 0;
}

/* The directory tree of the file remote: its root, and the way from there to an object. */

static void place_close(struct file_place *p)
{
	if (p->root >= 0)
		close(p->root);
	if (p->dir >= 0)
		close(p->dir);
}

static int tree_error(struct file_tree *t, int err)
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

static int tree_sync_dir(int dir)
{
	if (fsync(dir) == 0 || errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP)
		return 0;
	return -errno;
}

static void tree_share(int fd, mode_t mode)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && fchmod(fd, (st.st_mode & S_ISGID) | mode) < 0)
		log_debug("cannot set permissions: %s", strerror(errno));
}

static int tree_missing(const struct file_tree *t, const struct file_place *p)
{
	struct stat st;

	if (fstat(p->root, &st) == 0 && st.st_nlink > 0)
		return -ENOENT;
	log_debug("%s: the directory was removed", t->path);
	return -EIO;
}

static int tree_check_path(struct remote *r, const struct file_tree *t, const struct file_place *p)
{
	struct stat ours, named;
	bool gone = stat(t->path, &named) < 0;

	/* What cannot be asked just now is there. */
	if ((gone && errno != ENOENT && errno != ENOTDIR) || fstat(p->root, &ours) < 0 ||
	    (!gone && named.st_dev == ours.st_dev && named.st_ino == ours.st_ino))
		return 0;
	return remote_set_reason(
		r, -EIO,
		"%s is not the directory that it was: that was renamed, removed or unmounted; put it back, or mount again",
		t->path);
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

static int tree_find(struct file_tree *t, const char *key, struct file_place *p)
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

static int tree_make(struct remote *r, struct file_tree *t, const char *key, struct file_place *p)
{
	int error;

	mutex_lock(&t->lock);
	error = enter_root_locked(t, true, p);
	if (error == 0)
		error = tree_check_path(r, t, p);
	if (error == 0)
		error = walk(key, true, p);
	mutex_unlock(&t->lock);
	if (error == -ENOENT)
		return -EIO;
	return error < 0 ? tree_error(t, -error) : 0;
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

static int tree_init(struct file_tree *t, char *path)
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

static void tree_release(struct file_tree *t)
{
	if (t->root >= 0)
		close(t->root);
	mutex_destroy(&t->lock);
	free(t->path);
}
