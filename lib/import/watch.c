/* SPDX-License-Identifier: Apache-2.0 */
/* Watching an ordinary directory: what is known of it, and when it is looked at. */
#include "lib/import/import.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/import/watch_internal.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/text.h"

#define POLL_NS	 NS_PER_S
#define PROBE_NS (250 * NS_PER_MS)
/* No event tells that the directory itself went: our own descriptor keeps it. */
#define THERE_NS (2 * NS_PER_S)

/* ---- who writes ---- */

enum io_writers watch_writers(struct watch *w, const char *path)
{
	cleanup_close int fd =
		openat(w->root_fd, path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
		return IO_WRITERS_NONE;
	return io_writers(fd);
}

/* An event may be missing (a file that was made without a name), or one of two writers has closed. */
static void probe(void *arg, struct watch_file *f)
{
	struct watch *w = arg;
	enum io_writers writers = watch_writers(w, f->path);

	if (writers == IO_WRITERS_SOME && !f->writing) {
		f->writing = f->fresh = true;
		f->first_ns = f->changed_ns;
	} else if (writers == IO_WRITERS_NONE && f->writing) {
		f->writing = false;
		f->closed = w->pending.opens = w->pending.closed = true;
	}
}

static struct settle_answer decide(struct watch *w, int64_t now_ns)
{
	struct settle_answer a = watch_decide(&w->pending, now_ns);

