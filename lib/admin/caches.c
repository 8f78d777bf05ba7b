/* SPDX-License-Identifier: Apache-2.0 */
/* The caches of a machine: listing and removing them. */
#include "lib/admin/caches.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/admin/repair_internal.h"
#include "lib/cache/cache_dir.h"
#include "lib/cache/torn.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"

#define UUID_LEN 36
/* More than the file of the lock ever has. */
#define LOCK_MAX 4096
/* What a directory is called while it is removed: no volume's. */
#define REMOVING ".removing"

/* Of a mount, and of imports. */
static const char *const places[] = {".", "import"};

static bool is_uuid(const char *name)
{
	return strlen(name) == UUID_LEN && strspn(name, "0123456789abcdef-") == UUID_LEN;
}

/* ---- what is only there ---- */

static int count_torn(void *arg, const char *name, uint64_t id, uint64_t size, int64_t mtime_ns)
{
	(void)name;
	(void)id;
	(void)size;
	(void)mtime_ns;
	++*(uint64_t *)arg;
	return 0;
}

static void add(struct buf *why, const char *what, uint64_t count, const char *rest)
{
	buf_printf(why, "%s%" PRIu64 " %s%s%s", why->len ? ", " : "", count, what, plural(count),
		   rest);
}

/* Which no state tells: files that somebody may still want to look at. */
static int leftovers(int cache_fd, const char *path, struct buf *why)
{
	cleanup_closedir DIR *dir = NULL;
	uint64_t torn = 0;
	const char *name;
	int got = io_opendir(cache_fd, &dir);

	torn_each_left(path, count_torn, &torn);
	if (torn)
		add(why, "file", torn, " of killed writers");
	while (!got && (got = io_readdir(dir, &name)) > 0) {
		got = 0;
		if (!strncmp(name, "damaged", strlen("damaged")))
			buf_printf(why, "%s%s, a state that was found damaged",
				   why->len ? ", " : "", name);
	}
	return got;
}

static int count_tag(void *arg, const char *name, uint64_t number)
{
	(void)name;
	(void)number;
	++*(uint64_t *)arg;
	return 0;
}

/* What the remote does not have yet. */
static int not_uploaded(struct state *s, struct buf *why)
{
	uint64_t local, dirty, epochs, oldest, changes, tags = 0;
	char size[FORMAT_MAX];
	int error = state_version_totals(s, &local, &dirty);

	if (!error)
		error = state_epoch_count_waiting(s, &epochs, &oldest, &changes);
	if (!error)
		error = state_tag_each_unsynced(s, count_tag, &tags);
	if (error)
		return error;
	format_size(dirty, size);
	if (dirty)
		buf_printf(why, "%s that no remote has", size);
	if (epochs)
		add(why, "epoch", epochs, " that no remote has");
	if (changes + tags)
		add(why, "dropped epoch or tag", changes + tags,
		    " that the remote does not know yet");
	return 0;
}

/* A cache without a state, of imports alone or of a mount that never came to be, holds nothing. */
static bool is_empty(int cache_fd)
{
	cleanup_close int fd = openat(cache_fd, "objects", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_closedir DIR *dir = NULL;
	const char *name;

	if (faccessat(cache_fd, "state.db", F_OK, 0) == 0 || errno != ENOENT)
		return false;
	return fd < 0 ? errno == ENOENT : io_opendir(fd, &dir) == 0 && io_readdir(dir, &name) == 0;
}

/* The lock is free. Where it cannot be told, that is told. */
static int find_only_here(const char *root, const char *uuid, int cache_fd, struct buf *why)
{
	const struct volume_options options = {.cache_dir = root};
	struct repair_source source;
	cleanup_buf struct buf lock = {0};
	cleanup_free char *path = NULL;
	int error;

	if (text_print(&path, "%s/%s", root, uuid) < 0)
		return -ENOMEM;
	if (is_empty(cache_fd))
		return leftovers(cache_fd, path, why);
	if (io_read_file(cache_fd, "lock", LOCK_MAX, &lock) ||
	    shutdown_mark_read(cache_fd, buf_str(&lock)) != SHUTDOWN_CLEAN) {
		buf_printf(why, "what its last mount, which was killed, had not uploaded");
		return leftovers(cache_fd, path, why);
	}
	error = repair_source_open(&options, uuid, &source);
	if (!error) {
		mutex_lock(source.lock);
		error = not_uploaded(source.state, why);
		mutex_unlock(source.lock);
		repair_source_close(&source);
	}
	if (error)
		buf_printf(why, "what its local state, which cannot be read, does not tell");
	return leftovers(cache_fd, path, why);
}

/* ---- listing ---- */

/* By its file: -EWOULDBLOCK where another process has the lock; -ENOENT where there is none. The descriptor holds it. */
static int take_lock(int cache_fd, const char *place, int *ret_fd)
{
	cleanup_free char *path = NULL;
	cleanup_close int fd = -1;

	if (text_print(&path, "%s/lock", place) < 0)
		return -ENOMEM;
	fd = openat(cache_fd, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
		return -errno;
	*ret_fd = steal_fd(&fd);
	return 0;
}

/* Who has it, and when it was used. */
static void look_at_lock(int cache_fd, const char *place, struct cache_found *c)
{
	cleanup_buf struct buf text = {0};
	cleanup_close int fd = -1;
	cleanup_free char *path = NULL;
	struct stat st;

	if (text_print(&path, "%s/lock", place) < 0)
		return;
	if (fstatat(cache_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	    clock_ns(st.st_mtim) > c->used_ns)
		c->used_ns = clock_ns(st.st_mtim);
	if (c->in_use || take_lock(cache_fd, place, &fd) != -EWOULDBLOCK)
		return;
	c->in_use = true;
	if (io_read_file(cache_fd, path, LOCK_MAX, &text) == 0)
		shutdown_mark_holder(buf_str(&text), &c->holder);
}

static uint64_t bytes_below(char *path)
{
	char *const paths[] = {path, NULL};
	FTS *tree = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	uint64_t bytes = 0;
	FTSENT *e;

	while (tree && (e = fts_read(tree)))
		if (e->fts_info == FTS_F || e->fts_info == FTS_D)
			bytes += (uint64_t)e->fts_statp->st_blocks * 512;
	if (tree)
		fts_close(tree);
	return bytes;
}

static void read_remote(int cache_fd, struct buf *out)
{
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]) && !out->len; i++) {
		cleanup_free char *path = NULL;

		if (text_print(&path, "%s/" CACHE_REMOTE, places[i]) < 0 ||
		    io_read_file(cache_fd, path, CACHE_REMOTE_MAX, out))
			buf_reset(out);
	}
}

