/* SPDX-License-Identifier: Apache-2.0 */
/* Trying out a remote: its operations, one by one, and their speed. */

#include "lib/admin/check.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/meta/opening.h"
#include "lib/net/open.h"
#include "lib/remote/remote.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/hash.h"
#include "lib/util/lock.h"
#include "lib/util/parse.h"
#include "lib/util/text.h"
#include "lib/util/thread.h"

/* What the parts of check.h share. Private to check*.c. */

struct check {
	const struct check_options *how;
	struct remote *remote;
	char id[17];		 /* of this run's objects */
	struct remote_keys keys; /* of all that was put: to be deleted */
	json_t *operations;	 /* grows */
	_Atomic bool cancelled;	 /* the remote is */
	_Atomic bool done;	 /* nothing is left to be cancelled */
	bool usable;		 /* so far */
	bool ranges;		 /* exact */
	enum remote_create create;
	bool racy;
	char stays[2 *
		   REMOTE_TEXT_MAX]; /* what of the check's own cannot be deleted; "": nothing */
	json_t *latency, *throughput;
	double upload, download; /* the best bytes a second; 0: not known */
};

#define CHECK_KEY_MAX 320

/* The key of an object of this run, which will be deleted at the end: in `ret_key`, for the
 * callers, which run one at a time. */
static const char *check_key(struct check *c, const char *name, char ret_key[CHECK_KEY_MAX]);
static void check_step(const struct check *c, const char *what);
/* One line of the report: error 0 is ok, else a failure, told by `detail` or where that is NULL by
 * the remote's words. A failure of what is `needed` makes the remote unusable. */
static void check_note(struct check *c, const char *name, int error, bool needed,
		       const char *detail);

/* Latency and throughput. */
static void check_speed(struct check *c);

#define RACERS 8
#define ROUNDS 10
/* How often it is asked whether somebody wants the end. */
#define WATCH_US 50000
/* Attempts to delete all that was put. */
#define CLEAN_UPS 3

/* Gives another error where what came back is wrong. */
#define WRONG (-EBADMSG)

static const char *check_key(struct check *c, const char *name, char ret_key[CHECK_KEY_MAX])
{
	snprintf(ret_key, CHECK_KEY_MAX, "packs/epochfs.probe-%s-%s", c->id, name);
	/* Want of memory is told at the end. */
	remote_keys_add(&c->keys, ret_key);
	return ret_key;
}

static void check_step(const struct check *c, const char *what)
{
	if (c->how->step)
		c->how->step(c->how->step_arg, what);
}

static void check_note(struct check *c, const char *name, int error, bool needed,
		       const char *detail)
{
	char text[REMOTE_TEXT_MAX];
	json_t *words = NULL;

	if (error && !detail)
		detail = error == WRONG ? CHECK_OTHER_BYTES
					: remote_strerror(c->remote, error, text);
	if (detail)
		words = json_string(detail);
	json_array_append_new(c->operations, json_pack("{s:s, s:b, s:o?}", "name", name, "ok",
						       !error, "detail", words));
	if (error && needed)
		c->usable = false;
}

/* ---- single operations */

static int put_text(struct check *c, const char *key, const char *text)
{
	return remote_put(c->remote, key, text, strlen(text));
}

/* The part of the object is this text, and no more. */
static int expect(struct check *c, const char *key, uint64_t offset, uint64_t len, const char *text)
{
	struct buf cleanup_buf got = {0};
	int error = remote_get(c->remote, key, offset, len, &got);

	if (error)
		return error;
	if (got.len != strlen(text))
		return WRONG;
	return !got.len || memcmp(got.data, text, got.len) == 0 ? 0 : WRONG;
}

static int expect_size(struct check *c, const char *key, uint64_t size)
{
	uint64_t got = 0;
	int error = remote_size(c->remote, key, &got);

	return error ? error : got == size ? 0 : WRONG;
}

static int try_ranges(struct check *c, const char *key)
{
	static const struct {
		uint64_t offset, len;
		const char *text;
	} ranges[] = {{0, 1, "0"},
		      {3, 4, "3456"},
		      {9, 1, "9"},
		      {8, 100, "89"},
		      {5, REMOTE_TO_END, "56789"},
		      {10, 5, ""}};
	int error = 0;

	for (size_t i = 0; i < sizeof(ranges) / sizeof(ranges[0]) && !error; i++)
		error = expect(c, key, ranges[i].offset, ranges[i].len, ranges[i].text);
	return error;
}

