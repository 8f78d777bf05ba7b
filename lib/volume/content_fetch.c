/* SPDX-License-Identifier: Apache-2.0 */
/* The missing bytes of closed content: fetched, checked, written into the sparse backing file. */
#include "lib/volume/content_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lib/store/store.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/log.h"
#include "lib/util/thread.h"
#include "lib/volume/evict.h"

/* How often a waiting reader asks whether it was interrupted. */
#define POLL_NS (50 * NS_PER_MS)
/* Read-ahead of a sequential reader doubles from the one to the other; a fetch is at most the latter long. */
#define WINDOW_MIN ((uint64_t)1 << 20)
#define WINDOW_MAX ((uint64_t)32 << 20)
#define HAVE_MAX   ((size_t)RECIPE_SEGMENTS_MAX)

bool fetch_whole(const struct fetch *f)
{
	return !atomic_load(&f->needed);
}

void fetch_free(struct fetch *f)
{
	recipe_free(&f->recipe);
	free(f->state);
	free(f->kept);
}

/* ---- what an earlier reader left ---- */

static void have_name(uint64_t version, char ret_name[32])
{
	snprintf(ret_name, 32, "%016" PRIx64 ".have", version);
}

/* One byte a segment. It goes at once: after a crash the file below may have less than it said. */
static void take_kept(struct content *c)
{
	cleanup_buf struct buf data = {0};
	char name[32];

	have_name(c->version, name);
	if (io_read_file(c->vol->objects_fd, name, HAVE_MAX, &data) == 0)
		c->fetch.kept = buf_steal(&data, &c->fetch.kept_count);
	unlinkat(c->vol->objects_fd, name, 0);
}

int fetch_open_locked(struct content *c, const struct state_version *v)
{
	bool kept = v->local_bytes != 0;

	if (kept)
		take_kept(c);
	c->fd = object_open(c->vol, c->version, O_RDWR | O_CREAT | (c->fetch.kept ? 0 : O_TRUNC));
	if (c->fd < 0)
		return c->fd;
	if (ftruncate(c->fd, (off_t)c->size) < 0)
		return -errno;
	c->fetch.recipe_hash = v->recipe;
	atomic_store(&c->fetch.needed, true);
	return 0;
}

static void set_local_locked(struct content *c, uint64_t bytes, bool whole)
{
	struct state_version v;

	if (state_version_get(c->vol->state, c->version, &v))
		return;
	v.local_bytes = bytes;
	v.local_whole = whole;
	if (state_version_set(c->vol->state, &v))
		log_warn("the cache's state cannot be written");
}

void fetch_close_locked(struct content *c)
{
	struct fetch *f = &c->fetch;
	char name[32];
	int fd;

	if (fetch_whole(f) || c->fd < 0)
		return;
	if (!f->here_bytes) {
		object_remove(c->vol, c->version);
		set_local_locked(c, 0, false);
		return;
	}
	have_name(c->version, name);
	fd = openat(c->vol->objects_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd >= 0) {
		if (io_write_full(fd, f->state, f->recipe.count))
			unlinkat(c->vol->objects_fd, name, 0);
		close(fd);
	}
	set_local_locked(c, f->here_bytes, false);
}

/* ---- the recipe ---- */

static void log_failure(struct content *c, const char *part, const struct store_failure *failure,
			int error)
{
	cleanup_buf struct buf path = {0};

	if (!c->what) {
		struct state_version v;

		pthread_mutex_lock(&c->vol->lock);
		if (state_version_get(c->vol->state, c->version, &v) == 0)
			volume_path_locked(c->vol, v.ino, &path);
		pthread_mutex_unlock(&c->vol->lock);
	}
	log_error("%s%s: %s cannot be read: %s%s%s",
		  c->what ? c->what : "live tree: ", buf_str(&path), part,
		  error == -EIO ? "damaged or missing in the remote" : strerror(-error),
		  *failure->pack ? ", pack " : "", failure->pack);
}

/* With fetch.lock. */
static int use_recipe_locked(struct content *c, struct recipe *recipe)
{
	struct fetch *f = &c->fetch;

	if (recipe->size != c->size)
		return -EIO;
	f->state = calloc(recipe->count ? recipe->count : 1, 1);
	if (!f->state)
		return -ENOMEM;
	f->recipe = *recipe;
	*recipe = (struct recipe){0};
	f->missing = f->recipe.count;
	for (size_t i = 0; i < f->recipe.count; i++) {
		bool kept =
			f->kept && f->kept_count == f->recipe.count && f->kept[i] == SEGMENT_HERE;

		if (!kept && !f->recipe.segments[i].zero)
			continue;
		f->state[i] = SEGMENT_HERE;
		f->missing--;
		f->here_bytes += f->recipe.segments[i].zero ? 0 : f->recipe.segments[i].length;
	}
	f->loaded = true;
	return 0;
}

