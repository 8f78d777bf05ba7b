/* SPDX-License-Identifier: Apache-2.0 */
/* What every unit test needs: a main in three lines, temporary directories, assertions on 0 or
 * -errno. */
#ifndef EPOCHFS_TESTS_UNIT_H
#define EPOCHFS_TESTS_UNIT_H

/*
 * A unit test is one program, tests/unit/test_<room>_<subject>.c:
 *
 *	START_TEST(a_row_of_varints_comes_back)
 *	{
 *		ck_assert_uint_eq(reader_varint(&r), 300);
 *	}
 *	END_TEST
 *
 *	int main(void)
 *	{
 *		Suite *s = suite_create("util_buf");
 *		TCase *t = unit_case(s, "varint");
 *
 *		tcase_add_test(t, a_row_of_varints_comes_back);
 *		return unit_run(s);
 *	}
 *
 * Each test runs in a process of its own (check's fork mode), so a crash fails one test. Evaluate
 * calls only once: assertions on 0 or -errno are unit_ok() and unit_error().
 */

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/util/clock.h"
#include "lib/util/io.h"

/* The call gives 0. */
#define unit_ok(call)                                                                              \
	do {                                                                                       \
		int unit_got_ = (int)(call);                                                       \
		ck_assert_msg(unit_got_ == 0, "%s: %d (%s)", #call, unit_got_,                     \
			      strerror(abs(unit_got_)));                                           \
	} while (0)

/* The call gives exactly this error, e.g. unit_error(parse_u64("x", &v), -EINVAL). */
#define unit_error(call, error)                                                                    \
	do {                                                                                       \
		int unit_got_ = (int)(call), unit_want_ = (error);                                 \
		ck_assert_msg(unit_got_ == unit_want_, "%s: %d (%s), not %d (%s)", #call,          \
			      unit_got_, strerror(abs(unit_got_)), unit_want_,                     \
			      strerror(abs(unit_want_)));                                          \
	} while (0)

/* Two spans have the same length and bytes. */
#define unit_same_bytes(a, a_len, b, b_len)                                                        \
	do {                                                                                       \
		size_t unit_len_ = (a_len);                                                        \
		ck_assert_uint_eq(unit_len_, (b_len));                                             \
		if (unit_len_)                                                                     \
			ck_assert_mem_eq((a), (b), unit_len_);                                     \
	} while (0)

/* What is done in the background, within a time that a busy machine keeps. */
#define unit_until(condition)                                                                      \
	do {                                                                                       \
		int64_t unit_end_ = clock_mono_ns() + 50 * NS_PER_S;                               \
		while (!(condition)) {                                                             \
			ck_assert_msg(clock_mono_ns() < unit_end_, "in vain: %s", #condition);     \
			usleep(1000);                                                              \
		}                                                                                  \
	} while (0)

/* Ends a test that says nothing here, in the test itself: run_units.py counts it as skipped, for this reason. */
#define unit_skip(reason)                                                                          \
	do {                                                                                       \
		printf("skipped: %s: %s\n", __func__, (reason));                                   \
		fflush(stdout);                                                                    \
		return;                                                                            \
	} while (0)

/* The directory that holds all of this program's temporary files; unit_run makes and removes it. One for all
 * sources: tests/alloc looks there, too. */
__attribute__((weak)) char unit_root[PATH_MAX / 2];

/* A fresh, empty directory, absolute; removed when the program ends, whatever the test did. The
 * caller frees the string. */
__attribute__((unused)) static char *unit_dir(void)
{
	char *dir = NULL;

	ck_assert_int_gt(asprintf(&dir, "%s/XXXXXX", unit_root), 0);
	ck_assert_msg(mkdtemp(dir) != NULL, "mkdtemp %s: %s", dir, strerror(errno));
	return dir;
}

/* "dir/name"; the caller frees it. */
__attribute__((unused)) static char *unit_path(const char *dir, const char *name)
{
	char *path = NULL;

	ck_assert_int_gt(asprintf(&path, "%s/%s", dir, name), 0);
	return path;
}

/* Where allocations are to fail (tests/alloc), this comes before each test. */
__attribute__((weak)) void unit_each_run(void);

/* Then nobody is to wait a minute for a lease that was not given back. */
static inline bool unit_is_hurried(void)
{
	return unit_each_run && getenv("EPOCHFS_ALLOC_REPORT");
}

/*
 * For a test that says itself which allocation of the library fails: the number-th from now on; 0: none; or the first that a
 * function makes itself. NULL where the build cannot (only SAN=address can), false where the run has a plan of its own.
 * unit_alloc_failed: whether it came to that.
 */
__attribute__((weak)) bool unit_fail_alloc(uint64_t number);
__attribute__((weak)) bool unit_fail_alloc_of(void *function);
__attribute__((weak)) bool unit_alloc_failed(void);

/* A test case with a limit that a busy machine keeps to. */
static inline TCase *unit_case(Suite *s, const char *name)
{
	TCase *t = tcase_create(name);

	tcase_set_timeout(t, 60);
	if (unit_each_run)
		tcase_add_checked_fixture(t, unit_each_run, NULL);
	suite_add_tcase(s, t);
	return t;
}

/* Runs the suite and frees it; the value to return from main. */
static inline int unit_run(Suite *s)
{
	const char *tmp = getenv("TMPDIR");
	SRunner *runner = srunner_create(s);
	int failed, removed;

	snprintf(unit_root, sizeof(unit_root), "%s/epochfs-unit-XXXXXX",
		 tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(unit_root)) {
		perror(unit_root);
		return 2;
	}
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	removed = io_remove_tree(AT_FDCWD, unit_root);
	if (removed)
		fprintf(stderr, "%s is left: %s\n", unit_root, strerror(-removed));
	return failed || removed ? 1 : 0;
}

#endif
