/* SPDX-License-Identifier: Apache-2.0 */
/* Getting recipes, contents and trees. */
#include "lib/store/store_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/tree.h"
#include "lib/util/cleanup.h"
#include "lib/util/log.h"

/* Chunks that are looked up and fetched together: bounds the memory of a long recipe. */
#define WINDOW_CHUNKS 2048
/* The same where the chunks themselves are kept until they can be joined. */
#define WINDOW_KEPT 32

/* ---- contents ---- */

/* Fills `wanted` from segments [*first, end), and moves *first on. */
static size_t fill_window(const struct recipe *r, size_t *first, size_t end, struct wanted *wanted)
{
	size_t n = 0;

	for (; *first < end && n < WINDOW_CHUNKS; ++*first) {
		const struct recipe_segment *seg = &r->segments[*first];

		if (!seg->zero)
			wanted[n++] = (struct wanted){.hash = seg->hash,
						      .plain_len = (uint32_t)seg->length,
						      .number = *first};
	}
	return n;
}

int store_get_segments(struct store *s, const struct recipe *r, size_t first, size_t count,
		       store_sink sink, void *arg, struct store_failure *failure)
{
	return store_get_segments_ahead(s, r, first, count, sink, arg, NULL, failure);
}

int store_get_segments_ahead(struct store *s, const struct recipe *r, size_t first, size_t count,
			     store_sink sink, void *arg, const atomic_bool *waits,
			     struct store_failure *failure)
{
	cleanup_free struct wanted *wanted = NULL;
	size_t end;

	if (first > r->count || count > r->count - first)
		return -EINVAL;
	end = first + count;
	wanted = calloc(count < WINDOW_CHUNKS ? count + 1 : WINDOW_CHUNKS, sizeof(*wanted));
	if (!wanted)
		return -ENOMEM;
	while (first < end) {
		size_t n = fill_window(r, &first, end, wanted);
		int error = n ? store_chunks_read(s, wanted, n, sink, arg, waits, failure) : 0;

		if (error)
			return error;
	}
	return 0;
}

/* ---- chunks joined in memory ---- */

struct kept {
	struct buf pieces[WINDOW_KEPT];
};

static void kept_free(struct kept *k)
{
	for (size_t i = 0; i < WINDOW_KEPT; i++)
		buf_free(&k->pieces[i]);
}

static int keep(void *arg, size_t number, const void *plain, size_t len)
{
	struct kept *k = arg;
	struct buf *piece = &k->pieces[number % WINDOW_KEPT];

	buf_put(piece, plain, len);
	return buf_error(piece);
}

/* From the caller's cache, checked: -ENOENT also where it is damaged. */
static int cached_recipe(struct store *s, const struct wanted *w, struct buf *out)
{
	struct hash found;
	int error = s->index.recipe_get(s->index.arg, &w->hash, out);

	if (error)
		return error;
	remote_address(s->remote, out->data, out->len, &found);
	if (hash_equal(&found, &w->hash) && (!w->plain_len || w->plain_len == out->len))
		return 0;
	log_warn("a recipe in the local state is damaged and is fetched again");
	buf_reset(out);
	return -ENOENT;
}

static void cache_recipe(struct store *s, const struct hash *hash, const struct buf *data)
{
	int error = s->index.recipe_put(s->index.arg, hash, data->data, data->len);

	if (error)
		log_debug("a recipe could not be kept: %s", strerror(-error));
}

/* Of recipes: takes what the cache has, and gives in `wanted` what it has not, with its number. */
static int take_cached(struct store *s, struct wanted *wanted, size_t *count, struct kept *k)
{
	size_t missing = 0;

	for (size_t i = 0; i < *count; i++) {
		int error = cached_recipe(s, &wanted[i], &k->pieces[i]);

		if (error && error != -ENOENT)
			return error;
		if (error)
			wanted[missing++] = wanted[i];
	}
	*count = missing;
	return 0;
}

/* The chunks, at most WINDOW_KEPT, each in its piece. `recipes`: by way of the cache. */
static int keep_chunks(struct store *s, struct wanted *wanted, size_t count, bool recipes,
		       struct kept *k, struct store_failure *failure)
{
	int error = 0;

	for (size_t i = 0; i < count; i++)
		wanted[i].number = i;
	if (recipes)
		error = take_cached(s, wanted, &count, k);
	if (!error && count)
		error = store_chunks_read(s, wanted, count, keep, k, NULL, failure);
	for (size_t i = 0; recipes && !error && i < count; i++)
		cache_recipe(s, &wanted[i].hash, &k->pieces[wanted[i].number]);
	return error;
}

/* Appends the chunks in their order. Memory is taken as they come, whatever they claim. */
static int join_chunks(struct store *s, struct wanted *wanted, size_t count, bool recipes,
		       struct buf *out, struct store_failure *failure)
{
	size_t start = out->len;
	int error = 0;