	if (a.verdict == SETTLE_IDLE || (a.verdict == SETTLE_WAIT && a.hold == SETTLE_HOLD_QUIET))
		return a;
	if (a.verdict == SETTLE_WAIT && now_ns < w->probed_ns + PROBE_NS)
		return a;
	/* Only now, before it counts: it costs an open of each file that changed. */
	w->probed_ns = now_ns;
	watch_each_file(&w->pending, probe, w);
	return w->pending.now != RECORD_TRIGGER_UNKNOWN ? a : watch_decide(&w->pending, now_ns);
}

/* ---- listing ---- */

/* Was this very file there at the last listing? */
static bool was_seen(const struct watch *w, const struct scan_node *n)
{
	for (size_t i = 0; w->has_seen && i < w->seen.count; i++)
		if (scan_same_file(&w->seen.nodes[i], n))
			return true;
	return false;
}

/* The order of a listing is none of time: only a marker that is told by an option seals, once all that is being written is known. */
static int look_at(struct watch *w, const struct scan *s, size_t number, bool markers,
		   int64_t now_ns)
{
	const struct scan_node *n = &s->nodes[number];
	cleanup_buf struct buf path = {0};
	bool written;

	if (!S_ISREG(n->mode) || n->log)
		return 0;
	if (scan_path(s, number, &path))
		return -ENOMEM;
	if (markers && !rules_marker(w->rules, scan_name(s, n), buf_str(&path)))
		return 0;
	written = watch_writers(w, buf_str(&path)) == IO_WRITERS_SOME;
	if (written && !markers)
		return watch_note_write(&w->pending, buf_str(&path), now_ns);
	if (!written && markers && !was_seen(w, n))
		return watch_note_close(&w->pending, buf_str(&path), now_ns);
	return 0;
}

static int look_at_all(struct watch *w, const struct scan *s, bool markers, int64_t now_ns)
{
	int error = 0;

	for (size_t i = 0; !error && i < s->count; i++)
		error = look_at(w, s, i, markers, now_ns);
	return error;
}

int watch_look_through(struct watch *w, int64_t now_ns)
{
	cleanup_scan struct scan next = {0};
	int error = scan_directory(w->root_fd, w->rules, &next);
	size_t first;

	if (error)
		return error;
	error = look_at_all(w, &next, false, now_ns);
	if (!error)
		error = look_at_all(w, &next, true, now_ns);
	/* At first, what is there is news, and an empty directory none. */
	if (w->has_seen ? !scan_equal(&w->seen, &next, &first) : next.count > 1)
		watch_note_unknown(&w->pending, now_ns);
	scan_free(&w->seen);
	w->seen = next;
	w->has_seen = true;
	next = (struct scan){0};
	return error;
}

void watch_list_now(struct watch *w)
{
	w->listed_ns = 0;
}

static int poll_directory(struct watch *w, int64_t now_ns)
{
	if (w->listed_ns && now_ns < w->listed_ns + w->poll_ns)
		return 0;
	w->listed_ns = now_ns;
	return watch_look_through(w, now_ns);
}

/* Removed, renamed, or another is in its place. What cannot be asked just now, as of a server that is away, is there. */
static bool is_gone(const struct watch *w)
{
	struct stat ours, named;

	if (fstat(w->root_fd, &ours) < 0)
		return errno == ESTALE;
	if (stat(w->path, &named) < 0)
		return errno == ENOENT || errno == ENOTDIR;
	return ours.st_dev != named.st_dev || ours.st_ino != named.st_ino;
}

/* ---- the façade ---- */

static int open_parts(struct watch *w, const struct watch_options *o)
{
	int error;

	w->root_fd = open(o->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (w->root_fd < 0)
		return -errno;
	w->path = strdup(o->directory);
	if (!w->path)
		return -ENOMEM;
	error = rules_new(o->volume, &w->rules);
	if (error)
		return error;
	w->pending = (struct watch_pending){
		.rules = w->rules,
		.settle_ns = o->volume->settle_ns,
		.patience_ns = o->volume->patience_ns,
		.last_files = !o->volume->no_last_files,
	};
	w->poll_ns = o->poll_ns;
	w->why = "";
	if (!w->poll_ns)
		watch_inotify_start(w);
	if (w->inotify_fd < 0 && !w->poll_ns)
		w->poll_ns = POLL_NS;
	/* Once the watches are there: nothing comes unseen between. */
	return watch_look_through(w, clock_mono_ns());
}

int watch_open(const struct watch_options *options, struct watch **ret_watch, char **ret_message)
{
	struct watch *w = calloc(1, sizeof(*w));
	int error;

	*ret_message = NULL;
	if (!w)
		return -ENOMEM;
	w->root_fd = w->inotify_fd = -1;
	error = open_parts(w, options);
	if (!error) {
		*ret_watch = w;
		return 0;
	}
	text_print(ret_message, "%s: %s%s%s", options->directory,
		   w->seen.trouble ? w->seen.trouble : "", w->seen.trouble ? ": " : "",
		   strerror(-error));
	watch_close(w);
	return error;
}

void watch_close(struct watch *w)
{
	if (!w)
		return;
	watch_inotify_stop(w);
	watch_pending_free(&w->pending);
	scan_free(&w->seen);
	rules_free(w->rules);
	if (w->root_fd >= 0)
		close(w->root_fd);
	free(w->path);
	free(w);
}

bool watch_polls(const struct watch *w, const char **ret_why)
{
	*ret_why = w->why;
	return w->inotify_fd < 0;
}

int watch_fd(const struct watch *w)
{
	return w->inotify_fd;
}

static int64_t to_wall(int64_t mono_ns)
{
	return mono_ns ? clock_wall_ns() - (clock_mono_ns() - mono_ns) : 0;
}

int watch_turn(struct watch *w, struct watch_moment *ret_moment)
{
	struct watch_pending *p = &w->pending;
	int64_t now_ns = clock_mono_ns();
	int error = w->inotify_fd < 0 ? poll_directory(w, now_ns) : watch_inotify_read(w);
	struct settle_answer a;

	if (!error && is_gone(w))
		error = -ENOENT;
	if (error)
		return error;
	now_ns = clock_mono_ns();
	a = decide(w, now_ns);
	*ret_moment = (struct watch_moment){
		.ready = a.verdict == SETTLE_SEAL,
		.trigger = watch_trigger(p),
		.opened_ns = to_wall(p->opened_ns),
		.save_ns =
			p->content_ns > p->opened_ns ? (uint64_t)(p->content_ns - p->opened_ns) : 0,
		.until_ns = a.verdict == SETTLE_WAIT ? a.until_ns : INT64_MAX,
	};
	if (a.verdict == SETTLE_WAIT && a.hold == SETTLE_HOLD_WRITER &&
	    ret_moment->until_ns > now_ns + PROBE_NS)
		ret_moment->until_ns = now_ns + PROBE_NS;
	if (w->inotify_fd < 0 && ret_moment->until_ns > w->listed_ns + w->poll_ns)
		ret_moment->until_ns = w->listed_ns + w->poll_ns;
	if (ret_moment->until_ns > now_ns + THERE_NS)
		ret_moment->until_ns = now_ns + THERE_NS;
	return 0;
}

bool watch_dirty(const struct watch *w)
{
	return watch_pending_any(&w->pending);
}

void watch_taken(struct watch *w)
{
	watch_sealed(&w->pending);
}

void watch_again(struct watch *w)
{
	watch_note_unknown(&w->pending, clock_mono_ns());
}