/* ---- fetching, on threads of its own, so that a reader can be interrupted ---- */

struct job {
	struct content *c;   /* a reference */
	size_t first, count; /* segments; count 0: the recipe */
};

static int write_segment(void *arg, size_t segment, const void *plain, size_t len)
{
	struct content *c = arg;
	struct fetch *f = &c->fetch;
	const struct recipe_segment *s = &f->recipe.segments[segment];
	int error;

	if (len != s->length)
		return -EIO;
	error = io_pwrite_full(c->fd, plain, len, s->offset);
	if (error)
		return error;
	pthread_mutex_lock(&f->lock);
	if (f->state[segment] != SEGMENT_HERE) {
		f->state[segment] = SEGMENT_HERE;
		f->missing--;
		f->here_bytes += len;
	}
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
	return 0;
}

static int load_recipe(struct content *c, struct store_failure *failure)
{
	struct recipe recipe = {0};
	int error = store_get_recipe(c->vol->store, &c->fetch.recipe_hash, &recipe, failure);

	pthread_mutex_lock(&c->fetch.lock);
	if (!error)
		error = use_recipe_locked(c, &recipe);
	c->fetch.loading = false;
	c->fetch.error = error;
	pthread_cond_broadcast(&c->fetch.changed);
	pthread_mutex_unlock(&c->fetch.lock);
	recipe_free(&recipe);
	return error;
}

static int fetch_segments(struct job *j, struct store_failure *failure)
{
	struct content *c = j->c;
	struct fetch *f = &c->fetch;
	uint64_t bytes = f->recipe.segments[j->first + j->count - 1].offset +
			 f->recipe.segments[j->first + j->count - 1].length -
			 f->recipe.segments[j->first].offset;
	int error = volume_reserve(c->vol, bytes, NULL, NULL);

	if (!error)
		error = store_get_segments(c->vol->store, &f->recipe, j->first, j->count,
					   write_segment, c, failure);
	pthread_mutex_lock(&f->lock);
	for (size_t i = j->first; i < j->first + j->count; i++)
		if (f->state[i] == SEGMENT_COMING)
			f->state[i] = SEGMENT_FAILED;
	if (error)
		f->error = error;
	pthread_cond_broadcast(&f->changed);
	pthread_mutex_unlock(&f->lock);
	return error;
}

/* All is there: the kernel may read the file itself from the next open on. */
static void note_whole(struct content *c)
{
	bool whole;

	pthread_mutex_lock(&c->vol->lock);
	pthread_mutex_lock(&c->fetch.lock);
	whole = c->fetch.loaded && !c->fetch.missing && atomic_exchange(&c->fetch.needed, false);
	pthread_mutex_unlock(&c->fetch.lock);
	if (whole && !c->detached)
		set_local_locked(c, c->size, true);
	pthread_mutex_unlock(&c->vol->lock);
	if (whole)
		evictor_kick(c->vol);
}

static void *run_job(void *arg)
{
	struct job *j = arg;
	struct content *c = j->c;
	struct contents *all = c->vol->contents;
	struct store_failure failure = {0};
	int error;

	if (j->count)
		error = fetch_segments(j, &failure);
	else
		error = load_recipe(c, &failure);
	if (error && error != -ECANCELED)
		log_failure(c, j->count ? "content" : "its recipe", &failure, error);
	note_whole(c);
	free(j);
	content_put(c);
	pthread_mutex_lock(&all->lock);
	if (--all->fetches == 0)
		pthread_cond_broadcast(&all->idle);
	pthread_mutex_unlock(&all->lock);
	return NULL;
}

static int start_job(struct content *c, size_t first, size_t count)
{
	struct contents *all = c->vol->contents;
	struct job *j = malloc(sizeof(*j));
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	if (!j)
		return -ENOMEM;
	*j = (struct job){.c = c, .first = first, .count = count};
	pthread_mutex_lock(&all->lock);
	c->refs++;
	all->fetches++;
	pthread_mutex_unlock(&all->lock);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	error = thread_start(&thread, &attr, run_job, j);
	pthread_attr_destroy(&attr);
	if (!error)
		return 0;
	free(j);
	/* The caller has a reference of its own: this is not the last. */
	pthread_mutex_lock(&all->lock);
	c->refs--;
	all->fetches--;
	pthread_mutex_unlock(&all->lock);
	return error;
}

