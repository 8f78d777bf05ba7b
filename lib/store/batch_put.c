/* SPDX-License-Identifier: Apache-2.0 */
/* Contents, recipes and trees go into a batch; and the batch's end. */
#include "lib/store/batch_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/names.h"
#include "lib/format/tree.h"
#include "lib/store/cutter.h"
#include "lib/util/cleanup.h"
#include "lib/util/faultpoint.h"
#include "lib/util/log.h"

static void content_free(struct batch_content *c)
{
	recipe_free(&c->recipe);
}
#define cleanup_content CLEANUP(content_free)

/* ---- files ---- */

static bool is_cancelled(void *arg)
{
	const struct store_batch *b = arg;

	return remote_is_cancelled(b->store->remote);
}

static int feed_file(struct store_batch *b, struct batch_content *c, int fd, uint64_t size)
{
	struct cutter_file file = {.fd = fd, .size = size, .stopped = is_cancelled, .arg = b};
	cleanup_cutter struct cutter *cutter = NULL;
	struct segment seg;
	int got, error = cutter_open_file(&file, &cutter);

	if (error)
		return error;
	while ((got = cutter_next(cutter, &seg)) > 0) {
		if (seg.kind == SEGMENT_ZERO) {
			batch_feed_zeros(b, c, seg.len);
			continue;
		}
		error = batch_feed(b, c, seg.data, seg.len);
		if (error)
			return error;
	}
	return got;
}

/* ---- bytes in memory ---- */

struct memory_source {
	const uint8_t *data;
	size_t len;
};

static ssize_t memory_pread(void *arg, void *data, size_t len, uint64_t offset)
{
	const struct memory_source *m = arg;

	if (offset >= m->len)
		return 0;
	if (len > m->len - offset)
		len = m->len - offset;
	memcpy(data, m->data + offset, len);
	return (ssize_t)len;
}

/* A list of chunks has no zeros: they are chunks like any other. */
static int feed_span(struct store_batch *b, struct batch_content *c, const uint8_t *data,
		     uint64_t len)
{
	int error = 0;

	while (len && !error) {
		size_t n = len < CUTTER_CHUNK_MAX ? (size_t)len : CUTTER_CHUNK_MAX;

		error = batch_feed(b, c, data, n);
		data += n;
		len -= n;
	}
	return error;
}

static int feed_memory(struct store_batch *b, struct batch_content *c, const void *data, size_t len)
{
	struct memory_source memory = {data, len};
	struct cutter_source source = {.size = len, .pread = memory_pread, .arg = &memory};
	cleanup_cutter struct cutter *cutter = NULL;
	struct segment seg;
	int got = 0, error = cutter_open(&source, &cutter);

	while (!error && (got = cutter_next(cutter, &seg)) > 0)
		error = feed_span(b, c, memory.data + seg.offset, seg.len);
	return error ? error : got;
}

/* Waits for what was fed, also after an error: the items refer to the content. */
static int content_end(struct store_batch *b, struct batch_content *c, int error)
{
	batch_wait(b, c);
	if (!error)
		error = batch_error(b);
	return error ? error : c->error;
}

/* ---- recipes ---- */

int batch_put_recipe(struct store_batch *b, const struct recipe *r, struct hash *ret_hash)
{
	const struct store_index *index = &b->store->index;
	cleanup_content struct batch_content above = {.recipe.level = 1};
	cleanup_buf struct buf data = {0};
	struct hash hash;
	int error = recipe_encode(r, &data);

	if (error)
		return error;
	if (data.len > RECIPE_ENCODED_MAX)
		return -EFBIG;
	if (data.len > CHUNK_PLAIN_MAX) {
		error = content_end(b, &above, feed_memory(b, &above, data.data, data.len));
		return error ? error : batch_put_recipe(b, &above.recipe, ret_hash);
	}
	error = batch_feed(b, NULL, data.data, data.len);
	if (error)
		return error;
	remote_address(b->store->remote, data.data, data.len, &hash);
	/* Only a cache: the recipe can be had from the remote. */
	error = index->recipe_put(index->arg, &hash, data.data, data.len);
	if (error)
		log_debug("a recipe could not be kept: %s", strerror(-error));
	*ret_hash = hash;
	return 0;
}

int store_put_fd(struct store_batch *b, int fd, uint64_t size, struct hash *ret_recipe,
		 uint64_t *ret_holes)
{
	cleanup_content struct batch_content c = {.counted = true};
	int error = batch_error(b);

	if (!error && !size)
		error = -EINVAL;
	if (error)
		return error;
	error = content_end(b, &c, feed_file(b, &c, fd, size));
	if (!error)
		error = recipe_add_zeros(&c.recipe, c.zeros);
	if (ret_holes)
		*ret_holes = recipe_holes(&c.recipe);
	return error ? error : batch_put_recipe(b, &c.recipe, ret_recipe);
}

/* ---- trees ---- */

static int list_chunks(const struct recipe *r, struct epoch_record *record)
{
	struct record_chunk *chunks;

	if (r->count > RECORD_LIST_MAX)
		return -EFBIG;
	chunks = calloc(r->count, sizeof(*chunks));
	if (!chunks)
		return -ENOMEM;
	for (size_t i = 0; i < r->count; i++)
		chunks[i] = (struct record_chunk){.hash = r->segments[i].hash,
						  .length = (uint32_t)r->segments[i].length,
						  .pack = RECORD_NO_PACK};
	free(record->chunks);
	record->chunks = chunks;
	record->chunk_count = r->count;
	return 0;
}

