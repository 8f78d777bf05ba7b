/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: files, what symbolic links point to, extended attributes, totals of files and content. */
#include "lib/state/state_db.h"

#include <errno.h>

void files_read(struct query *q, struct state_file *ret_file)
{
	*ret_file = (struct state_file){0};
	ret_file->ino = query_u64(q);
	ret_file->mode = query_u32(q);
	ret_file->uid = query_u32(q);
	ret_file->gid = query_u32(q);
	ret_file->rdev = query_u32(q);
	ret_file->nlink = query_u32(q);
	ret_file->size = query_u64(q);
	ret_file->mtime_ns = query_i64(q);
	ret_file->ctime_ns = query_i64(q);
	ret_file->atime_ns = query_i64(q);
	ret_file->live = query_u64(q);
	ret_file->closed = query_u64(q);
	ret_file->body = query_u64(q);
	ret_file->born = query_u64(q);
	ret_file->parent = query_u64(q);
}

/* All columns but the inode number and the parent. */
static void files_bind(struct query *q, const struct state_file *f)
{
	query_bind_u64(q, f->mode);
	query_bind_u64(q, f->uid);
	query_bind_u64(q, f->gid);
	query_bind_u64(q, f->rdev);
	query_bind_u64(q, f->nlink);
	query_bind_u64(q, f->size);
	query_bind_i64(q, f->mtime_ns);
	query_bind_i64(q, f->ctime_ns);
	query_bind_i64(q, f->atime_ns);
	query_bind_u64(q, f->live);
	query_bind_u64(q, f->closed);
	query_bind_u64(q, f->body);
	query_bind_u64(q, f->born);
}

static int files_insert(struct state *s, uint64_t ino, const struct state_file *f)
{
	cleanup_query struct query q = query_of(
		s, "INSERT INTO files (ino, mode, uid, gid, rdev, nlink, size, mtime, ctime, atime,"
		   " live, closed, body, born, parent)"
		   " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)");

	query_bind_u64(&q, ino);
	files_bind(&q, f);
	query_bind_u64(&q, f->parent);
	return query_run(&q);
}

int state_file_new(struct state *s, struct state_file *f, uint64_t *ret_ino)
{
	uint64_t ino;
	int error = state_totals_load(s);

	if (!error)
		error = counter_next(s, &s->inos, &ino);
	if (!error)
		error = files_insert(s, ino, f);
	if (error)
		return error;
	s->files++;
	f->ino = ino;
	*ret_ino = ino;
	return 0;
}

int state_file_get(struct state *s, uint64_t ino, struct state_file *ret_file)
{
	cleanup_query struct query q =
		query_of(s, "SELECT " FILE_COLUMNS " FROM files f WHERE ino = ?");
	int error;

	query_bind_u64(&q, ino);
	error = query_one(&q);
	if (!error)
		files_read(&q, ret_file);
	return error;
}

static int files_update(struct state *s, const struct state_file *f)
{
	cleanup_query struct query q = query_of(
		s, "UPDATE files SET mode = ?, uid = ?, gid = ?, rdev = ?, nlink = ?, size = ?,"
		   " mtime = ?, ctime = ?, atime = ?, live = ?, closed = ?, body = ?, born = ?"
		   " WHERE ino = ?");

	files_bind(&q, f);
	query_bind_u64(&q, f->ino);
	return query_change(&q);
}

/* By itself: else the index of parents would be written whenever a name in a directory changes. */
static int files_move(struct state *s, const struct state_file *f)
{
	cleanup_query struct query q =
		query_of(s, "UPDATE files SET parent = ?1 WHERE ino = ?2 AND parent <> ?1");

	query_bind_u64(&q, f->parent);
	query_bind_u64(&q, f->ino);
	return query_run(&q);
}

int state_file_set(struct state *s, const struct state_file *f)
{
	int error = files_update(s, f);

	return !error && f->parent ? files_move(s, f) : error;
}

static int remove_by_ino(struct state *s, const char *sql, uint64_t ino)
{
	cleanup_query struct query q = query_of(s, sql);

	query_bind_u64(&q, ino);
	return query_run(&q);
}

static int files_delete(struct state *s, uint64_t ino)
{
	cleanup_query struct query q = query_of(s, "DELETE FROM files WHERE ino = ?");

	query_bind_u64(&q, ino);
	return query_change(&q);
}

int state_file_remove(struct state *s, uint64_t ino)
{
	int error = state_begin(s);

	if (error)
		return error;
	error = state_totals_load(s);
	if (!error)
		error = files_delete(s, ino);
	if (!error)
		error = remove_by_ino(s, "DELETE FROM symlinks WHERE ino = ?", ino);
	if (!error)
		error = remove_by_ino(s, "DELETE FROM xattrs WHERE ino = ?", ino);
	if (!error)
		s->files--;
	return state_end(s, error);
}

