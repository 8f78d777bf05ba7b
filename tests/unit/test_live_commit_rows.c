/* SPDX-License-Identifier: Apache-2.0 */
/* A close whose row cannot be read says nothing of the version. What commit.c says of it stays inside it, so it is part of this program. */
#include "lib/live/commit.c"
#include "tests/unit/volume_unit.h"

#define NO_SUCH_VERSION 4711

static struct vu u;

static void setup(void)
{
	vu_start(&u);
}

static void teardown(void)
{
	vu_stop(&u);
}

/* What the next call finds on the stack where it sets nothing: zeros, which read as VERSION_NEW. */
__attribute__((noinline)) static void clear_stack(void)
{
	volatile char room[1 << 16];

	for (size_t i = 0; i < sizeof(room); i++)
		room[i] = 0;
}

START_TEST(a_row_that_cannot_be_read_makes_no_whole_file)
{
	int (*volatile rows)(struct volume *, struct body *, const struct stat *, struct taken *,
			     bool *) = commit_rows_locked;
	struct handle *h = vu_open(&u, "a", O_WRONLY | O_CREAT);
	struct body b = {.fd = -1, .version = NO_SUCH_VERSION, .ino = vu_file(&u, "a").ino};
	struct taken taken = {0};
	struct stat st = {0};
	bool whole = false;
	int error;

	ck_assert_int_eq(VERSION_NEW, 0);
	mutex_lock(&u.vol->lock);
	clear_stack();
	error = rows(u.vol, &b, &st, &taken, &whole);
	mutex_unlock(&u.vol->lock);
	unit_error(error, -ENOENT);
	ck_assert(!whole);
	ck_assert(!taken.replaced);
	ck_assert_uint_eq(vu_file(&u, "a").closed, 0);
	vu_close(h);
	ck_assert_uint_ne(vu_file(&u, "a").closed, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("live_commit_rows");
	TCase *t = unit_case(s, "commit");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, a_row_that_cannot_be_read_makes_no_whole_file);
	return unit_run(s);
}
