/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: versions of content. */
#include "lib/state/state_db.h"

#include <errno.h>
#include <string.h>

/* Bits of the column `flags`. */
#define FLAG_FRAGILE 1
#define FLAG_FSYNCED 2
#define FLAG_TORN    4
#define FLAG_WHOLE   8
#define FLAG_RESTS   16
#define FLAG_OUTPUT  32
#define FLAG_LOST    64

#define VERSION_COLUMNS                                                                            \
	"id, ino, body, state, kind, size, born, died, flags, recipe, flushed_size,"               \
	" flushed_ctime, local_bytes, used, holes, saved, replaced"

static int versions_read(struct query *q, struct state_version *ret_version)
{
	struct state_version v = {0};
	uint64_t state, kind, flags;
	int error;

	v.id = query_u64(q);
	v.ino = query_u64(q);
	v.body = query_u64(q);
	state = query_u64(q);
	kind = query_u64(q);
	if (state > VERSION_DURABLE || kind > VERSION_CACHE)
		return -EUCLEAN;
	v.state = (enum version_state)state;
	v.kind = (enum version_kind)kind;
	v.size = query_u64(q);
	v.born = query_u64(q);
	v.died = query_u64(q);
	flags = query_u64(q);
	v.fragile = flags & FLAG_FRAGILE;
	v.output = flags & FLAG_OUTPUT;
	v.fsynced = flags & FLAG_FSYNCED;
	v.torn = flags & FLAG_TORN;
	v.lost = flags & FLAG_LOST;
	v.local_whole = flags & FLAG_WHOLE;
	v.rests_on_fsync = flags & FLAG_RESTS;
	error = query_hash(q, &v.recipe);
	if (error && error != -ENOENT)
		return error;
	v.has_recipe = !error;
	v.flushed_size = query_u64(q);
	v.flushed_ctime_ns = query_i64(q);
	v.local_bytes = query_u64(q);
	v.used_ns = query_i64(q);
	v.holes = query_u64(q);
	v.saved = query_u64(q);
	v.replaced = query_u64(q);
	if (v.holes > v.size)
		return -EUCLEAN;
	*ret_version = v;
	return 0;
}

/* All columns but the id. */
static void versions_bind(struct query *q, const struct state_version *v)
{
	query_bind_u64(q, v->ino);
	query_bind_u64(q, v->body);
	query_bind_u64(q, v->state);
	query_bind_u64(q, v->kind);
	query_bind_u64(q, v->size);
	query_bind_u64(q, v->born);
	query_bind_u64(q, v->died);
	query_bind_u64(q, (v->fragile ? FLAG_FRAGILE : 0) | (v->fsynced ? FLAG_FSYNCED : 0) |
				  (v->torn ? FLAG_TORN : 0) | (v->lost ? FLAG_LOST : 0) |
				  (v->local_whole ? FLAG_WHOLE : 0) |
				  (v->rests_on_fsync ? FLAG_RESTS : 0) |
				  (v->output ? FLAG_OUTPUT : 0));
	if (v->has_recipe)
		query_bind_hash(q, &v->recipe);
	else
		query_bind_text(q, NULL);
	query_bind_u64(q, v->flushed_size);
	query_bind_i64(q, v->flushed_ctime_ns);
	query_bind_u64(q, v->local_bytes);
	query_bind_i64(q, v->used_ns);
	query_bind_u64(q, v->has_recipe ? v->holes : 0);
	query_bind_u64(q, v->saved);
	query_bind_u64(q, v->replaced);
}

static void totals_add(struct state *s, enum version_state state, uint64_t bytes)
{
	s->local_bytes += bytes;
	if (state != VERSION_DURABLE)
		s->dirty_bytes += bytes;
}

static void totals_take(struct state *s, enum version_state state, uint64_t bytes)
{
	s->local_bytes -= bytes;
	if (state != VERSION_DURABLE)
		s->dirty_bytes -= bytes;
}

