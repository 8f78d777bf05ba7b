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
	free(c->fetch.state);
}

/* ---- opening and closing ---- */

int fetch_open_locked(struct content *c, const struct state_version *v)
{
	c->fetch.kept = v->local_bytes != 0;
	c->fd = object_open(c->vol, c->version, O_RDWR | O_CREAT | (c->fetch.kept ? 0 : O_TRUNC));
	if (c->fd < 0)
		return c->fd;
	if (ftruncate(c->fd, (off_t)c->size) < 0)
		return -errno;
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
	return error;
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

/* ---- Content of a few bytes, which is in the database: its backing file. ---- */

/* Without a lock. */
static int write_inline(struct volume *vol, const char *temporary, const struct buf *data)
{
	cleanup_close int fd = -1;

	lock_none_held(LOCK_RANKS, "writing a backing file");
	fd = openat(vol->objects_fd, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	return fd < 0 ? -errno : io_pwrite_full(fd, data->data, data->len, 0);
}

/* The file gets its place, unless somebody was first. */
static int rename_inline_locked(struct volume *vol, uint64_t version, const char *temporary)
{
	char name[OBJECT_NAME_MAX];
	struct state_version v;
	struct stat st;
	int error = state_version_get(vol->state, version, &v);

	if (error || v.state != VERSION_DURABLE || content_in_use_locked(vol, version))
		return error;
	object_name(version, name);
	if (v.local_whole && fstatat(vol->objects_fd, name, &st, 0) == 0 &&
	    (uint64_t)st.st_size == v.size)
		return 0;
	if (renameat(vol->objects_fd, temporary, vol->objects_fd, name) < 0)
		return -errno;
	v.local_bytes = v.size;
	v.local_whole = true;
	v.used_ns = clock_wall_ns();
	return state_version_set(vol->state, &v);
}

int inline_place(struct volume *vol, uint64_t version)
{
	cleanup_buf struct buf data = {0};
	struct state_version v = {0};
	char temporary[40];
	int error;

	mutex_lock(&vol->lock);
	error = state_version_get(vol->state, version, &v);
	if (!error)
		error = state_inline_get(vol->state, version, &data);
	mutex_unlock(&vol->lock);
	if (error || data.len != v.size)
		return error && error != -ENOENT ? error : -EIO;
	snprintf(temporary, sizeof(temporary), "inline-%016" PRIx64 ".tmp", object_new_id(vol));
	error = write_inline(vol, temporary, &data);
	if (!error) {
		SCOPED_LOCK(&vol->lock);
		error = rename_inline_locked(vol, version, temporary);
	}
	/* It is there no more where it has its place. */
	unlinkat(vol->objects_fd, temporary, 0);
	return error;
}