int store_put_tree(struct store_batch *b, const void *data, size_t len, struct epoch_record *record)
{
	cleanup_content struct batch_content c = {0};
	int error = batch_error(b);

	if (!error && !len)
		error = -EINVAL;
	if (!error && len > TREE_ENCODED_MAX)
		error = -EFBIG;
	if (error)
		return error;
	error = content_end(b, &c, feed_memory(b, &c, data, len));
	if (!error)
		error = list_chunks(&c.recipe, record);
	if (error)
		return error;
	remote_address(b->store->remote, data, len, &record->tree_hash);
	record->tree_size = len;
	return 0;
}

/* ---- the end of a batch ---- */

int store_record_add_index(struct epoch_record *record, const char *key)
{
	char **keys = reallocarray(record->indexes, record->index_count + 1, sizeof(*keys));

	if (!keys)
		return -ENOMEM;
	record->indexes = keys;
	keys[record->index_count] = strdup(key);
	if (!keys[record->index_count])
		return -ENOMEM;
	record->index_count++;
	return 0;
}

/* What the index object says, for the caller's own index. */
static int tell_index(struct store_batch *b, const char *key)
{
	const struct store_index *index = &b->store->index;
	size_t count = packer_count(b->packer);
	cleanup_free struct hash *chunks = calloc(count, sizeof(*chunks));
	cleanup_free struct store_place *places = calloc(count, sizeof(*places));

	if (!chunks || !places)
		return -ENOMEM;
	packer_chunks(b->packer, chunks, places);
	return index->put(index->arg, key, chunks, places, count);
}

/* What earlier tries left in the record counts where their index objects came to be. Whether any did. */
static bool keep_earlier(struct store_batch *b, struct epoch_record *record)
{
	const struct store_index *index = &b->store->index;
	size_t kept = 0;

	for (size_t i = 0; i < record->index_count; i++) {
		if (strcmp(record->indexes[i], b->index_key) != 0 &&
		    index->loaded(index->arg, record->indexes[i]))
			record->indexes[kept++] = record->indexes[i];
		else
			free(record->indexes[i]);
	}
	record->index_count = kept;
	return kept != 0;
}

static int encode_index(struct store_batch *b)
{
	struct hash id;
	int error = packer_index(b->packer, &b->index);

	if (error)
		return error;
	hash_of(b->index.data, b->index.len, &id);
	index_key(b->epoch, &id, b->index_key);
	SCOPED_LOCK(&b->lock);
	b->index_len = b->index.len;
	return 0;
}

int store_batch_flush(struct store_batch *b, struct epoch_record *record,
		      struct store_stats *ret_stats)
{
	struct store_stats stats;
	int error = batch_drain(b);
	bool earlier;

	if (!error)
		error = packer_flush(b->packer);
	if (!error && packer_count(b->packer))
		error = encode_index(b);
	if (error) {
		batch_fail(b, error);
		return error;
	}
	store_batch_progress(b, &stats);
	earlier = keep_earlier(b, record);
	record->bytes_new = stats.fresh + (earlier ? record->bytes_new : 0);
	record->bytes_stored = stats.stored + (earlier ? record->bytes_stored : 0);
	if (b->index.len)
		error = store_record_add_index(record, b->index_key);
	if (error)
		return error;
	b->flushed = true;
	*ret_stats = stats;
	return 0;
}

static int put_index(struct store_batch *b)
{
	int error = remote_put(b->store->remote, b->index_key, b->index.data, b->index.len);

	if (error)
		return error;
	FAULT_POINT("store.index_put");
	buf_free(&b->index);
	return tell_index(b, b->index_key);
}

static int pack_number(struct epoch_record *record, const struct hash *pack, uint32_t *ret_number)
{
	struct hash *packs;
	size_t i;

	for (i = 0; i < record->pack_count; i++)
		if (hash_equal(&record->packs[i], pack))
			break;
	if (i == record->pack_count) {
		packs = reallocarray(record->packs, i + 1, sizeof(*packs));
		if (!packs)
			return -ENOMEM;
		packs[i] = *pack;
		record->packs = packs;
		record->pack_count++;
	}
	*ret_number = (uint32_t)i;
	return 0;
}

/* Where the tree's chunks lie, for readers that have no index yet. */
static int add_hints(struct store_batch *b, struct epoch_record *record)
{
	const struct store_index *index = &b->store->index;

	record->pack_count = 0; /* a batch before this one may have put the tree elsewhere */
	for (size_t i = 0; i < record->chunk_count; i++) {
		struct record_chunk *c = &record->chunks[i];
		struct store_place place;
		int error = 0;

		if (!packer_place(b->packer, &c->hash, &place))
			error = index->get(index->arg, &c->hash, &place);
		if (error == -ENOENT)
			continue; /* only a hint */
		if (!error)
			error = pack_number(record, &place.pack, &c->pack);
		if (error)
			return error;
		c->offset = place.offset;
		c->stored_len = place.stored_len;
	}
	return 0;
}

int store_batch_finish(struct store_batch *b, struct epoch_record *record,
		       struct store_stats *ret_stats)
{
	struct store_stats stats;
	int error = b->flushed ? batch_error(b) : store_batch_flush(b, record, &stats);

	if (!error && b->index.len)
		error = put_index(b);
	if (!error)
		error = add_hints(b, record);
	if (error) {
		batch_fail(b, error);
		return error;
	}
	store_batch_progress(b, ret_stats);
	return 0;
}