int state_file_each_unlinked(struct state *s, state_file_fn fn, void *arg)
{
	cleanup_query struct query q =
		query_of(s, "SELECT " FILE_COLUMNS " FROM files f WHERE f.nlink = 0");
	struct state_file f;
	int result;

	while ((result = query_step(&q)) == 1) {
		files_read(&q, &f);
		result = fn(arg, &f);
		if (result)
			return result;
	}
	return result;
}

int state_symlink_get(struct state *s, uint64_t ino, struct buf *out)
{
	cleanup_query struct query q = query_of(s, "SELECT target FROM symlinks WHERE ino = ?");
	int error;

	query_bind_u64(&q, ino);
	error = query_one(&q);
	return error ? error : query_append(&q, out);
}

int state_symlink_set(struct state *s, uint64_t ino, const void *target, size_t len)
{
	cleanup_query struct query q = query_of(s, "INSERT OR REPLACE INTO symlinks VALUES (?, ?)");

	query_bind_u64(&q, ino);
	query_bind_bytes(&q, target, len);
	return query_run(&q);
}

/* ---- totals ---- */

static int files_count(struct state *s, uint64_t *ret_count)
{
	cleanup_query struct query q = query_of(s, "SELECT count(*) FROM files");
	int error = query_one(&q);

	if (!error)
		*ret_count = query_u64(&q);
	return error;
}

static int versions_sum(struct state *s, uint64_t *ret_local, uint64_t *ret_dirty)
{
	cleanup_query struct query q =
		query_of(s, "SELECT coalesce(sum(local_bytes), 0),"
			    " coalesce(sum(local_bytes) FILTER (WHERE state <> 2), 0)"
			    " FROM versions");
	int error = query_one(&q);

	if (error)
		return error;
	*ret_local = query_u64(&q);
	*ret_dirty = query_u64(&q);
	return 0;
}

int state_totals_load(struct state *s)
{
	int error;

	if (s->totals_known)
		return 0;
	error = files_count(s, &s->files);
	if (!error)
		error = versions_sum(s, &s->local_bytes, &s->dirty_bytes);
	s->totals_known = !error;
	return error;
}

uint64_t state_file_count(struct state *s)
{
	return state_totals_load(s) ? 0 : s->files;
}

int state_version_totals(struct state *s, uint64_t *ret_local, uint64_t *ret_dirty)
{
	int error = state_totals_load(s);

	if (error)
		return error;
	*ret_local = s->local_bytes;
	*ret_dirty = s->dirty_bytes;
	return 0;
}

/* ---- The local state: extended attributes. ---- */

int state_xattr_get(struct state *s, uint64_t ino, const char *name, struct buf *out)
{
	cleanup_query struct query q =
		query_of(s, "SELECT value FROM xattrs WHERE ino = ? AND name = ?");
	int error;

	query_bind_u64(&q, ino);
	query_bind_name(&q, name);
	error = query_one(&q);
	if (error)
		return error == -ENOENT ? -ENODATA : error;
	return query_append(&q, out);
}

int state_xattr_set(struct state *s, uint64_t ino, const char *name, const void *v, size_t len)
{
	cleanup_query struct query q =
		query_of(s, "INSERT OR REPLACE INTO xattrs (ino, name, value) VALUES (?, ?, ?)");

	query_bind_u64(&q, ino);
	query_bind_name(&q, name);
	query_bind_bytes(&q, v, len);
	return query_run(&q);
}

int state_xattr_remove(struct state *s, uint64_t ino, const char *name)
{
	cleanup_query struct query q = query_of(s, "DELETE FROM xattrs WHERE ino = ? AND name = ?");
	int error;

	query_bind_u64(&q, ino);
	query_bind_name(&q, name);
	error = query_change(&q);
	return error == -ENOENT ? -ENODATA : error;
}

int state_xattr_list(struct state *s, uint64_t ino, state_xattr_fn fn, void *arg)
{
	cleanup_query struct query q =
		query_of(s, "SELECT name, value FROM xattrs WHERE ino = ? ORDER BY name");
	int got;

	query_bind_u64(&q, ino);
	while ((got = query_step(&q)) > 0) {
		char name[256];
		size_t len;
		const void *value;
		int error = query_name(&q, name);

		if (error)
			return error;
		value = query_bytes(&q, &len);
		error = fn(arg, name, value ? value : "", len);
		if (error)
			return error;
	}
	return got;
}

/* ---- files that were imported ---- */

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
