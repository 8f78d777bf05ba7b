/* SPDX-License-Identifier: Apache-2.0 */
/* Watching an ordinary directory: from inotify's events to what happened. */
#include "lib/import/watch_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#include "lib/util/array.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/text.h"

#define MASK                                                                                       \
	(IN_CLOSE_WRITE | IN_CREATE | IN_DELETE | IN_DELETE_SELF | IN_MODIFY | IN_MOVED_FROM |     \
	 IN_MOVED_TO | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW | IN_EXCL_UNLINK)
#define EVENTS_LEN ((size_t)64 << 10)
/* The two halves of a rename come together, but perhaps in two reads. */
#define PAIR_MS 10

/* ---- directories ---- */

static int compare_dirs(const void *a, const void *b)
{
	const struct watch_dir *x = a, *y = b;

	return x->wd < y->wd ? -1 : x->wd > y->wd;
}

static struct watch_dir *dir_of(struct watch *w, int wd)
{
	const struct watch_dir key = {.wd = wd};

	return w->dir_count ? bsearch(&key, w->dirs, w->dir_count, sizeof(key), compare_dirs)
			    : NULL;
}

static int set_path(struct watch_dir *d, const char *path)
{
	char *copy = strdup(path);

	if (!copy)
		return -ENOMEM;
	free(d->path);
	d->path = copy;
	return 0;
}

/* Descriptors rise, but for directories that are watched already, which keep theirs. */
static int add_dir(struct watch *w, int wd, const char *path)
{
	struct watch_dir *d = dir_of(w, wd);
	int error;

	if (d)
		return set_path(d, path);
	if (array_reserve((void **)&w->dirs, &w->dir_cap, w->dir_count, sizeof(*w->dirs)))
		return -ENOMEM;
	d = &w->dirs[w->dir_count];
	*d = (struct watch_dir){.wd = wd};
	error = set_path(d, path);
	if (!error)
		w->dir_count++;
	if (!error && w->dir_count > 1 && d[-1].wd > wd)
		qsort(w->dirs, w->dir_count, sizeof(*w->dirs), compare_dirs);
	return error;
}

static void forget_dir(struct watch *w, struct watch_dir *d)
{
	size_t after = w->dir_count - 1 - (size_t)(d - w->dirs);

	free(d->path);
	memmove(d, d + 1, after * sizeof(*d));
	w->dir_count--;
}

static bool lies_in(const char *path, const char *directory)
{
	size_t len = strlen(directory);

	return !strncmp(path, directory, len) && (!path[len] || path[len] == '/');
}

/* The directory went elsewhere: `to` NULL: out of sight. */
static int dirs_moved(struct watch *w, const char *from, const char *to)
{
	for (size_t i = w->dir_count; i-- > 0;) {
		struct watch_dir *d = &w->dirs[i];
		cleanup_free char *path = NULL;
		int error;

		if (!*from || !lies_in(d->path, from))
			continue;
		if (!to) {
			inotify_rm_watch(w->inotify_fd, d->wd);
			forget_dir(w, d);
			continue;
		}
		if (text_print(&path, "%s%s", to, d->path + strlen(from)) < 0)
			return -ENOMEM;
		error = set_path(d, path);
		if (error)
			return error;
	}
	return 0;
}

static char *join(const char *directory, const char *name)
{
	char *path;

	if (text_print(&path, "%s%s%s", directory, *directory ? "/" : "", name) < 0)
		return NULL;
	return path;
}

/* ---- watching a directory with all below ---- */

static int watch_below(struct watch *w, const char *path, bool fresh, int64_t now_ns);

