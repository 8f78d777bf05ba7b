/* SPDX-License-Identifier: Apache-2.0 */
/* The missing bytes of closed content: fetched, checked, given to the backing file. */
#include "lib/cache/content_private.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

#include "lib/cache/torn.h"
#include "lib/store/store.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"
#include "lib/util/log.h"
#include "lib/util/thread.h"

/* How often a waiting reader asks whether it was interrupted. */
#define POLL_NS (50 * NS_PER_MS)
/* So far ahead of a reader at most, which is two ranges of the store for each connection that there
 * usually is, but no more than a part of the cache; in fetches that are a part of it, so that many
 * are under way while the first ones are used up. */
#define WINDOW_MIN     ((uint64_t)1 << 20)
#define WINDOW_MAX     ((uint64_t)64 << 20)
#define WINDOW_OF_SIZE 8
#define WINDOW_SPANS   4

static uint64_t window_max(const struct content *c)
{
	uint64_t size = c->vol->options.cache_size / WINDOW_OF_SIZE;

	if (!size || size > WINDOW_MAX)
		return WINDOW_MAX;
	return size < WINDOW_MIN ? WINDOW_MIN : size;
}

static uint64_t span_max(const struct content *c)
{
	uint64_t size = window_max(c) / WINDOW_SPANS;

	return size < WINDOW_MIN ? WINDOW_MIN : size;
}

/* ---- failures ---- */

/* Whose bytes they are: "epoch 41: model/a.pt". */
static void describe(struct content *c, struct buf *out)
{
	struct state_version v;
	SCOPED_LOCK(&c->vol->lock);

	if (c->what) {
		buf_printf(out, "%s", c->what);
		return;
	}
	if (state_version_get(c->vol->state, c->version, &v))
		return;
	/* The first of the epochs that hold it. */
	buf_printf(out, "epoch %" PRIu64 ": ", v.born);
	volume_path_locked(c->vol, v.ino, out);
}

/* Before whoever waits is told: an EIO is in the log by the time that a program sees it. */
static void log_failure(struct content *c, const char *part, const struct store_failure *failure,
			int error)
{
	cleanup_buf struct buf what = {0};
	struct remote_state remote = {0};
	const char *why = strerror(-error);

	if (!error || error == -ECANCELED)
		return;
	describe(c, &what);
	remote_get_state(c->vol->remote, &remote);
	if (error == -EIO && (*failure->pack || !remote.failures))
		why = "damaged or missing in the remote";
	log_error("%s: %s cannot be read: %s%s%s", buf_str(&what), part, why,
		  *failure->pack ? ", pack " : "", failure->pack);
}

/* As content.h says it. */
static int reader_errno(int error)
{
	return error == -ECONNREFUSED ? -EHOSTUNREACH : error;
}

/* ---- the recipe ---- */

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
		const struct recipe_segment *s = &f->recipe.segments[i];

		if (!s->zero)
			continue;
		if (f->kept) /* these are not checked, so they are made what they must be */
			fallocate(c->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
				  (off_t)s->offset, (off_t)s->length);
		f->state[i] = SEGMENT_HERE;
		f->missing--;
	}
	f->loaded = true;
	return 0;
}

/* ---- fetching, on threads of its own, so that a reader can be interrupted ---- */

struct job {
	struct content *c;	/* a reference */
	struct fetch_span span; /* count 0: the recipe */
};

static void remove_span_locked(struct fetch *f, const struct fetch_span *span)
{
	struct fetch_span **p = &f->spans;

	while (*p && *p != span)
		p = &(*p)->next;
	if (*p)
		*p = span->next;
}

static void load_recipe(struct content *c)
{
	struct store_failure failure = {0};
	struct recipe recipe = {0};
	int error = store_get_recipe(c->vol->store, &c->fetch.recipe_hash, &recipe, &failure);

	if (!error) {
		SCOPED_LOCK(&c->fetch.lock);
		error = use_recipe_locked(c, &recipe);
	}
	log_failure(c, "its recipe", &failure, error);
	mutex_lock(&c->fetch.lock);
	c->fetch.loading = false;
	c->fetch.error = error;
	pthread_cond_broadcast(&c->fetch.changed);
	mutex_unlock(&c->fetch.lock);
	recipe_free(&recipe);
}

static int write_segment(void *arg, size_t segment, const void *plain, size_t len)
{
	return fetch_write(arg, segment, plain, len);
}

/* The next run of [*first, end) that is still COMING: its length, 0 at the end. */
static size_t next_run(struct fetch *f, size_t *first, size_t end, uint64_t *ret_bytes)
{
	size_t count = 0;
	SCOPED_LOCK(&f->lock);

	*ret_bytes = 0;
	while (*first < end && f->state[*first] != SEGMENT_COMING)
		++*first;
	while (*first + count < end && f->state[*first + count] == SEGMENT_COMING)
		*ret_bytes += f->recipe.segments[*first + count++].length;
	return count;
}

