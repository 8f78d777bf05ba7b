/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: names of files in directories. */
#include "lib/state/state_db.h"

#include <errno.h>
#include <string.h>

int state_name_get(struct state *s, uint64_t parent, const char *name, struct state_name *ret_name)
{
	cleanup_query struct query q =
		query_of(s, "SELECT id, ino, covered FROM names WHERE parent = ? AND name = ?");
	int error;

	query_bind_u64(&q, parent);
	query_bind_name(&q, name);
	error = query_one(&q);
	if (error)
		return error;
	ret_name->parent = parent;
	ret_name->id = query_u64(&q);
	ret_name->ino = query_u64(&q);
	ret_name->covered = query_u64(&q);
	return 0;
}

int state_name_lookup(struct state *s, uint64_t parent, const char *name,
		      struct state_name *ret_name, struct state_file *ret_file)
{
	cleanup_query struct query q = query_of(s, "SELECT n.id, n.ino, n.covered, " FILE_COLUMNS
						   " FROM names n JOIN files f ON f.ino = n.ino"
						   " WHERE n.parent = ? AND n.name = ?");
	int error;

	query_bind_u64(&q, parent);
	query_bind_name(&q, name);
	error = query_one(&q);
	if (error)
		return error;
	ret_name->parent = parent;
	ret_name->id = query_u64(&q);
	ret_name->ino = query_u64(&q);
	ret_name->covered = query_u64(&q);
	files_read(&q, ret_file);
	return 0;
}

int state_name_add(struct state *s, uint64_t parent, const char *name, uint64_t ino)
{
	cleanup_query struct query q = query_of(
		s, "INSERT INTO names (parent, name, id, ino, covered) VALUES (?, ?, ?, ?, 0)");
	uint64_t id;
	int error = counter_next(s, &s->names, &id);

	if (error)
		return error;
	query_bind_u64(&q, parent);
	query_bind_name(&q, name);
	query_bind_u64(&q, id);
	query_bind_u64(&q, ino);
	return query_run(&q);
}

int state_name_set(struct state *s, uint64_t parent, const char *name, uint64_t ino,
		   uint64_t covered)
{
	cleanup_query struct query q =
		query_of(s, "UPDATE names SET ino = ?, covered = ? WHERE parent = ? AND name = ?");

	query_bind_u64(&q, ino);
	query_bind_u64(&q, covered);
	query_bind_u64(&q, parent);
	query_bind_name(&q, name);
	return query_change(&q);
}

int state_name_change(struct state *s, uint64_t parent, const char *name, const char *new_name)
{
	cleanup_query struct query q =
		query_of(s, "UPDATE names SET name = ?, covered = 0 WHERE parent = ? AND name = ?");

	query_bind_name(&q, new_name);
	query_bind_u64(&q, parent);
	query_bind_name(&q, name);
	return query_change(&q);
}

int state_name_remove(struct state *s, uint64_t parent, const char *name)
{
	cleanup_query struct query q =
		query_of(s, "DELETE FROM names WHERE parent = ? AND name = ?");

	query_bind_u64(&q, parent);
	query_bind_name(&q, name);
	return query_change(&q);
}

int state_dir_empty(struct state *s, uint64_t ino)
{
	cleanup_query struct query q = query_of(s, "SELECT 1 FROM names WHERE parent = ? LIMIT 1");
	int got;

	query_bind_u64(&q, ino);
	got = query_step(&q);
	return got > 0 ? -ENOTEMPTY : got;
}

static int dir_number(struct query *q, uint64_t ino, uint64_t *ret_number)
{
	int error;

	query_bind_u64(q, ino);
	error = query_one(q);
	if (!error)
		*ret_number = query_u64(q);
	return error;
}

int state_dir_depth(struct state *s, uint64_t ino, uint64_t *ret_depth)
{
	cleanup_query struct query q =
		query_of(s, "WITH RECURSIVE above(ino, parent) AS"
			    " (SELECT ino, parent FROM files WHERE ino = ? UNION ALL"
			    " SELECT f.ino, f.parent FROM above a JOIN files f ON f.ino = a.parent"
			    " WHERE a.parent <> a.ino) SELECT count(*) - 1 FROM above");

	return dir_number(&q, ino, ret_depth);
}

