/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit tests of the live tree need: a volume without a remote, files, writers that die. */
#ifndef EPOCHFS_TESTS_LIVE_UNIT_H
#define EPOCHFS_TESTS_LIVE_UNIT_H

#include <limits.h>
#include <signal.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

#include "lib/live/handle.h"
#include "lib/live/live.h"
#include "lib/util/clock.h"
#include "lib/live/body.h"
#include "lib/epochs/epochs.h"
#include "lib/live/live_internal.h"
#include "lib/volume/volume.h"
#include "tests/unit/unit.h"

static char *cache;
static struct volume *vol;
static struct live_caller me;

__attribute__((unused)) static void open_volume(bool read_only)
{
	struct volume_options o;
	char *message = NULL;
	int error;

	volume_options_init(&o);
	o.remote = "none";
	o.cache_dir = cache;
	o.read_only = read_only;
	o.min_free_percent = 0;
	/* No epoch comes by itself. */
	o.settle_ns = 3600 * NS_PER_S;
	error = volume_open(&o, &vol, &message);
	ck_assert_msg(!error, "volume_open: %d, %s", error, message ? message : "");
}

__attribute__((unused)) static void reopen(bool read_only)
{
	volume_close(vol);
	open_volume(read_only);
}

__attribute__((unused)) static void setup(void)
{
	cache = unit_dir();
	me = (struct live_caller){.uid = 1000, .gid = 1001, .pid = getpid()};
	open_volume(false);
}

__attribute__((unused)) static void teardown(void)
{
	volume_close(vol);
	free(cache);
}

__attribute__((unused)) static struct live_attr look(uint64_t parent, const char *name)
{
	struct live_attr a = {0};

	unit_ok(live_lookup(vol, parent, name, 0, &a));
	return a;
}

__attribute__((unused)) static int looks(uint64_t parent, const char *name)
{
	struct live_attr a;

	return live_lookup(vol, parent, name, 0, &a);
}

__attribute__((unused)) static struct live_attr attr(uint64_t ino)
{
	struct live_attr a = {0};

	unit_ok(live_getattr(vol, ino, 0, &a));
	return a;
}

__attribute__((unused)) static uint64_t mkdir_at(uint64_t parent, const char *name)
{
	struct live_attr a = {0};

	unit_ok(live_mkdir(vol, parent, name, 0755, &me, &a));
	return a.ino;
}

__attribute__((unused)) static uint64_t empty_at(uint64_t parent, const char *name)
{
	struct live_attr a = {0};

	unit_ok(live_mknod(vol, parent, name, S_IFREG | 0644, 0, &me, &a));
	return a.ino;
}

/* A new file, still open, with these bytes in it. */
__attribute__((unused)) static struct handle *writing_at(uint64_t parent, const char *name,
							 const char *text,
							 const struct live_caller *who,
							 struct live_attr *ret_attr)
{
	struct handle *h = NULL;

	unit_ok(handle_create(vol, parent, name, 0644, O_WRONLY | O_CREAT, who, ret_attr, &h));
	ck_assert_int_eq(handle_write(h, text, strlen(text), 0, NULL, NULL), strlen(text));
	return h;
}

__attribute__((unused)) static void close_handle(struct handle *h)
{
	unit_ok(handle_flush(h, getpid(), NULL, NULL));
	handle_release(h, false);
}

/* A committed file. */
__attribute__((unused)) static uint64_t file_at(uint64_t parent, const char *name, const char *text)
{
	struct live_attr a = {0};

	close_handle(writing_at(parent, name, text, &me, &a));
	return a.ino;
}

__attribute__((unused)) static void assert_text(uint64_t parent, const char *name, const char *want)
{
	struct live_attr a = look(parent, name);
	struct handle *h = NULL;
	char got[100] = "";

	unit_ok(handle_open(vol, a.ino, a.body, O_RDONLY, &me, NULL, NULL, &h));
	ck_assert_int_eq(handle_read(h, got, sizeof(got) - 1, 0, NULL, NULL), strlen(want));
	ck_assert_str_eq(got, want);
	handle_release(h, false);
}

/* A process that only waits; it dies with its parent's close of nothing but a signal. */
__attribute__((unused)) static pid_t start_writer(void)
{
	pid_t child = fork();

	ck_assert_int_ge(child, 0);
	if (child == 0) {
		for (;;)
			pause();
	}
	return child;
}

/* Kills it and closes what it had open, as the kernel does: it is a zombie meanwhile. */
__attribute__((unused)) static void kill_writer(pid_t child, struct handle *h)
{
	siginfo_t info;

	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT), 0);
	unit_ok(handle_flush(h, child, NULL, NULL));
	handle_release(h, false);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
}

static TCase *fixture(Suite *suite, const char *name)
{
	TCase *t = unit_case(suite, name);

	tcase_add_checked_fixture(t, setup, teardown);
	return t;
}

#endif
