/* SPDX-License-Identifier: Apache-2.0 */
/* The evictor, and room for writers. */
#include "lib/cache/evict.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>
#include "lib/cache/cache_dir.h"
#include "lib/cache/contents.h"
#include "lib/cache/context.h"
#include "lib/cache/grant.h"
#include "lib/cache/reclaim.h"
#include "lib/cache/torn.h"
#include "lib/state/reserve.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/text.h"
#include "lib/util/thread.h"

#define LOOK_EVERY_NS (5 * NS_PER_S)
#define WAIT_STEP_NS  (100 * NS_PER_MS)
/* The evictor makes this much more room than is asked for, so that it is not called for each file;
 * but no more than this part of the whole. */
#define AHEAD_BYTES ((uint64_t)64 << 20)
#define AHEAD_PART  16
/* Writers whom the daemon does not see want so many times that: one file alone may take it all before
 * the evictor looks again. */
#define AHEAD_OF_UNSEEN 4
#define INODES_KEPT	8
/* Versions evicted in one transaction. */
#define BATCH 64

struct evictor {
	struct volume *vol;
	struct background background;
};

/* Bytes in backing files, by the rows and by what came since these were written. */
static int bytes_local(struct volume *vol, uint64_t *ret_local, uint64_t *ret_dirty)
{
	int64_t more = contents_unaccounted(vol);
	int error;

	mutex_lock(&vol->lock);
	error = state_version_totals(vol->state, ret_local, ret_dirty);
	mutex_unlock(&vol->lock);
	if (error)
		return error;
	if (more >= 0 || *ret_local >= (uint64_t)-more)
		*ret_local += (uint64_t)more;
	else
		*ret_local = 0;
	return 0;
}

/* A file system may run out of inodes before bytes. Some are kept for trees of epochs. */
static bool inodes_short(const struct statvfs *fs)
{
	uint64_t keep =
		fs->f_files / AHEAD_PART < INODES_KEPT ? fs->f_files / AHEAD_PART : INODES_KEPT;

	return fs->f_favail < keep;
}

/* Bytes over the limits once `more` came in; 0: there is room. *ret_disk: the disk has too few, whatever cache-size says. */
static int bytes_over_of(struct volume *vol, uint64_t more, uint64_t *ret_over, bool *ret_disk)
{
	uint64_t local = 0, dirty = 0, over = 0, available, keep;
	struct statvfs fs;
	int error;

	if (fstatvfs(vol->cache_fd, &fs) < 0)
		return -errno;
	available = (uint64_t)fs.f_bavail * fs.f_frsize;
	keep = (uint64_t)fs.f_blocks * fs.f_frsize / 100 * vol->options.min_free_percent + more +
	       reserve_missing(state_reserve(vol->state));
	if (available < keep)
		over = keep - available;
	*ret_disk = over || inodes_short(&fs);
	if (vol->options.cache_size) {
		error = bytes_local(vol, &local, &dirty);
		if (error)
			return error;
		if (local + more > vol->options.cache_size &&
		    local + more - vol->options.cache_size > over)
			over = local + more - vol->options.cache_size;
	}
	*ret_over = over || !inodes_short(&fs) ? over : 1;
	return 0;
}

static int bytes_over(struct volume *vol, uint64_t more, uint64_t *ret_over)
{
	bool disk;

	return bytes_over_of(vol, more, ret_over, &disk);
}

/* Whether `more` bytes have no place though nothing else were in the cache or on its disk. */
static int never_fits(const struct volume *vol, uint64_t more, bool *ret_never)
{
	struct statvfs fs;
	uint64_t total;

	if (fstatvfs(vol->cache_fd, &fs) < 0)
		return -errno;
	total = (uint64_t)fs.f_blocks * fs.f_frsize;
	*ret_never = more > total - total / 100 * vol->options.min_free_percent ||
		     (vol->options.cache_size && more > vol->options.cache_size);
	return 0;
}

