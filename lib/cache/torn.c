/* SPDX-License-Identifier: Apache-2.0 */
/* .epochs/torn: the bytes of killed writers. */
#include "lib/cache/torn.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include "lib/cache/evict.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/text.h"

/* Leaves room in a file name for the number and the dash. */
#define NAME_KEPT 230

struct torn_file {
	uint64_t number;
	char name[256]; /* in torn/ */
};

/* Guarded by the volume's lock. */
struct torn {
	struct torn_file files[TORN_MAX]; /* ascending numbers */
	unsigned count;
	uint64_t next;
};

static int by_number(const void *a, const void *b)
{
	const struct torn_file *x = a, *y = b;

	return x->number < y->number ? -1 : x->number > y->number;
}

static void drop_oldest(struct volume *vol)
{
	struct torn *t = vol->torn;

	disk_note(vol);
	unlinkat(vol->torn_fd, t->files[0].name, 0);
	t->count--;
	memmove(&t->files[0], &t->files[1], t->count * sizeof(t->files[0]));
}

static void add(struct volume *vol, uint64_t number, const char *name)
{
	struct torn *t = vol->torn;

	if (t->count == TORN_MAX)
		drop_oldest(vol);
	t->files[t->count].number = number;
	snprintf(t->files[t->count].name, sizeof(t->files[0].name), "%s", name);
	t->count++;
	qsort(t->files, t->count, sizeof(t->files[0]), by_number);
	if (number >= t->next)
		t->next = number + 1;
}

/* What an end without order left. */
static int scan(struct volume *vol)
{
	cleanup_closedir DIR *dir = NULL;
	const char *name;
	int got = io_opendir(vol->torn_fd, &dir);

	if (got)
		return got;
	while ((got = io_readdir(dir, &name)) > 0) {
		char *end;
		uint64_t number = strtoull(name, &end, 10);

		if (*name >= '0' && *name <= '9' && *end == '-')
			add(vol, number, name);
	}
	return got;
}

int torn_start(struct volume *vol)
{
	int error;

	vol->torn = calloc(1, sizeof(*vol->torn));
	if (!vol->torn)
		return -ENOMEM;
	vol->torn->next = 1;
	error = scan(vol);
	if (error) {
		free(vol->torn);
		vol->torn = NULL;
	}
	return error;
}

void torn_stop(struct volume *vol, bool in_order)
{
	while (in_order && vol->torn->count)
		drop_oldest(vol);
	free(vol->torn);
	vol->torn = NULL;
}

void torn_keep_locked(struct volume *vol, uint64_t version, const char *name, bool is_read)
{
	char object[OBJECT_NAME_MAX], kept[256];
	struct stat st;
	int len;

	object_name(version, object);
	/* Nothing was written: there is nothing to look at. */
	if (fstatat(vol->objects_fd, object, &st, AT_SYMLINK_NOFOLLOW) < 0 || !st.st_size)
		return;
	len = snprintf(kept, sizeof(kept), "%" PRIu64 "-%.*s", vol->torn->next, NAME_KEPT,
		       name[0] ? name : "unnamed");
	for (int i = 0; i < len; i++)
		if (kept[i] < ' ' || kept[i] > '~' || kept[i] == '/')
			kept[i] = '?';
	if ((is_read ? linkat(vol->objects_fd, object, vol->torn_fd, kept, 0)
		     : renameat(vol->objects_fd, object, vol->torn_fd, kept)) < 0) {
		log_warn("keeping the torn bytes of %s: %s", name, strerror(errno));
		return;
	}
	add(vol, vol->torn->next, kept);
}

uint64_t torn_reclaim(struct volume *vol, uint64_t wanted)
{
	uint64_t bytes = 0;
	unsigned count = 0;

	while (bytes < wanted) {
		/* The space of a large file is given back by the close, without the lock. */
		cleanup_close int fd = -1;
		struct stat st;

		SCOPED_LOCK(&vol->lock);
		if (!vol->torn->count)
			break;
		fd = openat(vol->torn_fd, vol->torn->files[0].name,
			    O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
		if (fd >= 0 && fstat(fd, &st) == 0)
			bytes += (uint64_t)st.st_blocks * 512;
		drop_oldest(vol);
		count++;
	}
	if (count)
		log_info(
			"the cache's disk is full: removed what %u killed writer%s left in .epochs/torn",
			count, plural(count));
	return bytes;
}

/* ---- epochs.h ---- */

struct torn_listed {
	char name[256];
	uint64_t number, size;
	int64_t mtime_ns;
};

int torn_each(struct volume *vol,
	      int (*fn)(void *arg, const char *name, uint64_t id, uint64_t size, int64_t mtime_ns),
	      void *arg)
{
	struct torn_listed list[TORN_MAX];
	unsigned count = 0;
	int result = 0;

	mutex_lock(&vol->lock);
	for (unsigned i = 0; i < vol->torn->count; i++) {
		const struct torn_file *f = &vol->torn->files[i];
		struct torn_listed *l = &list[count];
		struct stat st;

		if (fstatat(vol->torn_fd, f->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		snprintf(l->name, sizeof(l->name), "%s", f->name);
		l->number = f->number;
		l->size = (uint64_t)st.st_size;
		l->mtime_ns = clock_ns(st.st_mtim);
		count++;
	}
	mutex_unlock(&vol->lock);
	for (unsigned i = 0; !result && i < count; i++)
		result = fn(arg, list[i].name, list[i].number, list[i].size, list[i].mtime_ns);
	return result;
}

int torn_open(struct volume *vol, const char *name)
{
	bool known = false;
	int fd;

	mutex_lock(&vol->lock);
	for (unsigned i = 0; i < vol->torn->count; i++)
		known |= !strcmp(vol->torn->files[i].name, name);
	mutex_unlock(&vol->lock);
	if (!known)
		return -ENOENT;
	fd = openat(vol->torn_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	return fd < 0 ? -errno : fd;
}
