/* SPDX-License-Identifier: Apache-2.0 */
/* Closed content: the table of what is open, and reading it. */
#include "lib/cache/content_private.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/cache/grant.h"
#include "lib/store/store.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

int contents_new(struct contents **ret_contents)
{
	struct contents *all = calloc(1, sizeof(*all));
	int error;

	if (!all)
		return -ENOMEM;
	error = fetch_pool_new(&all->pool);
	if (!error)
		error = cond_init_mono(&all->idle);
	if (error) {
		pool_free(all->pool);
		free(all);
		return error;
	}
	mutex_init(&all->lock, LOCK_CONTENTS);
	*ret_contents = all;
	return 0;
}

void contents_drain(struct contents *all)
{
	mutex_lock(&all->lock);
	while (all->jobs)
		cond_wait(&all->idle, &all->lock);
	mutex_unlock(&all->lock);
}

void contents_free(struct contents *all)
{
	if (!all)
		return;
	pool_free(all->pool);
	pthread_cond_destroy(&all->idle);
	mutex_destroy(&all->lock);
	free(all);
}

static struct content *find(struct contents *all, uint64_t version)
{
	struct content *c = all->first;

	while (c && c->version != version)
		c = c->next;
	return c;
}

static struct content *content_alloc(struct volume *vol, uint64_t version, uint64_t size)
{
	struct content *c = calloc(1, sizeof(*c));

	if (!c || cond_init_mono(&c->fetch.changed)) {
		free(c);
		return NULL;
	}
	c->vol = vol;
	c->version = version;
	c->size = size;
	c->fd = -1;
	rwlock_init(&c->io, LOCK_CONTENT_IO);
	mutex_init(&c->fetch.lock, LOCK_FETCH);
	return c;
}

static void content_free(struct content *c)
{
	if (c->fd >= 0)
		close(c->fd);
	fetch_free(c);
	pthread_cond_destroy(&c->fetch.changed);
	mutex_destroy(&c->fetch.lock);
	rwlock_destroy(&c->io);
	free(c->bytes);
	free(c->what);
	free(c);
}

/* The whole backing file; -ENOENT where it is not what the row says. */
static int open_whole_locked(struct content *c)
{
	struct stat st;
	int fd = object_open(c->vol, c->version, O_RDONLY);

	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0 || (uint64_t)st.st_size != c->size) {
		close(fd);
		return -ENOENT;
	}
	c->fd = fd;
	return 0;
}

/* Somebody was in the cache's folder: what the remote has comes from there. */
static int open_bytes_locked(struct content *c, struct state_version *v)
{
	int error = v->local_whole ? open_whole_locked(c) : -ENOENT;

	if (error != -ENOENT)
		return error;
	if (v->state != VERSION_DURABLE)
		return -EIO;
	v->local_whole = false;
	return v->has_recipe ? fetch_open_locked(c, v) : inline_open_locked(c);
}

/* With the volume's lock, so that the row and the file belong together. */
static int content_open_locked(struct volume *vol, uint64_t version, struct content **ret_content)
{
	struct state_version v;
	struct content *c;
	int error = state_version_get(vol->state, version, &v);

	if (error)
		return error;
	if (v.state == VERSION_STAGED)
		return -ENOENT;
	c = content_alloc(vol, version, v.size);
	if (!c)
		return -ENOMEM;
	error = v.size ? open_bytes_locked(c, &v) : 0;
	if (error) {
		content_free(c);
		return error;
	}
	v.used_ns = clock_wall_ns();
	if (v.state == VERSION_DURABLE)
		state_version_set(vol->state, &v);
	atomic_fetch_add(content_whole(c) ? &vol->counters.cache_hits : &vol->counters.cache_misses,
			 1);
	*ret_content = c;
	return 0;
}

static int content_get_locked(struct volume *vol, uint64_t version, struct content **ret_content)
{
	struct contents *all = vol->contents;
	struct content *c;
	int error;
	SCOPED_LOCK(&all->lock);

	c = find(all, version);
	if (!c) {
		error = content_open_locked(vol, version, &c);
		if (error)
			return error;
		if (!c->detached) {
			c->next = all->first;
			all->first = c;
		}
	}
	c->refs++;
	*ret_content = c;
	return 0;
}

int content_get(struct volume *vol, uint64_t version, struct content **ret_content)
{
	SCOPED_LOCK(&vol->lock);
	return content_get_locked(vol, version, ret_content);
}

/* ---- by what a tree names ---- */

/* A version row of this machine for content that only the remote has. */
static int cache_version_locked(struct volume *vol, const struct tree_entry *e, uint64_t *ret_id)
{
	struct state_version v;
	int error = state_version_by_recipe(vol->state, &e->u.recipe, e->size, &v);

	if (error == 0) {
		*ret_id = v.id;
		return 0;
	}
	if (error != -ENOENT)
		return error;
	v = (struct state_version){
		.state = VERSION_DURABLE,
		.kind = VERSION_CACHE,
		.size = e->size,
		.has_recipe = true,
		.recipe = e->u.recipe,
		.holes = e->holes,
		.used_ns = clock_wall_ns(),
	};
	return state_version_new(vol->state, &v, ret_id);
}

