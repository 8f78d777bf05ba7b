/* SPDX-License-Identifier: Apache-2.0 */
/* Reading a part of a content from the remote: the segments that it touches. */
#include "lib/admin/catalog_part.h"

#include <string.h>

#include "lib/admin/catalog_internal.h"

void content_window_put(const struct content_window *w, uint64_t offset, const void *data,
			size_t len)
{
	uint64_t from = offset > w->from ? offset : w->from;
	uint64_t end = w->from + w->len, data_end = offset + len;

	if (data_end < end)
		end = data_end;
	if (from < end)
		memcpy(w->data + (from - w->from), (const uint8_t *)data + (from - offset),
		       (size_t)(end - from));
}

struct fetching {
	const struct recipe *recipe;
	struct content_window window;
};

static int on_fetched(void *arg, size_t number, const void *plain, size_t len)
{
	const struct fetching *f = arg;

	content_window_put(&f->window, f->recipe->segments[number].offset, plain, len);
	return 0;
}

ssize_t catalog_read_part(struct catalog *c, const struct tree_entry *entry,
			  const struct recipe *recipe, void *data, size_t len, uint64_t offset,
			  struct store_failure *ret_failure)
{
	struct fetching f = {.recipe = recipe, .window = {.from = offset, .data = data}};
	size_t first, last;
	int error;

	if (offset >= entry->size)
		return 0;
	if (len > entry->size - offset)
		len = (size_t)(entry->size - offset);
	f.window.len = len;
	memset(data, 0, len);
	if (entry->content == TREE_INLINE)
		content_window_put(&f.window, 0, entry->u.inline_data, (size_t)entry->size);
	if (!len || entry->content != TREE_RECIPE || !recipe->count)
		return (ssize_t)len;
	first = recipe_find(recipe, offset);
	last = recipe_find(recipe, offset + len - 1);
	error = store_get_segments(c->store, recipe, first, last - first + 1, on_fetched, &f,
				   ret_failure);
	return error ? error : (ssize_t)len;
}
