/* SPDX-License-Identifier: Apache-2.0 */
/* Importing: which files are in doubt. What is torn is seen; what a mount's epoch had in doubt is settled by what changed since. */
#include "lib/import/import_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "lib/epochs/doubts_volume.h"
#include "lib/format/tree_diff.h"

/* ---- which files were renamed since ---- */

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

/* A file by its path in the epoch before. */
static bool import_in_parent(const struct import_job *j, const char *path,
			     struct tree_entry *ret_entry)
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

/* What it was called: itself where it was not renamed. */
static const char *import_moved_from(const struct import_job *j, const char *path)
{
	for (size_t i = 0; i < j->move_count; i++)
		if (!strcmp(j->moves[i].to, path))
			return j->moves[i].from;
	return path;
}

/* What it is called now: NULL where it was not renamed. */
static const char *import_moved_to(const struct import_job *j, const char *path)
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

/* Appends where a name is now that moved along with its directory, or itself. 0 or -ENOMEM. */
static int import_moved_along(const struct import_job *j, const char *path, struct buf *out)
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

/* Versions that the judge is told: what is as it was in the epoch before, and what is not. */
#define UNCHANGED UINT64_C(1)
#define SAVED	  UINT64_MAX /* after any kill */

/* Companions have numbers by their paths, also where several doubts share one; what has the name of a killed writer's file has this one. */
#define INO_OF_NAME UINT64_MAX

/* Only where something is in doubt. */
size_t import_find_node(const struct import_job *j, const char *path)
{
	for (size_t i = 1; i < j->scan.count; i++) {
		cleanup_buf struct buf at = {0};

		if (!j->scan.nodes[i].left && scan_path(&j->scan, i, &at) == 0 &&
		    !strcmp(buf_str(&at), path))
			return i;
	}
	return SIZE_MAX;
}

static bool is_unchanged(const struct import_job *j, const char *path, const struct tree_entry *e)
{
	struct tree_entry before;

	return import_in_parent(j, path, &before) && tree_same_content(&before, e);
}

/* The number that a companion of a doubt has; 0: it is none. */
static uint64_t companion_number(const struct import_job *j, const char *path)
{
	size_t first = 1;

	for (size_t i = 0; i < j->parent.doubt_count; i++) {
		const struct record_doubt *d = &j->parent.doubts[i];

		for (size_t k = 0; k < d->companion_count; k++)
			if (!strcmp(d->companions[k], path))
				return first + k;
		first += d->companion_count;
	}
	return 0;
}

/* A number that no epoch has: which one was complete before a kill cannot be told. */
#define BASE_UNKNOWN (UINT64_MAX - 1)

/* The newest complete epoch from before a doubt; 0: there is none. */
static int find_base(struct import_job *j, const struct record_doubt *d, uint64_t *ret_base)
{
	uint64_t continued = j->parent.continues;

	*ret_base = 0;
	for (uint64_t number = j->parent.number; --number > 0;) {
		cleanup_record struct epoch_record r = {0};
		int error = import_load(j, number, &r, NULL);

		/* It was dropped. */
		if (error == -ENOENT)
			continue;
		if (error == -ENOMEM)
			return error;
		if (error ||
		    (r.complete == RECORD_COMPLETE && number < d->since && number != continued)) {
			*ret_base = error ? BASE_UNKNOWN : number;
			return 0;
		}
		continued = r.continues ? r.continues : continued;
	}
	return 0;
}

/* A file that was renamed alone leaves the doubt where it was: the save is to bring one of that name. */
static bool was_renamed_alone(const struct import_job *j, const char *path, const char *now)
{
	const char *to = import_moved_to(j, path);

	return to && strcmp(to, now) != 0;
}

static bool parent_is_there(const struct import_job *j, const char *path)
{
	const char *slash = strrchr(path, '/');
	cleanup_free char *parent = slash ? strndup(path, (size_t)(slash - path)) : NULL;

	return parent && import_find_node(j, parent) != SIZE_MAX;
}