static uint64_t bytes_ahead(const struct volume *vol)
{
	uint64_t ahead = AHEAD_BYTES, part = vol->options.cache_size / AHEAD_PART;
	struct statvfs fs;

	if (part && part < ahead)
		ahead = part;
	if (fstatvfs(vol->cache_fd, &fs) == 0) {
		part = (uint64_t)fs.f_blocks * fs.f_frsize / AHEAD_PART;
		if (part < ahead)
			ahead = part;
	}
	return ahead;
}

/* ---- evicting ---- */

struct victims {
	struct volume *vol;
	uint64_t id[BATCH];
	size_t count;
	uint64_t bytes, wanted;
};

static int pick(void *arg, const struct state_version *v)
{
	struct victims *p = arg;

	if (!v->local_bytes || version_in_use_locked(p->vol, v->id) ||
	    !grant_may_evict_locked(p->vol, v->id))
		return 0;
	p->id[p->count++] = v->id;
	p->bytes += v->local_bytes;
	return p->count == BATCH || p->bytes >= p->wanted;
}

static int evict_one_locked(struct volume *vol, uint64_t id)
{
	struct state_version v;
	int error = state_version_get(vol->state, id, &v);

	if (error)
		return error;
	v.local_bytes = 0;
	v.local_whole = v.size == 0;
	error = state_version_set(vol->state, &v);
	if (!error && v.kind == VERSION_CACHE)
		error = version_reclaim_locked(vol, id);
	return error;
}

/* Large files take long to remove: under the lock they only get another name, so that nobody opens
 * the old file after its row changed. Recovery removes what a crash leaves. */
static void evicted_name(uint64_t id, char ret_name[40])
{
	snprintf(ret_name, 40, "evicted-%016" PRIx64 ".tmp", id);
}

static void put_aside(struct volume *vol, uint64_t id)
{
	char from[OBJECT_NAME_MAX], to[40];

	grant_drop_locked(vol, id);
	object_name(id, from);
	evicted_name(id, to);
	if (renameat(vol->objects_fd, from, vol->objects_fd, to) < 0 && errno != ENOENT)
		log_warn("objects/%s cannot be evicted: %s", from, strerror(errno));
}

static void remove_victims(struct volume *vol, const struct victims *p)
{
	for (size_t i = 0; i < p->count; i++) {
		char name[40];

		evicted_name(p->id[i], name);
		disk_note(vol);
		unlinkat(vol->objects_fd, name, 0);
	}
}

/* The rows first: a crash in between leaves a file without a row, or one more than its row says, and
 * recovery removes it. */
static int evict_batch(struct volume *vol, uint64_t wanted, uint64_t *ret_bytes)
{
	struct victims p = {.vol = vol, .wanted = wanted};
	/* After a power loss it must be known that the remote has what goes now. */
	int error = state_sync(vol->state);

	if (error)
		return error;
	mutex_lock(&vol->lock);
	/* In the order that state_versions.c gives: what was used longest ago first. */
	error = state_version_each_evictable(vol->state, pick, &p);
	if (error > 0)
		error = 0;
	if (!error && p.count)
		error = state_begin(vol->state);
	if (!error && p.count) {
		for (size_t i = 0; !error && i < p.count; i++)
			error = evict_one_locked(vol, p.id[i]);
		error = state_end(vol->state, error);
	}
	for (size_t i = 0; !error && i < p.count; i++)
		put_aside(vol, p.id[i]);
	mutex_unlock(&vol->lock);
	if (error)
		return error;
	remove_victims(vol, &p);
	*ret_bytes = p.bytes;
	return 0;
}

static int evict(struct volume *vol, uint64_t wanted)
{
	while (wanted) {
		uint64_t bytes = 0;
		int error = evict_batch(vol, wanted, &bytes);

		if (error || !bytes)
			return error;
		log_debug("evicted %llu byte%s from the cache", (unsigned long long)bytes,
			  plural(bytes));
		wanted -= bytes < wanted ? bytes : wanted;
	}
	return 0;
}

