/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One suite over every kind of remote: what remote.h promises. With EPOCHFS_TEST_REMOTE=URL in the
 * environment it runs over that remote alone: each test below a prefix of its own, which is set
 * between the URL and its query. tests/remotes runs it so over real servers, with EPOCHFS_TEST_REMOTE_CUTS where remote_put says
 * that a server does, and EPOCHFS_TEST_REMOTE_FAILS where one answers with errors while an object is replaced.
 */
#include "lib/remote/remote.h"

#include <pthread.h>
#include <stdatomic.h>
#include "lib/remote/encrypt.h"
#include "lib/util/clock.h"
#include "tests/unit/no_links.h"
#include "tests/unit/unit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* A fresh directory's path stands between the two. */
static const struct {
	const char *before, *after;
	bool retry;
	bool no_links;	/* on a file system without hard links */
	bool encrypted; /* under a volume's key, below the retries */
} kinds[] = {
	{"", "/root", false, false, false},
	{"", "/root", false, true, false},
	{"file://", "", false, false, false},
	{"memory:", "", false, false, false},
	{"fault+file://", "/root?seed=1", false, false, false},
	{"fault+memory:", "?seed=3&all.error=0.2&all.lost=0.2", true, false, false},
	{"fault+file://", "?seed=5&all.error=0.2&all.lost=0.3&all.down=0.1", true, false, false},
	{"", "/root", false, false, true},
	{"fault+memory:", "?seed=7&all.error=0.2&all.lost=0.2", true, false, true},
};

static struct remote *encrypted(struct remote *r)
{
	static const uint8_t master[CRYPTO_KEY_SIZE] = {1, 2, 3};
	struct encryption *encryption;

	unit_ok(encryption_new(master, "0f8fad5b-d9cb-469f-a165-70867728950e", &encryption));
	unit_ok(remote_encrypt_new(r, encryption, &r));
	encryption_unref(encryption);
	return r;
}

/* The URL of a server to test instead of the kinds; NULL: none. */
static const char *server;
/* It may give the beginning of a new object at the length of the old one. */
static bool server_cuts;
/* It may answer with an error while an object is replaced. */
static bool server_fails;

static struct remote *open_kind(int kind, const char *dir)
{
	static const struct remote_retry_policy fast = {
		.first_wait_ns = NS_PER_MS / 10,
		.longest_wait_ns = NS_PER_MS,
	};
	struct remote *r = NULL, *retry = NULL;
	char url[PATH_MAX];

	if (!server && kinds[kind].no_links)
		forbid_links(EPERM);
	if (server)
		snprintf(url, sizeof(url), "%.*s%s%s", (int)strcspn(server, "?"), server,
			 strrchr(dir, '/'), server + strcspn(server, "?"));
	else
		snprintf(url, sizeof(url), "%s%s%s", kinds[kind].before, dir, kinds[kind].after);
	unit_ok(remote_open(url, &r));
	if (!server && kinds[kind].encrypted)
		r = encrypted(r);
	if (server || !kinds[kind].retry)
		return r;
	unit_ok(remote_retry_new(r, &fast, &retry));
	return retry;
}

static struct remote *fresh(int kind)
{
	char *dir = unit_dir();
	struct remote *r = open_kind(kind, dir);

	free(dir);
	return r;
}

static void assert_holds(struct remote *r, const char *key, const char *text)
{
	struct buf cleanup_buf got = {0};
	uint64_t size = 0;

	unit_ok(remote_get(r, key, 0, REMOTE_TO_END, &got));
	ck_assert_str_eq(buf_str(&got), text);
	unit_ok(remote_size(r, key, &size));
	ck_assert_uint_eq(size, strlen(text));
}

static void put_text(struct remote *r, const char *key, const char *text)
{
	unit_ok(remote_put(r, key, text, strlen(text)));
}

