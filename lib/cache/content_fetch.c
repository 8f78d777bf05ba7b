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

/* How often a waiting reader asks whether it was interrupted. */
#define POLL_NS (50 * NS_PER_MS)
/* So far ahead of a reader at most, which is two ranges of the store for each connection that there
 * usually is, but no more than a part of the cache. */
#define WINDOW_MIN     ((uint64_t)1 << 20)
#define WINDOW_MAX     ((uint64_t)64 << 20)
#define WINDOW_OF_SIZE 8
/* Where the disk was full, so long it is not tried again for a reader. */
#define FULL_NS NS_PER_S

static uint64_t window_max(const struct content *c)
{
	uint64_t size = c->vol->options.cache_size / WINDOW_OF_SIZE;

	if (!size || size > WINDOW_MAX)
		return WINDOW_MAX;
	return size < WINDOW_MIN ? WINDOW_MIN : size;
}

/* The most bytes of one fetch: a part of the window, so that many are under way while the first ones are used up. */
static uint64_t span_max(const struct content *c)
{
	uint64_t size = window_max(c) / FETCH_SPANS;

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

	if (!error || error == -ECANCELED || error == -EINTR ||
	    error == -ENOSPC) /* fetch_past_disk */
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

/* ---- one fetch ---- */

void fetch_bring_recipe(struct content *c)
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
		     const atomic_bool *waits, struct store_failure *failure)
{
	struct store *store = c->vol->store;
	int error;

	fetch_make_room(c, bytes, first, count);
	error = store_get_segments_ahead(store, &c->fetch.recipe, first, count, write_segment, c,
					 waits, failure);
	if (error != -ENOSPC)
		return error;
	/* The disk is full, whatever the limits are: everything else goes, and at last what killed
	 * writers left. */
	do {
		fetch_make_room(c, UINT64_MAX / 2, first, count);
		error = store_get_segments_ahead(store, &c->fetch.recipe, first, count,
						 write_segment, c, waits, failure);
	} while (error == -ENOSPC && torn_reclaim(c->vol, bytes));
	return error;
}

int fetch_bring(struct content *c, size_t first, size_t count, const atomic_bool *waits)
{
	struct store_failure failure = {0};
	size_t end = first + count, run;
	int error = fetch_find_kept(c, first, count);
	uint64_t bytes;

	while ((!error || error == -EIO) && (run = next_run(&c->fetch, &first, end, &bytes))) {
		int failed = fetch_run(c, first, run, bytes, waits, &failure);

		error = failed ? failed : error;
		first += run;
	}
	log_failure(c, "content", &failure, error);
	return error;
}

size_t fetch_claim_locked(struct content *c, size_t first, size_t last)
{
	struct fetch *f = &c->fetch;
	uint64_t from = f->recipe.segments[first].offset;
	size_t end = first;

	while (end <= last && f->state[end] == SEGMENT_MISSING &&
	       f->recipe.segments[end].offset - from < span_max(c))
		f->state[end++] = SEGMENT_COMING;
	return end - first;
}

/* ---- waiting for it ---- */

/* Waits a little with fetch.lock held: 0 or -EINTR. */
static int wait_a_little_locked(struct fetch *f, interrupted_fn interrupted, void *arg)
{
	cond_wait_until(&f->changed, &f->lock, clock_mono_ns() + POLL_NS);
	return interrupted && interrupted(arg) ? -EINTR : 0;
}

static int need_recipe_locked(struct content *c, interrupted_fn interrupted, void *arg)
{
	struct fetch *f = &c->fetch;
	int error = 0;

	if (!f->loaded && !f->loading) {
		f->loading = true;
		f->error = 0;
		error = fetch_start_locked(c, 0, 0, POOL_NOW, false);
		if (error)
			f->loading = false;
	}
	while (!error && f->loading)
		error = wait_a_little_locked(f, interrupted, arg);
	if (!error && !f->loaded)
		error = f->error ? f->error : -EIO;
	return error;
}

/* Starts fetches for what is missing in [first, furthest], of which somebody waits for what is up to `last`. What lies ahead is
 * no matter where there is no thread for it. */
