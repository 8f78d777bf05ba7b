/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: epochs, and their tags. */
#include "lib/state/state_db.h"

#include <errno.h>
#include <string.h>

#define EPOCH_COLUMNS "number, state, record, error, delete_pending, superseded"
/* As the indexes say it: else they are not taken. */
#define EPOCH_PENDING "state <> 2 AND state <> 4"
#define EPOCH_DELETES "delete_pending <> 0"

void state_epoch_free(struct state_epoch *e)
{
	free(e->record);
	free(e->error);
	e->record = e->error = NULL;
}

static int epochs_read(struct query *q, struct state_epoch *ret_epoch)
{
	struct state_epoch e = {.number = query_u64(q)};
	uint64_t state = query_u64(q);
	int error = query_text(q, &e.record);

	if (state > EPOCH_DROPPED)
		error = -EUCLEAN;
	e.state = (enum epoch_state)state;
	if (!error)
		error = query_text(q, &e.error);
	if (error) {
		state_epoch_free(&e);
		return error;
	}
	e.remote_delete_pending = query_u64(q) != 0;
	e.superseded = query_u64(q) != 0;
	*ret_epoch = e;
	return 0;
}

int state_epoch_get(struct state *s, uint64_t number, struct state_epoch *ret_epoch)
{
	cleanup_query struct query q =
		query_of(s, "SELECT " EPOCH_COLUMNS " FROM epochs WHERE number = ?");
	int error;

	query_bind_u64(&q, number);
	error = query_one(&q);
	return error ? error : epochs_read(&q, ret_epoch);
}

int state_epoch_set(struct state *s, const struct state_epoch *e)
{
	cleanup_query struct query q = query_of(s, "INSERT OR REPLACE INTO epochs (" EPOCH_COLUMNS
						   ") VALUES (?, ?, ?, ?, ?, ?)");

	query_bind_u64(&q, e->number);
	query_bind_u64(&q, e->state);
	query_bind_text(&q, e->record);
	query_bind_text(&q, e->error);
	query_bind_u64(&q, e->remote_delete_pending);
	query_bind_u64(&q, e->superseded);
	return query_run(&q);
}

/* Frees what is collected. */
static void epochs_free(struct buf *epochs)
{
	struct state_epoch *e = (struct state_epoch *)epochs->data;

	for (size_t i = 0; i < epochs->len / sizeof(*e); i++)
		state_epoch_free(&e[i]);
	buf_free(epochs);
}

static int epochs_collect(struct query *q, struct buf *out)
{
	int got;

	while ((got = query_step(q)) > 0) {
		struct state_epoch e;
		int error = buf_reserve(out, sizeof(e));

		if (!error)
			error = epochs_read(q, &e);
		if (error)
			return error;
		buf_put(out, &e, sizeof(e));
	}
	return got;
}

static int epochs_each(struct query *q, state_epoch_fn fn, void *arg)
{
	CLEANUP(epochs_free) struct buf epochs = {0};
	int error = epochs_collect(q, &epochs);
	const struct state_epoch *e = (const struct state_epoch *)epochs.data;

	for (size_t i = 0; i < epochs.len / sizeof(*e) && !error; i++)
		error = fn(arg, &e[i]);
	return error;
}

int state_epoch_each(struct state *s, state_epoch_fn fn, void *arg)
{
	cleanup_query struct query q =
		query_of(s, "SELECT " EPOCH_COLUMNS " FROM epochs ORDER BY number");

	return epochs_each(&q, fn, arg);
}

int state_epoch_each_between(struct state *s, uint64_t first, uint64_t end, state_epoch_fn fn,
			     void *arg)
{
	cleanup_query struct query q =
		query_of(s, "SELECT " EPOCH_COLUMNS " FROM epochs"
			    " WHERE number >= ? AND number < ? ORDER BY number");

	query_bind_u64(&q, first);
	query_bind_u64(&q, end);
	return epochs_each(&q, fn, arg);
}

