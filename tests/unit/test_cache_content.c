/* SPDX-License-Identifier: Apache-2.0 */
/* Reading closed content through the cache. */
#include "lib/cache/content.h"

#include <pthread.h>
#include <sys/stat.h>

#include "lib/cache/content_private.h"
#include "tests/unit/failing_call.h"
#include "tests/unit/machines_unit.h"
#include "tests/unit/no_threads.h"

#define MIB   ((size_t)1 << 20)
#define SIZE  (6 * MIB)
#define LARGE (24 * MIB)

/* Machine 1 with an empty cache; "f" of SIZE bytes, in the remote only. */
static void start_cold(void)
{
	mu_start();
	mu_save_noise("f", SIZE, 1);
	mu_drain();
	mu_go_to(1);
}

static struct content *get(const char *name)
{
	struct content *c = NULL;

	unit_ok(content_get(u.vol, vu_file(&u, name).closed, &c));
	return c;
}

/* Nobody waits for a remote that is away. */
static bool is_late(void *arg)
{
	return time(NULL) > *(const time_t *)arg;
}

/* The bytes at this place are those of the file, or this error comes. */
static void reads(struct content *c, size_t len, uint64_t offset, int error)
{
	cleanup_free uint8_t *data = mu_noise(SIZE, 1), *found = malloc(len);
	time_t end = time(NULL) + 40;
	size_t done = 0;
	ssize_t n = 0;

	while (done < len && offset + done < SIZE &&
	       (n = content_read(c, found + done, len - done, offset + done, is_late, &end)) > 0)
		done += (size_t)n;
	ck_assert(!memcmp(data + offset, found, done));
	ck_assert_int_eq(n < 0 ? n : 0, error);
	if (!error)
		ck_assert_uint_eq(done, offset + len > SIZE ? SIZE - offset : len);
}

static uint64_t local_bytes(const char *name)
{
	return vu_version(&u, vu_file(&u, name).closed).local_bytes;
}

START_TEST(a_range_comes_and_stays)
{
	struct content *c = get("f");

	ck_assert_uint_eq(content_size(c), SIZE);
	ck_assert(!content_whole(c));
	unit_error(content_grant(c, &(struct grant *){NULL}, &(int){-1}), -EAGAIN);
	reads(c, 4096, 5 * MIB + 17, 0);
	reads(c, 10, SIZE - 5, 0);
	reads(c, 10, SIZE, 0);
	ck_assert(!content_whole(c));
	/* What came needs no remote. */
	mu_weather("get.error=1");
	reads(c, 4096, 5 * MIB + 17, 0);
	mu_weather(NULL);
	content_put(c);
	ck_assert(local_bytes("f") > 0 && local_bytes("f") < SIZE);
	mu_weather("get.error=1&only=packs/");
	mu_go_to(1);
	c = get("f");
	reads(c, 4096, 5 * MIB + 17, 0);
	content_put(c);
	mu_weather(NULL);
}
END_TEST

START_TEST(all_of_it_is_whole_and_in_one_file)
{
	cleanup_free uint8_t *data = mu_noise(SIZE, 1), *found = malloc(SIZE);
	struct content *c = get("f");
	int fd;

	unit_ok(content_fetch(c, 0, UINT64_MAX, NULL, NULL));
	unit_until(content_whole(c)); /* the fetching thread says so when it has ended */
	fd = object_open(u.vol, content_version(c), O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pread(fd, found, SIZE, 0), (ssize_t)SIZE);
	ck_assert_mem_eq(found, data, SIZE);
	close(fd);
	content_put(c);
	ck_assert(vu_version(&u, vu_file(&u, "f").closed).local_whole);
	ck_assert_uint_eq(local_bytes("f"), SIZE);
}
END_TEST

START_TEST(those_who_have_it_open_share_it)
{
	struct content *a = get("f"), *b = get("f");

	ck_assert_ptr_eq(a, b);
	reads(a, 4096, 0, 0);
	content_put(a);
	reads(b, 4096, 0, 0);
	content_put(b);
}
END_TEST

