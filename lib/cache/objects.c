/* SPDX-License-Identifier: Apache-2.0 */
/* The backing files of versions: objects/<id in 16 hex digits>, and their paths. */
#include "lib/cache/context.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/cache/cache_dir.h"
#include "lib/cache/evict.h"
#include "lib/util/cleanup.h"

#define PAGE 4096

void object_name(uint64_t version, char ret_name[OBJECT_NAME_MAX])
{
	snprintf(ret_name, OBJECT_NAME_MAX, "%016" PRIx64, version);
}

void object_taken_name(uint64_t from, uint64_t to, char ret_name[OBJECT_TAKEN_MAX])
{
	snprintf(ret_name, OBJECT_TAKEN_MAX, "%016" PRIx64 "-%016" PRIx64 ".old", from, to);
}

bool object_is_taken_name(const char *name, uint64_t *ret_from, uint64_t *ret_to)
{
	char again[OBJECT_TAKEN_MAX], *end;

	*ret_from = strtoull(name, &end, 16);
	*ret_to = *end == '-' ? strtoull(end + 1, NULL, 16) : 0;
	object_taken_name(*ret_from, *ret_to, again);
	return strcmp(again, name) == 0;
}

uint64_t object_new_id(struct volume *vol)
{
	return __atomic_fetch_add(&vol->next_id, 1, __ATOMIC_RELAXED);
}

int object_open(struct volume *vol, uint64_t version, int flags)
{
	char name[OBJECT_NAME_MAX];
	int fd;

	object_name(version, name);
	fd = openat(vol->objects_fd, name, flags | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd >= 0)
		return fd;
	return flags & O_CREAT ? cache_errno(vol, -errno) : -errno;
}

static uint64_t blocks_of_version(struct volume *vol, const struct state_version *v)
{
	char name[OBJECT_NAME_MAX];
	struct stat st;

	object_name(v->id, name);
	if (!v->local_whole || !v->local_bytes ||
	    fstatat(vol->objects_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return tree_blocks(v->size, v->holes);
	return (uint64_t)st.st_blocks;
}

uint64_t version_blocks_locked(struct volume *vol, uint64_t version, uint64_t size)
{
	struct state_version v;

	/* Not worth looking for: a tree of small files is listed faster without. */
	if (size <= PAGE || state_version_get(vol->state, version, &v))
		return tree_blocks(size, 0);
	return blocks_of_version(vol, &v);
}

uint64_t content_entry_blocks(struct volume *vol, const struct tree_entry *entry)
{
	if (entry->size <= PAGE || entry->content != TREE_LOCAL)
		return tree_blocks(entry->size, entry->holes);
	SCOPED_LOCK(&vol->lock);
	return version_blocks_locked(vol, entry->u.version, entry->size);
}

int object_remove(struct volume *vol, uint64_t version)
{
	char name[OBJECT_NAME_MAX];

	object_name(version, name);
	disk_note(vol);
	return unlinkat(vol->objects_fd, name, 0) < 0 && errno != ENOENT ? -errno : 0;
}

bool object_is_still(struct volume *vol, uint64_t version, int fd)
{
	char name[OBJECT_NAME_MAX];
	struct stat by_name, by_fd;

	object_name(version, name);
	return fstatat(vol->objects_fd, name, &by_name, AT_SYMLINK_NOFOLLOW) == 0 &&
	       fstat(fd, &by_fd) == 0 && by_name.st_ino == by_fd.st_ino;
}

/* ---- The path of a file of the live tree, for messages. ---- */

struct path_name {
	uint64_t parent;
	char name[256];
};

static int first_name(void *arg, const struct state_name *n, const char *name,
		      const struct state_file *f)
{
	struct path_name *p = arg;

	(void)f;
	p->parent = n->parent;
	snprintf(p->name, sizeof(p->name), "%s", name);
	return 1;
}

void volume_path_locked(struct volume *vol, uint64_t ino, struct buf *out)
{
	struct path_name p;

	if (ino == ROOT_INO || state_names_of(vol->state, ino, first_name, &p) != 1)
		return;
	if (p.parent != ino && p.parent != ROOT_INO) {
		size_t before = out->len;

		volume_path_locked(vol, p.parent, out);
		if (out->len > before)
			buf_printf(out, "/");
	}
	buf_printf(out, "%s", p.name);
}
