/* SPDX-License-Identifier: Apache-2.0 */
/* What the unit tests of the local state need: an open state, files and versions in it. */
#ifndef EPOCHFS_TESTS_STATE_UNIT_H
#define EPOCHFS_TESTS_STATE_UNIT_H

#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "lib/state/state.h"
#include "tests/unit/unit.h"

static char *dir, *path;
static int dirfd_;
static struct state *s;

__attribute__((unused)) static void open_state(void)
{
	unit_ok(state_open(dirfd_, path, &s));
}

__attribute__((unused)) static void reopen(void)
{
	state_close(s);
	open_state();
}

__attribute__((unused)) static void setup(void)
{
	dir = unit_dir();
	path = unit_path(dir, "state.db");
	dirfd_ = open(dir, O_RDONLY | O_DIRECTORY);
	ck_assert_int_ge(dirfd_, 0);
	open_state();
}

__attribute__((unused)) static void teardown(void)
{
	state_close(s);
	close(dirfd_);
	free(path);
	free(dir);
}

__attribute__((unused)) static uint64_t new_file(uint32_t mode)
{
	struct state_file f = {.mode = mode, .nlink = 1};
	uint64_t ino = 0;

	unit_ok(state_file_new(s, &f, &ino));
	ck_assert_uint_eq(f.ino, ino);
	return ino;
}

__attribute__((unused)) static uint64_t new_version(const struct state_version *want)
{
	struct state_version v = *want;
	uint64_t id = 0;

	unit_ok(state_version_new(s, &v, &id));
	ck_assert_uint_eq(v.id, id);
	return id;
}

static TCase *fixture(Suite *suite, const char *name)
{
	TCase *t = unit_case(suite, name);

	tcase_add_checked_fixture(t, setup, teardown);
	return t;
}

#endif
