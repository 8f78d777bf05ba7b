/* SPDX-License-Identifier: Apache-2.0 */
/* Repairing a remote: what the local cache has. */
#include "lib/admin/repair_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cache/cache_dir.h"
#include "lib/epochs/epochs.h"
#include "lib/format/tree.h"
#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/text.h"

#define TREE_FILE_MAX 32
/* In the cache directory, while it is looked at. */
#define COPY_NAME "repair"

/* ---- opening ---- */

static int open_below(int dirfd, const char *name, int *ret_fd)
{
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

/* A mount that is alive has its own connection, its own evictor, and perhaps newer rows. */
static int lock_it(struct repair_source *s, const char *path)
{
	s->lock_fd = openat(s->cache_fd, "lock", O_RDWR | O_CLOEXEC);
	if (s->lock_fd < 0)
		return -errno;
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) == 0)
		return 0;
	log_warn(
		"%s is in use by a mount and is not looked at: name the mount point, or unmount it",
		path);
	return -ENOENT;
}

static int copy_file(struct repair_source *s, const char *name, int dirfd)
{
	cleanup_close int from = openat(s->cache_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	cleanup_close int to = -1;
	struct stat st;

	if (from < 0 || fstat(from, &st) < 0)
		return -errno;
	to = openat(dirfd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	return to < 0 ? -errno : io_clone(from, to, (uint64_t)st.st_size);
}

/* A copy is opened: how the last mount has left the state, and its journal, is for the next one to see. */
static int open_copy(struct repair_source *s, const char *path)
{
	cleanup_free char *db = NULL;
	cleanup_close int dirfd = -1;
	int error = io_remove_tree(s->cache_fd, COPY_NAME);

	if (!error && mkdirat(s->cache_fd, COPY_NAME, 0700) < 0)
		error = -errno;
	s->copied = !error;
	if (!error)
		error = open_below(s->cache_fd, COPY_NAME, &dirfd);
	if (!error)
		error = copy_file(s, "state.db", dirfd);
	if (!error)
		error = copy_file(s, "state.db-wal", dirfd);
	if (error && error != -ENOENT)
		return error;
	if (text_print(&db, "%s/" COPY_NAME "/state.db", path) < 0)
		return -ENOMEM;
	return faccessat(dirfd, "state.db", R_OK, 0) < 0 ? -errno
							 : state_open(dirfd, db, &s->state);
}

static int open_parts(struct repair_source *s, const char *path)
{
	int error = open_below(s->cache_fd, "objects", &s->objects_fd);

	if (!error)
		error = open_below(s->cache_fd, "trees", &s->trees_fd);
	return error ? error : open_copy(s, path);
}

int repair_source_open(const struct volume_options *options, const char *uuid,
		       struct repair_source *ret_source)
{
	struct repair_source *s = ret_source;
	cleanup_buf struct buf path = {0};
	int error;

	*s = (struct repair_source){
		.objects_fd = -1, .trees_fd = -1, .cache_fd = -1, .lock_fd = -1};
	mutex_init(&s->own_lock, LOCK_VOLUME);
	s->lock = &s->own_lock;
	error = volume_cache_root(options, &path);
	buf_printf(&path, "/%s", uuid);
	if (!error)
		error = buf_error(&path);
	if (!error)
		error = open_below(AT_FDCWD, buf_str(&path), &s->cache_fd);
	if (!error)
		error = lock_it(s, buf_str(&path));
	if (!error)
		error = open_parts(s, buf_str(&path));
	if (error && error != -ENOENT)
		log_warn("the cache %s cannot be used: %s", buf_str(&path), strerror(-error));
	if (error)
		repair_source_close(s);
	return error ? -ENOENT : 0;
}

static void close_fd(int fd)
{
	if (fd >= 0)
		close(fd);
}

void repair_source_close(struct repair_source *s)
{
	state_close(s->state);
	if (s->copied)
		io_remove_tree(s->cache_fd, COPY_NAME);
	close_fd(s->objects_fd);
	close_fd(s->trees_fd);
	close_fd(s->cache_fd);
	close_fd(s->lock_fd);
	mutex_destroy(&s->own_lock);
	s->state = NULL;
}

/* ---- what it has ---- */

int repair_source_record(struct repair_source *s, uint64_t number, char **ret_text,
			 bool *ret_dropped)
{
	struct state_epoch row = {0};
	int error;

	mutex_lock(s->lock);
	error = state_epoch_get(s->state, number, &row);
	mutex_unlock(s->lock);
	if (error)
		return error;
	*ret_dropped = row.state == EPOCH_DROPPED;
	*ret_text = NULL;
	if (row.state == EPOCH_DURABLE && row.record)
		*ret_text = steal_ptr(row.record);
	else if (row.state != EPOCH_DROPPED || row.remote_delete_pending)
		error = -ENOENT;
	state_epoch_free(&row);
	return error;
}

static int note_epoch(void *arg, const struct state_epoch *e)
{
	if (e->state == EPOCH_DURABLE || (e->state == EPOCH_DROPPED && !e->remote_delete_pending))
		buf_put(arg, &e->number, sizeof(e->number));
	return buf_error(arg);
}

int repair_source_epochs(struct repair_source *s, struct buf *out)
{
	SCOPED_LOCK(s->lock);
	return state_epoch_each(s->state, note_epoch, out);
}

int repair_source_tag(struct repair_source *s, const char *name, uint64_t *ret_number)
{
	SCOPED_LOCK(s->lock);
	return state_tag_get(s->state, name, ret_number);
}

int repair_source_tree(struct repair_source *s, struct remote *remote,
		       const struct epoch_record *record, struct buf *out)
{
	size_t start = out->len;
	char name[TREE_FILE_MAX];
	struct hash hash;
	int error;

	snprintf(name, sizeof(name), "%020" PRIu64, record->number);
	error = io_read_file(s->trees_fd, name, TREE_ENCODED_MAX, out);
	if (error)
		return error == -ENOMEM ? error : -ENOENT;
	remote_address(remote, out->data + start, out->len - start, &hash);
	if (hash_equal(&hash, &record->tree_hash))
		return 0;
	out->len = start;
	return -ENOENT;
}

int repair_source_content(struct repair_source *s, const struct hash *recipe, uint64_t size)
{
	char name[OBJECT_NAME_MAX];
	struct state_version v;
	int fd, error;

	mutex_lock(s->lock);
	error = state_version_by_recipe(s->state, recipe, size, &v);
	mutex_unlock(s->lock);
	if (error)
		return error;
	if (!v.local_whole)
		return -ENOENT;
	object_name(v.id, name);
	fd = openat(s->objects_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}

/* ---- epochfs.json ---- */

int repair_source_info(const struct volume_options *options, const char *uuid, struct buf *out)
{
	static const char *const places[] = {"", "/import"};
	cleanup_buf struct buf root = {0};
	int error = volume_cache_root(options, &root);

	if (error)
		return -ENOENT;
	error = -ENOENT;
	for (size_t i = 0; error && i < sizeof(places) / sizeof(places[0]); i++) {
		cleanup_free char *path = NULL;
		struct volume_info info;

		if (text_print(&path, "%s/%s%s/%s", buf_str(&root), uuid, places[i], KEY_VOLUME) <
		    0)
			return -ENOMEM;
		buf_reset(out);
		error = io_read_file(AT_FDCWD, path, VOLUME_INFO_ENCODED_MAX, out);
		if (!error)
			error = volume_info_decode(out->data, out->len, &info);
		if (!error && strcmp(info.uuid, uuid) != 0)
			error = -EBADMSG;
	}
	return error ? -ENOENT : 0;
}
