/* SPDX-License-Identifier: Apache-2.0 */
/* Importing: what is known of earlier imports. */
#include "lib/import/import_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

/* A change so short before the reading may have another after it with the same times; where it is not known whether somebody writes, a mapping may
 * change pages without a new ctime until they are written back. */
#define RACY_NS	       (2 * NS_PER_S)
#define RACY_MAPPED_NS (60 * NS_PER_S)
#define FORGET_NS      (30 * 24 * 3600 * NS_PER_S)
/* What earlier tries of an epoch have put: the directory and the record so far. */
#define META_PARTS "import_parts"

/* ---- contents ---- */

struct known_recipe {
	struct hash hash;
	uint64_t holes;
};

static int compare_known(const void *a, const void *b)
{
	const struct known_recipe *x = a, *y = b;

	return hash_compare(&x->hash, &y->hash);
}

int import_known_load(struct import_job *j)
{
	uint32_t count = j->parent_tree ? tree_count(j->parent_tree) : 0;

	j->known = calloc((size_t)count + 1, sizeof(*j->known));
	if (!j->known)
		return -ENOMEM;
	for (uint32_t id = 0; id < count; id++) {
		struct tree_entry e;

		tree_get(j->parent_tree, id, &e);
		if (e.type == TREE_REGULAR && e.content == TREE_RECIPE)
			j->known[j->known_count++] = (struct known_recipe){e.u.recipe, e.holes};
	}
	qsort(j->known, j->known_count, sizeof(*j->known), compare_known);
	return 0;
}

/* As the parent has it: NULL where no epoch does, for then it may be garbage that is collected. */
static const struct known_recipe *in_parent(const struct import_job *j, const struct hash *recipe)
{
	const struct known_recipe wanted = {.hash = *recipe};

	return j->known_count ? bsearch(&wanted, j->known, j->known_count, sizeof(*j->known),
					compare_known)
			      : NULL;
}

static int take(struct import_job *j, size_t number)
{
	struct scan_node *n = &j->scan.nodes[number];
	struct volume *vol = j->imp->vol;
	const struct known_recipe *known;
	struct state_imported file;
	int error;

	SCOPED_LOCK(&vol->lock);
	error = state_imported_get(vol->state, n->dev, n->ino, &file);
	if (error)
		return error == -ENOENT ? 0 : error;
	known = in_parent(j, &file.recipe);
	if (!known || file.size != n->size || file.mtime_ns != n->mtime_ns ||
	    file.ctime_ns != n->ctime_ns)
		return 0;
	n->content = SCAN_RECIPE;
	n->recipe = file.recipe;
	n->holes = known->holes;
	n->torn = file.torn;
	n->why = "it is torn inside";
	if (j->began_ns - file.seen_ns < FORGET_NS / 30)
		return 0;
	file.seen_ns = j->began_ns;
	return state_imported_set(vol->state, &file);
}

int import_known_take(struct import_job *j)
{
	int error = 0;

	if (!j->believes || j->how->read_all)
		return 0;
	for (size_t i = 0; !error && i < j->scan.count; i++) {
		struct scan_node *n = &j->scan.nodes[i];

		if (!S_ISREG(n->mode) || n->content != SCAN_UNREAD || n->log ||
		    (n->group && n->group != i))
			continue;
		error = take(j, i);
	}
	return error;
}

void import_known_remember(struct import_job *j, const struct scan_node *n, enum io_writers writers)
{
	struct volume *vol = j->imp->vol;
	struct state_imported file = {
		.dev = n->dev,
		.ino = n->ino,
		.size = n->size,
		.mtime_ns = n->mtime_ns,
		.ctime_ns = n->ctime_ns,
		.recipe = n->recipe,
		.torn = n->torn,
		.seen_ns = j->began_ns,
	};
	int64_t racy_ns = writers == IO_WRITERS_NONE ? RACY_NS : RACY_MAPPED_NS;
	int error;

	if (!j->believes || n->log || n->content != SCAN_RECIPE || writers == IO_WRITERS_SOME ||
	    clock_wall_ns() - n->ctime_ns < racy_ns)
		return;
	SCOPED_LOCK(&vol->lock);
	error = state_imported_set(vol->state, &file);
	if (error)
		log_debug("an imported file could not be noted: %s", strerror(-error));
}

void import_known_forget(struct import_job *j)
{
	struct volume *vol = j->imp->vol;

	SCOPED_LOCK(&vol->lock);
	state_imported_forget(vol->state, j->began_ns - FORGET_NS);
}

/* ---- parts ---- */

static void parts_head(const struct import_job *j, struct buf *out)
{
	buf_printf(out, "%" PRIu64 ":%" PRIu64 "\n", j->root_dev, j->root_ino);
}

void import_parts_recall(struct import_job *j)
{
	cleanup_record struct epoch_record kept = {0};
	cleanup_buf struct buf text = {0}, head = {0};
	struct volume *vol = j->imp->vol;
	int error;

	parts_head(j, &head);
	mutex_lock(&vol->lock);
	error = state_get_meta(vol->state, META_PARTS, &text);
	mutex_unlock(&vol->lock);
	if (error || text.len < head.len || memcmp(text.data, head.data, head.len) != 0 ||
	    record_decode(text.data + head.len, text.len - head.len, &kept) != 0 ||
	    kept.number != j->record.number)
		return;
	j->record.bytes_new = kept.bytes_new;
	j->record.bytes_stored = kept.bytes_stored;
	j->record.indexes = steal_ptr(kept.indexes);
	j->record.index_count = kept.index_count;
	kept.index_count = 0;
}

void import_parts_remember(struct import_job *j)
{
	cleanup_buf struct buf text = {0};
	struct volume *vol = j->imp->vol;

	parts_head(j, &text);
	if (record_encode(&j->record, &text) || buf_error(&text))
		return;
	SCOPED_LOCK(&vol->lock);
	state_set_meta(vol->state, META_PARTS, buf_str(&text));
}