static int try_replace(struct check *c, const char *key)
{
	int error = put_text(c, key, "another, longer content");

	if (!error)
		error = expect(c, key, 0, REMOTE_TO_END, "another, longer content");
	if (!error)
		error = put_text(c, key, "short");
	return error ? error : expect(c, key, 0, REMOTE_TO_END, "short");
}

/* An empty object, the longest name, and two that differ by case only. */
static int try_odd(struct check *c)
{
	char key[CHECK_KEY_MAX], other[CHECK_KEY_MAX], name[256] = "";
	size_t used = strlen("epochfs.probe--") + strlen(c->id);
	int error = put_text(c, check_key(c, "empty", key), "");

	if (!error)
		error = expect_size(c, key, 0);
	memset(name, 'n', 255 - used);
	if (!error)
		error = put_text(c, check_key(c, name, key), "long");
	if (!error)
		error = expect(c, key, 0, REMOTE_TO_END, "long");
	if (!error)
		error = put_text(c, check_key(c, "Case._-", key), "upper");
	if (!error)
		error = put_text(c, check_key(c, "case._-", other), "lower");
	return error ? error : expect(c, key, 0, REMOTE_TO_END, "upper");
}

struct listed {
	const struct check *c;
	uint64_t objects, ours;
};

static int count_key(void *arg, const char *key, uint64_t size)
{
	struct listed *l = arg;

	(void)size;
	l->objects++;
	l->ours += strstr(key, l->c->id) != NULL;
	return 0;
}

static int try_list(struct check *c, uint64_t want, char ret_detail[64])
{
	struct listed l = {.c = c};
	int error = remote_list(c->remote, "packs/", count_key, &l);

	snprintf(ret_detail, 64, "%llu object%s in packs/", (unsigned long long)l.objects,
		 plural(l.objects));
	if (error)
		return error;
	if (l.ours == want)
		return 0;
	snprintf(ret_detail, 64, "%llu of the %llu objects just put are listed",
		 (unsigned long long)l.ours, (unsigned long long)want);
	return WRONG;
}

static int try_delete(struct check *c, const char *key)
{
	struct buf cleanup_buf got = {0};
	int error = remote_delete(c->remote, key);

	if (!error)
		error = remote_get(c->remote, key, 0, 1, &got);
	if (error != -ENOENT)
		return error ? error : WRONG;
	return remote_delete(c->remote, key);
}

/* ---- creating only if absent */

struct race {
	struct check *c;
	char key[CHECK_KEY_MAX];
	struct rwlock start; /* held for writing until all are there */
	atomic_uint winners;
	atomic_int failed; /* the last error that is no answer */
};

static void *race_once(void *arg)
{
	struct race *race = arg;
	uint8_t bytes[16];
	int error = random_bytes(bytes, sizeof(bytes));

	rwlock_read(&race->start);
	rwlock_unlock(&race->start);
	if (!error)
		error = remote_put_if_absent(race->c->remote, race->key, bytes, sizeof(bytes));
	if (!error)
		atomic_fetch_add(&race->winners, 1);
	else if (error != -EEXIST)
		atomic_store(&race->failed, error);
	return NULL;
}

/* Eight at once for one name: 0 where one won, 1 where more or none did, or an error. */
static int race_round(struct check *c, unsigned round)
{
	struct race race = {.c = c};
	pthread_t threads[RACERS];
	unsigned started = 0;
	int error = 0;
	char name[24];

	snprintf(name, sizeof(name), "race-%u", round);
	check_key(c, name, race.key);
	rwlock_init(&race.start, LOCK_CHECK_RACE);
	rwlock_write(&race.start);
	while (started < RACERS && !error) {
		error = thread_start(&threads[started], NULL, race_once, &race);
		started += !error;
	}
	rwlock_unlock(&race.start);
	for (unsigned i = 0; i < started; i++)
		pthread_join(threads[i], NULL);
	rwlock_destroy(&race.start);
	if (error || race.failed)
		return error ? error : race.failed;
	return race.winners == 1 ? 0 : 1;
}