static void *read_all(void *arg)
{
	struct content *c = arg;

	for (uint64_t k = 0; k < 6; k++)
		reads(c, MIB, (k * 5 % 6) * MIB, 0);
	return NULL;
}

START_TEST(many_threads_read_at_once)
{
	struct content *c = get("f");
	pthread_t threads[8];

	mu_weather("get.delay=5ms");
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, read_all, c), 0);
	for (int i = 0; i < 8; i++)
		pthread_join(threads[i], NULL);
	mu_weather(NULL);
	unit_until(content_whole(c));
	content_put(c);
}
END_TEST

START_TEST(damage_is_an_error_and_never_wrong_bytes)
{
	struct content *c = get("f");

	mu_weather("get.damage=1&only=packs/");
	reads(c, 4096, 3 * MIB, -EIO);
	mu_weather("get.short=1&only=packs/");
	reads(c, 4096, 3 * MIB, -EIO);
	mu_weather(NULL);
	reads(c, SIZE, 0, 0);
	content_put(c);
}
END_TEST

static bool say_yes(void *arg)
{
	(void)arg;
	return true;
}

START_TEST(a_wait_for_the_remote_ends)
{
	struct content *c;
	char byte;

	eu_options.patience_ns = 100 * NS_PER_MS;
	mu_go_to(1);
	c = get("f");
	mu_weather("get.down=1&only=packs/");
	unit_error(content_read(c, &byte, 1, 0, say_yes, NULL), -EINTR);
	ck_assert_int_lt(content_read(c, &byte, 1, 0, NULL, NULL), 0); /* after the patience */
	mu_weather(NULL);
	reads(c, SIZE, 0, 0);
	content_put(c);
}
END_TEST

static void *begin_write(void *handle)
{
	int fd;

	unit_ok(handle_begin_write(handle, NULL, NULL, &fd));
	return NULL;
}

static bool is_preparing(struct handle *h)
{
	SCOPED_LOCK(&u.vol->lock);
	return h->body->preparing;
}

/* The first fetches the whole file; the second waits for the first, and no longer than he likes. */
START_TEST(a_wait_for_the_change_of_another_ends)
{
	struct handle *first = vu_open(&u, "f", O_RDWR), *second = vu_open(&u, "f", O_RDWR);
	pthread_t thread;
	int fd;

	ck_assert_ptr_eq(first->body, second->body);
	mu_weather("get.delay=2s&only=packs/");
	ck_assert(!pthread_create(&thread, NULL, begin_write, first));
	unit_until(is_preparing(first));
	unit_error(handle_begin_write(second, say_yes, NULL, &fd), -EINTR);
	ck_assert(is_preparing(first));
	pthread_join(thread, NULL);
	mu_weather(NULL);
	unit_ok(handle_begin_write(second, say_yes, NULL, &fd));
	handle_release(first, false);
	handle_release(second, false);
}
END_TEST

/* Half of the file is a hole: it is not fetched, and it is not stored. */
START_TEST(holes_need_no_remote)
{
	cleanup_free uint8_t *zeros = calloc(1, 2 * MIB), *found = malloc(2 * MIB);
	struct handle *h = eu_open("sparse", O_WRONLY | O_CREAT);
	struct content *c;

	ck_assert_int_eq(handle_write(h, "x", 1, 4 * MIB, NULL, NULL), 1);
	vu_close(h);
	mu_drain();
	mu_go_to(2);
	c = get("sparse");
	unit_ok(content_fetch(c, 4 * MIB, 1, NULL, NULL));
	mu_weather("get.error=1");
	ck_assert_int_eq(content_read(c, found, 2 * MIB, MIB, NULL, NULL), (ssize_t)(2 * MIB));
	ck_assert_mem_eq(found, zeros, 2 * MIB);
	unit_ok(content_fetch(c, 0, UINT64_MAX, NULL, NULL));
	unit_until(content_whole(c));
	content_put(c);
	mu_weather(NULL);
}
END_TEST