/* Evicts, unless the writer would have no room though all went: then it would be for nothing. */
static int evict_if_it_helps(struct volume *vol, uint64_t over)
{
	uint64_t local = 0, dirty = 0;
	int error = bytes_local(vol, &local, &dirty);

	return error || over > local ? error : evict(vol, over + bytes_ahead(vol));
}

/* bytes_over, once the reserve has taken what it lacks: it comes before all that is new. */
static int room(struct volume *vol, uint64_t bytes, uint64_t *ret_over)
{
	struct reserve *reserve = state_reserve(vol->state);

	if (reserve_missing(reserve))
		reserve_refill(reserve);
	return bytes_over(vol, bytes, ret_over);
}

/* What killed writers left is for a look only: before anybody waits or is refused, it goes. True where some went. */
static bool take_torn(struct volume *vol, uint64_t bytes)
{
	uint64_t over;
	bool disk = false;

	return bytes_over_of(vol, bytes, &over, &disk) == 0 && disk && torn_reclaim(vol, over);
}

void volume_make_room_for_names(struct volume *vol)
{
	struct reserve *reserve = state_reserve(vol->state);

	if (!reserve_missing(reserve))
		return;
	objects_delete_marked(vol);
	evict(vol, reserve_missing(reserve));
	reserve_refill(reserve);
	while (reserve_missing(reserve) && take_torn(vol, 0))
		reserve_refill(reserve);
}

int volume_room_for_names(const struct volume *vol)
{
	return reserve_missing(state_reserve(vol->state)) ? -ENOSPC : 0;
}

int volume_reserve(struct volume *vol, uint64_t bytes, interrupted_fn interrupted, void *arg)
{
	int64_t deadline =
		clock_mono_ns() + (vol->options.full_wait ? vol->options.patience_ns : 0);
	bool never = false;
	int unknown = never_fits(vol, bytes, &never);

	if (unknown || never)
		return unknown ? unknown : -ENOSPC;
	for (;;) {
		uint64_t over;
		int error = room(vol, bytes, &over);

		if (error || !over)
			return error;
		objects_delete_marked(vol);
		error = evict_if_it_helps(vol, over);
		if (!error)
			error = room(vol, bytes, &over);
		if (error || !over)
			return error;
		if (take_torn(vol, bytes))
			continue;
		if (clock_mono_ns() >= deadline)
			return -ENOSPC;
		if (interrupted && interrupted(arg))
			return -EINTR;
		/* Uploads and closes broadcast it. */
		mutex_lock(&vol->lock);
		cond_wait_until(&vol->changed, &vol->lock, clock_mono_ns() + WAIT_STEP_NS);
		mutex_unlock(&vol->lock);
	}
}

uint64_t evictor_make_room(struct volume *vol, uint64_t bytes)
{
	uint64_t over = 0;

	if (bytes_over(vol, bytes, &over) || !over)
		return 0;
	objects_delete_marked(vol);
	if (evict(vol, over + bytes_ahead(vol)) || bytes_over(vol, bytes, &over))
		return 0;
	return over;
}

bool evictor_keeps_ahead(struct volume *vol)
{
	return evictor_make_room(vol, AHEAD_OF_UNSEEN * bytes_ahead(vol)) == 0;
}

/* ---- the thread ---- */

static void *run(void *arg)
{
	struct evictor *ev = arg;

	while (background_next_until(&ev->background, clock_mono_ns() + LOOK_EVERY_NS)) {
		uint64_t over = 0;

		if (bytes_over(ev->vol, bytes_ahead(ev->vol), &over) == 0 && over)
			evict(ev->vol, over);
		reserve_refill(state_reserve(ev->vol->state));
		cache_look(ev->vol);
	}
	return NULL;
}

int evictor_start(struct volume *vol)
{
	struct evictor *ev = calloc(1, sizeof(*ev));
	int error;

	if (!ev)
		return -ENOMEM;
	error = background_init(&ev->background, LOCK_EVICTOR);
	if (error) {
		free(ev);
		return error;
	}
	ev->vol = vol;
	ev->background.kicked = true; /* the limits may be others than those of the last mount */
	error = background_start(&ev->background, run, ev);
	if (error) {
		background_destroy(&ev->background);
		free(ev);
		return error;
	}
	vol->evictor = ev;
	return 0;
}

