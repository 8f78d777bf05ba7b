/* SPDX-License-Identifier: Apache-2.0 */
/* The sparse backing file of content that is not all here: what is in it, and dropping it again. */
#include "lib/cache/content_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cache/context.h"
#include "lib/cache/evict.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

#define STAT_BLOCK 512

bool fetch_whole(const struct fetch *f)
{
	return !atomic_load(&f->needed);
}

/* With fetch.lock. */
static void add_delta_locked(struct content *c, int64_t bytes)
{
	c->fetch.delta += bytes;
	atomic_fetch_add(&c->vol->contents->delta, bytes);
}

static void settle_delta(struct content *c)
{
	SCOPED_LOCK(&c->fetch.lock);
	add_delta_locked(c, -c->fetch.delta);
}

void fetch_free(struct content *c)
{
	settle_delta(c);
	recipe_free(&c->fetch.recipe);
	buf_free(&c->fetch.past);
	free(c->fetch.state);
}

/* ---- opening and closing ---- */

/* In place of a backing file, where the disk has no inode for one: what is written to it finds no room. Whoever comes later tries again. */
static int open_full_locked(struct content *c)
{
	c->fetch.kept = false;
	c->detached = true;
	c->fd = open("/dev/full", O_RDWR | O_CLOEXEC);
	return c->fd < 0 ? -errno : 0;
}

int fetch_open_locked(struct content *c, const struct state_version *v)
{
	int error = 0;

	c->fetch.kept = v->local_bytes != 0;
	c->fd = object_open(c->vol, c->version, O_RDWR | O_CREAT | (c->fetch.kept ? 0 : O_TRUNC));
	if (c->fd == -ENOSPC || c->fd == -EDQUOT)
		error = open_full_locked(c);
	else if (c->fd < 0)
		error = c->fd;
	else if (ftruncate(c->fd, (off_t)c->size) < 0)
		error = -errno;
	if (error)
		return error;
	c->fetch.recipe_hash = v->recipe;
	atomic_store(&c->fetch.needed, true);
	return 0;
}

static void set_local_locked(struct content *c, uint64_t bytes, bool whole)
{
	struct state_version v;

	settle_delta(c);
	if (state_version_get(c->vol->state, c->version, &v))
		return;
	v.local_bytes = bytes;
	v.local_whole = whole;
	if (state_version_set(c->vol->state, &v))
		log_warn("the cache's state cannot be written");
}

/* At least 1 where there is content: 0 says that there is no backing file. */
static uint64_t bytes_allocated(const struct content *c)
{
	uint64_t bytes;
	struct stat st;

	if (fstat(c->fd, &st) < 0)
		return c->size;
	bytes = (uint64_t)st.st_blocks * STAT_BLOCK;
	return bytes > c->size ? c->size : bytes ? bytes : 1;
}

void fetch_close_locked(struct content *c)
{
	uint64_t bytes;
	struct stat st;

	if (fetch_whole(&c->fetch) || c->fd < 0)
		return;
	bytes = fstat(c->fd, &st) < 0 ? 0 : (uint64_t)st.st_blocks * STAT_BLOCK;
	if (!bytes)
		object_remove(c->vol, c->version);
	set_local_locked(c, bytes < c->size ? bytes : c->size, false);
}

void fetch_note_whole(struct content *c)
{
	bool whole;

	mutex_lock(&c->vol->lock);
	mutex_lock(&c->fetch.lock);
	whole = c->fetch.loaded && !c->fetch.missing && atomic_exchange(&c->fetch.needed, false);
	mutex_unlock(&c->fetch.lock);
	if (whole && !c->detached)
		set_local_locked(c, bytes_allocated(c), true);
	mutex_unlock(&c->vol->lock);
	if (whole)
		evictor_kick(c->vol);
}

/* ---- segments ---- */

static void segment_is_here(struct content *c, size_t segment, int64_t came)
{
	struct fetch *f = &c->fetch;
	SCOPED_LOCK(&f->lock);

	if (f->state[segment] != SEGMENT_HERE) {
		f->state[segment] = SEGMENT_HERE;
		f->missing--;
	}
	add_delta_locked(c, came);
	pthread_cond_broadcast(&f->changed);
}

int fetch_write(struct content *c, size_t segment, const void *plain, size_t len)
{
	const struct recipe_segment *s = &c->fetch.recipe.segments[segment];
	int error;

	if (len != s->length)
		return -EIO;
	error = io_pwrite_full(c->fd, plain, len, s->offset);
	if (!error)
		segment_is_here(c, segment, (int64_t)len);
	/* A quota is a full disk, too. */
	return error == -EDQUOT ? -ENOSPC : error;
}

/* A hole is not read at all. */
static bool holds_segment(struct content *c, const struct recipe_segment *s, uint8_t *buffer)
{
	off_t data = lseek(c->fd, (off_t)s->offset, SEEK_DATA);
	struct hash hash;

	if (data < 0 || (uint64_t)data >= s->offset + s->length ||
	    io_pread_full(c->fd, buffer, s->length, s->offset))
		return false;
	remote_address(c->vol->remote, buffer, s->length, &hash);
	return hash_equal(&hash, &s->hash);
}