/* ---- on a full disk ---- */

/* For a reader the disk is full: it is not tried again. */
static void disk_is_full(struct content *c)
{
	SCOPED_LOCK(&c->fetch.lock);
	c->fetch.full_until_ns = INT64_MAX;
}

START_TEST(what_is_here_is_read_from_a_full_disk)
{
	struct content *c = get("f");

	reads(c, 4096, 5 * MIB + 17, 0);
	disk_is_full(c);
	mu_weather("get.error=1");
	reads(c, 4096, 5 * MIB + 17, 0);
	mu_weather(NULL);
	reads(c, SIZE, 0, 0);
	content_put(c);
}
END_TEST

static bool after_some(void *arg)
{
	return ++*(unsigned *)arg > 2;
}

/* There are more segments in it. */
START_TEST(a_read_past_a_full_disk_ends)
{
	cleanup_free uint8_t *data = malloc(SIZE);
	struct content *c = get("f");
	unsigned asked = 0;

	reads(c, 10, 0, 0); /* the recipe */
	disk_is_full(c);
	unit_error(content_read(c, data, SIZE, 0, after_some, &asked), -EINTR);
	ck_assert_uint_eq(asked, 3);
	reads(c, SIZE, 0, 0);
	content_put(c);
}
END_TEST

START_TEST(a_quota_is_a_full_disk)
{
	struct content *c = get("f");

	call_fails(SYS_pwrite64, c->fd, EDQUOT);
	reads(c, SIZE, 0, 0);
	ck_assert(!content_whole(c));
	content_put(c);
}
END_TEST

START_TEST(versions_that_are_none)
{
	struct content *c = NULL;
	struct handle *h;

	unit_error(content_get(u.vol, 12345, &c), -ENOENT);
	h = eu_open("new", O_WRONLY | O_CREAT);
	vu_write(h, "x", 0);
	unit_error(content_get(u.vol, vu_file(&u, "new").live, &c), -ENOENT); /* not closed yet */
	vu_close(h);
	c = get("new");
	ck_assert(content_whole(c));
	content_put(c);
	eu_save("empty", "");
	c = get("empty");
	ck_assert_uint_eq(content_size(c), 0);
	content_put(c);
}
END_TEST

/* ---- how much comes ---- */

/* Content of which nothing is here, in a cache of this size. */
static struct content *start_large(uint64_t cache_size)
{
	mu_save_noise("large", LARGE, 3);
	mu_drain();
	eu_options.cache_size = cache_size;
	mu_go_to(2);
	return get("large");
}

static bool has_ended(struct content *c)
{
	SCOPED_LOCK(&u.vol->contents->lock);
	return !c->jobs;
}

/* Bytes in the backing file, once nothing more comes for it. */
static uint64_t came(struct content *c)
{
	struct stat st;
	int fd;

	unit_until(has_ended(c));
	fd = object_open(u.vol, content_version(c), O_RDONLY);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	close(fd);
	return (uint64_t)st.st_blocks * 512;
}

static void read_part(struct content *c, uint64_t offset, uint64_t len)
{
	cleanup_free uint8_t *data = malloc(MU_READ);

	for (uint64_t at = offset; at < offset + len; at += MU_READ)
		ck_assert_int_eq(content_read(c, data, MU_READ, at, NULL, NULL), MU_READ);
}

/* A chunk has 1 MiB at most here. */
START_TEST(a_part_brings_little_more_than_itself)
{
	struct content *c = start_large(0);

	for (uint64_t i = 0; i < 4; i++)
		read_part(c, (3 + 5 * i) * MIB, MU_READ);
	ck_assert_uint_le(came(c), 4 * (MU_READ + 2 * MIB));
	read_part(c, 5 * MIB, 2 * MIB); /* a tensor */
	ck_assert_uint_le(came(c), 4 * (MU_READ + 2 * MIB) + 2 * 2 * MIB + 2 * MIB);
	content_put(c);
}
END_TEST

