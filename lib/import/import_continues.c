/* SPDX-License-Identifier: Apache-2.0 */
/* Importing: was the epoch before sealed too early? (Contract 1.3; seal.c does it for mounts.) */
#include "lib/import/import_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/tree_diff.h"
#include "lib/meta/records.h"
#include "lib/epochs/record_fill.h"
#include "lib/epochs/seal.h"
#include "lib/util/array.h"

/* Directories that an epoch made, by their paths. */
struct made {
	char **paths;
	size_t count, cap;
};

static void made_free(struct made *m)
{
	for (size_t i = 0; i < m->count; i++)
		free(m->paths[i]);
	free(m->paths);
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

static int note_made(const struct tree_change *c, void *arg)
{
	struct made *m = arg;

	if (c->kind != TREE_ADDED || c->new_entry->type != TREE_DIR)
		return 0;
	if (array_reserve((void **)&m->paths, &m->cap, m->count, sizeof(*m->paths)))
		return -ENOMEM;
	m->paths[m->count] = strdup(c->path);
	return m->paths[m->count++] ? 0 : -ENOMEM;
}

/* 1: a name was added below one of them. */
static int is_below(const struct tree_change *c, void *arg)
{
	const struct made *m = arg;
	cleanup_free char *path = NULL;
	char *slash;

	if (c->kind != TREE_ADDED || !m->count)
		return 0;
	path = strdup(c->path);
	if (!path)
		return -ENOMEM;
	while ((slash = strrchr(path, '/'))) {
		*slash = '\0';
		if (bsearch(&path, m->paths, m->count, sizeof(*m->paths), compare_paths))
			return 1;
	}
	return 0;
}

int import_load(struct import_job *j, uint64_t number, struct epoch_record *ret_record,
		struct tree **ret_tree)
{
	cleanup_record struct epoch_record record = {0};
	cleanup_buf struct buf data = {0};
	int error = records_get(j->imp->vol->remote, number, &record, NULL);
	size_t len;
	void *bytes;

	if (!error && ret_tree)
		error = store_get_tree(j->imp->vol->store, &record, &data);
	if (!error && ret_tree) {
		bytes = buf_steal(&data, &len);
		error = tree_decode(bytes, len, 0, ret_tree);
		if (error)
			free(bytes);
	}
	if (!error && ret_record) {
		*ret_record = record;
		record = (struct epoch_record){0};
	}
	return error;
}

/* Whether a name came below a directory that was made since the epoch `before` (0: none). 1, 0 or -errno. */
static int adds_below(struct import_job *j, uint64_t before, struct tree *tree)
{
	CLEANUP(made_free) struct made made = {0};
	cleanup_tree struct tree *old = NULL;
	int error;

	/* Of the volume's first epoch, all directories are its own. */
	error = before ? import_load(j, before, NULL, &old) : tree_empty_like(tree, &old);
	if (!error)
		error = tree_diff(old, j->parent_tree, note_made, &made);
	if (error)
		return error;
	if (made.count)
		qsort(made.paths, made.count, sizeof(*made.paths), compare_paths);
	return tree_diff(j->parent_tree, tree, is_below, &made);
}

/* The epoch before the first of those that continue one another up to the parent. */
static int before_chain(struct import_job *j, uint64_t *ret_before)
{
	uint64_t continues = j->parent.continues, before = j->parent.parent;

	while (continues) {
		cleanup_record struct epoch_record r = {0};
		int error = import_load(j, continues, &r, NULL);

		if (error)
			return error;
		before = r.parent;
		/* A damaged record may name itself. */
		continues = r.continues < r.number ? r.continues : 0;
	}
	*ret_before = before;
	return 0;
}

int import_continues(struct import_job *j, struct tree *tree)
{
	const struct epoch_record *parent = &j->parent;
	struct epoch_record *r = &j->record;
	bool both = parent->has_step && r->has_step, chain = false;
	uint64_t before;
	int found;

	if (!parent->number || !j->parent_tree || !record_trigger_automatic(parent->trigger))
		return 0;
	found = adds_below(j, parent->parent, tree);
	if (!found && parent->continues) {
		chain = true;
		found = before_chain(j, &before);
		if (!found)
			found = adds_below(j, before, tree);
	}
	/* What was dropped since tells nothing. */
	if (found == 1 && record_continues(both, parent->step == r->step, chain))
		r->continues = parent->number;
	return found == -ENOMEM || found == -ECANCELED ? found : 0;
}
