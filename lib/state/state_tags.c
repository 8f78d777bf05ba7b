/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: tags, and which of them the remote has not seen. */
#include "lib/state/state_db.h"

#include <errno.h>

int state_tag_get(struct state *s, const char *name, uint64_t *ret_number)
{
	cleanup_query struct query q = query_of(s, "SELECT number FROM tags WHERE name = ?");
	int error;

	query_bind_name(&q, name);
	error = query_one(&q);
	if (!error)
		*ret_number = query_u64(&q);
	return error;
}

static int tags_put(struct state *s, const char *sql, const char *name, uint64_t number)
{
	cleanup_query struct query q = query_of(s, sql);

	query_bind_name(&q, name);
	query_bind_u64(&q, number);
	return query_run(&q);
}

static int tags_note(struct state *s, const char *name, uint64_t number)
{
	return tags_put(s, "INSERT OR REPLACE INTO tag_changes VALUES (?, ?)", name, number);
}

int state_tag_set(struct state *s, const char *name, uint64_t number)
{
	int error = state_begin(s);

	if (error)
		return error;
	error = tags_put(s, "INSERT OR REPLACE INTO tags VALUES (?, ?)", name, number);
	if (!error)
		error = tags_note(s, name, number);
	return state_end(s, error);
}

static int tags_delete(struct state *s, const char *name)
{
	cleanup_query struct query q = query_of(s, "DELETE FROM tags WHERE name = ?");

	query_bind_name(&q, name);
	return query_run(&q);
}

int state_tag_remove(struct state *s, const char *name)
{
	uint64_t number;
	int error = state_tag_get(s, name, &number);

	if (error)
		return error;
	error = state_begin(s);
	if (error)
		return error;
	error = tags_delete(s, name);
	if (!error)
		error = tags_note(s, name, 0);
	return state_end(s, error);
}

int state_tag_synced(struct state *s, const char *name, uint64_t number)
{
	/* A tag that changed again meanwhile stays unsynced. */
	return tags_put(s, "DELETE FROM tag_changes WHERE name = ? AND number = ?", name, number);
}

struct tag {
	char name[256];
	uint64_t number;
};

static int tags_collect(struct query *q, struct buf *out)
{
	int got;

	while ((got = query_step(q)) > 0) {
		struct tag tag;
		int error = query_name(q, tag.name);

		if (error)
			return error;
		tag.number = query_u64(q);
		buf_put(out, &tag, sizeof(tag));
	}
	query_end(q);
	return got < 0 ? got : buf_error(out);
}

static int tags_each(struct query *q, state_tag_fn fn, void *arg)
{
	cleanup_buf struct buf tags = {0};
	int error = tags_collect(q, &tags);
	const struct tag *tag = (const struct tag *)tags.data;

	for (size_t i = 0; i < tags.len / sizeof(*tag) && !error; i++)
		error = fn(arg, tag[i].name, tag[i].number);
	return error;
}

int state_tag_each(struct state *s, state_tag_fn fn, void *arg)
{
	cleanup_query struct query q = query_of(s, "SELECT name, number FROM tags ORDER BY name");

	return tags_each(&q, fn, arg);
}

int state_tag_each_unsynced(struct state *s, state_tag_fn fn, void *arg)
{
	cleanup_query struct query q =
		query_of(s, "SELECT name, number FROM tag_changes ORDER BY name");

	return tags_each(&q, fn, arg);
}