static void try_race(struct check *c)
{
	unsigned wrong = 0;
	char detail[96];
	int error = 0;

	check_step(c, "8 writers that create one object");
	for (unsigned i = 0; i < ROUNDS && error >= 0; i++) {
		error = race_round(c, i);
		wrong += error == 1;
	}
	snprintf(detail, sizeof(detail), "one winner in %u of %u races of %u", ROUNDS - wrong,
		 ROUNDS, RACERS);
	c->racy = error >= 0 && wrong > 0;
	check_note(c, "create in a race",
		   error < 0 ? error
		   : wrong   ? WRONG
			     : 0,
		   false, error < 0 ? NULL : detail);
}

static void try_create(struct check *c)
{
	char key[CHECK_KEY_MAX];
	int error;

	check_step(c, "create if absent");
	c->create = REMOTE_CREATE_NONE;
	error = remote_check_create(c->remote, &c->create);
	check_key(c, "create", key);
	if (!error)
		error = remote_put_if_absent(c->remote, key, "first", 5);
	if (!error) {
		error = remote_put_if_absent(c->remote, key, "second", 6);
		error = error == -EEXIST ? expect(c, key, 0, REMOTE_TO_END, "first")
			: error		 ? error
					 : WRONG;
	}
	check_note(
		c, "create if absent", error, true,
		error				    ? NULL
		: c->create == REMOTE_CREATE_ATOMIC ? "by the remote itself"
		: remote_keeps_versions(c->remote)
			? "not by the remote, whose bucket keeps versions: the first version counts"
			: "not by the remote: epochfs looks first");
	if (!error && c->create == REMOTE_CREATE_ATOMIC)
		try_race(c);
}

/* ---- all of it */

static void try_all(struct check *c)
{
	char key[CHECK_KEY_MAX], detail[64];
	int error;

	check_key(c, "object", key);
	check_step(c, "put, get, replace");
	error = put_text(c, key, "0123456789");
	check_note(c, "put", error, true, NULL);
	check_note(c, "get", expect(c, key, 0, REMOTE_TO_END, "0123456789"), true, NULL);
	error = try_ranges(c, key);
	c->ranges = !error;
	check_note(c, "get a range", error, true, NULL);
	check_note(c, "size", expect_size(c, key, 10), true, NULL);
	check_note(c, "replace", try_replace(c, key), true, NULL);
	check_note(c, "odd names, empty object", try_odd(c), true, NULL);
	check_step(c, "list");
	error = try_list(c, 5, detail);
	check_note(c, "list", error, true, error && error != WRONG ? NULL : detail);
	check_note(c, "delete", try_delete(c, key), true, NULL);
	try_create(c);
}

/* Where versions are kept, those of all that was put. */
static void erase(struct check *c)
{
	char begin[CHECK_KEY_MAX], why[REMOTE_TEXT_MAX];
	int error;

	snprintf(begin, sizeof(begin), "packs/epochfs.probe-%s-", c->id);
	error = remote_erase_versions(c->remote, begin);
	if (!error)
		return;
	snprintf(
		c->stays, sizeof(c->stays),
		"versions of the check's own objects, packs/epochfs.probe-%s-*, stay until the bucket lets go of them, for it may not delete "
		"them (a lock, or no leave to list and delete versions): %s",
		c->id, remote_strerror(c->remote, error, why));
	check_note(c, "clean up versions", error, false, NULL);
}

/* Deletes what was put: the last entry of the report. */
static void clean_up(struct check *c)
{
	int tries = 0, error;

	check_step(c, "cleaning up");
	/* A failure that may pass leaves the rest. */
	do
		error = remote_keys_delete(c->remote, &c->keys);
	while (remote_may_retry(error) && ++tries < CLEAN_UPS);
	if (error)
		check_note(c, "clean up", error, false, NULL);
	else
		erase(c);
}

static void advise(json_t *advice, const char *text)
{
	json_array_append_new(advice, json_string(text));
}

