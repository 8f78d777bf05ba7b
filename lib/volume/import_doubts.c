/* SPDX-License-Identifier: Apache-2.0 */
/* Importing: which files are in doubt. What is torn is seen; what a mount's epoch had in doubt is settled by what changed since. */
#include "lib/volume/import_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lib/format/tree_diff.h"
#include "lib/volume/doubts_volume.h"

/* Versions that the judge is told: what is as it was in the epoch before, and what is not. */
enum { UNCHANGED = 1, SAVED = 2 };

/* Companions have numbers by their paths, also where several doubts share one; what has the name of a killed writer's file has this one. */
#define INO_OF_NAME UINT64_MAX

static bool in_parent(const struct import_job *j, const char *path, struct tree_entry *ret_entry)
{
	uint32_t id;

	if (!j->parent_tree || tree_resolve(j->parent_tree, path, &id))
		return false;
	tree_get(j->parent_tree, id, ret_entry);
	return ret_entry->type == TREE_REGULAR;
}

/* A file of the directory by its path; SIZE_MAX: there is none. Only where something is in doubt. */
static size_t find_node(const struct import_job *j, const char *path)
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

	return in_parent(j, path, &before) && tree_same_content(&before, e);
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

static int add_kill(struct import_job *j, const struct record_doubt *from, size_t number)
{
	cleanup_free struct doubt_companion *companions =
		calloc(from->companion_count + 1, sizeof(*companions));
	struct doubts_kill kill = {
		.id = number,
		.kind = DOUBT_UNDONE,
		.path = from->path,
		.why = from->why ? from->why : "its writer was killed",
		.since = from->since,
		.at_ns = from->at_ns,
		.judged = true,
		.companions = companions,
		.companion_count = from->companion_count,
	};
	size_t node = find_node(j, from->path);
	struct tree_entry before, e;

	if (!companions)
		return -ENOMEM;
	for (size_t i = 0; i < from->companion_count; i++)
		companions[i] = (struct doubt_companion){
			.ino = companion_number(j, from->companions[i]), .version = UNCHANGED};
	kill.ino_then = in_parent(j, from->path, &before) ? INO_OF_NAME : 0;
	kill.version_then = UNCHANGED;
	if (node != SIZE_MAX) {
		kill.ino_now = INO_OF_NAME;
		import_entry(j, node, &e);
		kill.version_now = is_unchanged(j, from->path, &e) ? UNCHANGED : SAVED;
	}
	return doubts_add_kill(j->doubts, &kill);
}

int import_doubts_begin(struct import_job *j)
{
	int error;

	doubts_free(steal_ptr(j->doubts));
	error = doubts_new(j->imp->rules, j->parent.number, &j->doubts);
	for (size_t i = 0; !error && i < j->parent.doubt_count; i++) {
		const struct record_doubt *d = &j->parent.doubts[i];

		if (doubt_kind_parse(d->kind) == DOUBT_UNDONE)
			error = add_kill(j, d, i + 1);
	}
	return error;
}

int import_doubts_file(struct import_job *j, size_t number, const struct tree_entry *e)
{
	cleanup_buf struct buf path = {0};
	const char *why = j->scan.nodes[number].why;
	struct doubts_file file = {.born = j->record.number, .mtime_ns = e->mtime_ns};
	int error;

	if (e->type != TREE_REGULAR || (e->flags & TREE_LOG))
		return 0;
	error = scan_path(&j->scan, number, &path);
	if (error)
		return error;
	file.path = buf_str(&path);
	file.ino = companion_number(j, file.path);
	if (is_unchanged(j, file.path, e)) {
		file.born = j->parent.number;
		file.version = UNCHANGED;
	}
	if (e->flags & TREE_TORN)
		file.torn = why ? why : "it is torn inside";
	return doubts_add_file(j->doubts, &file);
}

int import_doubts_end(struct import_job *j)
{
	struct epoch_record *r = &j->record;
	int error = doubts_to_record(j->doubts, &j->parent, r);

	if (!error)
		doubts_reason(j->doubts, &j->reason);
	return error ? error : buf_error(&j->reason);
}
