/* SPDX-License-Identifier: Apache-2.0 */
/* The table of grants, by version, and the test whether a mapping is left. */
#include "lib/cache/grant.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include "lib/cache/contents.h"
#include "lib/util/cleanup.h"
#include "lib/util/io.h"
#include "lib/util/lock.h"
#include "lib/util/map.h"

/* Tests of one step of a sweep: each takes some microseconds under the volume's lock. */
#define SWEEP_MAX 32

struct grant {
	struct map_link by_version;
	uint64_t version; /* 0: dropped, and no longer in the table */
	uint64_t holder;
	unsigned opens; /* nodes that have it registered; 0: LEFT */
};

/* With the volume's lock. */
struct grants {
	struct map by_version; /* these are counted up: each is its own hash */
	/* All grants of versions from this one on are in the table: they are of this process. */
	uint64_t made_here;
};

int grants_new(struct grants **ret_grants)
{
	struct grants *all = calloc(1, sizeof(*all));

	if (!all)
		return -ENOMEM;
	*ret_grants = all;
	return 0;
}

static struct grant *grant_of(struct map_link *l)
{
	return l ? map_item(l, struct grant, by_version) : NULL;
}

void grants_free(struct grants *all)
{
	if (!all)
		return;
	for (struct map_link *l = map_next(&all->by_version, NULL), *next; l; l = next) {
		next = map_next(&all->by_version, l);
		free(grant_of(l));
	}
	map_free(&all->by_version);
	free(all);
}

void grants_begin_locked(struct volume *vol, uint64_t next_version)
{
	vol->grants->made_here = next_version;
}

static struct grant *find_locked(struct volume *vol, uint64_t version)
{
	return grant_of(map_find(&vol->grants->by_version, version));
}

static void drop_locked(struct volume *vol, struct grant *g)
{
	map_remove(&vol->grants->by_version, &g->by_version);
	g->version = 0;
	if (!g->opens)
		free(g);
}

/* Whether no mapping is left. What is open here for the daemon's own reads looks like one: then another test will tell. */
static bool is_unused_locked(struct volume *vol, uint64_t version)
{
	enum io_users users;

	if (content_users_of_file_locked(vol, version, &users))
		return users == IO_USERS_NONE;
	cleanup_close int fd = object_open(vol, version, O_RDONLY);

	/* Without the file nobody can come by it again. */
	return fd == -ENOENT || (fd >= 0 && io_users(fd) == IO_USERS_NONE);
}

/* The grant of a version, if somebody still has its file: one that was LEFT and that nobody maps ends here. */
static struct grant *look_locked(struct volume *vol, uint64_t version)
{
	struct grant *g = find_locked(vol, version);

	if (!g || g->opens || !is_unused_locked(vol, version))
		return g;
	drop_locked(vol, g);
	return NULL;
}

/* Of a version without a grant: whether a mapping, or an open file, of the time of an earlier process is left. */
static bool has_unknown_users_locked(struct volume *vol, uint64_t version)
{
	return version < vol->grants->made_here && !is_unused_locked(vol, version);
}

static int add_open_locked(struct volume *vol, struct grant *g, uint64_t version, uint64_t holder,
			   struct grant **ret_grant)
{
	if (g && g->holder != holder)
		return -EBUSY;
	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g)
			return -ENOMEM;
		g->version = version;
		g->holder = holder;
		if (map_add(&vol->grants->by_version, &g->by_version, version)) {
			free(g);
			return -ENOMEM;
		}
	}
	g->opens++;
	*ret_grant = g;
	return 0;
}

int grant_take_locked(struct volume *vol, uint64_t version, uint64_t holder,
		      struct grant **ret_grant)
{
	struct grant *g = find_locked(vol, version);

	if (g && g->holder != holder)
		g = look_locked(vol, version);
	if (!g && has_unknown_users_locked(vol, version))
		return -EBUSY;
	return add_open_locked(vol, g, version, holder, ret_grant);
}

int grant_take_again_locked(struct volume *vol, uint64_t version, uint64_t holder,
			    struct grant **ret_grant)
{
	return add_open_locked(vol, find_locked(vol, version), version, holder, ret_grant);
}

void grant_release_locked(struct grant *g)
{
	if (!--g->opens && !g->version)
		free(g);
}

void grant_release(struct volume *vol, struct grant *g)
{
	if (!g)
		return;
	SCOPED_LOCK(&vol->lock);
	grant_release_locked(g);
}

struct grant *grant_find_locked(struct volume *vol, uint64_t version, uint64_t holder)
{
	struct grant *g = find_locked(vol, version);

	return g && g->holder == holder ? g : NULL;
}

enum grant_use grant_use_locked(struct volume *vol, uint64_t version, uint64_t holder)
{
	const struct grant *g = look_locked(vol, version);

	if (!g)
		return has_unknown_users_locked(vol, version) ? GRANT_OTHER : GRANT_FREE;
	return g->holder == holder ? GRANT_OWN : GRANT_OTHER;
}

int grant_move_locked(struct volume *vol, uint64_t from, uint64_t to, uint64_t holder)
{
	struct grant *g = find_locked(vol, from), *old = find_locked(vol, to);

	if (g && g->holder != holder)
		return -EBUSY;
	/* Without one of `from`, the holder's own may have gone along in a try before this one. */
	if (old && (g || old->holder != holder))
		drop_locked(vol, old);
	if (!g)
		return 0;
	g->version = to;
	map_move(&vol->grants->by_version, &g->by_version, to);
	return 0;
}

void grant_drop_locked(struct volume *vol, uint64_t version)
{
	struct grant *g = find_locked(vol, version);

	if (g)
		drop_locked(vol, g);
}

bool grant_may_evict_locked(struct volume *vol, uint64_t version)
{
	return !look_locked(vol, version) && !has_unknown_users_locked(vol, version);
}

size_t grants_sweep_locked(struct volume *vol, size_t from)
{
	const struct map *all = &vol->grants->by_version;
	unsigned tests = 0;

	for (size_t i = from; all->count && i < all->bucket_count; i++) {
		struct map_link *next;

		if (tests >= SWEEP_MAX)
			return i;
		for (struct map_link *l = map_bucket(all, i); l; l = next) {
			const struct grant *g = grant_of(l);

			next = l->next;
			if (g->opens)
				continue;
			tests++;
			look_locked(vol, g->version);
		}
	}
	return 0;
}