START_TEST(who_reads_a_quarter_gets_the_whole)
{
	struct content *c = start_large(0);

	read_part(c, 4 * MIB, LARGE / 4 + MIB);
	unit_until(content_whole(c));
	content_put(c);
}
END_TEST

static bool in_use(uint64_t version)
{
	SCOPED_LOCK(&u.vol->lock);
	return content_in_use_locked(u.vol, version);
}

/* Nobody has it open any more: the rest does not come. The last read is the one that asks for it, and the first window of it
 * takes much longer than a busy machine lets this process wait. */
START_TEST(nobody_waits_for_the_rest)
{
	struct content *c = start_large(2 * LARGE); /* windows of 6 MiB */
	uint64_t version = content_version(c), bytes;

	read_part(c, 0, LARGE / 4 - MU_READ);
	mu_weather("get.delay=5s&only=packs/");
	read_part(c, LARGE / 4 - MU_READ, MU_READ);
	ck_assert(!content_whole(c));
	content_put(c);
	unit_until(!in_use(version));
	mu_weather(NULL);
	bytes = local_bytes("large");
	ck_assert_uint_ge(bytes, LARGE / 4);
	ck_assert_uint_lt(bytes, LARGE);
}
END_TEST

/* ---- who waits for whom ---- */

/* More than there are threads that read ahead. */
#define HELD_MAX 64

static struct pool_task held[HELD_MAX];
static atomic_bool held_go;

static void hold(struct pool_task *t)
{
	(void)t;
	while (!atomic_load(&held_go))
		usleep(100);
}

/* What is read ahead for others has all the threads that it may have, until held_go. */
static void hold_ahead(void)
{
	for (int i = 0; i < HELD_MAX; i++) {
		held[i] = (struct pool_task){.run = hold};
		unit_ok(pool_offer(u.vol->contents->pool, &held[i], POOL_LATER));
	}
}

START_TEST(who_waits_does_not_wait_for_what_is_read_ahead)
{
	struct content *c = start_large(0);

	hold_ahead();
	read_part(c, 0, LARGE);
	held_go = true;
	unit_until(content_whole(c));
	content_put(c);
}
END_TEST

/* Whether nothing is under way but what waits to be read ahead; whether there is such; how much is here. */
static bool is_quiet(struct content *c, bool *ret_waits, uint64_t *ret_here)
{
	struct fetch *f = &c->fetch;
	SCOPED_LOCK(&f->lock);

	*ret_waits = f->jobs;
	*ret_here = 0;
	for (size_t i = 0; i < f->recipe.count; i++)
		if (f->state[i] == SEGMENT_HERE)
			*ret_here += f->recipe.segments[i].length;
	for (const struct fetch_job *j = f->jobs; j; j = j->next)
		if (j->waits)
			return false;
	return true;
}

/* By now as much is asked for as was read. */
START_TEST(what_waits_to_be_read_ahead_goes_with_the_reader)
{
	struct content *c = start_large(0);
	uint64_t here = 0, version = content_version(c), at = 0;
	bool waits = false;

	hold_ahead();
	while (!waits) {
		ck_assert_uint_lt(at, LARGE / 4);
		read_part(c, at, MU_READ);
		at += MU_READ;
		unit_until(is_quiet(c, &waits, &here));
	}
	content_put(c);
	ck_assert(in_use(version));
	held_go = true;
	contents_drain(u.vol->contents);
	ck_assert(!in_use(version));
	/* A chunk begins within a block that counts for both. */
	ck_assert_uint_le(local_bytes("large"), here + MIB / 16);
}
END_TEST

START_TEST(without_threads_readers_fetch_themselves)
{
	struct content *c = start_large(0);

	no_threads(true);
	read_part(c, 0, LARGE);
	no_threads(false);
	unit_until(content_whole(c));
	content_put(c);
}
END_TEST

