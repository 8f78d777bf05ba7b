/* SPDX-License-Identifier: Apache-2.0 */
/* The local state: extended attributes. */
#include "lib/state/state_db.h"

#include <errno.h>

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