static json_t *make_advice(const struct check *c)
{
	json_t *advice = json_array();
	char text[256], rate[FORMAT_MAX];

	if (!c->usable) {
		advise(advice, "a volume cannot be kept here until what failed above works");
		return advice;
	}
	if (c->create != REMOTE_CREATE_ATOMIC && remote_keeps_versions(c->remote))
		advise(advice,
		       "the bucket keeps versions (versioning, or object lock), and the server then "
		       "ignores the condition of a create: epochfs looks, puts, and lets the first version count, which an answer that "
		       "is lost or a mount that dies at that moment can spoil: take a bucket "
		       "without versions, or never let two write to this volume");
	else if (c->create != REMOTE_CREATE_ATOMIC)
		advise(advice,
		       "the remote cannot create an object only if it is absent: epochfs looks, "
		       "puts and reads back, which two mounts at the same moment can pass: "
		       "never let two write to this volume");
	else if (c->racy)
		advise(advice,
		       "the remote refuses what exists, but not when writers race: never let two "
		       "mounts start to write to this volume at the same moment");
	else
		advise(advice, "one mount writes at a time: a second one is told who does");
	if (remote_keeps_versions(c->remote))
		advise(advice, REMOTE_VERSIONS_ADVICE);
	if (remote_redirects_to(c->remote)) {
		snprintf(text, sizeof(text),
			 "reads are redirected to %s, which must be reachable, too",
			 remote_redirects_to(c->remote));
		advise(advice, text);
	}
	if (*c->stays)
		advise(advice, c->stays);
	if (c->upload > 0) {
		format_size((uint64_t)c->upload, rate);
		snprintf(text, sizeof(text), "new data uploads at about %s/s: %.0f s for each GiB",
			 rate, (double)(1 << 30) / c->upload);
		advise(advice, text);
	}
	if (c->download > 0) {
		format_size((uint64_t)c->download, rate);
		snprintf(text, sizeof(text),
			 "a cold restore reads at about %s/s: %.0f s for each GiB", rate,
			 (double)(1 << 30) / c->download);
		advise(advice, text);
	}
	return advice;
}

static const char *create_word(const struct check *c)
{
	if (c->racy)
		return "racy";
	switch (c->create) {
	case REMOTE_CREATE_ATOMIC:
		return "atomic";
	case REMOTE_CREATE_CHECKED:
		return "checked";
	default:
		return "none";
	}
}

/* ---- being interrupted */

static void *watch_main(void *arg)
{
	struct check *c = arg;

	while (!c->done && !c->how->interrupted(c->how->interrupted_arg))
		usleep(WATCH_US);
	if (!c->done) {
		c->cancelled = true;
		remote_cancel(c->remote);
	}
	return NULL;
}

/* Waits for the end of the thread that watches, if there is one; from then on the remote works again. */
static void end_watch(struct check *c, pthread_t *watch)
{
	if (!watch || c->done)
		return;
	c->done = true;
	pthread_join(*watch, NULL);
	if (c->cancelled)
		remote_resume(c->remote);
}

/* NULL: not known. */
static json_t *clock_ahead(const struct check *c)
{
	int64_t ahead_ns;

	return remote_clock(c->remote, &ahead_ns) ? json_integer(ahead_ns / NS_PER_MS) : NULL;
}

/* NULL: never, as far as is known. */
static json_t *expiry(const struct check *c)
{
	struct remote_expiry e;

	return remote_expiry(c->remote, &e) ? json_pack("{s:I, s:b}", "expires_ns",
							(json_int_t)e.at_ns, "renewed", e.renewed)
					    : NULL;
}

static int run_check(struct check *c, pthread_t *watch, json_t **ret_report)
{
	const char *guard = remote_upload_check(c->remote);
	json_t *report;

	c->operations = json_array();
	c->latency = json_object();
	c->throughput = json_object();
	c->usable = true;
	try_all(c);
	if (!c->how->unmeasured)
		check_speed(c);
	end_watch(c, watch);
	clean_up(c);
	report = json_pack("{s:s, s:b, s:o, s:s, s:b, s:s?, s:o?, s:s?, s:o?, s:o, s:o, s:o}",
			   "remote", remote_name(c->remote), "usable", c->usable, "operations",
			   c->operations, "create_if_absent", create_word(c), "keeps_versions",
			   (int)remote_keeps_versions(c->remote), "upload_check", guard,
			   "clock_ahead_ms", clock_ahead(c), "redirects_to",
			   remote_redirects_to(c->remote), "credentials", expiry(c), "latency_ms",
			   c->latency, "throughput", c->throughput, "advice", make_advice(c));
	if (!report || buf_error(&c->keys.text)) {
		json_decref(report);
		return -ENOMEM;
	}
	*ret_report = report;
	return 0;
}

