/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: doubts about files whose writers were killed. */
#include "lib/state/state_db.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Of the column `judged`; an older program knows the first two, and takes the third for the second. */
#define NOT_JUDGED   0
#define JUDGED	     1
#define JUDGED_ALONE 2

void state_doubt_free(struct state_doubt *d)
{
	free(d->path);
	free(d->why);
	*d = (struct state_doubt){0};
}

static int forget_files(struct state *s, uint64_t id)
{
	cleanup_query struct query q = query_of(s, "DELETE FROM doubt_files WHERE doubt = ?");

	query_bind_u64(&q, id);
	return query_run(&q);
}

int state_doubt_remove(struct state *s, uint64_t id)
{
	cleanup_query struct query q = query_of(s, "DELETE FROM doubts WHERE id = ?");
	int error;

	query_bind_u64(&q, id);
	error = query_run(&q);
	return error ? error : forget_files(s, id);
}

int state_doubts_clear(struct state *s)
{
	cleanup_query struct query q = query_of(s, "DELETE FROM doubts");
	cleanup_query struct query files = query_of(s, "DELETE FROM doubt_files");
	int error = query_run(&q);

	return error ? error : query_run(&files);
}

static int find_same(struct state *s, const struct state_doubt *d, uint64_t *ret_id)
{
	cleanup_query struct query q =
		query_of(s, "SELECT id FROM doubts WHERE parent = ? AND name = ? AND judged = 0");
	int error;

	query_bind_u64(&q, d->parent);
	query_bind_name(&q, d->name);
	error = d->parent ? query_one(&q) : -ENOENT;
	if (!error)
		*ret_id = query_u64(&q);
	return error;
}

static int insert(struct state *s, const struct state_doubt *d, uint64_t id)
{
	cleanup_query struct query q =
		query_of(s, "INSERT INTO doubts (id, kind, parent, name, path, ino, version, since,"
			    " at, judged, why) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");

	query_bind_u64(&q, id);
	query_bind_u64(&q, d->kind);
	query_bind_u64(&q, d->parent);
	query_bind_name(&q, d->name);
	query_bind_name(&q, d->path);
	query_bind_u64(&q, d->ino);
	query_bind_u64(&q, d->version);
	query_bind_u64(&q, d->since);
	query_bind_i64(&q, d->at_ns);
	query_bind_u64(&q, !d->judged ? NOT_JUDGED : d->alone ? JUDGED_ALONE : JUDGED);
	query_bind_text(&q, d->why);
	return query_run(&q);
}

int state_doubt_add_given(struct state *s, const struct state_doubt *d)
{
	return insert(s, d, d->id);
}

int state_doubt_add_beside(struct state *s, const struct state_doubt *d, uint64_t *ret_id)
{
	/* Never given twice: who has judged one must not meet another under its number. */
	int error = counter_next(s, &s->versions, ret_id);

	return error ? error : insert(s, d, *ret_id);
}

int state_doubt_add(struct state *s, const struct state_doubt *d, uint64_t *ret_id)
{
	uint64_t same;
	int error;

	/* Two, where a crash left one that stood beside another. */
	while ((error = find_same(s, d, &same)) == 0) {
		error = state_doubt_remove(s, same);
		if (error)
			return error;
	}
	return error == -ENOENT ? state_doubt_add_beside(s, d, ret_id) : error;
}

int state_doubt_since(struct state *s, uint64_t id, uint64_t since)
{
	cleanup_query struct query q = query_of(s, "UPDATE doubts SET since = ? WHERE id = ?");

	query_bind_u64(&q, since);
	query_bind_u64(&q, id);
	return query_run(&q);
}

int state_doubt_judge(struct state *s, uint64_t id, const char *path, bool alone)
{
	cleanup_query struct query q =
		query_of(s, "UPDATE doubts SET judged = ?, path = ? WHERE id = ?");
	int error;

	query_bind_u64(&q, alone ? JUDGED_ALONE : JUDGED);
	query_bind_name(&q, path);
	query_bind_u64(&q, id);
	error = query_change(&q);
	return error ? error : forget_files(s, id);
}

bool state_doubt_any(struct state *s)
{
	cleanup_query struct query q = query_of(s, "SELECT 1 FROM doubts LIMIT 1");

	return query_one(&q) != -ENOENT;
}

int state_doubt_each(struct state *s, state_doubt_fn fn, void *arg)
{
	cleanup_query struct query q = query_of(
		s, "SELECT id, kind, parent, name, path, ino, version, since, at, judged, why"
		   " FROM doubts ORDER BY id");
	int result;

	while ((result = query_step(&q)) == 1) {
		struct state_doubt d = {.id = query_u64(&q)};
		const void *path;
		uint64_t judged;
		size_t len;

		d.kind = (unsigned)query_u64(&q);
		d.parent = query_u64(&q);
		result = query_name(&q, d.name);
		path = query_bytes(&q, &len);
		d.path = strndup(path ? path : "", path ? len : 0);
		d.ino = query_u64(&q);
		d.version = query_u64(&q);
		d.since = query_u64(&q);
		d.at_ns = query_i64(&q);
		judged = query_u64(&q);
		d.judged = judged != NOT_JUDGED;
		d.alone = judged == JUDGED_ALONE;
		if (!result)
			result = query_text(&q, &d.why);
		if (!result && (!d.path || !d.why))
			result = -ENOMEM;
		if (!result)
			result = fn(arg, &d);
		state_doubt_free(&d);
		if (result)
			return result;
	}
	return result;
}

int state_doubt_file_add(struct state *s, uint64_t doubt, uint64_t ino, uint64_t value)
{
	cleanup_query struct query q = query_of(
		s, "INSERT INTO doubt_files VALUES (?, ?, ?)"
		   " ON CONFLICT (doubt, ino) DO UPDATE SET value = max(value, excluded.value)");

	query_bind_u64(&q, doubt);
	query_bind_u64(&q, ino);
	query_bind_u64(&q, value);
	return query_run(&q);
}

int state_doubts_same_content(struct state *s, uint64_t ino, uint64_t from, uint64_t to)
{
	cleanup_query struct query killed =
		query_of(s, "UPDATE doubts SET version = ? WHERE ino = ? AND version = ?");
	cleanup_query struct query companion =
		query_of(s, "UPDATE doubt_files SET value = ? WHERE ino = ? AND value = ?"
			    " AND doubt IN (SELECT id FROM doubts WHERE judged <> 0)");
	struct query *const both[] = {&killed, &companion};
	int error = 0;

	for (size_t i = 0; !error && i < sizeof(both) / sizeof(both[0]); i++) {
		query_bind_u64(both[i], to);
		query_bind_u64(both[i], ino);
		query_bind_u64(both[i], from);
		error = query_run(both[i]);
	}
	return error;
}

int state_doubt_file_each(struct state *s, uint64_t doubt, state_doubt_file_fn fn, void *arg)
{
	cleanup_query struct query q =
		query_of(s, "SELECT ino, value FROM doubt_files WHERE doubt = ? ORDER BY ino");
	int result;

	query_bind_u64(&q, doubt);
	while ((result = query_step(&q)) == 1) {
		uint64_t ino = query_u64(&q);

		result = fn(arg, ino, query_u64(&q));
		if (result)
			return result;
	}
	return result;
}