/* Waits a little with fetch.lock held: 0 or -EINTR. */
static int wait_a_little_locked(struct fetch *f, interrupted_fn interrupted, void *arg)
{
	cond_wait_until(&f->changed, &f->lock, clock_mono_ns() + POLL_NS);
	return interrupted && interrupted(arg) ? -EINTR : 0;
}

/* contents.lock comes before fetch.lock: a job is started without it. */
static int start_job_locked(struct content *c, size_t first, size_t count)
{
	int error;

	pthread_mutex_unlock(&c->fetch.lock);
	error = start_job(c, first, count);
	pthread_mutex_lock(&c->fetch.lock);
	return error;
}

static int need_recipe_locked(struct content *c, interrupted_fn interrupted, void *arg)
{
	struct fetch *f = &c->fetch;
	int error = 0;

	if (!f->loaded && !f->loading) {
		f->loading = true;
		f->error = 0;
		error = start_job_locked(c, 0, 0);
		if (error)
			f->loading = false;
	}
	while (!error && f->loading)
		error = wait_a_little_locked(f, interrupted, arg);
	if (!error && !f->loaded)
		error = f->error ? f->error : -EIO;
	return error;
}

/* How far to fetch for a read that ends at `end`: a reader that goes on where it stopped gets more and more ahead. */
static uint64_t read_ahead_locked(struct content *c, uint64_t offset, uint64_t end)
{
	struct fetch *f = &c->fetch;
	bool sequential = offset == f->next_offset && offset;

	f->next_offset = end;
	if (!sequential)
		f->window = WINDOW_MIN;
	else if (f->window < WINDOW_MAX)
		f->window *= 2;
	if (!sequential)
		return end;
	return c->size - end < f->window ? c->size : end + f->window;
}

/* Starts fetches for what is missing in [first, last], in parts of WINDOW_MAX. */
static int start_missing_locked(struct content *c, size_t first, size_t last)
{
	struct fetch *f = &c->fetch;

	for (size_t i = first; i <= last; i++) {
		uint64_t from = f->recipe.segments[i].offset;
		size_t count = 0;
		int error;

		if (f->state[i] != SEGMENT_MISSING)
			continue;
		while (i + count <= last && f->state[i + count] == SEGMENT_MISSING &&
		       f->recipe.segments[i + count].offset - from < WINDOW_MAX)
			f->state[i + count++] = SEGMENT_COMING;
		error = start_job_locked(c, i, count);
		if (error) {
			memset(f->state + i, SEGMENT_MISSING, count);
			return error;
		}
		i += count - 1;
	}
	return 0;
}

/* Waits for [first, last]: 0, -EINTR, or why one of them failed. */
static int wait_segments_locked(struct content *c, size_t first, size_t last,
				interrupted_fn interrupted, void *arg)
{
	struct fetch *f = &c->fetch;
	int error = 0;

	for (size_t i = first; !error && i <= last;) {
		if (f->state[i] == SEGMENT_HERE)
			i++;
		else if (f->state[i] == SEGMENT_COMING)
			error = wait_a_little_locked(f, interrupted, arg);
		else
			error = f->error ? f->error : -EIO;
	}
	return error;
}

int content_fetch(struct content *c, uint64_t offset, uint64_t len, interrupted_fn interrupted,
		  void *arg)
{
	struct fetch *f = &c->fetch;
	size_t first, last, ahead;
	uint64_t end;
	int error;

	if (!len || offset >= c->size || fetch_whole(f))
		return 0;
	end = len > c->size - offset ? c->size : offset + len;
	pthread_mutex_lock(&f->lock);
	error = need_recipe_locked(c, interrupted, arg);
	if (!error) {
		first = recipe_find(&f->recipe, offset);
		last = recipe_find(&f->recipe, end - 1);
		ahead = recipe_find(&f->recipe, read_ahead_locked(c, offset, end) - 1);
		/* What failed before is tried again for who asks now. */
		for (size_t i = first; i <= last; i++)
			if (f->state[i] == SEGMENT_FAILED)
				f->state[i] = SEGMENT_MISSING;
		error = start_missing_locked(c, first, ahead);
		if (!error)
			error = wait_segments_locked(c, first, last, interrupted, arg);
	}
	pthread_mutex_unlock(&f->lock);
	return error;
}