/* Whether anything can be put there at all: the error of check_remote. */
static int make_contact(struct check *c, struct opening_message *m)
{
	char key[CHECK_KEY_MAX];
	uint8_t random[8];
	int error = random_bytes(random, sizeof(random));

	if (error)
		return error;
	hex_encode(random, sizeof(random), c->id);
	error = put_text(c, check_key(c, "object", key), "first");
	return error ? contact_fail(c->remote, error, m) : 0;
}

static int try_remote(struct check *c, struct opening_message *m, json_t **ret_report)
{
	pthread_t thread, *watch = NULL;
	int error;

	if (c->how->interrupted && thread_start(&thread, NULL, watch_main, c) == 0)
		watch = &thread;
	error = make_contact(c, m);
	if (!error)
		error = run_check(c, watch, ret_report);
	end_watch(c, watch);
	if (!c->cancelled)
		return error;
	/* Where it came to a report, that is one of what was cancelled. */
	if (error && remote_keys_delete(c->remote, &c->keys) == 0)
		erase(c);
	if (!error)
		json_decref(*ret_report);
	free(m->text);
	m->text = NULL;
	return -EINTR;
}

int check_remote(const char *url, const struct check_options *options, json_t **ret_report,
		 char **ret_message)
{
	struct check c = {.how = options};
	struct opening_message m = {0};
	char text[REMOTE_TEXT_MAX];
	int error = remote_open_with(url, &options->limits, &c.remote);

	if (error) {
		error = opening_fail(&m, contact_open_errno(error), "%s",
				     remote_open_strerror(url, error, text));
	} else {
		error = try_remote(&c, &m, ret_report);
	}
	remote_close(c.remote);
	remote_keys_free(&c.keys);
	*ret_message = m.text;
	return error;
}

/* Trying out a remote: how long small requests take, and how many bytes go through. */

#define SAMPLES	     9
#define TRANSFERS    3 /* of one object at a time; and rounds of many */
#define DEFAULT_SIZE (UINT64_C(8) << 20)
#define FIRST_SIZE   (UINT64_C(256) << 10)
#define MANY_MAX     32
#define SLOW_NS	     (2 * NS_PER_S) /* for FIRST_SIZE: more is not asked of such a line */

