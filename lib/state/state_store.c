/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: what the store keeps here, where chunks lie and recipes. */
#include "lib/state/state_db.h"

#include <errno.h>
#include <string.h>

int state_chunk_get(struct state *s, const struct hash *hash, struct state_chunk *ret_chunk)
{
	cleanup_query struct query q =
		query_of(s, "SELECT p.hash, c.start, c.stored_len, c.plain_len FROM chunks c"
			    " JOIN packs p ON p.id = c.pack WHERE c.hash = ?");
	struct state_chunk c;
	int error;

	query_bind_hash(&q, hash);
	error = query_one(&q);
	if (!error)
		error = query_hash(&q, &c.pack);
	if (error)
		return error;
	c.offset = query_u64(&q);
	c.stored_len = query_u32(&q);
	c.plain_len = query_u32(&q);
	*ret_chunk = c;
	return 0;
}

static int packs_find(struct state *s, const struct hash *pack, int64_t *ret_row)
{
	cleanup_query struct query q = query_of(s, "SELECT id FROM packs WHERE hash = ?");
	int error;

	query_bind_hash(&q, pack);
	error = query_one(&q);
	if (!error)
		*ret_row = query_i64(&q);
	return error;
}

static int packs_add(struct state *s, const struct hash *pack, int64_t *ret_row)
{
	cleanup_query struct query q = query_of(s, "INSERT INTO packs (hash) VALUES (?)");
	int error;

	query_bind_hash(&q, pack);
	error = query_run(&q);
	if (!error)
		*ret_row = sqlite3_last_insert_rowid(s->db);
	return error;
}

/* The row of a pack, made where there is none. Chunks of one pack come in a row. */
static int packs_row(struct state *s, const struct hash *pack, int64_t *ret_row)
{
	int error = 0;

	if (!s->pack_row || !hash_equal(&s->pack, pack)) {
		s->pack_row = 0;
		error = packs_find(s, pack, &s->pack_row);
		if (error == -ENOENT)
			error = packs_add(s, pack, &s->pack_row);
		s->pack = *pack;
	}
	if (!error)
		*ret_row = s->pack_row;
	return error;
}

static int chunks_put(struct state *s, const struct hash *hash, int64_t pack_row,
		      const struct state_chunk *c)
{
	cleanup_query struct query q =
		query_of(s, "INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?, ?)");

	query_bind_hash(&q, hash);
	query_bind_i64(&q, pack_row);
	query_bind_u64(&q, c->offset);
	query_bind_u64(&q, c->stored_len);
	query_bind_u64(&q, c->plain_len);
	return query_run(&q);
}

int state_chunk_put(struct state *s, const struct hash *hash, const struct state_chunk *c)
{
	int64_t pack_row = 0;
	int error = state_begin(s);

	if (error)
		return error;
	error = packs_row(s, &c->pack, &pack_row);
	if (!error)
		error = chunks_put(s, hash, pack_row, c);
	return state_end(s, error);
}

static int remove_by_pack(struct state *s, const char *sql, int64_t pack_row)
{
	cleanup_query struct query q = query_of(s, sql);

	query_bind_i64(&q, pack_row);
	return query_run(&q);
}

/* Searches all chunks: an index by pack would make each put dearer, and this is rare. */
int state_chunk_forget_pack(struct state *s, const struct hash *pack)
{
	int64_t pack_row = 0;
	int error = packs_find(s, pack, &pack_row);

	if (error)
		return error == -ENOENT ? 0 : error;
	error = state_begin(s);
	if (error)
		return error;
	s->pack_row = 0;
	error = remove_by_pack(s, "DELETE FROM chunks WHERE pack = ?", pack_row);
	if (!error)
		error = remove_by_pack(s, "DELETE FROM packs WHERE id = ?", pack_row);
	return state_end(s, error);
}

bool state_index_loaded(struct state *s, const char *index_key)
{
	cleanup_query struct query q = query_of(s, "SELECT 1 FROM indexes_loaded WHERE key = ?");

	query_bind_text(&q, index_key);
	return query_one(&q) == 0;
}

int state_index_mark_loaded(struct state *s, const char *index_key)
{
	cleanup_query struct query q =
		query_of(s, "INSERT OR IGNORE INTO indexes_loaded VALUES (?)");

	query_bind_text(&q, index_key);
	return query_run(&q);
}

int state_recipe_get(struct state *s, const struct hash *hash, struct buf *out)
{
	cleanup_query struct query q = query_of(s, "SELECT data FROM recipes WHERE hash = ?");
	int error;

	query_bind_hash(&q, hash);
	error = query_one(&q);
	return error ? error : query_append(&q, out);
}

int state_recipe_put(struct state *s, const struct hash *hash, const void *data, size_t len)
{
	cleanup_query struct query q = query_of(s, "INSERT OR REPLACE INTO recipes VALUES (?, ?)");

	query_bind_hash(&q, hash);
	query_bind_bytes(&q, data, len);
	return query_run(&q);
}