START_TEST(what_is_put_comes_back_and_is_replaced)
{
	struct remote *r = fresh(_i);

	put_text(r, "epochfs.json", "one");
	assert_holds(r, "epochfs.json", "one");
	put_text(r, "epochfs.json", "another, longer");
	assert_holds(r, "epochfs.json", "another, longer");
	put_text(r, "epochfs.json", "");
	assert_holds(r, "epochfs.json", "");
	put_text(r, "packs/00/a.b_c-D", "deep");
	assert_holds(r, "packs/00/a.b_c-D", "deep");
	remote_close(r);
}
END_TEST

START_TEST(all_bytes_and_sizes_survive)
{
	static const size_t sizes[] = {1, 255, 4096, 65537, (5 << 20) + 3};
	struct remote *r = fresh(_i);

	for (size_t i = 0; i < COUNT(sizes); i++) {
		uint8_t *data = malloc(sizes[i]);
		struct buf cleanup_buf got = {0};

		for (size_t at = 0; at < sizes[i]; at++)
			data[at] = (uint8_t)(at * 131 + at / 256);
		unit_ok(remote_put(r, "bytes", data, sizes[i]));
		unit_ok(remote_get(r, "bytes", 0, REMOTE_TO_END, &got));
		unit_same_bytes(got.data, got.len, data, sizes[i]);
		free(data);
	}
	remote_close(r);
}
END_TEST

START_TEST(absent_is_enoent_and_changes_nothing)
{
	struct buf cleanup_buf out = {0};
	struct remote *r = fresh(_i);
	uint64_t size = 7;

	buf_put(&out, "kept", 4);
	unit_error(remote_get(r, "no", 0, REMOTE_TO_END, &out), -ENOENT);
	unit_error(remote_get(r, "no/such/object", 0, 1, &out), -ENOENT);
	unit_error(remote_size(r, "no", &size), -ENOENT);
	put_text(r, "dir/object", "x");
	unit_error(remote_get(r, "dir", 0, 1, &out), -ENOENT);
	unit_error(remote_get(r, "dir/other", 0, 1, &out), -ENOENT);
	ck_assert_str_eq(buf_str(&out), "kept");
	ck_assert_uint_eq(size, 7);
	unit_ok(remote_delete(r, "no"));
	unit_ok(remote_delete(r, "no/such/object"));
	unit_ok(remote_delete(r, "dir/other"));
	unit_ok(remote_delete(r, "dir/object"));
	unit_error(remote_size(r, "dir/object", &size), -ENOENT);
	unit_ok(remote_delete(r, "dir/object"));
	remote_close(r);
}
END_TEST

START_TEST(ranges_are_appended_and_end_with_the_object)
{
	static const struct {
		uint64_t offset, len;
		const char *text;
	} ranges[] = {{0, 10, "0123456789"},
		      {0, 1, "0"},
		      {9, 1, "9"},
		      {3, 4, "3456"},
		      {8, 100, "89"},
		      {10, 1, ""},
		      {11, 5, ""},
		      {5, UINT64_MAX, "56789"},
		      {UINT64_MAX, UINT64_MAX, ""},
		      {4, 0, ""},
		      {1, UINT64_MAX - 1, "123456789"}};
	struct remote *r = fresh(_i);

	put_text(r, "a/range", "0123456789");
	for (size_t i = 0; i < COUNT(ranges); i++) {
		struct buf cleanup_buf out = {0};

		buf_put_u8(&out, '>');
		unit_ok(remote_get(r, "a/range", ranges[i].offset, ranges[i].len, &out));
		ck_assert_str_eq(buf_str(&out) + 1, ranges[i].text);
		ck_assert_int_eq(out.data[0], '>');
	}
	remote_close(r);
}
END_TEST