static int compare_ns(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

static int64_t median(int64_t *ns, size_t count)
{
	qsort(ns, count, sizeof(*ns), compare_ns);
	return ns[count / 2];
}

/* ---- latency */

enum small { SMALL_PUT, SMALL_GET, SMALL_SIZE, SMALL_LIST, SMALL_DELETE, SMALL_COUNT };

static int skip_key(void *arg, const char *key, uint64_t size)
{
	(void)arg, (void)key, (void)size;
	return 0;
}

static int do_small(struct check *c, enum small what, const char *key)
{
	struct buf cleanup_buf got = {0};
	uint64_t size;

	switch (what) {
	case SMALL_PUT:
		return remote_put(c->remote, key, "small", 5);
	case SMALL_GET:
		return remote_get(c->remote, key, 0, REMOTE_TO_END, &got);
	case SMALL_SIZE:
		return remote_size(c->remote, key, &size);
	case SMALL_LIST:
		return remote_list(c->remote, "epochs/", skip_key, NULL);
	default:
		return remote_delete(c->remote, key);
	}
}

static void measure_latency(struct check *c)
{
	static const char *const names[SMALL_COUNT] = {"put", "get", "size", "list", "delete"};
	int64_t ns[SMALL_COUNT][SAMPLES];
	char key[CHECK_KEY_MAX];

	check_step(c, "latency");
	check_key(c, "small", key);
	for (size_t i = 0; i < SAMPLES; i++)
		for (int what = 0; what < SMALL_COUNT; what++) {
			int64_t start = clock_mono_ns();
			int error = do_small(c, (enum small)what, key);

			ns[what][i] = clock_mono_ns() - start;
			if (error) {
				check_note(c, "small requests in a row", error, true, NULL);
				return;
			}
		}
	for (int what = 0; what < SMALL_COUNT; what++)
		json_object_set_new(c->latency, names[what],
				    json_real((double)median(ns[what], SAMPLES) / NS_PER_MS));
}

/* ---- throughput */

struct mover {
	struct check *c;
	char key[CHECK_KEY_MAX];
	const uint8_t *data;
	size_t len;
	bool upload;
	int error;
	pthread_t thread;
};

/* One object there or back; what comes back is compared. */
static void *move_one(void *arg)
{
	struct buf cleanup_buf got = {0};
	struct mover *m = arg;

	if (m->upload) {
		m->error = remote_put(m->c->remote, m->key, m->data, m->len);
		return NULL;
	}
	m->error = remote_get(m->c->remote, m->key, 0, REMOTE_TO_END, &got);
	if (!m->error && (got.len != m->len || memcmp(got.data, m->data, m->len) != 0))
		m->error = -EBADMSG;
	return NULL;
}

/* Moves all at once: how long it took, or -errno. */
static int64_t move_all(struct mover *movers, unsigned count, bool upload)
{
	int64_t start = clock_mono_ns();
	unsigned started = 0;
	int error = 0;

	for (unsigned i = 0; i < count; i++)
		movers[i].upload = upload;
	while (started + 1 < count && !error) {
		error = thread_start(&movers[started].thread, NULL, move_one, &movers[started]);
		started += !error;
	}
	/* The last one is this thread's. */
	if (!error)
		move_one(&movers[count - 1]);
	for (unsigned i = 0; i < started; i++)
		pthread_join(movers[i].thread, NULL);
	for (unsigned i = 0; i < count && !error; i++)
		error = movers[i].error;
	return error ? error : clock_mono_ns() - start;
}

/* The median rate of some rounds, in the report under `name`; 0 after a failure. */
static double measure_rate(struct check *c, struct mover *movers, unsigned count, bool upload,
			   const char *name)
{
	int64_t ns[TRANSFERS];
	double rate;

	for (size_t i = 0; i < TRANSFERS; i++) {
		ns[i] = move_all(movers, count, upload);
		if (ns[i] < 0) {
			check_note(c, upload ? "upload" : "download", (int)ns[i], true, NULL);
			return 0;
		}
	}
	rate = (double)movers[0].len * count * NS_PER_S / (double)median(ns, TRANSFERS);
	json_object_set_new(c->throughput, name, json_integer((json_int_t)rate));
	return rate;
}

static double larger(double a, double b)
{
	return a > b ? a : b;
}

/* Is a first, smaller object quick enough for the larger ones? */
static bool is_quick(struct check *c, struct mover *m)
{
	size_t len = m->len;
	int64_t ns;

	m->len = len < FIRST_SIZE ? len : FIRST_SIZE;
	ns = move_all(m, 1, true);
	if (ns < 0)
		check_note(c, "upload", (int)ns, true, NULL);
	if (ns > SLOW_NS) {
		/* Its rate is what can be told. */
		measure_rate(c, m, 1, true, "upload_one");
		c->upload = (double)m->len * NS_PER_S / (double)ns;
	}
	m->len = len;
	return ns >= 0 && ns <= SLOW_NS;
}

static void measure_throughput(struct check *c, uint8_t *data, size_t len)
{
	unsigned many =
		c->how->limits.connections ? c->how->limits.connections : REMOTE_CONNECTIONS;
	struct mover movers[MANY_MAX] = {0};
	char name[32];

	many = many < MANY_MAX ? many : MANY_MAX;
	for (unsigned i = 0; i < many; i++) {
		snprintf(name, sizeof(name), "large-%u", i);
		movers[i].c = c;
		movers[i].data = data;
		movers[i].len = len;
		check_key(c, name, movers[i].key);
	}
	json_object_set_new(c->throughput, "object_bytes", json_integer((json_int_t)len));
	json_object_set_new(c->throughput, "connections", json_integer(many));
	if (!is_quick(c, movers))
		return;
	c->upload = measure_rate(c, movers, 1, true, "upload_one");
	if (c->upload > 0)
		c->upload = larger(c->upload, measure_rate(c, movers, many, true, "upload_many"));
	if (c->upload <= 0)
		return;
	c->download = measure_rate(c, movers, 1, false, "download_one");
	if (c->download > 0)
		c->download =
			larger(c->download, measure_rate(c, movers, many, false, "download_many"));
}

static void check_speed(struct check *c)
{
	uint64_t size = c->how->object_size ? c->how->object_size : DEFAULT_SIZE;
	cleanup_free uint8_t *data = NULL;

	if (!c->usable)
		return;
	measure_latency(c);
	data = c->usable && size <= SIZE_MAX ? malloc(size) : NULL;
	/* Random, so that nothing on the way can shorten it. */
	if (!data || random_bytes(data, size) < 0)
		return;
	check_step(c, "throughput");
	measure_throughput(c, data, size);
}