static int start_missing_locked(struct content *c, size_t first, size_t last, size_t furthest)
{
	int error = 0;

	for (size_t i = first; !error && i <= furthest;) {
		size_t count = fetch_claim_locked(c, i, furthest);

		if (count)
			error = fetch_start_locked(c, i, count, i > last ? POOL_LATER : POOL_NOW,
						   false);
		if (error && i > last)
			return 0;
		i += count ? count : 1;
	}
	return error;
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
		else if (f->state[i] == SEGMENT_COMING && fetch_hurry_locked(c, i, last))
			continue;
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
		error = start_missing_locked(c, first, last, furthest);
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

	if (!len || offset >= c->size)
		return 0;
	if (c->bytes && c->version)
		return inline_place(c);
	if (fetch_whole(f))
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

static bool is_here_locked(const struct fetch *f, uint64_t offset, uint64_t len)
{
	size_t i = recipe_find(&f->recipe, offset),
	       last = recipe_find(&f->recipe, offset + len - 1);

	while (i <= last && f->state[i] == SEGMENT_HERE)
		i++;
	return i > last;
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
	if (!error && clock_mono_ns() < f->full_until_ns && !is_here_locked(f, offset, len))
		error = -ENOSPC;
	if (!error) {
		advice = read_ahead_note(&f->ahead, offset, offset + len, c->size, window_max(c));
		error = fetch_range_locked(c, offset, offset + len, advice.until, interrupted, arg);
		if (error == -ENOSPC)
			f->full_until_ns = clock_mono_ns() + FULL_NS;
	}
	mutex_unlock(&f->lock);
	if (!error && advice.whole)
		prefetch(c, advice.until);
	return reader_errno(error);
}

/* ---- without the disk ---- */

static int keep_segment(void *arg, size_t segment, const void *plain, size_t len)
{
	struct buf *bytes = arg;

	(void)segment;
	buf_reset(bytes);
	buf_put(bytes, plain, len);
	return buf_error(bytes);
}

/* Takes what was read last, which is of `ret_segment`; SIZE_MAX where there is nothing. */
static void take_past(struct fetch *f, struct buf *out, size_t *ret_segment)
{
	SCOPED_LOCK(&f->lock);
	*out = f->past;
	f->past = (struct buf){0};
	*ret_segment = out->len ? f->past_segment : SIZE_MAX;
}

static void give_past(struct fetch *f, struct buf *bytes, size_t segment)
{
	SCOPED_LOCK(&f->lock);
	buf_free(&f->past);
	f->past = *bytes;
	f->past_segment = segment;
}

/* The part of a segment that lies in [offset, offset + len). */
static void copy_part(const struct recipe_segment *s, const uint8_t *bytes, uint8_t *data,
		      size_t len, uint64_t offset)
{
	uint64_t from = s->offset > offset ? s->offset : offset;
	uint64_t end = s->offset + s->length;

	end = end < offset + len ? end : offset + len;
	memcpy(data + (from - offset), bytes + (from - s->offset), end - from);
}

int fetch_past_disk(struct content *c, void *data, size_t len, uint64_t offset,
		    interrupted_fn interrupted, void *arg)
{
	struct fetch *f = &c->fetch;
	struct store_failure failure = {0};
	size_t first, last, held;
	struct buf bytes;
	int error = 0;

	mutex_lock(&f->lock);
	error = f->loaded ? 0 : -ENOSPC; /* from here on it does not change */
	mutex_unlock(&f->lock);
	if (error)
		return error;
	take_past(f, &bytes, &held);
	memset(data, 0, len);
	first = recipe_find(&f->recipe, offset);
	last = recipe_find(&f->recipe, offset + len - 1);
	for (size_t i = first; !error && i <= last; i++) {
		const struct recipe_segment *s = &f->recipe.segments[i];

		if (s->zero)
			continue;
		if (interrupted && interrupted(arg))
			error = -EINTR;
		else if (i != held)
			error = store_get_segments(c->vol->store, &f->recipe, i, 1, keep_segment,
						   &bytes, &failure);
		if (!error && bytes.len != s->length)
			error = -EIO;
		if (!error)
			copy_part(s, bytes.data, data, len, offset);
		held = error ? SIZE_MAX : i;
	}
	log_failure(c, "content", &failure, error);
	if (error)
		buf_reset(&bytes);
	give_past(f, &bytes, held);
	return reader_errno(error);
}