START_TEST(put_if_absent_never_replaces)
{
	struct remote *r = fresh(_i);

	unit_ok(remote_put_if_absent(r, "epochs/1", "first", 5));
	unit_error(remote_put_if_absent(r, "epochs/1", "other", 5), -EEXIST);
	unit_error(remote_put_if_absent(r, "epochs/1", "longer one", 10), -EEXIST);
	assert_holds(r, "epochs/1", "first");
	unit_ok(remote_delete(r, "epochs/1"));
	unit_ok(remote_put_if_absent(r, "epochs/1", "", 0));
	assert_holds(r, "epochs/1", "");
	put_text(r, "epochs/1", "put replaces");
	assert_holds(r, "epochs/1", "put replaces");
	remote_close(r);
}
END_TEST

struct seen {
	char keys[16][64];
	uint64_t sizes[16];
	size_t count;
	size_t stop_at;
};

static int see(void *arg, const char *key, uint64_t size)
{
	struct seen *s = arg;

	ck_assert_uint_lt(s->count, COUNT(s->keys));
	snprintf(s->keys[s->count], sizeof(s->keys[0]), "%s", key);
	s->sizes[s->count++] = size;
	return s->stop_at && s->count == s->stop_at ? 77 : 0;
}

/* The size that was listed for this key, exactly once; -1: not listed. */
static int64_t seen_size(const struct seen *s, const char *key)
{
	int64_t size = -1;

	for (size_t i = 0; i < s->count; i++) {
		if (strcmp(s->keys[i], key) != 0)
			continue;
		ck_assert_msg(size == -1, "%s listed twice", key);
		size = (int64_t)s->sizes[i];
	}
	return size;
}

START_TEST(list_gives_every_object_below_the_prefix_once)
{
	static const char *const keys[] = {"epochfs.json", "epochs/1", "epochs/2",  "packs/aa/x",
					   "packs/ab/y",   "packs2/z", "epochs.d/q"};
	struct remote *r = fresh(_i);
	struct seen all = {0}, packs = {0}, none = {0}, stopped = {.stop_at = 2};

	unit_ok(remote_list(r, "", see, &none));
	for (size_t i = 0; i < COUNT(keys); i++)
		unit_ok(remote_put(r, keys[i], "0123456789", i));
	unit_ok(remote_list(r, "", see, &all));
	ck_assert_uint_eq(all.count, COUNT(keys));
	for (size_t i = 0; i < COUNT(keys); i++)
		ck_assert_int_eq(seen_size(&all, keys[i]), (int64_t)i);
	unit_ok(remote_list(r, "packs/", see, &packs));
	ck_assert_uint_eq(packs.count, 2);
	ck_assert_int_eq(seen_size(&packs, "packs/aa/x"), 3);
	ck_assert_int_eq(seen_size(&packs, "packs/ab/y"), 4);
	unit_ok(remote_list(r, "absent/", see, &none));
	unit_ok(remote_list(r, "packs/zz/", see, &none));
	ck_assert_uint_eq(none.count, 0);
	unit_error(remote_list(r, "", see, &stopped), 77);
	ck_assert_uint_eq(stopped.count, 2);
	remote_close(r);
}
END_TEST

static int delete_it(void *arg, const char *key, uint64_t size)
{
	struct remote *r = arg;

	(void)size;
	return remote_delete(r, key);
}

START_TEST(a_list_callback_may_use_the_remote)
{
	struct remote *r = fresh(_i);
	struct seen left = {0};
	char key[32];

	for (int i = 0; i < 40; i++) {
		snprintf(key, sizeof(key), "packs/%02d/x", i);
		put_text(r, key, "x");
	}
	unit_ok(remote_list(r, "packs/", delete_it, r));
	unit_ok(remote_list(r, "", see, &left));
	ck_assert_uint_eq(left.count, 0);
	remote_close(r);
}
END_TEST

static int count_one(void *arg, const char *key, uint64_t size)
{
	(void)key, (void)size;
	++*(size_t *)arg;
	return 0;
}

static size_t objects_below(struct remote *r, const char *prefix)
{
	size_t count = 0;

	unit_ok(remote_list(r, prefix, count_one, &count));
	return count;
}

/* More than one request takes, where a request takes many; less where each costs. */
static size_t many_keys(void)
{
	if (!server)
		return 2500;
	return strncmp(server, "s3:", 3) == 0 || strncmp(server, "gs:", 3) == 0 ? 1001 : 40;
}

