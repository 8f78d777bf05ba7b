/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the content store share: a store over a remote of this process, contents, restoring. */
#ifndef EPOCHFS_TESTS_STORE_FIXTURE_H
#define EPOCHFS_TESTS_STORE_FIXTURE_H

#include <pthread.h>
#include <sys/mman.h>
#include "lib/format/names.h"
#include "lib/net/open.h"
#include "lib/store/store_impl.h"
#include "lib/util/cleanup.h"
#include "tests/unit/unit.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* Packs of the tests are shorter than those of the program, so that few bytes fill several. */
#define PACK_LEN (2 * MIB)

/* A store with an index of its own over `remote`, which is memory:t below whatever layers `url` has. */
struct fixture {
	struct remote *below; /* memory:t itself */
	struct remote *remote;
	struct store_index index;
	struct store *store;
};

__attribute__((unused)) static struct fixture fixture_open(const char *url, unsigned threads)
{
	struct fixture f = {0};

	unit_ok(remote_open("memory:t", &f.below));
	unit_ok(remote_put(f.below, KEY_VOLUME, "{}", 2));
	unit_ok(remote_open(url, &f.remote));
	unit_ok(store_memory_index_new(&f.index));
	unit_ok(store_open(f.remote, &f.index, threads, &f.store));
	f.store->pack_len = PACK_LEN;
	return f;
}

/* Also forgets the index; `below` stays open, so that the objects live on. */
__attribute__((unused)) static void fixture_reopen(struct fixture *f, const char *url)
{
	store_close(f->store);
	store_memory_index_free(&f->index);
	remote_close(f->remote);
	unit_ok(remote_open(url, &f->remote));
	unit_ok(store_memory_index_new(&f->index));
	unit_ok(store_open(f->remote, &f->index, 2, &f->store));
	f->store->pack_len = PACK_LEN;
}

__attribute__((unused)) static void fixture_close(struct fixture *f)
{
	store_close(f->store);
	store_memory_index_free(&f->index);
	remote_close(f->remote);
	remote_close(f->below);
}

/* Bytes that look random and do not compress, the same for the same seed. */
__attribute__((unused)) static uint8_t *random_content(size_t len, uint64_t seed)
{
	uint8_t *data = malloc(len + 8);
	uint64_t x = seed * 0x9e3779b97f4a7c15u + 1;

	ck_assert_ptr_nonnull(data);
	for (size_t i = 0; i < len; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(data + i, &x, 8);
	}
	return data;
}

/* A file in memory with these bytes. */
__attribute__((unused)) static int content_fd(const void *data, size_t len)
{
	int fd = memfd_create("content", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	unit_ok(io_pwrite_full(fd, data, len, 0));
	return fd;
}

__attribute__((unused)) static int put_bytes(struct store_batch *b, const void *data, size_t len,
					     struct hash *ret_recipe)
{
	cleanup_close int fd = content_fd(data, len);

	return store_put_fd(b, fd, len, ret_recipe, NULL);
}

/* One file as one batch: the recipe and what it cost. */
__attribute__((unused)) static struct store_stats
put_file(struct store *s, uint64_t epoch, const void *data, size_t len, struct hash *ret_recipe)
{
	cleanup_record struct epoch_record record = {0};
	struct store_stats stats = {0};
	struct store_batch *b = NULL;

	unit_ok(store_batch_begin(s, epoch, &b));
	unit_ok(put_bytes(b, data, len, ret_recipe));
	unit_ok(store_batch_finish(b, &record, &stats));
	store_batch_free(b);
	return stats;
}

struct restored {
	const struct recipe *recipe;
	uint8_t *data;
	struct mutex lock;
	size_t calls;
};

__attribute__((unused)) static int restore_segment(void *arg, size_t segment, const void *plain,
						   size_t len)
{
	struct restored *r = arg;
	const struct recipe_segment *seg = &r->recipe->segments[segment];

	if (seg->length != len)
		return -EUCLEAN;
	memcpy(r->data + seg->offset, plain, len);
	SCOPED_LOCK(&r->lock);
	r->calls++;
	return 0;
}

/* The content of a recipe, all of it; the caller frees *ret_data, which is there also on failure. */
__attribute__((unused)) static int restore(struct store *s, const struct hash *hash,
					   uint8_t **ret_data, size_t *ret_len,
					   struct store_failure *failure)
{
	struct restored r = {.lock = MUTEX_INITIALIZER(LOCK_TEST)};
	cleanup_recipe struct recipe recipe = {0};
	int error = store_get_recipe(s, hash, &recipe, failure);

	*ret_data = NULL;
	*ret_len = 0;
	if (error)
		return error;
	r.recipe = &recipe;
	r.data = calloc(1, recipe.size + 1);
	ck_assert_ptr_nonnull(r.data);
	*ret_data = r.data;
	*ret_len = recipe.size;
	return store_get_segments(s, &recipe, 0, recipe.count, restore_segment, &r, failure);
}

/* The recipe gives exactly these bytes. */
#define assert_restores(s, hash, data, len)                                                        \
	do {                                                                                       \
		cleanup_free uint8_t *restored_ = NULL;                                            \
		size_t restored_len_;                                                              \
		unit_ok(restore((s), (hash), &restored_, &restored_len_, NULL));                   \
		unit_same_bytes(restored_, restored_len_, (data), (len));                          \
	} while (0)

/* ---- the objects of a remote ---- */

struct key_list {
	char keys[256][KEY_MAX];
	uint64_t sizes[256];
	size_t count;
	uint64_t bytes;
};

__attribute__((unused)) static int note_key(void *arg, const char *key, uint64_t size)
{
	struct key_list *l = arg;

	ck_assert_uint_lt(l->count, 256);
	strcpy(l->keys[l->count], key);
	l->sizes[l->count++] = size;
	l->bytes += size;
	return 0;
}

__attribute__((unused)) static struct key_list list_keys(struct remote *r, const char *prefix)
{
	struct key_list l = {.count = 0};

	unit_ok(remote_list(r, prefix, note_key, &l));
	return l;
}

/* Flips a bit of the object at this offset. */
__attribute__((unused)) static void damage(struct remote *r, const char *key, uint64_t offset)
{
	cleanup_buf struct buf data = {0};

	unit_ok(remote_get(r, key, 0, REMOTE_TO_END, &data));
	ck_assert_uint_lt(offset, data.len);
	data.data[offset] ^= 0x10;
	unit_ok(remote_put(r, key, data.data, data.len));
}

#endif
