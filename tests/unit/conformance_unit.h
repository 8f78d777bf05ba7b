/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the suite of remote.h shares: every kind of remote, and opening one. With EPOCHFS_TEST_REMOTE=URL in the
 * environment the suite runs over that remote alone: each test below a prefix of its own, which is set
 * between the URL and its query. tests/remotes runs it so over real servers.
 */
#ifndef EPOCHFS_TESTS_CONFORMANCE_UNIT_H
#define EPOCHFS_TESTS_CONFORMANCE_UNIT_H

#include "lib/net/open.h"
#include "lib/remote/encrypt.h"
#include "lib/remote/remote.h"
#include "lib/util/clock.h"
#include "tests/unit/failing_call.h"
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

__attribute__((unused)) static struct remote *encrypted(struct remote *r)
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

/* How many kinds there are to test; before any is opened. */
__attribute__((unused)) static int kinds_to_test(void)
{
	server = getenv("EPOCHFS_TEST_REMOTE");
	return server ? 1 : (int)COUNT(kinds);
}

__attribute__((unused)) static struct remote *open_kind(int kind, const char *dir)
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

__attribute__((unused)) static struct remote *fresh(int kind)
{
	char *dir = unit_dir();
	struct remote *r = open_kind(kind, dir);

	free(dir);
	return r;
}

__attribute__((unused)) static void assert_holds(struct remote *r, const char *key,
						 const char *text)
{
	struct buf cleanup_buf got = {0};
	uint64_t size = 0;

	unit_ok(remote_get(r, key, 0, REMOTE_TO_END, &got));
	ck_assert_str_eq(buf_str(&got), text);
	unit_ok(remote_size(r, key, &size));
	ck_assert_uint_eq(size, strlen(text));
}

__attribute__((unused)) static void put_text(struct remote *r, const char *key, const char *text)
{
	unit_ok(remote_put(r, key, text, strlen(text)));
}

struct seen {
	char keys[16][64];
	uint64_t sizes[16];
	size_t count;
	size_t stop_at;
};

__attribute__((unused)) static int see(void *arg, const char *key, uint64_t size)
{
	struct seen *s = arg;

	ck_assert_uint_lt(s->count, COUNT(s->keys));
	snprintf(s->keys[s->count], sizeof(s->keys[0]), "%s", key);
	s->sizes[s->count++] = size;
	return s->stop_at && s->count == s->stop_at ? 77 : 0;
}

#endif