static int fetch_run(struct content *c, size_t first, size_t count, uint64_t bytes,
		     struct store_failure *failure)
{
	int error;

	fetch_make_room(c, bytes, first, count);
	error = store_get_segments(c->vol->store, &c->fetch.recipe, first, count, write_segment, c,
				   failure);
	if (error != -ENOSPC)
		return error;
	/* The disk is full, whatever the limits are: everything else goes, and at last what killed
	 * writers left. */
	do {
		fetch_make_room(c, UINT64_MAX / 2, first, count);
		error = store_get_segments(c->vol->store, &c->fetch.recipe, first, count,
					   write_segment, c, failure);
	} while (error == -ENOSPC && torn_reclaim(c->vol, bytes));
	return error;
}

static void fetch_segments(struct job *j)
{
	struct store_failure failure = {0};
	struct content *c = j->c;
	struct fetch *f = &c->fetch;
	size_t first = j->span.first, end = first + j->span.count, count;
	int error = fetch_find_kept(c, first, j->span.count);
	uint64_t bytes;

	while ((!error || error == -EIO) && (count = next_run(f, &first, end, &bytes))) {
		int failed = fetch_run(c, first, count, bytes, &failure);

		error = failed ? failed : error;
		first += count;
	}
	log_failure(c, "content", &failure, error);
	mutex_lock(&f->lock);
	remove_span_locked(f, &j->span);
	for (size_t i = j->span.first; i < end; i++)
		if (f->state[i] == SEGMENT_COMING)
			f->state[i] = SEGMENT_FAILED;
	if (error)
		f->error = error;
	pthread_cond_broadcast(&f->changed);
	mutex_unlock(&f->lock);
}

static void *run_job(void *arg)
{
	struct job *j = arg;
	struct content *c = j->c;

	if (j->span.count)
		fetch_segments(j);
	else
		load_recipe(c);
	fetch_note_whole(c);
	free(j);
	fetch_thread_ends(c);
	return NULL;
}

int fetch_thread_start(struct content *c, void *(*run)(void *), void *arg)
{
	struct contents *all = c->vol->contents;
	pthread_attr_t attr;
	pthread_t thread;
	int error;

	mutex_lock(&all->lock);
	c->refs++;
	c->threads++;
	all->fetches++;
	mutex_unlock(&all->lock);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	error = thread_start(&thread, &attr, run, arg);
	pthread_attr_destroy(&attr);
	if (!error)
		return 0;
	/* The caller has a reference of its own: this is not the last. */
	mutex_lock(&all->lock);
	c->refs--;
	c->threads--;
	all->fetches--;
	mutex_unlock(&all->lock);
	return error;
}

void fetch_thread_ends(struct content *c)
{
	struct contents *all = c->vol->contents;

	c->threads--;
	content_put(c);
	mutex_lock(&all->lock);
	if (--all->fetches == 0)
		pthread_cond_broadcast(&all->idle);
	mutex_unlock(&all->lock);
}

static int start_job(struct content *c, size_t first, size_t count)
{
	struct job *j = malloc(sizeof(*j));
	int error;

	if (!j)
		return -ENOMEM;
	*j = (struct job){.c = c, .span = {.first = first, .count = count}};
	if (count) {
		SCOPED_LOCK(&c->fetch.lock);
		j->span.next = c->fetch.spans;
		c->fetch.spans = &j->span;
	}
	error = fetch_thread_start(c, run_job, j);
	if (!error)
		return 0;
	mutex_lock(&c->fetch.lock);
	remove_span_locked(&c->fetch, &j->span);
	mutex_unlock(&c->fetch.lock);
	free(j);
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

	mutex_unlock(&c->fetch.lock);
	error = start_job(c, first, count);
	mutex_lock(&c->fetch.lock);
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

/* Starts fetches for what is missing in [first, last], in parts of span_max. */
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
		       f->recipe.segments[i + count].offset - from < span_max(c))
			f->state[i + count++] = SEGMENT_COMING;
		error = start_job_locked(c, i, count);
		if (error) {
			memset(f->state + i, SEGMENT_MISSING, count);
			pthread_cond_broadcast(&f->changed);
			return error;
		}
		i += count - 1;
	}
	return 0;
}

/* Waits for [first, last]: 0, -EINTR, why one of them failed, or -EAGAIN where one was dropped. */
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
		else if (f->state[i] == SEGMENT_MISSING)
			error = -EAGAIN;
		else
			error = f->error ? f->error : -EIO;
	}
	return error;
}