START_TEST(many_are_deleted_whether_they_are_there_or_not)
{
	size_t count = many_keys(), there = count < 500 ? count / 4 : count / 50;
	struct remote *r = fresh(_i);
	char(*keys)[32] = calloc(count, sizeof(*keys));
	const char **each = calloc(count, sizeof(*each));

	unit_ok(remote_delete_many(r, NULL, 0));
	put_text(r, "many/kept", "x");
	put_text(r, "others/000001", "x");
	for (size_t i = 0; i < count; i++) {
		snprintf(keys[i], sizeof(keys[i]), "many/%02zu/%06zu", i % 7, i);
		each[i] = keys[i];
		if (i % (count / there) == 0 || i + 1 == count)
			put_text(r, keys[i], "x");
	}
	ck_assert_uint_gt(objects_below(r, "many/"), there);
	unit_ok(remote_delete_many(r, each, count));
	ck_assert_uint_eq(objects_below(r, "many/"), 1);
	assert_holds(r, "many/kept", "x");
	assert_holds(r, "others/000001", "x");
	unit_ok(remote_delete_many(r, each, count < 20 ? count : 20));
	free(each);
	free(keys);
	remote_close(r);
}
END_TEST

START_TEST(a_bad_key_keeps_many_from_being_deleted)
{
	static const char *const keys[] = {"a", "b", "a", "b", "../c", "d"};
	struct remote *r = fresh(_i);

	put_text(r, "a", "x");
	unit_error(remote_delete_many(r, keys, COUNT(keys)), -EINVAL);
	assert_holds(r, "a", "x");
	remote_cancel(r);
	unit_error(remote_delete_many(r, keys, 2), -ECANCELED);
	remote_resume(r);
	/* A key may be there twice. */
	unit_ok(remote_delete_many(r, keys, 4));
	ck_assert_uint_eq(objects_below(r, ""), 0);
	remote_close(r);
}
END_TEST

START_TEST(hostile_keys_are_refused_everywhere)
{
	static const char *const bad[] = {"",	   "/",	       "/a",	   "a/",   "a//b",
					  ".",	   "..",       "a/..",	   "../a", "a/../b",
					  "./a",   "a/.",      "a b",	   "a\nb", "a\\b",
					  "a%2fb", "\xc3\xa4", "a:b",	   "a*",   "~",
					  "a\x7f", ".tmp-abc", "a/.tmp-1", "a+b",  "/etc/passwd"};
	struct remote *r = fresh(_i);
	struct buf cleanup_buf out = {0};
	struct seen seen = {0};
	char longest[REMOTE_KEY_MAX + 2], part[258];
	uint64_t size;

	for (size_t i = 0; i < COUNT(bad); i++) {
		unit_error(remote_put(r, bad[i], "x", 1), -EINVAL);
		unit_error(remote_put_if_absent(r, bad[i], "x", 1), -EINVAL);
		unit_error(remote_get(r, bad[i], 0, 1, &out), -EINVAL);
		unit_error(remote_size(r, bad[i], &size), -EINVAL);
		unit_error(remote_delete(r, bad[i]), -EINVAL);
	}
	unit_error(remote_list(r, "a", see, &seen), -EINVAL);
	unit_error(remote_list(r, "/", see, &seen), -EINVAL);
	unit_error(remote_list(r, "../", see, &seen), -EINVAL);
	unit_error(remote_list(r, "a//", see, &seen), -EINVAL);
	memset(part, 'p', sizeof(part) - 1);
	part[256] = '\0';
	unit_error(remote_put(r, part, "x", 1), -EINVAL);
	part[255] = '\0';
	put_text(r, part, "255 bytes");
	memset(longest, 'k', sizeof(longest));
	longest[200] = longest[400] = '/';
	longest[REMOTE_KEY_MAX + 1] = '\0';
	unit_error(remote_put(r, longest, "x", 1), -EINVAL);
	longest[REMOTE_KEY_MAX] = '\0';
	put_text(r, longest, "512 bytes");
	assert_holds(r, longest, "512 bytes");
	put_text(r, ".hidden/..x/...", "odd but good");
	assert_holds(r, ".hidden/..x/...", "odd but good");
	remote_close(r);
}
END_TEST

