/* SPDX-License-Identifier: Apache-2.0 */
/* The cache directory of a volume: where it is, its lock, and what lies in it. */
#include "lib/cache/cache_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/cache/context.h"
#include "lib/format/names.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/util/network_fs.h"
#include "lib/util/process.h"

/* More than the file of the lock ever has. */
#define LOCK_MAX 4096
/* How often, and for how long, the end of a killed process is waited for; of one that is unmounted, which has things to
 * put in order; and after how long that is said. */
#define ENDING_STEP   (10 * NS_PER_MS)
#define ENDING_MAX    (10 * NS_PER_S)
#define UNMOUNTED_MAX (60 * NS_PER_S)
#define SAY_NS	      (300 * NS_PER_MS)
/* Of the mount namespaces that keep a mount, so many are named. */
#define COPIES_MAX 8

int cache_root(const struct volume_options *o, struct buf *out, struct opening_message *m)
{
	int error = volume_cache_root(o, out);

	if (error == -EINVAL)
		return opening_fail(m, error,
				    "no place for the cache: neither XDG_CACHE_HOME nor HOME is "
				    "set; give -o cache-dir=DIR");
	if (!error)
		error = io_mkdir_p(buf_str(out));
	return error ? opening_fail(m, error,
				    "cache directory %s: %s: give another with -o cache-dir=DIR",
				    buf_str(out), strerror(-error))
		     : 0;
}

/* Of the file of the lock: nothing where it cannot be read. */
static void read_lock(const struct volume *vol, struct buf *out)
{
	if (io_read_file(vol->cache_fd, "lock", LOCK_MAX, out))
		buf_reset(out);
}

/* Where it is unmounted here, and copies in other mount namespaces keep it: who has them. */
static void say_copies(const char *lock, struct buf *out)
{
	struct shutdown_mark_holder h;
	pid_t pids[COPIES_MAX];
	size_t count;

	shutdown_mark_holder(lock, &h);
	if (!*h.device || mountinfo_has(0, h.device))
		return;
	count = mountinfo_elsewhere(h.device, pids, COPIES_MAX);
	for (size_t i = 0; i < count && i < COPIES_MAX; i++)
		buf_printf(out, "%s %d",
			   i ? "," : ", still mounted in the mount namespaces of processes",
			   (int)pids[i]);
}

static int in_use(const struct volume *vol, const char *path, struct opening_message *m)
{
	cleanup_buf struct buf holder = {0}, copies = {0};

	read_lock(vol, &holder);
	say_copies(buf_str(&holder), &copies);
	return opening_fail(m, -ENOTUNIQ,
			    "cache %s is in use by another %s (process %.*s%s): %s that, or give "
			    "this one a cache of its own with -o cache-dir=DIR",
			    path, vol->imports ? "import or watch" : "mount",
			    (int)strcspn(buf_str(&holder), "\n"), buf_str(&holder),
			    buf_str(&copies), vol->imports ? "wait for" : "unmount");
}

/*
 * How long a holder is waited for. It is gone soon where it was killed, or where nobody has seen that it is unmounted
 * yet. What is mounted here is in use, and an import tells nobody when it ends.
 */
static int64_t patience_with(const struct volume *vol, const struct shutdown_mark_holder *h)
{
	if (h->ending)
		return UNMOUNTED_MAX;
	if (h->pid > 0 && h->pid <= INT_MAX && process_is_ending((pid_t)h->pid))
		return ENDING_MAX;
	return vol->imports || mountinfo_is_at(h->device, h->path) ? 0 : ENDING_MAX;
}

static bool gave_up(const struct volume *vol)
{
	return vol->options.give_up && vol->options.give_up(vol->options.give_up_arg);
}

