/* SPDX-License-Identifier: Apache-2.0 */
/* A damaged local state: moving it aside, and what is recovered from it. */
#include "lib/volume/recovery.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "lib/cache/cache_dir.h"
#include "lib/cache/context.h"
#include "lib/epochs/sealer.h"
#include "lib/live/bodies.h"
#include "lib/live/handle.h"
#include "lib/live/live.h"
#include "lib/live/live_internal.h"
#include "lib/util/array.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/util/text.h"
#include "lib/volume/open_steps.h"

/* What rows of a damaged state say of the objects beside it, and bringing files back. Private to
 * rebuild.c. */

struct salvage {
	struct volume *vol;
	struct state *old; /* NULL: nothing of it can be read */
	int objects_fd;	   /* the objects beside it */
	uint64_t *ids;	   /* theirs, ascending */
	size_t count, cap;
	uint64_t *needless; /* ids of those that were recovered, or that the remote has */
	size_t needless_count;
	size_t recovered; /* files that are in the live tree again */
	size_t kept;	  /* objects that stay where they are */
};

/* Copies into the live tree what belongs there. `dirfd` is the folder with state.db and objects/. 0 or
 * -errno; what cannot be read or copied is kept, and counted. */
static int salvage(struct salvage *s, int dirfd);
/* Removes the objects that nobody needs any more. */
static void salvage_remove_needless(const struct salvage *s);
static void salvage_free(struct salvage *s);

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

/*
 * Each object is looked up by its number, so that damage hides only what lies on the page that is
 * damaged. Nothing that a row says is believed beyond that: names are checked by the live tree, and
 * content that a row does not fit is kept, not used.
 */

/* Directories above a file: a damaged row may make a ring of them. */
#define DEPTH_MAX 1024

/* ---- objects ---- */

