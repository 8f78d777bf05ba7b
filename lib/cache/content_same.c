/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a file holds what a closed version holds. */
#include "lib/cache/contents.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cache/store_index.h"
#include "lib/format/recipe.h"
#include "lib/remote/remote.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"

/* Looked at before all the rest: so many places, evenly. What was written anew differs in one of them. */
#define SAMPLES	    32
#define SAMPLE_SIZE ((size_t)4096)
#define BLOCK_SIZE  ((size_t)256 << 10)

struct comparison {
	struct volume *vol;
	int fd;
	uint64_t size;
	/* Where the version's bytes are: one of these. */
	int base; /* -1: none */
	struct recipe recipe;
	struct buf bytes;
	uint8_t *buffer;
};

static void comparison_end(struct comparison *c)
{
	cleanup_close_fn(&c->base);
	recipe_free(&c->recipe);
	buf_free(&c->bytes);
	free(c->buffer);
}

static int open_base_locked(struct comparison *c, const struct state_version *v)
{
	struct stat st;

	c->base = object_open(c->vol, v->id, O_RDONLY);
	if (c->base < 0)
		return c->base;
	return fstat(c->base, &st) < 0 ? -errno : (uint64_t)st.st_size == c->size ? 0 : -ENODATA;
}

/* -ENODATA: another size, or its bytes are not known here. */
static int find_base(struct comparison *c, uint64_t version)
{
	struct store_index index = volume_store_index(c->vol);
	struct state_version v;
	int error;

	mutex_lock(&c->vol->lock);
	error = state_version_get(c->vol->state, version, &v);
	if (!error && v.size != c->size)
		error = -ENODATA;
	if (!error && v.size && v.local_whole)
		error = open_base_locked(c, &v);
	else if (!error && v.size && !v.has_recipe)
		error = state_inline_get(c->vol->state, version, &c->bytes);
	mutex_unlock(&c->vol->lock);
	if (error || !v.size || v.local_whole)
		return error;
	if (!v.has_recipe)
		return c->bytes.len == c->size ? 0 : -ENODATA;
	error = store_known_recipe(&index, &v.recipe, &c->recipe);
	return error ? error : c->recipe.size == c->size ? 0 : -ENODATA;
}

static uint64_t next_data(int fd, uint64_t at, uint64_t size)
{
	off_t data = lseek(fd, (off_t)at, SEEK_DATA);

	if (data < 0)
		return errno == ENXIO ? size : at;
	return (uint64_t)data < size ? (uint64_t)data : size;
}

/* ---- beside its file ---- */

/* 1, 0 or -errno; so all of them. */
static int block_is_same(struct comparison *c, uint64_t at, size_t len)
{
	int error = io_pread_full(c->fd, c->buffer, len, at);

	if (!error && c->base < 0)
		return !memcmp(c->buffer, c->bytes.data + at, len);
	if (!error)
		error = io_pread_full(c->base, c->buffer + BLOCK_SIZE, len, at);
	return error ? error : !memcmp(c->buffer, c->buffer + BLOCK_SIZE, len);
}

static int samples_are_same(struct comparison *c)
{
	int same = 1;

	for (uint64_t i = 0; same > 0 && i <= SAMPLES; i++) {
		uint64_t at = i < SAMPLES ? c->size / SAMPLES * i : c->size - SAMPLE_SIZE;

		same = block_is_same(c, at, SAMPLE_SIZE);
	}
	return same;
}

/* What both have as a hole is not read. */
static int all_is_same(struct comparison *c)
{
	int same = 1;

	for (uint64_t at = 0; same > 0 && at < c->size;) {
		uint64_t a = next_data(c->fd, at, c->size);
		uint64_t b = c->base < 0 ? at : next_data(c->base, at, c->size);
		size_t len;

		at = a < b ? a : b;
		len = c->size - at < BLOCK_SIZE ? (size_t)(c->size - at) : BLOCK_SIZE;
		same = block_is_same(c, at, len);
		at += len;
	}
	return same;
}

static int file_is_same(struct comparison *c)
{
	int same = c->size > SAMPLES * BLOCK_SIZE ? samples_are_same(c) : 1;

	return same > 0 ? all_is_same(c) : same;
}

/* ---- by the hashes of its chunks ---- */

static bool is_zero(const uint8_t *bytes, size_t len)
{
	return !len || (!bytes[0] && !memcmp(bytes, bytes + 1, len - 1));
}

static int zeros_are_same(struct comparison *c, const struct recipe_segment *s)
{
	uint64_t end = s->offset + s->length;

	for (uint64_t at = s->offset; (at = next_data(c->fd, at, end)) < end;) {
		size_t len = end - at < BLOCK_SIZE ? (size_t)(end - at) : BLOCK_SIZE;
		int error = io_pread_full(c->fd, c->buffer, len, at);

		if (error || !is_zero(c->buffer, len))
			return error;
		at += len;
	}
	return 1;
}

static int segment_is_same(struct comparison *c, size_t i)
{
	const struct recipe_segment *s = &c->recipe.segments[i];
	struct hash hash;
	int error;

	if (s->zero)
		return zeros_are_same(c, s);
	error = io_pread_full(c->fd, c->buffer, s->length, s->offset);
	if (error)
		return error;
	remote_address(c->vol->remote, c->buffer, s->length, &hash);
	return hash_equal(&hash, &s->hash);
}

static int recipe_is_same(struct comparison *c)
{
	size_t count = c->recipe.count, step = count / SAMPLES;
	int same = 1;

	for (size_t i = 0; same > 0 && step && i < count; i += step)
		same = segment_is_same(c, i);
	for (size_t i = 0; same > 0 && i < count; i++)
		same = segment_is_same(c, i);
	return same;
}

int content_same(struct volume *vol, uint64_t version, int fd)
{
	CLEANUP(comparison_end) struct comparison c = {.vol = vol, .fd = fd, .base = -1};
	struct stat st;
	int error;

	if (fstat(fd, &st) < 0)
		return -errno;
	c.size = (uint64_t)st.st_size;
	error = find_base(&c, version);
	if (error)
		return error == -ENODATA || error == -ENOENT ? 0 : error;
	if (!c.size)
		return 1;
	c.buffer = malloc(CHUNK_PLAIN_MAX);
	if (!c.buffer)
		return -ENOMEM;
	return c.recipe.count ? recipe_is_same(&c) : file_is_same(&c);
}