/* What was in the directory before it was watched, or came at that moment. */
static int found(struct watch *w, const char *path, bool fresh, int64_t now_ns)
{
	struct stat st;
	int error;

	if (fstatat(w->root_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (fresh) {
		error = watch_note_made(&w->pending, path,
					S_ISDIR(st.st_mode) ? WATCH_MADE_DIRECTORY
					: S_ISREG(st.st_mode) &&
							watch_writers(w, path) == IO_WRITERS_SOME
						? WATCH_MADE_OPEN
						: WATCH_MADE_WHOLE,
					now_ns);
		if (error)
			return error;
	}
	return S_ISDIR(st.st_mode) ? watch_below(w, path, fresh, now_ns) : 0;
}

static bool is_gone(int err)
{
	return err == ENOENT || err == ENOTDIR || err == ELOOP;
}

static int watch_below(struct watch *w, const char *path, bool fresh, int64_t now_ns)
{
	cleanup_free char *place = NULL;
	cleanup_closedir DIR *dir = NULL;
	int wd, fd, error, got = 1;
	const char *name;

	if (text_print(&place, "/proc/self/fd/%d/%s", w->root_fd, path) < 0)
		return -ENOMEM;
	wd = inotify_add_watch(w->inotify_fd, place, MASK);
	if (wd < 0)
		return is_gone(errno) ? 0 : -errno;
	/* What nobody has watched yet is new, with all in it. */
	fresh = fresh || (w->runs && !dir_of(w, wd));
	error = add_dir(w, wd, path);
	/* Listed after it is watched: what comes meanwhile is seen here or told, perhaps both. */
	fd = openat(w->root_fd, *path ? path : ".",
		    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir && !error && !is_gone(errno))
		error = -errno;
	if (!dir && fd >= 0)
		close(fd);
	while (!error && dir && (got = io_readdir(dir, &name)) > 0) {
		cleanup_free char *below = NULL;

		if (scan_is_ours(name))
			continue;
		below = join(path, name);
		error = below ? found(w, below, fresh, now_ns) : -ENOMEM;
	}
	return !error && got < 0 && !is_gone(-got) ? got : error;
}

void watch_inotify_stop(struct watch *w)
{
	while (w->dir_count)
		forget_dir(w, &w->dirs[w->dir_count - 1]);
	free(w->dirs);
	w->dirs = NULL;
	w->dir_cap = 0;
	free(w->moved);
	w->moved = NULL;
	if (w->inotify_fd >= 0)
		close(w->inotify_fd);
	w->inotify_fd = -1;
}

static void give_up(struct watch *w, int error)
{
	watch_inotify_stop(w);
	w->poll_ns = NS_PER_S;
	w->why = error == -ENOSPC   ? "the limit fs.inotify.max_user_watches is reached"
		 : error == -EMFILE ? "the limit fs.inotify.max_user_instances is reached"
				    : "inotify cannot be had";
}

void watch_inotify_start(struct watch *w)
{
	int error;

	w->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	error = w->inotify_fd < 0 ? -errno : watch_below(w, "", false, clock_mono_ns());
	w->runs = true;
	if (error)
		give_up(w, error);
}

/* ---- events ---- */

static int was_made(struct watch *w, const char *path, bool directory, int64_t now_ns)
{
	enum watch_made how = WATCH_MADE_OPEN;
	struct stat st;
	int error;

	if (directory)
		how = WATCH_MADE_DIRECTORY;
	/* A link is whole, a file usually not yet. */
	else if (fstatat(w->root_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		 (!S_ISREG(st.st_mode) || st.st_nlink > 1 ||
		  watch_writers(w, path) == IO_WRITERS_NONE))
		how = WATCH_MADE_WHOLE;
	error = watch_note_made(&w->pending, path, how, now_ns);
	if (!error && directory)
		error = watch_below(w, path, true, now_ns);
	if (!error)
		watch_note_all_made(&w->pending, path);
	return error;
}

/* The other half of a rename did not come: it left the directory. */
static int moved_away(struct watch *w, int64_t now_ns)
{
	cleanup_free char *from = steal_ptr(w->moved);

	if (!from)
		return 0;
	watch_note_gone(&w->pending, from, now_ns);
	return w->moved_directory ? dirs_moved(w, from, NULL) : 0;
}

static int moved_here(struct watch *w, const struct inotify_event *e, const char *path,
		      int64_t now_ns)
{
	bool directory = e->mask & IN_ISDIR;
	cleanup_free char *from = NULL;
	int error;

	if (w->moved && w->cookie == e->cookie)
		from = steal_ptr(w->moved);
	else
		moved_away(w, now_ns);
	error = watch_note_move(&w->pending, from, path, now_ns);
	if (error || !directory)
		return error;
	error = from ? dirs_moved(w, from, path) : 0;
	/* It, or one in it, may have been renamed before it could be watched. */
	if (!error)
		error = watch_below(w, path, !from, now_ns);
	if (!error && !from)
		watch_note_all_made(&w->pending, path);
	return error;
}

static int take_named(struct watch *w, const struct inotify_event *e, const char *path,
		      int64_t now_ns)
{
	bool directory = e->mask & IN_ISDIR;

	if (e->mask & IN_MOVED_TO)
		return moved_here(w, e, path, now_ns);
	if (w->moved)
		moved_away(w, now_ns);
	if (e->mask & IN_MOVED_FROM) {
		w->moved = strdup(path);
		w->cookie = e->cookie;
		w->moved_directory = directory;
		return w->moved ? 0 : -ENOMEM;
	}
	if (e->mask & IN_CREATE)
		return was_made(w, path, directory, now_ns);
	if (e->mask & IN_DELETE)
		watch_note_gone(&w->pending, path, now_ns);
	if ((e->mask & IN_MODIFY) && !directory)
		return watch_note_write(&w->pending, path, now_ns);
	if ((e->mask & IN_CLOSE_WRITE) && !directory)
		return watch_note_close(&w->pending, path, now_ns);
	return 0;
}

/* The kernel has dropped events: all may be different, and new directories are not watched. */
static int overflowed(struct watch *w, int64_t now_ns)
{
	int error = watch_below(w, "", false, now_ns);

	watch_note_unknown(&w->pending, now_ns);
	return error ? error : watch_look_through(w, now_ns);
}

static int take(struct watch *w, const struct inotify_event *e, int64_t now_ns)
{
	struct watch_dir *d = e->mask & IN_Q_OVERFLOW ? NULL : dir_of(w, e->wd);
	cleanup_free char *path = NULL;

	if (e->mask & IN_Q_OVERFLOW)
		return overflowed(w, now_ns);
	if (!d)
		return 0;
	if (e->mask & (IN_DELETE_SELF | IN_UNMOUNT))
		return *d->path ? 0 : -ENOENT;
	if (e->mask & IN_IGNORED) {
		forget_dir(w, d);
		return 0;
	}
	if (!e->len || scan_is_ours(e->name))
		return 0;
	path = join(d->path, e->name);
	return path ? take_named(w, e, path, now_ns) : -ENOMEM;
}

static int take_all(struct watch *w, const char *events, size_t len)
{
	int64_t now_ns = clock_mono_ns();
	int error = 0;

	for (size_t at = 0; !error && at < len;) {
		const struct inotify_event *e = (const void *)(events + at);

		error = take(w, e, now_ns);
		at += sizeof(*e) + e->len;
	}
	return error;
}

int watch_inotify_read(struct watch *w)
{
	cleanup_free char *events = aligned_alloc(__alignof__(struct inotify_event), EVENTS_LEN);
	struct pollfd more = {.fd = w->inotify_fd, .events = POLLIN};
	int error = events ? 0 : -ENOMEM;

	while (!error) {
		ssize_t len = read(w->inotify_fd, events, EVENTS_LEN);

		if (len > 0)
			error = take_all(w, events, (size_t)len);
		else if (len < 0 && errno != EAGAIN && errno != EINTR)
			error = -errno;
		else if (!w->moved || poll(&more, 1, PAIR_MS) < 1)
			break;
	}
	if (!error)
		error = moved_away(w, clock_mono_ns());
	/* No more directories can be watched: from now on they are listed. */
	if (error == -ENOSPC || error == -EMFILE) {
		give_up(w, error);
		return watch_look_through(w, clock_mono_ns());
	}
	return error;
}