static int add_kill(struct import_job *j, const struct record_doubt *from, size_t number)
{
	cleanup_buf struct buf path = {0};
	cleanup_free struct doubt_companion *companions =
		calloc(from->companion_count + 1, sizeof(*companions));
	struct doubts_kill kill = {
		.id = number,
		.kind = DOUBT_UNDONE,
		.why = from->why ? from->why : "its writer was killed",
		.since = from->since,
		.at_ns = from->at_ns,
		.judged = true,
		.alone = from->alone,
		.companions = companions,
		.companion_count = from->companion_count,
	};
	struct tree_entry before, e;
	size_t node;
	int error;

	if (!companions)
		return -ENOMEM;
	error = find_base(j, from, &kill.base);
	if (!error)
		error = import_moved_along(j, from->path, &path);
	if (error)
		return error;
	kill.path = buf_str(&path);
	kill.parent_is_new = parent_is_there(j, kill.path);
	node = import_find_node(j, kill.path);
	for (size_t i = 0; i < from->companion_count; i++)
		companions[i] = (struct doubt_companion){
			.ino = companion_number(j, from->companions[i]), .version = UNCHANGED};
	if (import_in_parent(j, from->path, &before) &&
	    !was_renamed_alone(j, from->path, kill.path))
		kill.ino_then = INO_OF_NAME;
	kill.version_then = UNCHANGED;
	if (node != SIZE_MAX) {
		kill.ino_now = INO_OF_NAME;
		import_entry(j, node, &e);
		kill.version_now = is_unchanged(j, from->path, &e) ? UNCHANGED : SAVED;
	}
	return doubts_add_kill(j->doubts, &kill);
}

/* ---- what is torn, though its end does not say so: a writer of a mount was killed, say ---- */

static bool changed_while_read(const struct import_job *j, uint32_t id)
{
	cleanup_buf struct buf path = {0};

	if (tree_path(j->parent_tree, id, &path) != 0)
		return false;
	for (size_t i = 0; i < j->parent.doubt_count; i++) {
		const struct record_doubt *d = &j->parent.doubts[i];

		if (!strcmp(d->path, buf_str(&path)) && d->why &&
		    !strcmp(d->why, IMPORT_WHY_CHANGED))
			return true;
	}
	return false;
}

static int find_torn(struct import_job *j)
{
	uint32_t count = j->parent_tree ? tree_count(j->parent_tree) : 0;

	free(steal_ptr(j->torn));
	j->torn_count = 0;
	for (uint32_t id = 0; id < count; id++) {
		struct tree_entry e, *grown;

		tree_get(j->parent_tree, id, &e);
		if (e.type != TREE_REGULAR || !e.size || !(e.flags & TREE_TORN) ||
		    changed_while_read(j, id))
			continue;
		grown = reallocarray(j->torn, j->torn_count + 1, sizeof(*grown));
		if (!grown)
			return -ENOMEM;
		j->torn = grown;
		j->torn[j->torn_count++] = e;
	}
	return 0;
}

/* Under any name. With other times it was written once more. */
static bool was_torn(const struct import_job *j, const struct tree_entry *e)
{
	for (size_t i = 0; i < j->torn_count; i++)
		if (j->torn[i].mtime_ns == e->mtime_ns && tree_same_content(&j->torn[i], e))
			return true;
	return false;
}

/* ---- all ---- */

int import_doubts_begin(struct import_job *j)
{
	int error;

	doubts_free(steal_ptr(j->doubts));
	error = doubts_new(j->imp->rules, j->parent.number, &j->doubts);
	if (!error)
		error = doubts_tell_record(j->doubts, &j->parent);
	if (!error)
		error = find_torn(j);
	if (!error)
		error = import_moved_find(j);
	for (size_t i = 0; !error && i < j->parent.doubt_count; i++) {
		const struct record_doubt *d = &j->parent.doubts[i];

		if (doubt_kind_parse(d->kind) == DOUBT_UNDONE)
			error = add_kill(j, d, i + 1);
	}
	return error;
}

