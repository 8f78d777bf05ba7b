/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: files that were imported. */
#include "lib/state/state_db.h"

int state_imported_get(struct state *s, uint64_t dev, uint64_t ino, struct state_imported *ret_file)
{
	cleanup_query struct query q = query_of(
		s,
		"SELECT size, mtime, ctime, recipe, torn, seen FROM imported WHERE dev = ? AND ino = ?");
	struct state_imported file = {.dev = dev, .ino = ino};
	int error;

	query_bind_u64(&q, dev);
	query_bind_u64(&q, ino);
	error = query_one(&q);
	if (error)
		return error;
	file.size = query_u64(&q);
	file.mtime_ns = query_i64(&q);
	file.ctime_ns = query_i64(&q);
	error = query_hash(&q, &file.recipe);
	file.torn = query_u64(&q) != 0;
	file.seen_ns = query_i64(&q);
	if (!error)
		*ret_file = file;
	return error;
}

int state_imported_set(struct state *s, const struct state_imported *file)
{
	cleanup_query struct query q =
		query_of(s, "INSERT OR REPLACE INTO imported VALUES (?, ?, ?, ?, ?, ?, ?, ?)");

	query_bind_u64(&q, file->dev);
	query_bind_u64(&q, file->ino);
	query_bind_u64(&q, file->size);
	query_bind_i64(&q, file->mtime_ns);
	query_bind_i64(&q, file->ctime_ns);
	query_bind_hash(&q, &file->recipe);
	query_bind_u64(&q, file->torn);
	query_bind_i64(&q, file->seen_ns);
	return query_run(&q);
}

int state_imported_forget(struct state *s, int64_t before_ns)
{
	cleanup_query struct query q = query_of(s, "DELETE FROM imported WHERE seen < ?");

	query_bind_i64(&q, before_ns);
	return query_run(&q);
}
