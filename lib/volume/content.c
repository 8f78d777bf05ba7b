/* SPDX-License-Identifier: Apache-2.0 */
/* Closed content that lies whole in its backing file. */
#include "lib/volume/contents.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/volume/body.h"

/*
 * Lock order: volume.lock > contents.lock > content.io. `io` is held for reading over each read of
 * the backing file, and for writing while the descriptor changes, so that whoever changes the file
 * below knows when nobody reads it any more.
 */
struct content {
	struct volume *vol;
	struct content *next;
	uint64_t version, size;
	unsigned refs; /* guarded by contents.lock */
	bool detached; /* no longer in the table */
	bool lent;
	int fd; /* -1: empty without a backing file */
	pthread_rwlock_t io;
};

struct contents {
	pthread_mutex_t lock;
	struct content *first;
};

int contents_new(struct contents **ret_contents)
{
	struct contents *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	pthread_mutex_init(&all->lock, NULL);
	*ret_contents = all;
	return 0;
}

void contents_free(struct contents *all)
{
	if (!all)
		return;
	pthread_mutex_destroy(&all->lock);
	free(all);
}

static struct content *find(struct contents *all, uint64_t version)
{
	struct content *c = all->first;

	while (c && c->version != version)
		c = c->next;
	return c;
}

/* With the volume's lock, so that the row and the file belong together. */
static int content_open_locked(struct volume *vol, uint64_t version, struct content **ret_content)
{
	struct state_version v;
	struct content *c;
	int error = state_version_get(vol->state, version, &v);

	if (error)
		return error;
	if (v.state == VERSION_STAGED || (v.size && !v.local_whole))
		return v.state == VERSION_STAGED ? -ENOENT : -EIO;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	c->fd = object_open(vol, version, O_RDONLY);
	if (c->fd < 0 && v.size) {
		error = c->fd == -ENOENT ? -EIO : c->fd;
		free(c);
		return error;
	}
	c->vol = vol;
	c->version = version;
	c->size = v.size;
	pthread_rwlock_init(&c->io, NULL);
	v.used_ns = clock_wall_ns();
	if (v.state == VERSION_DURABLE)
		state_version_set(vol->state, &v);
	*ret_content = c;
	return 0;
}

int content_get(struct volume *vol, uint64_t version, struct content **ret_content)
{
	struct contents *all = vol->contents;
	struct content *c;
	int error;
	SCOPED_LOCK(&vol->lock);
	SCOPED_LOCK(&all->lock);

	c = find(all, version);
	if (!c) {
		error = content_open_locked(vol, version, &c);
		if (error)
			return error;
		c->next = all->first;
		all->first = c;
	}
	c->refs++;
	*ret_content = c;
	return 0;
}

struct content *content_ref(struct content *c)
{
	SCOPED_LOCK(&c->vol->contents->lock);

	c->refs++;
	return c;
}

static void unlink_content(struct contents *all, struct content *c)
{
	struct content **p = &all->first;

	while (*p != c)
		p = &(*p)->next;
	*p = c->next;
	c->detached = true;
}

void content_put(struct content *c)
{
	struct contents *all = c ? c->vol->contents : NULL;

	if (!c)
		return;
	pthread_mutex_lock(&all->lock);
	if (--c->refs) {
		pthread_mutex_unlock(&all->lock);
		return;
	}
	if (!c->detached)
		unlink_content(all, c);
	pthread_mutex_unlock(&all->lock);
	if (c->fd >= 0)
		close(c->fd);
	pthread_rwlock_destroy(&c->io);
	free(c);
}

uint64_t content_version(const struct content *c)
{
	return c->version;
}

uint64_t content_size(const struct content *c)
{
	return c->size;
}

bool content_whole(struct content *c)
{
	return !c->size || c->fd >= 0;
}

bool content_direct(struct content *c)
{
	struct state_version v;
	struct state_file f;
	SCOPED_LOCK(&c->vol->lock);

	if (c->fd < 0 || state_version_get(c->vol->state, c->version, &v))
		return false;
	if (v.ino && !state_file_get(c->vol->state, v.ino, &f) &&
	    (f.closed == v.id || f.live == v.id))
		return false;
	return !bodies_use_version_locked(c->vol, c->version);
}

int content_backing_fd(struct content *c)
{
	int fd = object_open(c->vol, c->version, O_RDONLY);

	if (fd >= 0)
		__atomic_store_n(&c->lent, true, __ATOMIC_SEQ_CST);
	return fd;
}

ssize_t content_read(struct content *c, void *data, size_t len, uint64_t offset,
		     interrupted_fn interrupted, void *arg)
{
	ssize_t n = 0;

	(void)interrupted;
	(void)arg;
	if (offset >= c->size)
		return 0;
	if (len > c->size - offset)
		len = (size_t)(c->size - offset);
	pthread_rwlock_rdlock(&c->io);
	n = io_pread_some(c->fd, data, len, offset);
	pthread_rwlock_unlock(&c->io);
	return n;
}

int content_fetch(struct content *c, uint64_t offset, uint64_t len, interrupted_fn interrupted,
		  void *arg)
{
	(void)c;
	(void)offset;
	(void)len;
	(void)interrupted;
	(void)arg;
	return 0;
}

bool content_in_use_locked(struct volume *vol, uint64_t version)
{
	SCOPED_LOCK(&vol->contents->lock);

	return find(vol->contents, version) != NULL;
}

unsigned content_users_locked(struct volume *vol, uint64_t version)
{
	struct content *c;
	SCOPED_LOCK(&vol->contents->lock);

	c = find(vol->contents, version);
	return c ? c->refs : 0;
}

bool content_lent(struct content *c)
{
	return __atomic_load_n(&c->lent, __ATOMIC_SEQ_CST);
}

int content_rebind(struct volume *vol, uint64_t version)
{
	struct content *c;
	int fd;

	pthread_mutex_lock(&vol->contents->lock);
	c = find(vol->contents, version);
	if (c)
		c->refs++;
	pthread_mutex_unlock(&vol->contents->lock);
	if (!c)
		return 0;
	fd = object_open(vol, version, O_RDONLY);
	if (fd >= 0) {
		int old;

		pthread_rwlock_wrlock(&c->io);
		old = c->fd;
		c->fd = fd;
		pthread_rwlock_unlock(&c->io);
		if (old >= 0)
			close(old);
	}
	content_put(c);
	return fd < 0 ? fd : 0;
}

void content_detach_locked(struct volume *vol, uint64_t version)
{
	struct content *c;
	SCOPED_LOCK(&vol->contents->lock);

	c = find(vol->contents, version);
	if (c)
		unlink_content(vol->contents, c);
}