int fetch_find_kept(struct content *c, size_t first, size_t count)
{
	cleanup_free uint8_t *buffer = c->fetch.kept ? malloc(CHUNK_PLAIN_MAX) : NULL;

	if (!c->fetch.kept)
		return 0;
	if (!buffer)
		return -ENOMEM;
	for (size_t i = first; i < first + count; i++)
		if (!c->fetch.recipe.segments[i].zero &&
		    holds_segment(c, &c->fetch.recipe.segments[i], buffer))
			segment_is_here(c, i, 0);
	return 0;
}

/* ---- dropping ---- */

/* Whether a fetch that brings this segment is under way still. */
static bool is_coming_locked(const struct fetch *f, size_t i)
{
	const struct fetch_job *job = f->jobs;

	while (job && (i < job->first || i - job->first >= job->count))
		job = job->next;
	return job != NULL;
}

/* The bytes that went. With fetch.lock, and content.io for writing. */
static uint64_t drop_segment_locked(struct content *c, size_t i)
{
	const struct recipe_segment *s = &c->fetch.recipe.segments[i];

	if (c->fetch.state[i] != SEGMENT_HERE || s->zero || is_coming_locked(&c->fetch, i) ||
	    fallocate(c->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)s->offset,
		      (off_t)s->length) < 0)
		return 0;
	c->fetch.state[i] = SEGMENT_MISSING;
	c->fetch.missing++;
	add_delta_locked(c, -(int64_t)s->length);
	return s->length;
}

/* What lies before goes first: most readers go on. */
static void drop_others(struct content *c, uint64_t wanted, size_t first, size_t count)
{
	struct fetch *f = &c->fetch;
	uint64_t gone = 0;
	SCOPED_LOCK(&f->lock);

	if (f->pins || !f->loaded || fetch_whole(f))
		return;
	rwlock_write(&c->io);
	atomic_fetch_add(&f->drops, 1);
	for (size_t i = 0; i < first && gone < wanted; i++)
		gone += drop_segment_locked(c, i);
	for (size_t i = f->recipe.count; i > first + count && gone < wanted; i--)
		gone += drop_segment_locked(c, i - 1);
	rwlock_unlock(&c->io);
	read_ahead_forget(&f->ahead);
}

void fetch_make_room(struct content *c, uint64_t bytes, size_t first, size_t count)
{
	uint64_t over = evictor_make_room(c->vol, bytes);

	if (over)
		drop_others(c, over, first, count);
}

void content_pin(struct content *c)
{
	SCOPED_LOCK(&c->fetch.lock);
	c->fetch.pins++;
}

void content_unpin(struct content *c)
{
	SCOPED_LOCK(&c->fetch.lock);
	c->fetch.pins--;
}

int64_t contents_unaccounted(struct volume *vol)
{
	return atomic_load(&vol->contents->delta);
}

/* ---- Content of a few bytes, which is in the database. ---- */

int inline_open_locked(struct content *c)
{
	cleanup_buf struct buf data = {0};
	int error = state_inline_get(c->vol->state, c->version, &data);

	if (error || data.len != c->size)
		return error && error != -ENOENT ? error : -EIO;
	c->bytes = steal_ptr(data.data);
	return 0;
}

/* Without a lock. */
static int write_inline(const struct content *c, const char *temporary)
{
	cleanup_close int fd = -1;

	lock_none_held(LOCK_RANKS, "writing a backing file");
	fd = openat(c->vol->objects_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : io_pwrite_full(fd, c->bytes, c->size, 0);
}

/* The file gets its place, unless somebody was first, or the content is not the version's any more. */
static int rename_inline_locked(const struct content *c, const char *temporary)
{
	char name[OBJECT_NAME_MAX];
	struct state_version v;
	struct stat st;
	int error = c->detached ? 0 : state_version_get(c->vol->state, c->version, &v);

	if (error || c->detached)
		return error;
	object_name(c->version, name);
	if (v.local_whole && fstatat(c->vol->objects_fd, name, &st, 0) == 0 &&
	    (uint64_t)st.st_size == v.size)
		return 0;
	if (renameat(c->vol->objects_fd, temporary, c->vol->objects_fd, name) < 0)
		return -errno;
	v.local_bytes = v.size;
	v.local_whole = true;
	v.used_ns = clock_wall_ns();
	return state_version_set(c->vol->state, &v);
}

int inline_place(const struct content *c)
{
	char temporary[40];
	int error;

	snprintf(temporary, sizeof(temporary), "inline-%016" PRIx64 ".tmp", object_new_id(c->vol));
	error = write_inline(c, temporary);
	if (!error) {
		SCOPED_LOCK(&c->vol->lock);
		error = rename_inline_locked(c, temporary);
	}
	/* It is there no more where it has its place. */
	unlinkat(c->vol->objects_fd, temporary, 0);
	return error;
}
