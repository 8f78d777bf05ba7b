/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: announcements that wait. */
#include "lib/state/state_db.h"

int state_announcement_add(struct state *s, unsigned sink, const char *text)
{
	cleanup_query struct query q =
		query_of(s, "INSERT INTO announcements (sink, id, text) SELECT ?1,"
			    " coalesce(max(id), 0) + 1, ?2 FROM announcements WHERE sink = ?1");

	query_bind_u64(&q, sink);
	query_bind_text(&q, text);
	return query_run(&q);
}

int state_announcement_first(struct state *s, unsigned sink, uint64_t *ret_id, char **ret_text)
{
	cleanup_query struct query q = query_of(
		s, "SELECT id, text FROM announcements WHERE sink = ? ORDER BY id LIMIT 1");
	int error;

	query_bind_u64(&q, sink);
	error = query_one(&q);
	if (error)
		return error;
	*ret_id = query_u64(&q);
	return query_text(&q, ret_text);
}

int state_announcement_remove(struct state *s, unsigned sink, uint64_t id)
{
	cleanup_query struct query q =
		query_of(s, "DELETE FROM announcements WHERE sink = ? AND id = ?");

	query_bind_u64(&q, sink);
	query_bind_u64(&q, id);
	return query_run(&q);
}

int state_announcements_clear(struct state *s, unsigned sink)
{
	cleanup_query struct query q = query_of(s, "DELETE FROM announcements WHERE sink = ?");

	query_bind_u64(&q, sink);
	return query_run(&q);
}

int state_announcements_count(struct state *s, unsigned sink, uint64_t *ret_count)
{
	cleanup_query struct query q =
		query_of(s, "SELECT count(*) FROM announcements WHERE sink = ?");
	int error;

	query_bind_u64(&q, sink);
	error = query_one(&q);
	if (!error)
		*ret_count = query_u64(&q);
	return error;
}
