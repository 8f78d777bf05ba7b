/* SPDX-License-Identifier: Apache-2.0 */
/* Verifying a remote: index objects that came with the tree of an epoch. */
#include "lib/store/fsck_impl.h"

#include <string.h>

#include "lib/format/tree.h"
#include "lib/util/cleanup.h"

/* A batch stores the tree last: its first chunk is among this many of the last ones. */
#define LAST_CHUNKS 64

static int look(void *arg, size_t segment, const void *plain, size_t len)
{
	bool *begins = arg;

	(void)segment;
	*begins = tree_begins(plain, len);
	return 0;
}

/* Whether the chunk is the beginning of a tree. What cannot be read is not: it is reported elsewhere. */
static int begins_tree(struct store_fsck *f, const struct fsck_row *row, bool *ret_begins)
{
	cleanup_recipe struct recipe one = {0};
	struct store_failure failure = {0};
	struct fsck_pack *p = &f->packs[row->pack];
	bool needed = atomic_load(&p->needed);
	int error = recipe_add_chunk(&one, &row->chunk, row->plain_len);

	*ret_begins = false;
	if (!error)
		error = store_get_segments(f->store, &one, 0, 1, look, ret_begins, &failure);
	/* To be looked at is not to be needed. */
	atomic_store(&p->needed, needed);
	return error && fsck_ends(error) ? error : 0;
}

int store_fsck_has_tree(struct store_fsck *f, size_t object,
			bool (*known)(void *arg, const struct hash *chunk), void *arg,
			bool *ret_has)
{
	const struct fsck_object *o = &f->objects[object];
	size_t last = o->row_count < LAST_CHUNKS ? o->row_count : LAST_CHUNKS;

	*ret_has = false;
	for (size_t i = 1; i <= last && !*ret_has; i++) {
		const struct fsck_row *row = &f->rows[o->first_row + o->row_count - i];
		int error = 0;

		if (!row->bad && !known(arg, &row->chunk))
			error = begins_tree(f, row, ret_has);
		if (error)
			return error;
	}
	return 0;
}

bool store_fsck_index_epoch(const struct store_fsck *f, size_t object, char ret_key[KEY_MAX],
			    uint64_t *ret_epoch)
{
	struct hash id;

	if (object >= f->object_count)
		return false;
	strcpy(ret_key, f->objects[object].key);
	if (index_key_parse(ret_key, ret_epoch, &id))
		*ret_epoch = 0;
	return true;
}
