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
	uint64_t bytes; /* on disk */
	char name[256]; /* in torn/ */
};

/* Guarded by the volume's lock. */
struct torn {
	struct torn_file files[TORN_MAX]; /* ascending numbers */
	unsigned count;
	uint64_t next, mounted;
	struct torn_record *record; /* of the options; NULL: none */
};

/* 0: it is none of them. */
static uint64_t number_of(const char *name)
{
	char *end;
	uint64_t number = strtoull(name, &end, 10);

	return *name >= '0' && *name <= '9' && *end == '-' ? number : 0;
}

static void count_to(struct torn *t, uint64_t next)
{
	if (next > t->next)
		t->next = next;
	if (t->record)
		__atomic_store_n(&t->record->next, t->next, __ATOMIC_RELEASE);
}

/* Of what begins with its number. */
static int by_number(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static void drop_oldest(struct volume *vol)
{
	struct torn *t = vol->torn;

	disk_note(vol);
	unlinkat(vol->torn_fd, t->files[0].name, 0);
	t->count--;
	memmove(&t->files[0], &t->files[1], t->count * sizeof(t->files[0]));
}

/* The newest stays, whatever its size. */
static bool is_over(const struct torn *t)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i + 1 < t->count; i++)
		bytes += t->files[i].bytes;
	return bytes > TORN_BYTES;
}

static uint64_t bytes_of(struct volume *vol, const char *name)
{
	struct stat st;

	return fstatat(vol->torn_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0
		       ? 0
		       : (uint64_t)st.st_blocks * 512;
}

static void add(struct volume *vol, uint64_t number, const char *name)
{
	struct torn *t = vol->torn;

	if (t->count == TORN_MAX)
		drop_oldest(vol);
	t->files[t->count].number = number;
	t->files[t->count].bytes = bytes_of(vol, name);
	snprintf(t->files[t->count].name, sizeof(t->files[0].name), "%s", name);
	t->count++;
	qsort(t->files, t->count, sizeof(t->files[0]), by_number);
	count_to(t, number + 1);
	while (is_over(t))
		drop_oldest(vol);
}

/* What earlier mounts left. */
static int scan(struct volume *vol)
{
	cleanup_closedir DIR *dir = NULL;
	const char *name;
	int got = io_opendir(vol->torn_fd, &dir);

	if (got)
		return got;
	while ((got = io_readdir(dir, &name)) > 0) {
		uint64_t number = number_of(name);

		if (number)
			add(vol, number, name);
	}
	return got;
}

/* The process before may have given ids of which nothing is left. */
static void take_record(struct torn *t, struct torn_record *r)
{
	t->record = r;
	if (r->next) {
		t->mounted = r->mounted;
		count_to(t, r->next);
	} else {
		r->mounted = t->mounted;
		r->next = t->next;
	}
}

int torn_start(struct volume *vol)
{
	int error;

	vol->torn = calloc(1, sizeof(*vol->torn));
	if (!vol->torn)
		return -ENOMEM;
	vol->torn->next = 1;
	error = scan(vol);
	vol->torn->mounted = vol->torn->next;
	if (!error && vol->options.torn_record)
		take_record(vol->torn, vol->options.torn_record);
	if (error) {
		free(vol->torn);
		vol->torn = NULL;
	}
	return error;
}

void torn_ids(struct volume *vol, uint64_t *ret_next, uint64_t *ret_mounted)
{
	SCOPED_LOCK(&vol->lock);

	*ret_next = vol->torn->next;
	*ret_mounted = vol->torn->mounted;
}

void torn_stop(struct volume *vol)
{
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
		/* Whoever asks what was undone meanwhile is told of it all the same. */
		count_to(vol->torn, vol->torn->next + 1);
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

/* ---- listing ---- */

struct torn_listed {
	uint64_t number, size;
	int64_t mtime_ns;
	char name[256];
};

static bool look(int fd, const char *name, uint64_t number, struct torn_listed *ret_listed)
{
	struct stat st;

	if (fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	snprintf(ret_listed->name, sizeof(ret_listed->name), "%s", name);
	ret_listed->number = number;
	ret_listed->size = (uint64_t)st.st_size;
	ret_listed->mtime_ns = clock_ns(st.st_mtim);
	return true;
}

static int tell(const struct torn_listed *list, unsigned count, torn_fn fn, void *arg)
{
	int result = 0;

	for (unsigned i = 0; !result && i < count; i++)
		result = fn(arg, list[i].name, list[i].number, list[i].size, list[i].mtime_ns);
	return result;
}

int torn_each(struct volume *vol, torn_fn fn, void *arg)
{
	struct torn_listed list[TORN_MAX];
	unsigned count = 0;

	mutex_lock(&vol->lock);
	for (unsigned i = 0; i < vol->torn->count; i++) {
		const struct torn_file *f = &vol->torn->files[i];

		count += look(vol->torn_fd, f->name, f->number, &list[count]);
	}
	mutex_unlock(&vol->lock);
	return tell(list, count, fn, arg);
}

int torn_each_left(const char *cache, torn_fn fn, void *arg)
{
	cleanup_close int cache_fd = open(cache, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	cleanup_closedir DIR *dir = NULL;
	struct torn_listed list[TORN_MAX];
	unsigned count = 0;
	const char *name;
	int got;

	if (cache_fd < 0)
		return -errno;
	fd = openat(cache_fd, "torn", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	got = fd < 0 ? -errno : io_opendir(fd, &dir);
	if (got)
		return got;
	while (count < TORN_MAX && (got = io_readdir(dir, &name)) > 0)
		count += number_of(name) && look(fd, name, number_of(name), &list[count]);
	qsort(list, count, sizeof(list[0]), by_number);
	return got < 0 ? got : tell(list, count, fn, arg);
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
