/* SPDX-License-Identifier: Apache-2.0 */
/* The remote that is a directory: an object is a file, a key its path below the root.
 *
 * Writing. The bytes go to `.tmp-RANDOM` in the root and are fsynced; rename(2) puts them in place,
 * or link(2) where the name must be new (renameat2 RENAME_NOREPLACE on file systems without links);
 * the directory is fsynced. Temporaries lie in the root, not beside the object, so that those which
 * a crash left are found by reading one small directory. The first write of a remote removes what
 * is older than an hour by the file system's own clock.
 *
 * Reading. Nothing but a regular file is an object; file_tree.h says what else is not trusted.
 */
#include "lib/remote/remote_ops.h"

#include <dirent.h>
#include <errno.h>
#include <string.h>
#include "lib/remote/file_tree.h"
#include "lib/remote/rate.h"
#include "lib/util/hash.h"
#include "lib/util/io.h"
#include "lib/util/log.h"

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

static int file_put(struct remote *r, const char *key, const void *data, size_t len)
{
	struct file_place cleanup_place p = NO_PLACE;
	struct temp cleanup_temp t = {0};
	struct file *f = file_of(r);
	int err = tree_make(&f->tree, key, &p);

	if (err == 0)
		err = write_temp(f, &p, data, len, &t);
	if (err < 0)
		return err;
	if (renameat(p.root, t.name, p.dir, p.name) < 0)
		return errno == ENOENT ? -EIO : tree_error(&f->tree, errno);
	t.name[0] = '\0';
	err = tree_sync_dir(p.dir);
	return err < 0 ? tree_error(&f->tree, -err) : 0;
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
	int err = tree_make(&f->tree, key, &p);

	if (err < 0)
		return err;
	if (fstatat(p.dir, p.name, &st, AT_SYMLINK_NOFOLLOW) == 0)
		return -EEXIST; /* saves writing what would be thrown away */
	err = write_temp(f, &p, data, len, &t);
	if (err == 0)
		err = link_if_absent(f, &t, &p);
	if (err < 0)
		return err;
	err = tree_sync_dir(p.dir);
	return err < 0 ? tree_error(&f->tree, -err) : 0;
}

static int file_delete(struct remote *r, const char *key)
{
	struct file_place cleanup_place p = NO_PLACE;
	struct file *f = file_of(r);
	int err = tree_find(&f->tree, key, &p);

	if (err < 0)
		return err == -ENOENT ? 0 : err;
	if (unlinkat(p.dir, p.name, 0) < 0) {
		if (errno == ENOENT)
			err = tree_missing(&f->tree, &p);
		else
			err = errno == EISDIR ? -ENOENT : tree_error(&f->tree, errno);
		return err == -ENOENT ? 0 : err;
	}
	err = tree_sync_dir(p.dir);
	return err < 0 ? tree_error(&f->tree, -err) : 0;
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