/* ---- a few bytes, which are in the database ---- */

static void *place_small(void *arg)
{
	struct content **ret_content = arg;

	unit_ok(content_get(u.vol, vu_file(&u, "small").closed, ret_content));
	unit_ok(content_fetch(*ret_content, 0, UINT64_MAX, NULL, NULL));
	return NULL;
}

static void reads_small(struct content *c)
{
	char text[8] = "";

	ck_assert_int_eq(content_read(c, text, sizeof(text), 0, NULL, NULL), 5);
	ck_assert_str_eq(text, "small");
}

START_TEST(a_few_bytes_are_read_without_a_backing_file)
{
	struct content *c;

	unit_ok(content_get(u.vol, vu_file(&u, "small").closed, &c));
	reads_small(c);
	content_put(c);
	ck_assert_uint_eq(local_bytes("small"), 0);
}
END_TEST

/* No lock is held while it is written: lock_none_held looks, in builds with a sanitizer. */
START_TEST(a_few_bytes_get_a_backing_file_however_many_want_it)
{
	uint64_t version = vu_file(&u, "small").closed;
	struct content *c[4];
	pthread_t threads[4];

	for (size_t i = 0; i < 4; i++)
		ck_assert(!pthread_create(&threads[i], NULL, place_small, &c[i]));
	for (size_t i = 0; i < 4; i++)
		ck_assert(!pthread_join(threads[i], NULL));
	for (size_t i = 0; i < 4; i++) {
		ck_assert_ptr_eq(c[i], c[0]);
		reads_small(c[i]);
		content_put(c[i]);
	}
	ck_assert_uint_eq(local_bytes("small"), 5);
	/* Somebody was in the cache's folder. */
	unit_ok(object_remove(u.vol, version));
	place_small(&c[0]);
	reads_small(c[0]);
	content_put(c[0]);
	unit_ok(object_remove(u.vol, version));
}
END_TEST

static void start_small_bytes(void)
{
	mu_start();
	vu_save(&u, "small", "small");
	mu_drain();
	mu_go_to(1);
}

int main(void)
{
	Suite *s = suite_create("cache_content");
	TCase *cold = unit_case(s, "reading"), *few = unit_case(s, "a few bytes");

	tcase_add_checked_fixture(cold, start_cold, mu_stop);
	tcase_add_test(cold, a_range_comes_and_stays);
	tcase_add_test(cold, all_of_it_is_whole_and_in_one_file);
	tcase_add_test(cold, those_who_have_it_open_share_it);
	tcase_add_test(cold, many_threads_read_at_once);
	tcase_add_test(cold, damage_is_an_error_and_never_wrong_bytes);
	tcase_add_test(cold, a_wait_for_the_remote_ends);
	tcase_add_test(cold, a_wait_for_the_change_of_another_ends);
	tcase_add_test(cold, holes_need_no_remote);
	tcase_add_test(cold, what_is_here_is_read_from_a_full_disk);
	tcase_add_test(cold, a_read_past_a_full_disk_ends);
	tcase_add_test(cold, a_quota_is_a_full_disk);
	tcase_add_test(cold, versions_that_are_none);
	tcase_add_test(cold, a_part_brings_little_more_than_itself);
	tcase_add_test(cold, who_reads_a_quarter_gets_the_whole);
	tcase_add_test(cold, nobody_waits_for_the_rest);
	tcase_add_test(cold, who_waits_does_not_wait_for_what_is_read_ahead);
	tcase_add_test(cold, what_waits_to_be_read_ahead_goes_with_the_reader);
	tcase_add_test(cold, without_threads_readers_fetch_themselves);
	tcase_add_checked_fixture(few, start_small_bytes, mu_stop);
	tcase_add_test(few, a_few_bytes_are_read_without_a_backing_file);
	tcase_add_test(few, a_few_bytes_get_a_backing_file_however_many_want_it);
	return unit_run(s);
}