/* A process that was killed or unmounted just now has the lock until it has ended. */
static int lock_when_ended(const struct volume *vol, const char *path, int fd)
{
	const struct timespec pause = clock_timespec(ENDING_STEP);
	int64_t start = clock_mono_ns();
	bool said = false;

	while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		int64_t waited = clock_mono_ns() - start;
		int error = -errno;
		cleanup_buf struct buf text = {0};
		struct shutdown_mark_holder h;

		read_lock(vol, &text);
		shutdown_mark_holder(buf_str(&text), &h);
		if (error != -EWOULDBLOCK || gave_up(vol))
			return error;
		/* Where it is not ending, it may have ended since. */
		if (waited >= patience_with(vol, &h))
			return flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
		if (!said && waited > SAY_NS)
			log_warn("cache %s: waiting for process %ld, which served it, to end", path,
				 h.pid);
		said |= waited > SAY_NS;
		nanosleep(&pause, NULL);
	}
	return 0;
}

/* Held until the descriptor is closed; the file names the holder, and how the last one ended. */
static int take_lock(struct volume *vol, const char *path, struct opening_message *m)
{
	cleanup_buf struct buf text = {0};
	int error, fd = openat(vol->cache_fd, "lock", O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	if (fd < 0)
		return -errno;
	error = lock_when_ended(vol, path, fd);
	if (error) {
		close(fd);
		return error == -EWOULDBLOCK ? in_use(vol, path, m) : error;
	}
	read_lock(vol, &text);
	vol->last_shutdown = shutdown_mark_read(vol->cache_fd, buf_str(&text));
	vol->lock_fd = fd;
	return 0;
}

static int subdirectory(struct volume *vol, const char *name, int *ret_fd)
{
	int fd;

	if (mkdirat(vol->cache_fd, name, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(vol->cache_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int cache_open_parts(struct volume *vol)
{
	int error = subdirectory(vol, "objects", &vol->objects_fd);

	return error ? error : subdirectory(vol, "trees", &vol->trees_fd);
}

/* A copy of what says what this volume is, from which it is restored where the remote loses it (repair.h). */
static int keep_info(struct volume *vol)
{
	cleanup_buf struct buf text = {0};
	int error;

	if (vol->local_only || faccessat(vol->cache_fd, KEY_VOLUME, R_OK, 0) == 0)
		return 0;
	error = volume_info_encode(&vol->info, &text);
	return error ? error : io_replace_file(vol->cache_fd, KEY_VOLUME, text.data, text.len);
}

/* So that a person who finds the directory learns what it belongs to, without the state. */
static int note_remote(struct volume *vol)
{
	const char *name = remote_name(vol->remote);
	cleanup_buf struct buf noted = {0};

	if (io_read_file(vol->cache_fd, CACHE_REMOTE, CACHE_REMOTE_MAX, &noted) == 0 &&
	    strcmp(buf_str(&noted), name) == 0)
		return 0;
	return io_replace_file(vol->cache_fd, CACHE_REMOTE, name, strlen(name));
}

int cache_open(struct volume *vol, struct buf *out, struct opening_message *m)
{
	int error = cache_root(&vol->options, out, m);

	if (error)
		return error;
	buf_printf(out, "/%s%s", vol->uuid, vol->imports ? "/import" : "");
	error = buf_error(out);
	if (!error)
		error = io_mkdir_p(buf_str(out));
	if (!error) {
		vol->cache_fd = open(buf_str(out), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		error = vol->cache_fd < 0 ? -errno : 0;
	}
	if (!error)
		error = take_lock(vol, buf_str(out), m);
	if (!error)
		error = cache_open_parts(vol);
	if (!error)
		error = subdirectory(vol, "torn", &vol->torn_fd);
	if (!error)
		cache_warn_of_network(vol->cache_fd, buf_str(out));
	/* Only a copy: a full disk must not keep anybody from mounting. */
	if (!error && keep_info(vol))
		log_debug("%s: no copy of %s could be kept", buf_str(out), KEY_VOLUME);
	if (!error && note_remote(vol))
		log_debug("%s: the name of the remote could not be noted", buf_str(out));
	return error ? opening_fail(m, error,
				    "cache directory %s: %s: see to that disk, or give another "
				    "cache with -o cache-dir=DIR",
				    buf_str(out), strerror(-error))
		     : 0;
}

void cache_look(struct volume *vol)
{
	struct stat open_one, named;

	if (fstat(vol->cache_fd, &open_one) < 0 || !open_one.st_nlink)
		return;
	if (stat(vol->cache_path, &named) == 0 && named.st_dev == open_one.st_dev &&
	    named.st_ino == open_one.st_ino)
		return;
	if (!atomic_exchange(&vol->cache_moved, true))
		log_error(
			"%s is another directory now, or none: this mount goes on in the one that it "
			"has open; before it is mounted again, put that back, or wait until all is "
			"uploaded (`epochfs wait`)",
			vol->cache_path);
}

int cache_errno(struct volume *vol, int error)
{
	struct stat objects, trees;

	if (error != -ENOENT || fstat(vol->objects_fd, &objects) < 0 ||
	    fstat(vol->trees_fd, &trees) < 0 || (objects.st_nlink && trees.st_nlink))
		return error;
	if (!atomic_exchange(&vol->cache_gone, true))
		log_error("%s was removed under the mount: what was not in the remote is lost; "
			  "copy what is still readable, then `umount` and mount again",
			  vol->cache_path);
	return -EIO;
}

/* Where caches lie: the directory that nobody named, and a warning where that is reached over a network. */

#define ROOT_CACHE_PARENT "/var/cache"
#define ROOT_CACHE	  ROOT_CACHE_PARENT "/epochfs"
/* More than the kernel's 340 lines of it. */
#define UID_MAP_MAX (16 << 10)
/* In a user namespace another user may be called 0: root's directories are not his. */
static bool is_mapped_root(void)
{
	cleanup_buf struct buf map = {0};
	unsigned long inside, outside;

	return io_read_file(AT_FDCWD, "/proc/self/uid_map", UID_MAP_MAX, &map) == 0 &&
	       sscanf(buf_str(&map), "%lu %lu", &inside, &outside) == 2 && inside == 0 &&
	       outside != 0;
}

/* Root has it, and so has root of a container, whose file system is its own. */
static bool is_root_cache_ours(void)
{
	return geteuid() == 0 && (!is_mapped_root() || access(ROOT_CACHE, W_OK) == 0 ||
				  (errno == ENOENT && access(ROOT_CACHE_PARENT, W_OK) == 0));
}

int volume_cache_root(const struct volume_options *o, struct buf *out)
{
	const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");

	if (o->cache_dir)
		buf_printf(out, "%s", o->cache_dir);
	else if (is_root_cache_ours())
		buf_printf(out, "%s", ROOT_CACHE);
	else if (xdg && xdg[0] == '/')
		buf_printf(out, "%s/epochfs", xdg);
	else if (home && home[0] == '/')
		buf_printf(out, "%s/.cache/epochfs", home);
	else
		return -EINVAL;
	return buf_error(out) ? -ENOMEM : 0;
}

/* ---- file systems that a network lies behind ---- */

/* Whether a cache could lie there, and would be local. */
static bool is_better(const char *path)
{
	struct statfs st;

	return path && path[0] == '/' && access(path, W_OK | X_OK) == 0 && statfs(path, &st) == 0 &&
	       !network_fs_name(&st);
}

void cache_warn_of_network(int fd, const char *path)
{
	static const struct {
		const char *variable; /* or NULL */
		const char *path;
	} places[] = {
		{"SLURM_TMPDIR", NULL},
		{"TMPDIR", NULL},
		{NULL, "/local"},
		{NULL, "/scratch"},
	};
	cleanup_buf struct buf better = {0};
	struct statfs st;
	const char *name = fstatfs(fd, &st) == 0 ? network_fs_name(&st) : NULL;

	if (!name)
		return;
	for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
		const char *variable = places[i].variable;
		const char *place = variable ? getenv(variable) : places[i].path;

		if (is_better(place))
			buf_printf(&better, "%s%s%s%s", better.len ? " or " : ": ",
				   variable ? "$" : "", variable ? variable : place, "/epochfs");
	}
	log_warn(
		"cache %s lies on %s, a network file system: saves wait for it; put the cache on a local disk with "
		"-o cache-dir=DIR%s",
		path, name, better.len ? buf_str(&better) : ", such as $TMPDIR or /local");
}