void evictor_stop(struct volume *vol)
{
	struct evictor *ev = vol->evictor;

	if (!ev)
		return;
	background_stop(&ev->background);
	vol->evictor = NULL;
	background_destroy(&ev->background);
	free(ev);
}

void evictor_kick(struct volume *vol)
{
	struct evictor *ev = vol->evictor;

	if (ev)
		background_kick(&ev->background);
}

int evictor_status(struct volume *vol, json_t *status)
{
	uint64_t local = 0, dirty = 0;
	struct statvfs fs;
	json_t *cache;
	int error;

	error = bytes_local(vol, &local, &dirty);
	if (error || fstatvfs(vol->cache_fd, &fs) < 0)
		return error ? error : -errno;
	cache = json_pack("{s:s, s:I, s:I, s:I}", "directory", vol->cache_path, "bytes",
			  (json_int_t)local, "dirty_bytes", (json_int_t)dirty, "free_bytes",
			  (json_int_t)((uint64_t)fs.f_bavail * fs.f_frsize));
	if (cache && vol->options.cache_size)
		json_object_set_new(cache, "limit_bytes",
				    json_integer((json_int_t)vol->options.cache_size));
	return json_object_set_new(status, "cache", cache) ? -ENOMEM : 0;
}

/* ---- whether the disk has room for one more write ---- */

#define MIB (UINT64_C(1) << 20)
/* Less is no room: what one write takes. */
#define ONE_WRITE MIB
/* The most that XFS asks for at once for a buffered write, and what its own records take. */
#define ONE_WRITE_XFS (5 * MIB)
/* ext4 keeps some of the free blocks for itself, whoever asks: a 50th of the disk with its tables, at most so many. */
#define EXT_OWN_PART 40
#define EXT_OWN_MAX  4096

/* Whether blocks that are kept for root are given to this process: capabilities count, the user, and options of that mount, so it is tried. */
static bool has_root_blocks(struct volume *vol)
{
	cleanup_close int fd = -1;

	if (atomic_load(&vol->has_root_blocks))
		return true;
	fd = openat(vol->objects_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0 || fallocate(fd, 0, 0, ONE_WRITE) < 0)
		return false;
	atomic_store(&vol->has_root_blocks, true);
	return true;
}

/* Bytes that the kernel still gives to this process. */
static uint64_t bytes_left(struct volume *vol, const struct statfs *fs)
{
	uint64_t size = (uint64_t)fs->f_bsize, all = (uint64_t)fs->f_blocks, own, free;

	if (fs->f_type != EXT4_SUPER_MAGIC || (uint64_t)fs->f_bavail * size >= ONE_WRITE)
		return (uint64_t)fs->f_bavail * size;
	own = all / EXT_OWN_PART < EXT_OWN_MAX ? all / EXT_OWN_PART : EXT_OWN_MAX;
	free = (uint64_t)fs->f_bfree > own ? ((uint64_t)fs->f_bfree - own) * size : 0;
	return free >= ONE_WRITE && has_root_blocks(vol) ? free : 0;
}

struct disk_room disk_room(struct volume *vol)
{
	struct disk_room room = {.left = UINT64_MAX, .at_ns = clock_wall_ns()};
	struct statfs fs;
	uint64_t least;

	if (fstatfs(vol->objects_fd, &fs) < 0)
		return room;
	least = fs.f_type == XFS_SUPER_MAGIC ? ONE_WRITE_XFS : ONE_WRITE;
	room.left = bytes_left(vol, &fs);
	if (room.left < least)
		room.left = 0;
	return room;
}

void disk_note(struct volume *vol)
{
	struct disk_room room = disk_room(vol);

	if (!room.left)
		atomic_store(&vol->disk_full_ns, room.at_ns);
}