static int tell(const char *root, const char *uuid, int cache_fd, cache_found_fn fn, void *arg)
{
	cleanup_buf struct buf remote = {0}, only_here = {0};
	cleanup_free char *path = NULL;
	struct cache_found c = {.uuid = uuid};
	int error = 0;

	if (text_print(&path, "%s/%s", root, uuid) < 0)
		return -ENOMEM;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++)
		look_at_lock(cache_fd, places[i], &c);
	read_remote(cache_fd, &remote);
	c.remote = buf_str(&remote);
	c.bytes = bytes_below(path);
	if (!c.in_use)
		error = find_only_here(root, uuid, cache_fd, &only_here);
	if (error)
		return error;
	c.only_here = only_here.len ? buf_str(&only_here) : NULL;
	return fn(arg, &c);
}

int caches_each(const char *root, cache_found_fn fn, void *arg)
{
	cleanup_close int root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cleanup_closedir DIR *dir = NULL;
	const char *name;
	int got = root_fd < 0 ? -errno : io_opendir(root_fd, &dir);

	while (!got && (got = io_readdir(dir, &name)) > 0) {
		cleanup_close int fd = -1;

		got = 0;
		if (!is_uuid(name))
			continue;
		fd = openat(root_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0)
			got = tell(root, name, fd, fn, arg);
	}
	return got;
}

/* ---- removing ---- */

/* Of a mount and of imports, as far as there are such. */
static int take_locks(int cache_fd, int fds[2])
{
	for (size_t i = 0; i < 2; i++) {
		int error = take_lock(cache_fd, places[i], &fds[i]);

		if (error && error != -ENOENT)
			return error == -EWOULDBLOCK ? -EBUSY : error;
	}
	return 0;
}

/* Under another name first: who mounts the volume meanwhile gets a new one. */
static int remove_locked(int root_fd, const char *uuid)
{
	char away[UUID_LEN + sizeof(REMOVING)];
	int error;

	snprintf(away, sizeof(away), "%.36s" REMOVING, uuid);
	error = io_remove_tree(root_fd, away);
	if (error)
		return error;
	if (renameat(root_fd, uuid, root_fd, away) < 0)
		return -errno;
	return io_remove_tree(root_fd, away);
}

/* When a mount opened or closed it last. */
static int64_t used_ns(int cache_fd)
{
	struct stat st;

	return fstatat(cache_fd, "lock", &st, AT_SYMLINK_NOFOLLOW) == 0 ? clock_ns(st.st_mtim) : 0;
}

static void close_locks(int fds[2])
{
	for (size_t i = 0; i < 2; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

int cache_remove(const char *root, const char *uuid, bool force, struct buf *why)
{
	cleanup_close int root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	int locks[2] = {-1, -1}, error;
	int64_t before_ns;

	if (root_fd < 0 || !is_uuid(uuid))
		return root_fd < 0 ? -errno : -EINVAL;
	fd = openat(root_fd, uuid, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	before_ns = used_ns(fd);
	/* Takes the lock for itself, and lets go of it: a mount may come and go before it is ours. */
	error = force ? 0 : find_only_here(root, uuid, fd, why);
	if (!error)
		error = take_locks(fd, locks);
	if (!error && used_ns(fd) != before_ns)
		error = -EBUSY;
	if (!error && why->len)
		error = -ENOTEMPTY;
	if (!error)
		error = remove_locked(root_fd, uuid);
	close_locks(locks);
	return error;
}