/* Makes [offset, end) local, and asks for what is up to `ahead`, which is not before `end`. */
static int fetch_range_locked(struct content *c, uint64_t offset, uint64_t end, uint64_t ahead,
			      interrupted_fn interrupted, void *arg)
{
	struct fetch *f = &c->fetch;
	size_t first = recipe_find(&f->recipe, offset), last = recipe_find(&f->recipe, end - 1);
	size_t furthest = recipe_find(&f->recipe, ahead - 1);
	int error;

	/* What failed before is tried again for who asks now. */
	for (size_t i = first; i <= last; i++)
		if (f->state[i] == SEGMENT_FAILED)
			f->state[i] = SEGMENT_MISSING;
	do {
		error = start_missing_locked(c, first, furthest);
		if (!error)
			error = wait_segments_locked(c, first, last, interrupted, arg);
	} while (error == -EAGAIN);
	return error;
}

int content_fetch(struct content *c, uint64_t offset, uint64_t len, interrupted_fn interrupted,
		  void *arg)
{
	struct fetch *f = &c->fetch;
	uint64_t end, span = span_max(c), window = window_max(c);
	int error;

	if (!len || offset >= c->size || fetch_whole(f))
		return 0;
	end = len > c->size - offset ? c->size : offset + len;
	mutex_lock(&f->lock);
	error = need_recipe_locked(c, interrupted, arg);
	while (!error && offset < end) {
		uint64_t next = end - offset > span ? offset + span : end;

		error = fetch_range_locked(c, offset, next,
					   end - offset > window ? offset + window : end,
					   interrupted, arg);
		offset = next;
		if (!error && offset < end && interrupted && interrupted(arg))
			error = -EINTR;
	}
	mutex_unlock(&f->lock);
	return reader_errno(error);
}

int fetch_seek(struct content *c, uint64_t offset, int whence, interrupted_fn interrupted,
	       void *arg, uint64_t *ret_offset)
{
	const struct recipe *r = &c->fetch.recipe;
	size_t i;
	int error;
	SCOPED_LOCK(&c->fetch.lock);

	error = need_recipe_locked(c, interrupted, arg);
	if (error)
		return error;
	i = recipe_find(r, offset);
	while (i < r->count && r->segments[i].zero != (whence == SEEK_HOLE))
		i++;
	if (i == r->count && whence == SEEK_DATA)
		return -ENXIO;
	*ret_offset = i == r->count ? r->size : r->segments[i].offset;
	if (*ret_offset < offset)
		*ret_offset = offset;
	return 0;
}

int fetch_for_reader(struct content *c, uint64_t offset, uint64_t len, interrupted_fn interrupted,
		     void *arg)
{
	struct fetch *f = &c->fetch;
	struct read_advice advice = {0};
	int error;

	if (!len || offset >= c->size || fetch_whole(f))
		return 0;
	mutex_lock(&f->lock);
	error = need_recipe_locked(c, interrupted, arg);
	if (!error) {
		advice = read_ahead_note(&f->ahead, offset, offset + len, c->size, window_max(c));
		error = fetch_range_locked(c, offset, offset + len, advice.until, interrupted, arg);
	}
	mutex_unlock(&f->lock);
	if (!error && advice.whole)
		prefetch(c, advice.until);
	return reader_errno(error);
}

/* ---- The rest of a file, once its reader is seen to read all of it. ---- */

/* A file is prefetched that takes no more than this part of the cache: more would drop what has not
 * been read yet. */
#define ROOM_PART 2

struct prefetching {
	struct content *c; /* a reference */
	uint64_t from;
	unsigned long drops;
};

/* Nobody reads it any more, or there was no room for it after all. */
static bool is_over(void *arg)
{
	const struct prefetching *p = arg;

	return atomic_load(&p->c->refs) <= atomic_load(&p->c->threads) ||
	       atomic_load(&p->c->fetch.drops) != p->drops;
}

static void *run(void *arg)
{
	struct prefetching *p = arg;
	struct content *c = p->c;
	int error = content_fetch(c, p->from, UINT64_MAX, is_over, p);

	if (!error)
		error = content_fetch(c, 0, p->from, is_over, p);
	/* It goes on where somebody came after the last had left. */
	if (error == -EINTR && atomic_load(&c->fetch.drops) == p->drops) {
		SCOPED_LOCK(&c->fetch.lock);
		c->fetch.prefetched = false;
	}
	free(p);
	fetch_thread_ends(c);
	return NULL;
}

static bool has_room(const struct content *c)
{
	uint64_t limit = c->vol->options.cache_size;

	return !limit || c->size <= limit / ROOM_PART;
}

static bool is_first(struct content *c)
{
	SCOPED_LOCK(&c->fetch.lock);

	if (c->fetch.prefetched || fetch_whole(&c->fetch))
		return false;
	c->fetch.prefetched = true;
	return true;
}

void prefetch(struct content *c, uint64_t from)
{
	struct prefetching *p;

	if (!has_room(c) || !is_first(c))
		return;
	p = malloc(sizeof(*p));
	if (p)
		*p = (struct prefetching){c, from, atomic_load(&c->fetch.drops)};
	if (!p || fetch_thread_start(c, run, p)) {
		free(p); /* the reader gets his bytes as before */
		log_debug("no thread for prefetching");
	}
}