START_TEST(a_remote_is_checked_for_writing_without_a_trace)
{
	struct remote *r = fresh(_i);
	struct seen seen = {0};

	unit_ok(remote_check_writable(r));
	unit_ok(remote_list(r, "", see, &seen));
	ck_assert_uint_eq(seen.count, 0);
	remote_close(r);
}
END_TEST

START_TEST(cancel_holds_until_resume)
{
	struct remote *r = fresh(_i);
	struct seen seen = {0};
	struct buf cleanup_buf out = {0};

	remote_cancel(r);
	unit_error(remote_put(r, "a", "x", 1), -ECANCELED);
	unit_error(remote_put_if_absent(r, "a", "x", 1), -ECANCELED);
	unit_error(remote_get(r, "a", 0, 1, &out), -ECANCELED);
	unit_error(remote_list(r, "", see, &seen), -ECANCELED);
	unit_error(remote_delete(r, "a"), -ECANCELED);
	remote_resume(r);
	put_text(r, "a", "x");
	remote_close(r);
}
END_TEST

START_TEST(references_share_one_remote)
{
	char *dir = unit_dir();
	struct remote *a = open_kind(_i, dir);
	struct remote *b = remote_ref(a);
	struct remote *other = open_kind(_i, dir);

	put_text(a, "shared", "yes");
	remote_close(a);
	assert_holds(b, "shared", "yes");
	remote_close(b);
	assert_holds(other, "shared", "yes");
	remote_close(other);
	free(dir);
}
END_TEST

/* ---- races */

#define RACERS 8
#define ROUNDS 200

struct race {
	struct remote *remote[RACERS];
	int rounds;
	pthread_barrier_t start;
	atomic_int winners[ROUNDS];
	atomic_int winner[ROUNDS];
	atomic_int odd; /* answers other than 0 and -EEXIST */
};

struct racer {
	struct race *race;
	int number;
};

static void *race_to_create(void *arg)
{
	struct racer *me = arg;
	struct race *race = me->race;
	char text[32], key[32];

	snprintf(text, sizeof(text), "racer %d", me->number);
	for (int round = 0; round < race->rounds; round++) {
		int r;

		snprintf(key, sizeof(key), "epochs/%03d/x", round);
		pthread_barrier_wait(&race->start);
		r = remote_put_if_absent(race->remote[me->number], key, text, strlen(text));
		if (r == 0) {
			atomic_fetch_add(&race->winners[round], 1);
			atomic_store(&race->winner[round], me->number);
		} else if (r != -EEXIST) {
			atomic_fetch_add(&race->odd, 1);
		}
	}
	return NULL;
}

/* Where a remote does not promise one winner, there is at least one, and the object is a winner's. */
static void assert_round(struct race *race, int round, bool atomic)
{
	struct buf cleanup_buf got = {0};
	char text[32], key[32];

	snprintf(key, sizeof(key), "epochs/%03d/x", round);
	if (atomic) {
		ck_assert_int_eq(race->winners[round], 1);
		snprintf(text, sizeof(text), "racer %d", race->winner[round]);
		assert_holds(race->remote[0], key, text);
		return;
	}
	ck_assert_int_ge(race->winners[round], 1);
	unit_ok(remote_get(race->remote[0], key, 0, REMOTE_TO_END, &got));
	ck_assert_uint_eq(got.len, strlen("racer 0"));
}

