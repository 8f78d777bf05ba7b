/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of garbage collections in a remote. */
#include "lib/meta/gc_lists.h"

#include <errno.h>

#include "lib/format/names.h"
#include "lib/remote/remote.h"
#include "lib/util/cleanup.h"

/* Looks until one is not overtaken by others who publish meanwhile. */
#define LOOKS_MAX 16
/* One that came damaged is read again: the damage may be of the way here. */
#define READ_TRIES 3

static int note_highest(void *arg, const char *key, uint64_t size)
{
	uint64_t *highest = arg, generation;

	(void)size;
	if (gc_key_parse(key, &generation) == 0 && generation > *highest)
		*highest = generation;
	return 0;
}

int gc_lists_highest(struct remote *remote, uint64_t *ret_generation)
{
	uint64_t highest = 0;
	int error = remote_list(remote, PREFIX_GC, note_highest, &highest);

	if (!error)
		*ret_generation = highest;
	return error;
}

static int read_list(struct remote *remote, uint64_t generation, struct gc_list *ret_list)
{
	char key[KEY_MAX];
	int error = -EBADMSG;

	gc_key(generation, key);
	for (int tries = 0; error == -EBADMSG && tries < READ_TRIES; tries++) {
		cleanup_buf struct buf text = {0};

		error = remote_get(remote, key, 0, GC_LIST_ENCODED_MAX + 1, &text);
		if (!error)
			error = gc_list_decode(text.data, text.len, ret_list);
		if (!error && ret_list->generation != generation) {
			gc_list_free(ret_list);
			error = -EBADMSG;
		}
	}
	if (error == -EBADMSG)
		ret_list->generation = generation;
	return error;
}

int gc_lists_look(struct remote *remote, struct gc_list *ret_list)
{
	int error = -ENOENT;

	for (int i = 0; error == -ENOENT && i < LOOKS_MAX; i++) {
		uint64_t highest;

		error = gc_lists_highest(remote, &highest);
		if (!error && !highest)
			return -ENOENT;
		/* Gone: so many others came meanwhile that it was removed as history. */
		if (!error)
			error = read_list(remote, highest, ret_list);
	}
	return error == -ENOENT ? -EIO : error;
}

int gc_lists_publish(struct remote *remote, struct gc_list *list)
{
	cleanup_buf struct buf text = {0};
	uint64_t highest;
	char key[KEY_MAX];
	int error = gc_list_encode(list, &text);

	if (error)
		return error;
	gc_key(list->generation, key);
	error = remote_put_if_absent(remote, key, text.data, text.len);
	if (!error)
		error = gc_lists_highest(remote, &highest);
	/* So slow that the number had become history: nobody reads it. */
	if (!error && highest != list->generation)
		error = -EEXIST;
	return error;
}

struct tidying {
	uint64_t below;
	struct remote_keys keys;
};

static int note_old(void *arg, const char *key, uint64_t size)
{
	struct tidying *t = arg;
	uint64_t generation;

	(void)size;
	if (gc_key_parse(key, &generation) || generation >= t->below)
		return 0;
	return remote_keys_add(&t->keys, key);
}

int gc_lists_tidy(struct remote *remote, uint64_t highest)
{
	struct tidying t = {.below = highest > GC_LISTS_KEEP ? highest - GC_LISTS_KEEP : 0};
	int error = t.below ? remote_list(remote, PREFIX_GC, note_old, &t) : 0;

	if (!error)
		error = remote_keys_delete(remote, &t.keys);
	remote_keys_free(&t.keys);
	return error;
}