int state_dir_height(struct state *s, uint64_t ino, uint64_t *ret_height)
{
	cleanup_query struct query q = query_of(
		s, "WITH RECURSIVE below(ino, depth) AS (SELECT ?, 0 UNION ALL"
		   " SELECT f.ino, b.depth + 1 FROM below b JOIN files f INDEXED BY files_by_parent"
		   " ON f.parent = b.ino WHERE f.parent <> 0 AND f.parent <> f.ino)"
		   " SELECT max(depth) FROM below");

	return dir_number(&q, ino, ret_height);
}

/* One row of NAME_COLUMNS and FILE_COLUMNS. */
#define NAME_COLUMNS "n.parent, n.name, n.id, n.ino, n.covered"
struct row {
	struct state_name n;
	char name[256];
	bool has_file;
	struct state_file f;
};

static int row_read(struct query *q, struct row *ret_row)
{
	int error;

	ret_row->n.parent = query_u64(q);
	error = query_name(q, ret_row->name);
	if (error)
		return error;
	ret_row->n.id = query_u64(q);
	ret_row->n.ino = query_u64(q);
	ret_row->n.covered = query_u64(q);
	files_read(q, &ret_row->f);
	ret_row->has_file = ret_row->f.ino != 0; /* a NULL of the join reads as 0 */
	return 0;
}

static int row_call(const struct row *row, state_name_fn fn, void *arg)
{
	return fn(arg, &row->n, row->name, row->has_file ? &row->f : NULL);
}

static int rows_each(struct query *q, state_name_fn fn, void *arg)
{
	struct row row;
	int got;

	while ((got = query_step(q)) > 0) {
		int error = row_read(q, &row);

		if (!error)
			error = row_call(&row, fn, arg);
		if (error)
			return error;
	}
	return got;
}

int state_dir_list(struct state *s, uint64_t parent, uint64_t before, state_name_fn fn, void *arg)
{
	cleanup_query struct query q = query_of(
		s, "SELECT " NAME_COLUMNS ", " FILE_COLUMNS
		   " FROM names n INDEXED BY names_by_id LEFT JOIN files f ON f.ino = n.ino"
		   " WHERE n.parent = ? AND n.id < ? ORDER BY n.id DESC");

	query_bind_u64(&q, parent);
	query_bind_u64(&q, before ? before : INT64_MAX);
	return rows_each(&q, fn, arg);
}

int state_dir_list_sorted(struct state *s, uint64_t parent, state_name_fn fn, void *arg)
{
	cleanup_query struct query q =
		query_of(s, "SELECT " NAME_COLUMNS ", " FILE_COLUMNS
			    " FROM names n LEFT JOIN files f ON f.ino = n.ino"
			    " WHERE n.parent = ? ORDER BY n.name");

	query_bind_u64(&q, parent);
	return rows_each(&q, fn, arg);
}

/* The names of one file, collected, so that what is called may change them. */
int state_names_of(struct state *s, uint64_t ino, state_name_fn fn, void *arg)
{
	cleanup_buf struct buf rows = {0};
	const struct row *row;
	int got, error = 0;

	{
		cleanup_query struct query q =
			query_of(s, "SELECT " NAME_COLUMNS ", " FILE_COLUMNS
				    " FROM names n LEFT JOIN files f ON f.ino = n.ino"
				    " WHERE n.ino = ? ORDER BY n.id");
		query_bind_u64(&q, ino);
		while ((got = query_step(&q)) > 0) {
			struct row one;

			error = row_read(&q, &one);
			if (error)
				return error;
			buf_put(&rows, &one, sizeof(one));
		}
	}
	if (got < 0 || buf_error(&rows))
		return got < 0 ? got : -ENOMEM;
	row = (const struct row *)rows.data;
	for (size_t i = 0; i < rows.len / sizeof(*row) && !error; i++)
		error = row_call(&row[i], fn, arg);
	return error;
}

int state_name_covering(struct state *s, uint64_t covered, uint64_t *ret_parent,
			struct buf *ret_name)
{
	cleanup_query struct query q =
		query_of(s, "SELECT parent, name FROM names WHERE covered = ? AND covered <> 0");
	uint64_t parent;
	int error;

	query_bind_u64(&q, covered);
	error = query_one(&q);
	if (error)
		return error;
	parent = query_u64(&q);
	error = query_append(&q, ret_name);
	if (!error)
		*ret_parent = parent;
	return error;
}