START_TEST(of_eight_racing_creators_one_wins)
{
	enum remote_create create = REMOTE_CREATE_NONE;
	struct race race = {0};
	struct racer racers[RACERS];
	pthread_t threads[RACERS];
	char *dir = unit_dir();

	ck_assert_int_eq(pthread_barrier_init(&race.start, NULL, RACERS), 0);
	for (int i = 0; i < RACERS; i++) {
		/* As one mount and as several: every second racer opens the remote for itself. */
		race.remote[i] = i % 2 ? remote_ref(race.remote[0]) : open_kind(_i, dir);
		racers[i] = (struct racer){&race, i};
	}
	unit_ok(remote_check_create(race.remote[1], &create));
	race.rounds = create == REMOTE_CREATE_ATOMIC ? ROUNDS : ROUNDS / 10;
	for (int i = 0; i < RACERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, race_to_create, &racers[i]), 0);
	for (int i = 0; i < RACERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(race.odd, 0);
	for (int round = 0; round < race.rounds; round++)
		assert_round(&race, round, create == REMOTE_CREATE_ATOMIC);
	for (int i = 0; i < RACERS; i++)
		remote_close(race.remote[i]);
	pthread_barrier_destroy(&race.start);
	free(dir);
}
END_TEST

#define BODY	 65536
#define REPLACES 100

struct replacing {
	struct remote *r;
	atomic_bool done;
	atomic_int torn;
	char first[100]; /* what the first torn one was */
};

static void note_torn(struct replacing *s, int error, const struct buf *got)
{
	if (atomic_fetch_add(&s->torn, 1) == 0)
		snprintf(s->first, sizeof(s->first),
			 "error %d, %zu bytes, the first %d, the last %d", error, got->len,
			 got->len ? got->data[0] : -1, got->len ? got->data[got->len - 1] : -1);
}

/* Each version is one byte repeated, and its length says which. */
static bool is_one_version(const struct buf *got)
{
	for (size_t i = 0; i < got->len; i++)
		if (got->data[i] != got->data[0])
			return false;
	return got->len > BODY;
}

static bool is_whole(const struct buf *got)
{
	return is_one_version(got) && got->len - BODY == got->data[0];
}

/* What this server may answer while an object is replaced, for which the layers above ask once more. */
static bool is_excused(int error, const struct buf *got)
{
	if (error)
		return server_fails && remote_may_retry(error);
	return server_cuts && is_one_version(got) && got->len - BODY < got->data[0];
}

static void *read_whole(void *arg)
{
	struct replacing *s = arg;

	while (!atomic_load(&s->done)) {
		struct buf cleanup_buf got = {0};
		int error = -EIO;
		bool again = true;

		for (int i = 0; again && i < 3; i++) {
			buf_reset(&got);
			error = remote_get(s->r, "object", 0, REMOTE_TO_END, &got);
			again = is_excused(error, &got);
		}
		if (error || !is_whole(&got))
			note_torn(s, error, &got);
	}
	return NULL;
}

START_TEST(readers_see_the_old_or_the_new_object_whole)
{
	struct replacing s = {.r = fresh(_i)};
	struct buf cleanup_buf last = {0};
	uint8_t body[BODY + 256];
	pthread_t readers[3];

	memset(body, 1, sizeof(body));
	unit_ok(remote_put(s.r, "object", body, BODY + 1));
	for (size_t i = 0; i < COUNT(readers); i++)
		ck_assert_int_eq(pthread_create(&readers[i], NULL, read_whole, &s), 0);
	for (int i = 2; i < REPLACES; i++) {
		memset(body, i, sizeof(body));
		unit_ok(remote_put(s.r, "object", body, BODY + (size_t)i));
	}
	atomic_store(&s.done, true);
	for (size_t i = 0; i < COUNT(readers); i++)
		pthread_join(readers[i], NULL);
	/* Nobody replaces it any more. */
	unit_ok(remote_get(s.r, "object", 0, REMOTE_TO_END, &last));
	ck_assert(is_whole(&last) && last.data[0] == REPLACES - 1);
	ck_assert_msg(s.torn == 0, "%d were torn; the first: %s", s.torn, s.first);
	remote_close(s.r);
}
END_TEST

