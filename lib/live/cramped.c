/* SPDX-License-Identifier: Apache-2.0 */
/* Looks at the room on the cache's disk, on behalf of those who write by passthrough. */
#include "lib/live/cramped.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include "lib/cache/evict.h"
#include "lib/live/bodies.h"
#include "lib/state/reserve.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/thread.h"

/* Nobody fills a disk faster, in bytes a second. */
#define FILLS_AT    (UINT64_C(4) << 30)
#define LOOK_SOON   (20 * NS_PER_MS)
#define LOOK_LATEST (5 * NS_PER_S)
/* The clock of files goes in steps, of 10 ms at most. */
#define TICK (20 * NS_PER_MS)

struct cramped {
	pthread_t thread;
	bool runs, stops;
	/* With the volume's lock. */
	pthread_cond_t wake;
	int64_t room_ns; /* wall clock: when the disk was last seen with room; 0: it was not */
	int64_t next_ns; /* monotonic: when the thread looks; INT64_MAX: nobody writes */
};

int cramped_new(struct volume *vol)
{
	struct cramped *c = calloc(1, sizeof(*c));
	int error;

	if (!c)
		return -ENOMEM;
	error = cond_init_mono(&c->wake);
	if (error) {
		free(c);
		return error;
	}
	c->next_ns = INT64_MAX;
	vol->cramped = c;
	return 0;
}

void cramped_free(struct volume *vol)
{
	if (!vol->cramped)
		return;
	pthread_cond_destroy(&vol->cramped->wake);
	free(vol->cramped);
	vol->cramped = NULL;
}

/* ---- the writers ---- */

static bool is_passed(const struct body *b)
{
	for (const struct handle *h = b->open_handles; h; h = h->next)
		if (h->writes && h->direct)
			return true;
	return false;
}

static bool is_at_risk(const struct body *b)
{
	return b->staged && !b->cramped && !b->is_output && is_passed(b);
}

static int find_at_risk(void *arg, struct body *b)
{
	(void)arg;
	return is_at_risk(b);
}

struct blaming {
	struct volume *vol;
	int64_t full_ns; /* wall clock: when the disk was full, at the latest; 0: it was not */
};

static void full_at(struct blaming *look, int64_t at_ns)
{
	if (at_ns > look->full_ns)
		look->full_ns = at_ns;
}

static int blame(void *arg, struct body *b)
{
	const struct blaming *look = arg;
	struct volume *vol = look->vol;
	cleanup_buf struct buf path = {0};
	struct stat st;

	/* What was refused before it was emptied is in it no more: that may happen while somebody looks. */
	if (!is_at_risk(b) || b->emptied_ns > look->full_ns || fstat(b->fd, &st) < 0 ||
	    stat_ctime(&st) + TICK < vol->cramped->room_ns)
		return 0;
	b->cramped = true;
	body_note_locked(b);
	volume_path_locked(vol, b->ino, &path);
	log_warn("%s: the cache's disk is full, and a write to it may have been refused",
		 buf_str(&path));
	return 0;
}

static void take_locked(struct volume *vol, const struct disk_room *room)
{
	struct cramped *c = vol->cramped;
	struct blaming look = {vol, room->left ? 0 : room->at_ns};

	/* What came since the last look. */
	full_at(&look, atomic_exchange(&vol->disk_full_ns, 0));
	full_at(&look, reserve_wanted_ns(state_reserve(vol->state)));
	if (look.full_ns)
		bodies_each_writing_locked(vol, blame, &look);
	else if (c->room_ns < room->at_ns)
		c->room_ns = room->at_ns;
}

/* How long the disk has room for certain. */
static int64_t time_left(uint64_t left)
{
	uint64_t ms = left / (FILLS_AT / 1000);

	if (ms > LOOK_LATEST / NS_PER_MS)
		return LOOK_LATEST;
	return ms < LOOK_SOON / NS_PER_MS ? LOOK_SOON : (int64_t)ms * NS_PER_MS;
}

static void look_by_locked(struct cramped *c, int64_t next_ns)
{
	if (c->next_ns <= next_ns)
		return;
	c->next_ns = next_ns;
	pthread_cond_signal(&c->wake);
}

void cramped_look(struct volume *vol)
{
	struct cramped *c = vol->cramped;
	struct disk_room room = disk_room(vol);
	int64_t next = clock_mono_ns() + time_left(room.left);

	SCOPED_LOCK(&vol->lock);
	take_locked(vol, &room);
	look_by_locked(c, next);
}

void cramped_begins_locked(struct volume *vol)
{
	/* As a rule the look before this one has said when. */
	if (vol->cramped->next_ns == INT64_MAX)
		look_by_locked(vol->cramped, clock_mono_ns() + LOOK_SOON);
}

/* ---- the thread ---- */

static void *run(void *arg)
{
	struct volume *vol = arg;
	struct cramped *c = vol->cramped;

	mutex_lock(&vol->lock);
	while (!c->stops) {
		struct disk_room room;

		if (cond_wait_until(&c->wake, &vol->lock, c->next_ns) == 0 || c->stops)
			continue;
		mutex_unlock(&vol->lock);
		room = disk_room(vol);
		mutex_lock(&vol->lock);
		take_locked(vol, &room);
		c->next_ns = bodies_each_writing_locked(vol, find_at_risk, NULL)
				     ? clock_mono_ns() + time_left(room.left)
				     : INT64_MAX;
	}
	mutex_unlock(&vol->lock);
	return NULL;
}

int cramped_start(struct volume *vol)
{
	int error = thread_start(&vol->cramped->thread, NULL, run, vol);

	vol->cramped->runs = !error;
	/* Also for writers of a worker before this one. */
	if (!error)
		cramped_look(vol);
	return error;
}

void cramped_stop(struct volume *vol)
{
	struct cramped *c = vol->cramped;

	if (!c || !c->runs)
		return;
	mutex_lock(&vol->lock);
	c->stops = true;
	pthread_cond_signal(&c->wake);
	mutex_unlock(&vol->lock);
	pthread_join(c->thread, NULL);
	c->runs = false;
}
