/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of extended attributes. */
#include "lib/format/xattrs.h"

#include <errno.h>
#include <string.h>

#include "lib/format/wire.h"

struct xattrs_iter xattrs_iter_of(const void *list, size_t len)
{
	return (struct xattrs_iter){.r = reader_of(list, len)};
}

bool xattrs_next(struct xattrs_iter *it, const char **ret_name, const void **ret_value,
		 size_t *ret_len)
{
	size_t name_len = 0, len = 0;
	const char *name;
	const void *value;

	if (!reader_left(&it->r))
		return false;
	name = wire_text(&it->r, XATTR_NAME_BYTES_MAX, &name_len);
	value = wire_bytes(&it->r, XATTR_VALUE_BYTES_MAX, &len);
	if (!name || !value || !name_len) {
		it->r.failed = true;
		return false;
	}
	*ret_name = name;
	*ret_value = value;
	*ret_len = len;
	return true;
}

int xattrs_check(const void *list, size_t len)
{
	struct xattrs_iter it = xattrs_iter_of(list, len);
	const char *name, *last = NULL;
	const void *value;
	size_t value_len;

	if (len > XATTRS_BYTES_MAX)
		return -EBADMSG;
	while (xattrs_next(&it, &name, &value, &value_len)) {
		if (last && strcmp(last, name) >= 0)
			return -EBADMSG;
		last = name;
	}
	return reader_error(&it.r);
}

int xattrs_get(const void *list, size_t len, const char *name, const void **ret_value,
	       size_t *ret_len)
{
	struct xattrs_iter it = xattrs_iter_of(list, len);
	const char *found;
	const void *value;
	size_t value_len;

	while (xattrs_next(&it, &found, &value, &value_len)) {
		if (strcmp(found, name))
			continue;
		*ret_value = value;
		*ret_len = value_len;
		return 0;
	}
	return -ENODATA;
}

static void put_attr(struct buf *out, const char *name, const void *value, size_t len)
{
	wire_put_text(out, name, strlen(name));
	buf_put_bytes(out, value, len);
}

/* The list without `name`, or with another value of it where `value` is not NULL. */
static int rewrite(const struct buf *list, const char *name, const void *value, size_t len,
		   struct buf *out, bool *ret_found)
{
	struct xattrs_iter it = xattrs_iter_of(list->data, list->len);
	bool found = false, placed = !value;
	const char *each;
	const void *each_value;
	size_t each_len;

	while (xattrs_next(&it, &each, &each_value, &each_len)) {
		int order = strcmp(each, name);

		if (order >= 0 && !placed) {
			put_attr(out, name, value, len);
			placed = true;
		}
		if (order == 0)
			found = true;
		else
			put_attr(out, each, each_value, each_len);
	}
	if (!placed)
		put_attr(out, name, value, len);
	*ret_found = found;
	return buf_error(out);
}

static void replace(struct buf *list, struct buf *with)
{
	struct buf old = *list;

	*list = *with;
	*with = old;
}

int xattrs_set(struct buf *list, const char *name, const void *value, size_t len)
{
	cleanup_buf struct buf out = {0};
	size_t name_len = strlen(name);
	bool found;

	if (name_len < 1 || name_len > XATTR_NAME_BYTES_MAX)
		return -ERANGE;
	if (len > XATTR_VALUE_BYTES_MAX)
		return -E2BIG;
	if (rewrite(list, name, value ? value : "", len, &out, &found) < 0)
		return -ENOMEM;
	if (out.len > XATTRS_BYTES_MAX)
		return -ENOSPC;
	replace(list, &out);
	return 0;
}

int xattrs_remove(struct buf *list, const char *name)
{
	cleanup_buf struct buf out = {0};
	bool found;

	if (rewrite(list, name, NULL, 0, &out, &found) < 0)
		return -ENOMEM;
	if (!found)
		return -ENODATA;
	replace(list, &out);
	return 0;
}
