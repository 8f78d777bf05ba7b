/* SPDX-License-Identifier: Apache-2.0 */
/* A writer beside garbage collection: what an epoch builds on is kept, or stored again. */
#include "lib/store/batch_impl.h"

#include <errno.h>
#include <stdlib.h>

#include "lib/format/names.h"
#include "lib/util/cleanup.h"
#include "lib/util/lock.h"

/* Chunks that are looked up, and read where they must be, together. */
#define WINDOW 256

int store_heed(struct store *s, uint64_t generation, const struct hash *condemned, size_t count)
{
	int error = trust_condemn(s->trust, generation, condemned, count);

	return error ? error : store_index_refresh(s);
}

uint64_t store_heeded(struct store *s)
{
	return trust_generation(s->trust);
}

static int note_pack(void *arg, const char *key, uint64_t size)
{
	struct store *s = arg;
	struct hash id;

	(void)size;
	if (!pack_key_parse(key, &id))
		trust_note_pack(s->trust, &id, TRUST_SEEN);
	return 0;
}

int store_look_at_packs(struct store *s)
{
	return remote_list(s->remote, PREFIX_PACKS, note_pack, s);
}

/* ---- chunks ---- */

struct keeping {
	struct store_batch *batch;
	struct wanted *wanted; /* of one window: those that must be stored again */
	size_t count;
	/* One thread at a time feeds a batch: who reads takes turns. Feeding may wait for an upload,
	 * so it is done without the lock. */
	struct mutex lock;
	pthread_cond_t fed;
	bool feeding;
	bool lost; /* one could not be read */
};

static int feed_again(void *arg, size_t number, const void *plain, size_t len)
{
	struct keeping *k = arg;
	int error;

	(void)number;
	mutex_lock(&k->lock);
	while (k->feeding)
		cond_wait(&k->fed, &k->lock);
	k->feeding = true;
	mutex_unlock(&k->lock);
	error = batch_feed(k->batch, NULL, plain, len);
	mutex_lock(&k->lock);
	k->feeding = false;
	pthread_cond_signal(&k->fed);
	mutex_unlock(&k->lock);
	return error;
}

static int store_again(struct keeping *k)
{
	int error = 0;

	if (k->count)
		error = store_chunks_read(k->batch->store, k->wanted, k->count, feed_again, k, NULL,
					  NULL);
	k->count = 0;
	/* The batch's own errors come from its feeding, too. */
	if (error == -EIO && !batch_error(k->batch)) {
		k->lost = true;
		error = 0;
	}
	return error;
}

static int keep_chunk(struct keeping *k, const struct hash *hash, uint32_t plain_len)
{
	bool known;
	int error = batch_knows(k->batch, hash, &known);

	if (error || known)
		return error;
	k->wanted[k->count++] = (struct wanted){.hash = *hash, .plain_len = plain_len};
	return k->count == WINDOW ? store_again(k) : 0;
}

static int keep_segments(struct keeping *k, const struct recipe *r)
{
	int error = 0;

	for (size_t i = 0; i < r->count && !error; i++)
		if (!r->segments[i].zero)
			error = keep_chunk(k, &r->segments[i].hash,
					   (uint32_t)r->segments[i].length);
	return error ? error : store_again(k);
}

/* ---- recipes ---- */

/* The encoding may come from the cache, so it is there to be fed even where no pack has it any more. */
static int keep_encoding(struct keeping *k, const struct hash *hash, uint32_t plain_len,
			 struct recipe *ret_recipe)
{
	cleanup_buf struct buf data = {0};
	bool known;
	int error = store_recipe_bytes(k->batch->store, hash, plain_len, &data);

	if (!error && ret_recipe)
		error = recipe_decode(data.data, data.len, ret_recipe);
	if (!error)
		error = batch_knows(k->batch, hash, &known);
	if (!error && !known)
		error = batch_feed(k->batch, NULL, data.data, data.len);
	return error == -EBADMSG || error == -EPROTONOSUPPORT ? -EIO : error;
}

/* Of a long recipe: the chunks that its encoding is cut into. */
static int keep_parts(struct keeping *k, const struct recipe *above)
{
	int error = 0;

	for (size_t i = 0; i < above->count && !error; i++)
		error = keep_encoding(k, &above->segments[i].hash,
				      (uint32_t)above->segments[i].length, NULL);
	return error;
}

static int keep_all(struct keeping *k, const struct hash *hash)
{
	cleanup_recipe struct recipe top = {0}, below = {0};
	int error = keep_encoding(k, hash, 0, &top);

	if (error || !top.level)
		return error ? error : keep_segments(k, &top);
	error = keep_parts(k, &top);
	if (!error)
		error = store_get_recipe(k->batch->store, hash, &below, NULL);
	return error ? error : keep_segments(k, &below);
}

int store_batch_keep(struct store_batch *b, const struct hash *recipe)
{
	cleanup_free struct wanted *wanted = calloc(WINDOW, sizeof(*wanted));
	struct keeping k = {.batch = b,
			    .wanted = wanted,
			    .lock = MUTEX_INITIALIZER(LOCK_STORE_KEEP),
			    .fed = PTHREAD_COND_INITIALIZER};
	int error = wanted ? batch_error(b) : -ENOMEM;

	if (!error)
		error = keep_all(&k, recipe);
	return !error && k.lost ? -EIO : error;
}
