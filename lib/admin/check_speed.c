/* SPDX-License-Identifier: Apache-2.0 */
/* Trying out a remote: how long small requests take, and how many bytes go through. */
#include "lib/admin/check_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/hash.h"
#include "lib/util/thread.h"

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

void check_speed(struct check *c)
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