int import_doubts_file(struct import_job *j, size_t number, struct tree_entry *e)
{
	cleanup_buf struct buf path = {0};
	const char *why = j->scan.nodes[number].why;
	struct doubts_file file = {.born = j->record.number, .mtime_ns = e->mtime_ns};
	const char *before;
	int error;

	if (e->type != TREE_REGULAR || (e->flags & TREE_LOG))
		return 0;
	error = scan_path(&j->scan, number, &path);
	if (error)
		return error;
	file.path = buf_str(&path);
	before = import_moved_from(j, file.path);
	file.ino = companion_number(j, before);
	if (is_unchanged(j, before, e)) {
		file.born = before == file.path ? j->parent.number : file.born;
		file.version = UNCHANGED;
	}
	if (was_torn(j, e))
		e->flags |= TREE_TORN;
	if (e->flags & TREE_TORN)
		file.torn = why ? why : "it is torn inside";
	return doubts_add_file(j->doubts, &file);
}

/* ---- what is gone ---- */

struct paths {
	char **v;
	size_t count;
};

static void paths_free(struct paths *p)
{
	for (size_t i = 0; i < p->count; i++)
		free(p->v[i]);
	free(p->v);
}

static int compare_paths(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All that the new tree has, sorted. */
static int list_paths(struct import_job *j, struct paths *p)
{
	p->v = calloc(j->scan.count + 1, sizeof(*p->v));
	if (!p->v)
		return -ENOMEM;
	for (size_t i = 1; i < j->scan.count; i++) {
		cleanup_buf struct buf at = {0};

		if (j->scan.nodes[i].left)
			continue;
		if (scan_path(&j->scan, i, &at) != 0)
			return -ENOMEM;
		p->v[p->count] = strdup(buf_str(&at));
		if (!p->v[p->count])
			return -ENOMEM;
		p->count++;
	}
	qsort(p->v, p->count, sizeof(*p->v), compare_paths);
	return 0;
}

static int add_gone(struct import_job *j, const struct paths *there, const struct tree *tree,
		    uint64_t base)
{
	for (uint32_t id = 0; id < tree_count(tree); id++) {
		cleanup_buf struct buf path = {0};
		struct tree_entry e;
		const char *text;

		tree_get(tree, id, &e);
		if (e.type != TREE_REGULAR || e.flags & TREE_LOG ||
		    rules_log(j->imp->rules, e.name, NULL))
			continue;
		if (tree_path(tree, id, &path) != 0)
			return -ENOMEM;
		text = buf_str(&path);
		if (!bsearch(&text, there->v, there->count, sizeof(*there->v), compare_paths))
			doubts_add_gone(j->doubts, base, text);
	}
	return 0;
}

int import_doubts_gone(struct import_job *j)
{
	CLEANUP(paths_free) struct paths there = {0};
	uint64_t base = 0;
	int error = 0;

	while (!error && (base = doubts_next_base(j->doubts, base))) {
		cleanup_tree struct tree *tree = NULL;

		error = base == BASE_UNKNOWN ? -ENOENT : import_load(j, base, NULL, &tree);
		if (error && error != -ENOMEM) {
			doubts_gone_unknown(j->doubts, base);
			error = 0;
			continue;
		}
		if (!error && !there.v)
			error = list_paths(j, &there);
		if (!error)
			error = add_gone(j, &there, tree, base);
	}
	return error;
}

int import_doubts_end(struct import_job *j)
{
	struct epoch_record *r = &j->record;
	int error = doubts_to_record(j->doubts, &j->parent, r);

	if (!error)
		error = doubts_newest_to_record(j->doubts, j->imp->rules, r);
	if (!error)
		doubts_reason(j->doubts, &j->parent, &j->reason);
	return error ? error : buf_error(&j->reason);
}
