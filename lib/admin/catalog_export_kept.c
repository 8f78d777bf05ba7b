/* SPDX-License-Identifier: Apache-2.0 */
/* Restoring: files that are there already and whole, of an earlier run or of anybody, are not fetched again. */
#include "lib/admin/catalog_export.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include "lib/format/xattrs.h"
#include "lib/util/io.h"

/* Nobody else's, no name of something else, and nothing that the tree's has not. */
static bool may_be_kept(int fd, const struct tree_entry *e)
{
	char names[XATTR_LIST_MAX];
	const void *value;
	struct stat st;
	size_t value_len;
	ssize_t len;

	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != e->size ||
	    (st.st_uid != geteuid() && geteuid() != 0) ||
	    (st.st_nlink > 1 && (!e->group || geteuid() == 0)))
		return false;
	len = flistxattr(fd, names, sizeof(names));
	for (ssize_t at = 0; at < len; at += (ssize_t)strlen(names + at) + 1)
		if (!strncmp(names + at, "user.", 5) &&
		    xattrs_get(e->xattrs, e->xattrs_len, names + at, &value, &value_len) != 0)
			return false;
	return true;
}

static bool same_segment(const struct remote *r, int fd, const struct recipe_segment *s,
			 uint8_t *data)
{
	struct hash hash;

	if (!s->zero) {
		if (io_pread_full(fd, data, s->length, s->offset))
			return false;
		remote_address(r, data, s->length, &hash);
		return hash_equal(&hash, &s->hash);
	}
	for (uint64_t at = 0, n; at < s->length; at += n) {
		n = s->length - at < CHUNK_PLAIN_MAX ? s->length - at : CHUNK_PLAIN_MAX;
		if (io_pread_full(fd, data, n, s->offset + at) || data[0] ||
		    memcmp(data, data + 1, n - 1) != 0)
			return false;
	}
	return true;
}

static bool same_recipe(struct export *x, int fd, const struct tree_entry *e)
{
	cleanup_free uint8_t *data = malloc(CHUNK_PLAIN_MAX);
	cleanup_recipe struct recipe recipe = {0};

	/* Who restores it says what is wrong. */
	if (!data || store_get_recipe(x->catalog->store, &e->u.recipe, &recipe, NULL) ||
	    recipe.size != e->size)
		return false;
	for (size_t i = 0; i < recipe.count; i++)
		if (atomic_load(&x->stopped) ||
		    !same_segment(x->catalog->remote, fd, &recipe.segments[i], data))
			return false;
	return true;
}

static bool same_content(struct export *x, int fd, const struct tree_entry *e)
{
	char data[TREE_INLINE_MAX];

	if (e->content == TREE_EMPTY)
		return true;
	if (e->content == TREE_RECIPE)
		return same_recipe(x, fd, e);
	return !io_pread_full(fd, data, e->size, 0) && !memcmp(data, e->u.inline_data, e->size);
}

bool export_keep(struct export *x, int dir, const struct tree_entry *e)
{
	cleanup_close int fd = -1;

	if (!x->how->force)
		return false;
	fd = openat(dir, e->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0 || !may_be_kept(fd, e) || !same_content(x, fd, e) || export_attr_fd(x, fd, e))
		return false;
	export_advance(x, 1, e->size);
	return true;
}