static int content_of_bytes(struct volume *vol, const struct tree_entry *e,
			    struct content **ret_content)
{
	uint64_t size = e->content == TREE_INLINE ? e->size : 0;
	struct content *c = content_alloc(vol, 0, size);

	if (!c)
		return -ENOMEM;
	c->bytes = malloc(size ? size : 1);
	if (!c->bytes) {
		content_free(c);
		return -ENOMEM;
	}
	if (size)
		memcpy(c->bytes, e->u.inline_data, size);
	c->detached = true;
	c->refs = 1;
	*ret_content = c;
	return 0;
}

static int content_get_entry_locked(struct volume *vol, const struct tree_entry *entry,
				    const char *what, struct content **ret_content)
{
	uint64_t version = entry->u.version;
	int error = 0;

	if (entry->content == TREE_RECIPE)
		error = cache_version_locked(vol, entry, &version);
	if (!error)
		error = content_get_locked(vol, version, ret_content);
	if (!error && !(*ret_content)->what)
		(*ret_content)->what = strdup(what);
	return error;
}

int content_get_entry(struct volume *vol, const struct tree_entry *entry, const char *what,
		      struct content **ret_content)
{
	if (entry->content == TREE_EMPTY || entry->content == TREE_INLINE)
		return content_of_bytes(vol, entry, ret_content);
	SCOPED_LOCK(&vol->lock);
	return content_get_entry_locked(vol, entry, what, ret_content);
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

/* The last reference: what was fetched is kept, for the next that asks. With the volume's lock, so that nobody opens the version in between. */
static void content_close_locked(struct content *c)
{
	if (!c->detached) {
		fetch_close_locked(c);
		unlink_content(c->vol->contents, c);
	}
}

void content_put(struct content *c)
{
	struct volume *vol;
	struct contents *all;
	bool last;

	if (!c)
		return;
	vol = c->vol;
	all = vol->contents;
	mutex_lock(&all->lock);
	last = c->refs == 1;
	if (!last)
		c->refs--;
	mutex_unlock(&all->lock);
	if (!last)
		return;
	mutex_lock(&vol->lock);
	mutex_lock(&all->lock);
	last = --c->refs == 0;
	if (last)
		content_close_locked(c);
	mutex_unlock(&all->lock);
	mutex_unlock(&vol->lock);
	if (last)
		content_free(c);
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
	return !c->size || c->bytes || fetch_whole(&c->fetch);
}

/* A live file that shows this version may want the grant, to be read and changed in place. */
static bool is_live_locked(struct content *c)
{
	struct state_version v;
	struct state_file f;

	if (state_version_get(c->vol->state, c->version, &v))
		return true;
	return v.ino && !state_file_get(c->vol->state, v.ino, &f) &&
	       (f.closed == v.id || f.live == v.id);
}

int content_grant(struct content *c, struct grant **ret_grant, int *ret_fd)
{
	struct grant *grant;
	int fd, error;
	SCOPED_LOCK(&c->vol->lock);

	if (!c->size || c->bytes || !content_whole(c) || is_live_locked(c))
		return -EAGAIN;
	/* First: a descriptor of ours would look like somebody's mapping. */
	error = grant_take_locked(c->vol, c->version, GRANT_EPOCHS, &grant);
	if (error)
		return error == -EBUSY ? -EAGAIN : error;
	fd = object_open(c->vol, c->version, O_RDONLY);
	if (fd < 0) {
		grant_release_locked(grant);
		return fd;
	}
	*ret_grant = grant;
	*ret_fd = fd;
	return 0;
}

int content_grant_again(struct content *c, struct grant **ret_grant)
{
	SCOPED_LOCK(&c->vol->lock);
	return grant_take_again_locked(c->vol, c->version, GRANT_EPOCHS, ret_grant);
}

/* After so many times that the bytes were dropped before they were read, they are pinned. */
#define DROPS_MAX 4

/* -EAGAIN where something was dropped since `drops`. */
static ssize_t read_backing(struct content *c, void *data, size_t len, uint64_t offset,
			    unsigned long drops)
{
	ssize_t n = -EAGAIN;

	rwlock_read(&c->io);
	if (atomic_load(&c->fetch.drops) == drops)
		n = io_pread_some(c->fd, data, len, offset);
	rwlock_unlock(&c->io);
	return n;
}

static ssize_t fetch_and_read(struct content *c, void *data, size_t len, uint64_t offset,
			      interrupted_fn interrupted, void *arg)
{
	unsigned long drops = atomic_load(&c->fetch.drops);
	int error = fetch_for_reader(c, offset, len, interrupted, arg);

	if (error == -ENOSPC) {
		error = fetch_past_disk(c, data, len, offset, interrupted, arg);
		return error ? error : (ssize_t)len;
	}
	return error ? error : read_backing(c, data, len, offset, drops);
}

ssize_t content_read(struct content *c, void *data, size_t len, uint64_t offset,
		     interrupted_fn interrupted, void *arg)
{
	ssize_t n = -EAGAIN;

	if (offset >= c->size)
		return 0;
	if (len > c->size - offset)
		len = (size_t)(c->size - offset);
	if (c->bytes) {
		memcpy(data, c->bytes + offset, len);
		return (ssize_t)len;
	}
	for (int i = 0; n == -EAGAIN && i < DROPS_MAX; i++)
		n = fetch_and_read(c, data, len, offset, interrupted, arg);
	if (n != -EAGAIN)
		return n;
	content_pin(c);
	n = fetch_and_read(c, data, len, offset, interrupted, arg);
	content_unpin(c);
	return n;
}

/* While `io` is held the backing file does not change: an edit that takes it over waits in content_rebind. */
ssize_t content_copy(struct content *c, uint64_t offset, int to, uint64_t to_offset, size_t len)
{
	off_t in = (off_t)offset, out = (off_t)to_offset;
	ssize_t n;

	if (offset >= c->size)
		return 0;
	if (c->bytes || !content_whole(c))
		return -EAGAIN;
	rwlock_read(&c->io);
	n = copy_file_range(c->fd, &in, to, &out, len, 0);
	rwlock_unlock(&c->io);
	return n < 0 ? -errno : n;
}

/* The holes of a partly fetched file are not those of its content, which the recipe tells. Without
 * one, all is data: whoever reads it is told why he cannot. */
static int seek_recipe(struct content *c, uint64_t offset, int whence, interrupted_fn interrupted,
		       void *arg, uint64_t *ret_offset)
{
	int error = fetch_seek(c, offset, whence, interrupted, arg, ret_offset);

	if (!error || error == -ENXIO || error == -EINTR)
		return error;
	*ret_offset = whence == SEEK_DATA ? offset : c->size;
	return 0;
}

int content_seek(struct content *c, uint64_t offset, int whence, interrupted_fn interrupted,
		 void *arg, uint64_t *ret_offset)
{
	off_t at;

	if (offset >= c->size)
		return -ENXIO;
	*ret_offset = whence == SEEK_DATA ? offset : c->size;
	if (c->bytes)
		return 0;
	if (!content_whole(c))
		return seek_recipe(c, offset, whence, interrupted, arg, ret_offset);
	rwlock_read(&c->io);
	at = lseek(c->fd, (off_t)offset, whence);
	rwlock_unlock(&c->io);
	if (at < 0)
		return -errno;
	*ret_offset = (uint64_t)at;
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

bool content_users_of_file_locked(struct volume *vol, uint64_t version, enum io_users *ret_users)
{
	struct content *c;
	bool found;
	SCOPED_LOCK(&vol->contents->lock);

	c = find(vol->contents, version);
	if (!c)
		return false;
	rwlock_read(&c->io);
	found = c->fd >= 0;
	if (found)
		*ret_users = io_users(c->fd);
	rwlock_unlock(&c->io);
	return found;
}

void content_rebind(struct volume *vol, uint64_t version, int fd)
{
	struct content *c;

	mutex_lock(&vol->contents->lock);
	c = find(vol->contents, version);
	if (c)
		c->refs++;
	mutex_unlock(&vol->contents->lock);
	if (c) {
		int old;

		rwlock_write(&c->io);
		old = c->fd;
		c->fd = fd;
		rwlock_unlock(&c->io);
		fd = old;
	}
	if (fd >= 0)
		close(fd);
	content_put(c);
}

void content_detach_locked(struct volume *vol, uint64_t version)
{
	struct content *c;
	SCOPED_LOCK(&vol->contents->lock);

	c = find(vol->contents, version);
	if (c)
		unlink_content(vol->contents, c);
}

/* ---- Where contents lie that are new in the remote, before somebody reads one. ---- */

struct learning {
	struct pool_task task; /* the first member */
	struct volume *vol;
};

static void learn(struct pool_task *t)
{
	struct volume *vol = ((struct learning *)t)->vol;
	int error = store_index_refresh(vol->store);

	if (error)
		log_debug("the index is not read ahead: %s", strerror(-error));
	free(t);
	contents_job_ends(vol->contents);
}

void contents_learn(struct volume *vol)
{
	struct learning *l = calloc(1, sizeof(*l));

	if (!l)
		return;
	*l = (struct learning){.task.run = learn, .vol = vol};
	contents_job_begins(vol->contents);
	if (pool_offer(vol->contents->pool, &l->task, POOL_LATER)) {
		free(l);
		contents_job_ends(vol->contents);
	}
}