int state_epoch_each_delete(struct state *s, state_epoch_fn fn, void *arg)
{
	cleanup_query struct query q =
		query_of(s, "SELECT " EPOCH_COLUMNS " FROM epochs INDEXED BY epochs_deletes"
			    " WHERE " EPOCH_DELETES " ORDER BY number");

	return epochs_each(&q, fn, arg);
}

int state_epoch_count_waiting(struct state *s, uint64_t *ret_pending, uint64_t *ret_oldest,
			      uint64_t *ret_deletes)
{
	cleanup_query struct query q = query_of(
		s,
		"SELECT count(*), coalesce(min(number), 0),"
		" (SELECT count(*) FROM epochs INDEXED BY epochs_deletes WHERE " EPOCH_DELETES ")"
		" FROM epochs INDEXED BY epochs_pending WHERE " EPOCH_PENDING);
	int error = query_one(&q);

	if (error)
		return error;
	*ret_pending = query_u64(&q);
	*ret_oldest = query_u64(&q);
	*ret_deletes = query_u64(&q);
	return 0;
}

int state_epoch_first_pending(struct state *s, uint64_t *ret_number)
{
	cleanup_query struct query q = query_of(
		s, "SELECT number FROM epochs INDEXED BY epochs_pending"
		   " WHERE " EPOCH_PENDING " AND record IS NOT NULL ORDER BY number LIMIT 1");
	int error = query_one(&q);

	if (!error)
		*ret_number = query_u64(&q);
	return error;
}

bool state_epoch_pending_in(struct state *s, uint64_t born, uint64_t died)
{
	cleanup_query struct query q =
		query_of(s, "SELECT 1 FROM epochs INDEXED BY epochs_pending"
			    " WHERE " EPOCH_PENDING " AND number >= ? AND number < ? LIMIT 1");

	query_bind_u64(&q, born);
	query_bind_u64(&q, died ? died : INT64_MAX);
	/* An error says yes: then nothing is thrown away. */
	return query_step(&q) != 0;
}

int state_forget_numbers(struct state *s, uint64_t first)
{
	static const char *const statements[] = {
		"DELETE FROM epochs WHERE number >= ?",
		"UPDATE versions SET born = 1 WHERE born >= ?",
		"UPDATE versions SET died = 1 WHERE died >= ?",
		"UPDATE versions SET saved = 0 WHERE saved >= ?",
		"UPDATE files SET born = 1 WHERE born >= ?",
	};
	int error = 0;

	for (size_t i = 0; !error && i < sizeof(statements) / sizeof(statements[0]); i++) {
		cleanup_query struct query q = query_of(s, statements[i]);

		query_bind_u64(&q, first);
		error = query_run(&q);
	}
	return error;
}

/* ---- The local state: taking back epochs that began and were never frozen. ---- */

static int rewind_by(struct state *s, uint64_t next, struct query q)
{
	cleanup_query struct query query = q;

	(void)s;
	query_bind_u64(&query, next);
	return query_run(&query);
}

int state_epochs_rewind(struct state *s, uint64_t next)
{
	int error = state_begin(s);

	if (error)
		return error;
	/* 0 is EPOCH_SEALED. */
	error = rewind_by(s, next,
			  query_of(s, "DELETE FROM epochs WHERE number >= ?1 AND record IS NULL"
				      " AND state = 0"));
	if (!error)
		error = rewind_by(s, next,
				  query_of(s, "UPDATE versions SET born = ?1 WHERE born > ?1"));
	if (!error)
		error = rewind_by(s, next,
				  query_of(s, "UPDATE versions SET died = ?1 WHERE died > ?1"));
	if (!error)
		error = rewind_by(s, next,
				  query_of(s, "UPDATE files SET born = ?1 WHERE born > ?1"));
	return state_end(s, error);
}

/* ---- The local state: tags, and which of them the remote has not seen. ---- */

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

/* ---- announcements that wait ---- */

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