static int by_id(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

static int list_objects(struct salvage *s)
{
	cleanup_closedir DIR *dir = NULL;
	const char *name;
	int got, error = io_opendir(s->objects_fd, &dir);

	if (error)
		return error;
	while (!error && (got = io_readdir(dir, &name)) != 0) {
		char again[OBJECT_NAME_MAX];
		uint64_t id;

		if (got < 0)
			return got;
		id = strtoull(name, NULL, 16);
		object_name(id, again);
		if (strcmp(again, name) != 0) /* a temporary one */
			continue;
		error = array_reserve((void **)&s->ids, &s->cap, s->count + 1, sizeof(id));
		if (!error)
			s->ids[s->count++] = id;
	}
	if (s->count)
		qsort(s->ids, s->count, sizeof(s->ids[0]), by_id);
	return error;
}

/* ---- where a file was ---- */

struct place {
	uint64_t parent;
	char name[256];
};

static int first_place(void *arg, const struct state_name *n, const char *name,
		       const struct state_file *f)
{
	struct place *p = arg;

	(void)f;
	p->parent = n->parent;
	snprintf(p->name, sizeof(p->name), "%s", name);
	return 1;
}

static int place_of(struct salvage *s, uint64_t ino, struct place *ret_place)
{
	int found = state_names_of(s->old, ino, first_place, ret_place);

	return found == 1 ? 0 : found < 0 ? found : -ENOENT;
}

/* The directory in the live tree that stands where this one of the old state stood. */
static int directory(struct salvage *s, uint64_t old_ino, unsigned depth, uint64_t *ret_ino)
{
	struct live_caller who = {.pid = getpid()};
	struct live_attr attr;
	struct state_file f;
	struct place place;
	uint64_t parent;
	int error;

	if (old_ino == ROOT_INO) {
		*ret_ino = ROOT_INO;
		return 0;
	}
	if (depth == DEPTH_MAX)
		return -ELOOP;
	error = place_of(s, old_ino, &place);
	if (!error)
		error = state_file_get(s->old, old_ino, &f);
	if (!error)
		error = directory(s, place.parent, depth + 1, &parent);
	if (error)
		return error;
	error = live_lookup(s->vol, parent, place.name, 0, &attr);
	if (error == -ENOENT) {
		who.uid = f.uid;
		who.gid = f.gid;
		error = live_mkdir(s->vol, parent, place.name, f.mode & 07777, &who, &attr);
	}
	if (!error && !S_ISDIR(attr.mode))
		error = -ENOTDIR;
	if (!error)
		*ret_ino = attr.ino;
	return error;
}

/* ---- bringing a file back ---- */

struct target {
	struct volume *vol;
	uint64_t ino;
};

static int copy_xattr(void *arg, const char *name, const void *value, size_t len)
{
	const struct target *t = arg;

	return live_setxattr(t->vol, t->ino, name, value, len, 0);
}

static int fill(struct handle *h, int from, const struct stat *st)
{
	int fd, error = handle_begin_write(h, NULL, NULL, &fd);

	if (!error)
		error = io_clone(from, fd, (uint64_t)st->st_size);
	return error ? error : handle_flush(h, getpid(), NULL, NULL);
}

/* What cannot be set is no reason to keep the file from its place. */
static void set_attributes(struct salvage *s, uint64_t ino, const struct state_file *f,
			   int64_t mtime_ns)
{
	struct live_change change = {.set = LIVE_SET_MODE | LIVE_SET_MTIME,
				     .mode = f->mode & 07777,
				     .mtime_ns = mtime_ns};
	struct target t = {s->vol, ino};
	struct live_attr attr;

	live_setattr(s->vol, ino, 0, &change, &attr);
	state_xattr_list(s->old, f->ino, copy_xattr, &t);
}

/* Under a name of its own first: what the newest epoch has stays until the copy is whole. */
static int bring(struct salvage *s, const struct state_version *v, const struct state_file *f,
		 int from)
{
	struct live_caller who = {f->uid, f->gid, getpid()};
	struct live_attr attr;
	struct handle *h;
	struct place place;
	struct stat st;
	uint64_t parent;
	char name[64];
	int error = place_of(s, f->ino, &place);

	if (!error)
		error = directory(s, place.parent, 0, &parent);
	if (!error && fstat(from, &st) < 0)
		error = -errno;
	if (error)
		return error;
	snprintf(name, sizeof(name), ".epochfs-recovers-%016" PRIx64, v->id);
	live_unlink(s->vol, parent, name); /* of a try that was cut off */
	error = handle_await_room(s->vol, NULL, NULL);
	if (error)
		return error;
	error = handle_create(s->vol, parent, name, f->mode & 07777, O_RDWR, &who, &attr, &h);
	if (error)
		return error;
	error = fill(h, from, &st);
	handle_release(h, false);
	if (!error)
		set_attributes(s, attr.ino, f,
			       v->state == VERSION_CLOSED ? f->mtime_ns : stat_mtime(&st));
	if (!error)
		error = live_rename(s->vol, parent, name, parent, place.name, 0, NULL);
	if (error)
		live_unlink(s->vol, parent, name);
	return error;
}

/* ---- which ---- */

/* Whether a writer that was cut off has left something that counts (contract 1.2.4). */
static bool survives_kill(const struct state_version *v, const struct state_file *f,
			  const struct stat *st)
{
	if (v->flushed_ctime_ns && v->flushed_ctime_ns == stat_ctime(st) &&
	    v->flushed_size == (uint64_t)st->st_size)
		return true;
	return f->live == v->id && v->kind != VERSION_REPLACE && !v->fragile;
}

static bool is_current(const struct state_version *v, const struct state_file *f,
		       const struct stat *st)
{
	if (!f->nlink || !S_ISREG(f->mode))
		return false;
	if (v->state == VERSION_STAGED)
		return survives_kill(v, f, st);
	return v->state == VERSION_CLOSED && f->closed == v->id && v->size == (uint64_t)st->st_size;
}

/* True: the object is not needed any more. */
static bool take(struct salvage *s, uint64_t id)
{
	cleanup_close int from = -1;
	struct state_version v;
	struct state_file f;
	struct stat st;
	char name[OBJECT_NAME_MAX];
	int error;

	if (!s->old || state_version_get(s->old, id, &v))
		return false;
	if (v.state == VERSION_DURABLE)
		return true;
	object_name(id, name);
	from = openat(s->objects_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (from < 0 || fstat(from, &st) < 0 || !S_ISREG(st.st_mode) ||
	    state_file_get(s->old, v.ino, &f) || !is_current(&v, &f, &st))
		return false;
	error = bring(s, &v, &f, from);
	if (error)
		log_warn("objects/%s cannot be brought back: %s", name, strerror(-error));
	else
		s->recovered++;
	return !error;
}

static int salvage(struct salvage *s, int dirfd)
{
	int error;

	s->objects_fd = openat(dirfd, "objects", O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (s->objects_fd < 0)
		return errno == ENOENT ? 0 : -errno;
	error = list_objects(s);
	if (error)
		return error;
	s->needless = calloc(s->count ? s->count : 1, sizeof(*s->needless));
	if (!s->needless)
		return -ENOMEM;
	if (state_open_damaged(dirfd, &s->old))
		s->old = NULL;
	for (size_t i = 0; i < s->count; i++) {
		if (take(s, s->ids[i]))
			s->needless[s->needless_count++] = s->ids[i];
		else
			s->kept++;
	}
	return 0;
}

static void salvage_remove_needless(const struct salvage *s)
{
	for (size_t i = 0; i < s->needless_count; i++) {
		char name[OBJECT_NAME_MAX];

		object_name(s->needless[i], name);
		unlinkat(s->objects_fd, name, 0);
	}
}

static void salvage_free(struct salvage *s)
{
	state_close(s->old);
	free(s->ids);
	free(s->needless);
	if (s->objects_fd >= 0)
		close(s->objects_fd);
}