/* What a version counts for in the totals now, before it is changed. */
static int totals_of(struct state *s, uint64_t id, enum version_state *ret_state,
		     uint64_t *ret_bytes)
{
	cleanup_query struct query q =
		query_of(s, "SELECT state, local_bytes FROM versions WHERE id = ?");
	int error = state_totals_load(s);

	if (error)
		return error;
	query_bind_u64(&q, id);
	error = query_one(&q);
	if (error)
		return error;
	*ret_state = (enum version_state)query_u64(&q);
	*ret_bytes = query_u64(&q);
	return 0;
}

static int versions_insert(struct state *s, uint64_t id, const struct state_version *v)
{
	cleanup_query struct query q =
		query_of(s, "INSERT INTO versions (" VERSION_COLUMNS
			    ") VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");

	query_bind_u64(&q, id);
	versions_bind(&q, v);
	return query_run(&q);
}

uint64_t state_version_next(const struct state *s)
{
	return s->versions.next;
}

int state_version_new(struct state *s, struct state_version *v, uint64_t *ret_id)
{
	uint64_t id;
	int error = state_totals_load(s);

	if (!error)
		error = counter_next(s, &s->versions, &id);
	if (!error)
		error = versions_insert(s, id, v);
	if (error)
		return error;
	totals_add(s, v->state, v->local_bytes);
	v->id = id;
	*ret_id = id;
	return 0;
}

int state_version_get(struct state *s, uint64_t id, struct state_version *ret_version)
{
	cleanup_query struct query q =
		query_of(s, "SELECT " VERSION_COLUMNS " FROM versions WHERE id = ?");
	int error;

	query_bind_u64(&q, id);
	error = query_one(&q);
	return error ? error : versions_read(&q, ret_version);
}

static int versions_update(struct state *s, const struct state_version *v)
{
	cleanup_query struct query q = query_of(
		s, "UPDATE versions SET ino = ?, body = ?, state = ?, kind = ?, size = ?, born = ?,"
		   " died = ?, flags = ?, recipe = ?, flushed_size = ?, flushed_ctime = ?,"
		   " local_bytes = ?, used = ?, holes = ?, saved = ?, replaced = ? WHERE id = ?");

	versions_bind(&q, v);
	query_bind_u64(&q, v->id);
	return query_change(&q);
}

int state_version_set(struct state *s, const struct state_version *v)
{
	enum version_state state;
	uint64_t bytes;
	int error = totals_of(s, v->id, &state, &bytes);

	if (!error)
		error = versions_update(s, v);
	if (error)
		return error;
	totals_take(s, state, bytes);
	totals_add(s, v->state, v->local_bytes);
	return 0;
}

static int versions_delete(struct state *s, const char *sql, uint64_t id)
{
	cleanup_query struct query q = query_of(s, sql);

	query_bind_u64(&q, id);
	return query_run(&q);
}

int state_version_remove(struct state *s, uint64_t id)
{
	enum version_state state;
	uint64_t bytes;
	int error = totals_of(s, id, &state, &bytes);

	if (error)
		return error;
	error = state_begin(s);
	if (error)
		return error;
	error = versions_delete(s, "DELETE FROM versions WHERE id = ?", id);
	if (!error)
		error = versions_delete(s, "DELETE FROM inlines WHERE version = ?", id);
	if (!error)
		totals_take(s, state, bytes);
	return state_end(s, error);
}

bool state_version_exists(struct state *s, uint64_t id)
{
	cleanup_query struct query q = query_of(s, "SELECT 1 FROM versions WHERE id = ?");

	query_bind_u64(&q, id);
	return query_one(&q) != -ENOENT;
}

int state_version_by_recipe(struct state *s, const struct hash *recipe, uint64_t size,
			    struct state_version *ret_version)
{
	cleanup_query struct query q =
		query_of(s, "SELECT " VERSION_COLUMNS " FROM versions INDEXED BY versions_by_recipe"
			    " WHERE recipe = ? AND state = 2 AND size = ?"
			    " ORDER BY local_bytes DESC, id LIMIT 1");
	int error;

	query_bind_hash(&q, recipe);
	query_bind_u64(&q, size);
	error = query_one(&q);
	return error ? error : versions_read(&q, ret_version);
}

