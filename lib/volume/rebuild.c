/* SPDX-License-Identifier: Apache-2.0 */
/* A damaged local state: moving it aside, and what is recovered from it. */
#include "lib/volume/rebuild.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include "lib/cache/cache_dir.h"
#include "lib/util/log.h"
#include "lib/util/text.h"
#include "lib/volume/open_steps.h"
#include "lib/volume/rebuild_salvage.h"
#include "lib/epochs/sealer.h"

#define MOVING	  "damaged.moving"
#define DAMAGED	  "damaged"
#define NAME_SIZE 64

static bool is_there(int dirfd, const char *name)
{
	return faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* ---- moving aside ---- */

/* A name that is free: damaged-20261121T093000Z, with a number where two are made in a second. */
static void lasting_name(const struct volume *vol, char ret_name[NAME_SIZE])
{
	time_t now = time(NULL);
	struct tm tm;
	size_t len;

	gmtime_r(&now, &tm);
	len = strftime(ret_name, NAME_SIZE, DAMAGED "-%Y%m%dT%H%M%SZ", &tm);
	for (unsigned i = 2; is_there(vol->cache_fd, ret_name); i++)
		snprintf(ret_name + len, NAME_SIZE - len, "-%u", i);
}

static int give_lasting_name(struct volume *vol, char ret_name[NAME_SIZE])
{
	lasting_name(vol, ret_name);
	return renameat(vol->cache_fd, DAMAGED, vol->cache_fd, ret_name) < 0 ? -errno : 0;
}

/* What was moved before a crash is not there any more. state.db is the last: while it is there, what
 * lies beside it has not been taken for garbage. */
static int move_all(struct volume *vol, int to)
{
	static const char *const names[] = {"objects", "trees", "state.db-wal", "state.db"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (is_there(to, names[i]) || !is_there(vol->cache_fd, names[i]))
			continue;
		if (renameat(vol->cache_fd, names[i], to, names[i]) < 0)
			return -errno;
	}
	return 0;
}

static int move_aside(struct volume *vol)
{
	cleanup_close int to = -1;
	char earlier[NAME_SIZE];
	int error = 0;

	/* One that nobody could recover: it keeps what it has. */
	if (is_there(vol->cache_fd, DAMAGED))
		error = give_lasting_name(vol, earlier);
	if (!error && mkdirat(vol->cache_fd, MOVING, 0700) < 0 && errno != EEXIST)
		error = -errno;
	if (!error) {
		to = openat(vol->cache_fd, MOVING, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
		error = to < 0 ? -errno : move_all(vol, to);
	}
	if (!error && (fsync(to) < 0 || fsync(vol->cache_fd) < 0 ||
		       renameat(vol->cache_fd, MOVING, vol->cache_fd, DAMAGED) < 0))
		error = -errno;
	if (error)
		return error;
	vol->rebuilt = true;
	close(vol->objects_fd);
	close(vol->trees_fd);
	vol->objects_fd = vol->trees_fd = -1;
	return cache_open_parts(vol);
}

int rebuild_resume(struct volume *vol)
{
	if (is_there(vol->cache_fd, MOVING))
		return move_aside(vol);
	vol->rebuilt = is_there(vol->cache_fd, DAMAGED);
	return 0;
}

int rebuild_begin(struct volume *vol, const char *why)
{
	log_error("local state %s/state.db is damaged: %s: it is rebuilt from %s, and what only "
		  "this machine has is recovered",
		  vol->cache_path, why, vol->local_only ? "nothing" : remote_name(vol->remote));
	return move_aside(vol);
}

/* ---- recovering ---- */

static void tell(struct volume *vol, const struct salvage *s, const char *name)
{
	cleanup_buf struct buf kept = {0};

	if (s->kept)
		buf_printf(
			&kept,
			"; %zu more %s in %s/%s/objects: content that no row names any more, that "
			"only epochs which were not uploaded held, or that was being written",
			s->kept, plural_of(s->kept, "lies", "lie"), vol->cache_path, name);
	log_warn(
		"the local state was damaged and is rebuilt: %zu file%s that only this machine had "
		"%s in the tree again%s; the damaged state is kept in %s/%s: remove it when you need "
		"nothing of it",
		s->recovered, plural(s->recovered), plural_of(s->recovered, "is", "are"),
		kept.len ? buf_str(&kept) : "", vol->cache_path, name);
}

int rebuild_recover(struct volume *vol)
{
	struct salvage s = {.vol = vol, .objects_fd = -1};
	cleanup_close int from = -1;
	char name[NAME_SIZE];
	int error;

	/* A mount that writes does it later. */
	if (vol->options.read_only)
		return 0;
	from = openat(vol->cache_fd, DAMAGED, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	error = from < 0 ? -errno : salvage(&s, from);
	/* What is recovered must be safe before the other copy goes. */
	if (!error)
		error = live_sync(vol);
	if (!error && syncfs(vol->cache_fd) < 0)
		error = -errno;
	if (!error) {
		salvage_remove_needless(&s);
		error = give_lasting_name(vol, name);
	}
	if (!error) {
		tell(vol, &s, name);
		vol->rebuilt = false;
	}
	if (s.recovered) {
		SCOPED_LOCK(&vol->lock);
		sealer_incomplete_locked(vol, "recovered from a damaged local state");
	}
	salvage_free(&s);
	return error;
}