	for (size_t at = 0; at < count && !error; at += WINDOW_KEPT) {
		size_t n = count - at < WINDOW_KEPT ? count - at : WINDOW_KEPT;
		CLEANUP(kept_free) struct kept kept = {0};

		error = keep_chunks(s, wanted + at, n, recipes, &kept, failure);
		for (size_t i = 0; i < n && !error; i++) {
			buf_put(out, kept.pieces[i].data, kept.pieces[i].len);
			error = buf_error(out);
		}
	}
	if (error)
		out->len = start;
	return error;
}

/* ---- recipes ---- */

/* -EIO for one that is malformed though its hash is right: crafted, or of a newer version. */
static int decode_recipe(const struct buf *data, struct recipe *ret_recipe)
{
	int error = recipe_decode(data->data, data->len, ret_recipe);

	return !error || error == -ENOMEM ? error : -EIO;
}

int store_recipe_bytes(struct store *s, const struct hash *hash, uint32_t plain_len,
		       struct buf *out)
{
	struct wanted wanted = {.hash = *hash, .plain_len = plain_len};

	return join_chunks(s, &wanted, 1, true, out, NULL);
}

/* The recipe whose encoding is made of the chunks of `above`. */
static int get_below(struct store *s, const struct recipe *above, struct recipe *ret_recipe,
		     struct store_failure *failure)
{
	cleanup_free struct wanted *wanted = calloc(above->count + 1, sizeof(*wanted));
	cleanup_buf struct buf data = {0};
	int error;

	if (!wanted)
		return -ENOMEM;
	for (size_t i = 0; i < above->count; i++)
		wanted[i] = (struct wanted){.hash = above->segments[i].hash,
					    .plain_len = (uint32_t)above->segments[i].length};
	error = join_chunks(s, wanted, above->count, true, &data, failure);
	return error ? error : decode_recipe(&data, ret_recipe);
}

int store_get_recipe(struct store *s, const struct hash *hash, struct recipe *ret_recipe,
		     struct store_failure *failure)
{
	cleanup_buf struct buf data = {0};
	cleanup_recipe struct recipe r = {0}, below = {0};
	struct wanted wanted = {.hash = *hash};
	int error = join_chunks(s, &wanted, 1, true, &data, failure);

	if (!error)
		error = decode_recipe(&data, &r);
	if (error)
		return error;
	if (r.level) {
		error = get_below(s, &r, &below, failure);
		if (error || below.level)
			return error ? error : -EIO;
		recipe_free(&r);
		r = below;
		below = (struct recipe){0};
	}
	*ret_recipe = r;
	r = (struct recipe){0};
	return 0;
}

int store_known_recipe(const struct store_index *index, const struct hash *hash,
		       struct recipe *ret_recipe)
{
	cleanup_recipe struct recipe top = {0};
	cleanup_buf struct buf data = {0};
	int error = index->recipe_get(index->arg, hash, &data);

	if (error)
		return error == -ENOENT ? -ENODATA : error;
	error = recipe_decode(data.data, data.len, &top);
	for (size_t i = 0; !error && top.level && i < top.count; i++) {
		if (!i)
			buf_reset(&data);
		error = index->recipe_get(index->arg, &top.segments[i].hash, &data);
		if (error)
			return error == -ENOENT ? -ENODATA : error;
	}
	if (!error && top.level) {
		recipe_free(&top);
		top = (struct recipe){0};
		error = recipe_decode(data.data, data.len, &top);
	}
	if (error)
		return error == -ENOMEM ? error : -EIO;
	*ret_recipe = top;
	top = (struct recipe){0};
	return 0;
}

/* ---- trees ---- */

static struct wanted tree_chunk(const struct epoch_record *record, const struct record_chunk *c)
{
	struct wanted w = {.hash = c->hash, .plain_len = c->length};

	if (c->pack < record->pack_count && c->stored_len) {
		w.state = WANTED_PLACED;
		w.place = (struct store_place){record->packs[c->pack], c->offset, c->stored_len,
					       c->length};
	}
	return w;
}

static bool lengths_add_up(const struct epoch_record *record)
{
	uint64_t total = 0;

	for (size_t i = 0; i < record->chunk_count; i++) {
		if (record->chunks[i].length < 1 || record->chunks[i].length > CHUNK_PLAIN_MAX ||
		    record->chunks[i].stored_len > CHUNK_FRAME_MAX)
			return false;
		total += record->chunks[i].length;
	}
	return total && total == record->tree_size && total <= TREE_ENCODED_MAX;
}

int store_get_tree(struct store *s, const struct epoch_record *record, struct buf *out)
{
	cleanup_free struct wanted *wanted = calloc(record->chunk_count + 1, sizeof(*wanted));
	size_t start = out->len;
	struct hash hash;
	int error;

	if (!wanted)
		return -ENOMEM;
	if (!lengths_add_up(record))
		return -EIO;
	for (size_t i = 0; i < record->chunk_count; i++)
		wanted[i] = tree_chunk(record, &record->chunks[i]);
	error = join_chunks(s, wanted, record->chunk_count, false, out, NULL);
	if (error)
		return error;
	remote_address(s->remote, out->data + start, out->len - start, &hash);
	if (hash_equal(&hash, &record->tree_hash))
		return 0;
	out->len = start;
	return -EIO;
}