/* ---- many versions ---- */

static int versions_collect(struct query *q, struct buf *out)
{
	int got;

	while ((got = query_step(q)) > 0) {
		struct state_version v;
		int error = versions_read(q, &v);

		if (error)
			return error;
		buf_put(out, &v, sizeof(v));
	}
	query_end(q);
	return got < 0 ? got : buf_error(out);
}

/* Collects first, so that fn may change rows. */
static int versions_each(struct query *q, state_version_fn fn, void *arg)
{
	cleanup_buf struct buf versions = {0};
	int error = versions_collect(q, &versions);
	const struct state_version *v = (const struct state_version *)versions.data;

	for (size_t i = 0; i < versions.len / sizeof(*v) && !error; i++)
		error = fn(arg, &v[i]);
	return error;
}

/* Searches all versions: this is asked once a mount, and an index would make each create dearer. */
int state_version_each_unsafe(struct state *s, state_version_fn fn, void *arg)
{
	cleanup_query struct query q = query_of(s, "SELECT " VERSION_COLUMNS
						   " FROM versions WHERE state <> 2 ORDER BY id");

	return versions_each(&q, fn, arg);
}

int state_version_each_dead(struct state *s, size_t limit, state_version_fn fn, void *arg)
{
	cleanup_query struct query q = query_of(
		s, "SELECT " VERSION_COLUMNS " FROM (SELECT *"
		   " FROM versions INDEXED BY versions_died WHERE died <> 0 UNION ALL SELECT *"
		   " FROM versions INDEXED BY versions_empty WHERE kind = 3 AND local_bytes = 0"
		   " AND died = 0) ORDER BY died, id LIMIT ?");

	query_bind_u64(&q, limit > INT64_MAX ? INT64_MAX : limit);
	return versions_each(&q, fn, arg);
}

int state_version_each_evictable(struct state *s, state_version_fn fn, void *arg)
{
	cleanup_query struct query q =
		query_of(s, "SELECT " VERSION_COLUMNS " FROM versions INDEXED BY versions_evictable"
			    " WHERE state = 2 AND local_bytes > 0 ORDER BY used, id");

	return versions_each(&q, fn, arg);
}

int state_version_replaces(struct state *s, uint64_t id, uint64_t epoch)
{
	cleanup_query struct query q = query_of(s, "UPDATE versions SET replaced = ? WHERE id = ?");

	query_bind_u64(&q, epoch);
	query_bind_u64(&q, id);
	return query_change(&q);
}

int state_version_each_replacing(struct state *s, uint64_t from, uint64_t to, uint64_t after,
				 uint64_t before, size_t limit, state_version_fn fn, void *arg)
{
	cleanup_query struct query q =
		query_of(s, "SELECT " VERSION_COLUMNS " FROM versions INDEXED BY versions_replaced"
			    " WHERE replaced <> 0 AND replaced BETWEEN ? AND ?"
			    " AND CASE saved WHEN 0 THEN born ELSE saved END > ?"
			    " AND CASE saved WHEN 0 THEN born ELSE saved END < ?"
			    " AND died = 0 LIMIT ?");

	query_bind_u64(&q, from);
	query_bind_u64(&q, to);
	query_bind_u64(&q, after);
	query_bind_u64(&q, before);
	query_bind_u64(&q, limit);
	return versions_each(&q, fn, arg);
}

/* ---- small content kept here ---- */

int state_inline_get(struct state *s, uint64_t version, struct buf *out)
{
	cleanup_query struct query q = query_of(s, "SELECT data FROM inlines WHERE version = ?");
	int error;

	query_bind_u64(&q, version);
	error = query_one(&q);
	return error ? error : query_append(&q, out);
}

int state_inline_set(struct state *s, uint64_t version, const void *data, size_t len)
{
	cleanup_query struct query q = query_of(s, "INSERT OR REPLACE INTO inlines VALUES (?, ?)");

	query_bind_u64(&q, version);
	query_bind_bytes(&q, data, len);
	return query_run(&q);
}
