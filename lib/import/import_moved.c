/* SPDX-License-Identifier: Apache-2.0 */
/* Importing: which files that the doubts of the epoch before name were renamed since. A directory tells no history: contents do. */
#include "lib/import/import_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/tree_diff.h"

/* A file of the epoch before, and where it lies now. */
struct import_move {
	const char *from; /* of the epoch's record */
	struct tree_entry entry;
	char *to;   /* owned */
	bool stays; /* something has its name still */
};

void import_moved_free(struct import_job *j)
{
	for (size_t i = 0; i < j->move_count; i++)
		free(j->moves[i].to);
	free(steal_ptr(j->moves));
	j->move_count = 0;
}

bool import_in_parent(const struct import_job *j, const char *path, struct tree_entry *ret_entry)
{
	uint32_t id;

	if (!j->parent_tree || tree_resolve(j->parent_tree, path, &id))
		return false;
	tree_get(j->parent_tree, id, ret_entry);
	return ret_entry->type == TREE_REGULAR;
}

/* ---- what to look for ---- */

static void look_for(struct import_job *j, const char *path)
{
	struct tree_entry e;

	for (size_t i = 0; i < j->move_count; i++)
		if (!strcmp(j->moves[i].from, path))
			return;
	if (import_in_parent(j, path, &e))
		j->moves[j->move_count++] = (struct import_move){.from = path, .entry = e};
}

static int look_for_all(struct import_job *j)
{
	size_t count = 0;

	for (size_t i = 0; i < j->parent.doubt_count; i++)
		count += 1 + j->parent.doubts[i].companion_count;
	j->moves = calloc(count + 1, sizeof(*j->moves));
	if (!j->moves)
		return -ENOMEM;
	for (size_t i = 0; i < j->parent.doubt_count; i++) {
		const struct record_doubt *d = &j->parent.doubts[i];

		if (doubt_kind_parse(d->kind) != DOUBT_UNDONE)
			continue;
		look_for(j, d->path);
		for (size_t k = 0; k < d->companion_count; k++)
			look_for(j, d->companions[k]);
	}
	return 0;
}

/* ---- finding ---- */

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* Of several files with that content, one of the same name in another directory is the likeliest. */
static bool is_likelier(const struct import_move *m, const char *path)
{
	return !m->to || (strcmp(last_name(m->to), last_name(m->from)) != 0 &&
			  !strcmp(last_name(path), last_name(m->from)));
}

static int look_at(struct import_job *j, const char *path, const struct tree_entry *e)
{
	struct tree_entry before;
	/* What was there before is a copy, and nothing was renamed to it. */
	bool copy = import_in_parent(j, path, &before) && tree_same_content(&before, e);

	for (size_t i = 0; i < j->move_count; i++) {
		struct import_move *m = &j->moves[i];

		m->stays |= !strcmp(m->from, path);
		if (copy || !tree_same_content(&m->entry, e) || !is_likelier(m, path))
			continue;
		free(m->to);
		m->to = strdup(path);
		if (!m->to)
			return -ENOMEM;
	}
	return 0;
}

int import_moved_find(struct import_job *j)
{
	size_t kept = 0;
	int error;

	import_moved_free(j);
	error = look_for_all(j);
	for (size_t i = 1; !error && j->move_count && i < j->scan.count; i++) {
		cleanup_buf struct buf path = {0};
		struct tree_entry e;

		if (j->scan.nodes[i].left)
			continue;
		import_entry(j, i, &e);
		error = e.type == TREE_REGULAR ? scan_path(&j->scan, i, &path) : 0;
		if (!error && path.len)
			error = look_at(j, buf_str(&path), &e);
	}
	for (size_t i = 0; i < j->move_count; i++) {
		struct import_move m = j->moves[i];

		if (m.to && !m.stays)
			j->moves[kept++] = m;
		else
			free(m.to);
	}
	j->move_count = kept;
	return error;
}

/* ---- asking ---- */

const char *import_moved_from(const struct import_job *j, const char *path)
{
	for (size_t i = 0; i < j->move_count; i++)
		if (!strcmp(j->moves[i].to, path))
			return j->moves[i].from;
	return path;
}

const char *import_moved_to(const struct import_job *j, const char *path)
{
	for (size_t i = 0; i < j->move_count; i++)
		if (!strcmp(j->moves[i].from, path))
			return j->moves[i].to;
	return NULL;
}

/* What both end with, in whole names, is the same: how long the directories are that one became the other. */
static bool directories_of(const struct import_move *m, size_t *ret_from, size_t *ret_to)
{
	size_t from = strlen(m->from), to = strlen(m->to);
	bool any = false;

	while (from && to && m->from[from - 1] == m->to[to - 1]) {
		from--;
		to--;
		if ((!from || m->from[from - 1] == '/') && (!to || m->to[to - 1] == '/')) {
			*ret_from = from;
			*ret_to = to;
			any = true;
		}
	}
	return any;
}

int import_moved_along(const struct import_job *j, const char *path, struct buf *out)
{
	for (size_t i = 0; i < j->move_count; i++) {
		const struct import_move *m = &j->moves[i];
		cleanup_free char *dir = NULL;
		size_t from = 0, to = 0;

		if (!directories_of(m, &from, &to) || !from || strncmp(path, m->from, from) != 0)
			continue;
		dir = strndup(m->from, from - 1);
		if (!dir)
			return -ENOMEM;
		if (import_find_node(j, dir) != SIZE_MAX)
			continue;
		buf_put(out, m->to, to);
		buf_printf(out, "%s", path + from);
		return buf_error(out);
	}
	buf_printf(out, "%s", path);
	return buf_error(out);
}
