/* SPDX-License-Identifier: Apache-2.0 */
/* The file of allocated blocks that are given up when the disk is full. */
#include "lib/state/reserve.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"

#define NAME "reserve"
/* The journal of the state is moved into the database from 4 MiB on (state_journal.c), and a
 * tree of 100,000 entries takes about 8 MiB. */
#define SIZE ((uint64_t)16 << 20)
/* No more than this part of a small disk. */
#define PART 16
/* It comes and goes in such steps. */
#define STEP ((uint64_t)256 << 10)

struct reserve {
	int fd;
	uint64_t whole;		   /* what it should have */
	struct mutex lock;	   /* a leaf: held to change `size` and the file */
	_Atomic uint64_t size;	   /* what it has; all of it allocated */
	bool plain;		   /* the file system knows no fallocate */
	bool told;		   /* the log says that the disk is full */
	_Atomic int64_t wanted_ns; /* for reserve_wanted_ns */
};

/* Allocates the step that begins at the end of the file. */
static int allocate_step(struct reserve *r)
{
	const off_t end = (off_t)r->size;
	static const char zeros[4096];

	if (!r->plain) {
		if (fallocate(r->fd, 0, end, (off_t)STEP) == 0)
			return 0;
		if (errno != EOPNOTSUPP && errno != ENOSYS)
			return -errno;
		r->plain = true;
	}
	for (uint64_t at = 0; at < STEP; at += sizeof(zeros))
		if (pwrite(r->fd, zeros, sizeof(zeros), end + (off_t)at) != (ssize_t)sizeof(zeros))
			return -ENOSPC;
	return 0;
}

void reserve_refill(struct reserve *r)
{
	SCOPED_LOCK(&r->lock);
	while (r->size < r->whole) {
		if (allocate_step(r) < 0) {
			/* What a failed call has allocated nevertheless. */
			if (ftruncate(r->fd, (off_t)r->size) < 0)
				log_debug("cache: the reserve keeps its size");
			return;
		}
		r->size += STEP;
		if (r->size == r->whole) {
			r->told = false;
			log_debug("cache: the reserve is whole");
		}
	}
}

bool reserve_give(struct reserve *r, uint64_t bytes)
{
	uint64_t steps = (bytes + STEP - 1) / STEP, size;
	SCOPED_LOCK(&r->lock);

	atomic_store(&r->wanted_ns, clock_wall_ns());
	if (!r->size)
		return false;
	if (!r->told)
		log_warn("the cache's disk is full: only what makes space is done until there is "
			 "some; uploading and removing go on from a reserve");
	r->told = true;
	size = r->size / STEP > steps ? r->size - steps * STEP : 0;
	if (ftruncate(r->fd, (off_t)size) < 0)
		return false;
	r->size = size;
	return true;
}

int64_t reserve_wanted_ns(struct reserve *r)
{
	return atomic_exchange(&r->wanted_ns, 0);
}

uint64_t reserve_missing(const struct reserve *r)
{
	uint64_t size = r->size;

	return size < r->whole ? r->whole - size : 0;
}

bool reserve_is_for(int error)
{
	return error == -ENOSPC || error == -EDQUOT;
}

/* Only what is allocated counts: a copy of the cache directory may have holes here. */
static int find_size(struct reserve *r)
{
	struct statvfs fs;
	struct stat st;

	if (fstat(r->fd, &st) < 0 || fstatvfs(r->fd, &fs) < 0)
		return -errno;
	r->whole = (uint64_t)fs.f_blocks * fs.f_frsize / PART;
	if (r->whole > SIZE)
		r->whole = SIZE;
	r->whole = r->whole / STEP * STEP;
	if ((uint64_t)st.st_size <= r->whole && st.st_blocks * 512 >= st.st_size)
		r->size = (uint64_t)st.st_size / STEP * STEP;
	return ftruncate(r->fd, (off_t)r->size) < 0 ? -errno : 0;
}

int reserve_open(int cache_dirfd, struct reserve **ret_reserve)
{
	struct reserve *r = calloc(1, sizeof(*r));
	int error;

	if (!r)
		return -ENOMEM;
	mutex_init(&r->lock, LOCK_RESERVE);
	r->fd = openat(cache_dirfd, NAME, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	error = r->fd < 0 ? -errno : find_size(r);
	if (error) {
		reserve_close(r);
		return error;
	}
	reserve_refill(r);
	*ret_reserve = r;
	return 0;
}

void reserve_close(struct reserve *r)
{
	if (!r)
		return;
	if (r->fd >= 0)
		close(r->fd);
	mutex_destroy(&r->lock);
	free(r);
}