START_TEST(none_is_empty_and_takes_nothing)
{
	struct buf cleanup_buf out = {0};
	struct remote *r = NULL;
	struct seen seen = {0};
	uint64_t size;

	unit_ok(remote_open("none", &r));
	ck_assert(remote_is_none(r));
	unit_error(remote_put(r, "a", "x", 1), -EROFS);
	unit_error(remote_put_if_absent(r, "a", "x", 1), -EROFS);
	unit_error(remote_delete(r, "a"), -EROFS);
	unit_error(remote_get(r, "a", 0, 1, &out), -ENOENT);
	unit_error(remote_size(r, "a", &size), -ENOENT);
	unit_ok(remote_list(r, "", see, &seen));
	unit_error(remote_check_writable(r), -EROFS);
	unit_error(remote_put(r, "../a", "x", 1), -EINVAL);
	remote_close(r);
	unit_ok(remote_open("fault+none", &r));
	ck_assert(remote_is_none(r));
	remote_close(r);
	unit_ok(remote_open("memory:none", &r));
	ck_assert(!remote_is_none(r));
	remote_close(r);
}
END_TEST

START_TEST(memory_is_shared_by_name_while_it_is_open)
{
	struct remote *a = NULL, *same = NULL, *other = NULL;
	uint64_t size;

	unit_ok(remote_open("memory:a", &a));
	unit_ok(remote_open("memory:a", &same));
	unit_ok(remote_open("memory:b", &other));
	put_text(a, "k", "v");
	assert_holds(same, "k", "v");
	unit_error(remote_size(other, "k", &size), -ENOENT);
	remote_close(a);
	assert_holds(same, "k", "v");
	remote_close(same);
	unit_ok(remote_open("memory:a", &a));
	unit_error(remote_size(a, "k", &size), -ENOENT);
	remote_close(a);
	remote_close(other);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_conformance");
	TCase *t = unit_case(s, "every kind");
	int count;

	server = getenv("EPOCHFS_TEST_REMOTE");
	server_cuts = getenv("EPOCHFS_TEST_REMOTE_CUTS") != NULL;
	server_fails = getenv("EPOCHFS_TEST_REMOTE_FAILS") != NULL;
	count = server ? 1 : COUNT(kinds);

	tcase_add_loop_test(t, what_is_put_comes_back_and_is_replaced, 0, count);
	tcase_add_loop_test(t, all_bytes_and_sizes_survive, 0, count);
	tcase_add_loop_test(t, absent_is_enoent_and_changes_nothing, 0, count);
	tcase_add_loop_test(t, ranges_are_appended_and_end_with_the_object, 0, count);
	tcase_add_loop_test(t, put_if_absent_never_replaces, 0, count);
	tcase_add_loop_test(t, list_gives_every_object_below_the_prefix_once, 0, count);
	tcase_add_loop_test(t, a_list_callback_may_use_the_remote, 0, count);
	tcase_add_loop_test(t, many_are_deleted_whether_they_are_there_or_not, 0, count);
	tcase_add_loop_test(t, a_bad_key_keeps_many_from_being_deleted, 0, count);
	tcase_add_loop_test(t, hostile_keys_are_refused_everywhere, 0, count);
	tcase_add_loop_test(t, a_remote_is_checked_for_writing_without_a_trace, 0, count);
	tcase_add_loop_test(t, cancel_holds_until_resume, 0, count);
	tcase_add_loop_test(t, references_share_one_remote, 0, count);
	t = unit_case(s, "races");
	tcase_add_loop_test(t, of_eight_racing_creators_one_wins, 0, count);
	tcase_add_loop_test(t, readers_see_the_old_or_the_new_object_whole, 0, count);
	if (server)
		return unit_run(s);
	t = unit_case(s, "single kinds");
	tcase_add_test(t, none_is_empty_and_takes_nothing);
	tcase_add_test(t, memory_is_shared_by_name_while_it_is_open);
	return unit_run(s);
}
