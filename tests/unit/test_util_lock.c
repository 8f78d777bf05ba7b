/* SPDX-License-Identifier: Apache-2.0 */
/* The order of locks is checked where that is built in, and locks are locks everywhere. */
#include "lib/net/open.h"
#include "tests/unit/unit.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "lib/remote/remote.h"
#include "lib/store/filter.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/lock.h"

static struct mutex outer = MUTEX_INITIALIZER(LOCK_VOLUME);
static struct mutex inner = MUTEX_INITIALIZER(LOCK_TREES);
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

#ifdef LOCK_CHECKS

/* What `act` writes to stderr, in a child that it has to end by SIGABRT. The caller frees it. */
static char *last_words(void (*act)(void))
{
	char *text = calloc(1, 1 << 16);
	int ends[2], status;
	size_t have = 0;
	ssize_t n;
	pid_t pid;

	ck_assert_ptr_nonnull(text);
	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	if (pid == 0) {
		dup2(ends[1], STDERR_FILENO);
		act();
		_exit(0);
	}
	close(ends[1]);
	while ((n = read(ends[0], text + have, (1 << 16) - 1 - have)) > 0)
		have += (size_t)n;
	close(ends[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "status %#x: %s", status,
		      text);
	return text;
}

/* It ends, and names all of these. */
static void ends_with(void (*act)(void), const char *one, const char *other)
{
	cleanup_free char *text = last_words(act);

	ck_assert_msg(strstr(text, one) && strstr(text, other) && strstr(text, "test_util_lock.c:"),
		      "no %s, %s: %s", one, other, text);
}

static void take_upwards(void)
{
	mutex_lock(&inner);
	mutex_lock(&outer);
}

static void take_twice(void)
{
	mutex_lock(&inner);
	mutex_lock(&inner);
}

static void read_under_a_leaf(void)
{
	static struct rwlock io;

	rwlock_init(&io, LOCK_CONTENT_IO);
	mutex_lock(&inner);
	rwlock_read(&io);
}

static void give_back_what_is_free(void)
{
	mutex_unlock(&inner);
}

static void wait_with_two(void)
{
	mutex_lock(&outer);
	mutex_lock(&inner);
	cond_wait_until(&cond, &inner, 0);
}

static void wait_without(void)
{
	cond_wait(&cond, &inner);
}

static void delete_with_a_lock(void)
{
	struct remote *r = NULL;

	if (remote_open("none", &r) < 0)
		_exit(1);
	mutex_lock(&outer);
	remote_delete(r, "key");
}

static void compress_with_a_lock(void)
{
	struct filter *f = NULL;
	struct buf out = {0};

	if (filter_new(&f) < 0)
		_exit(1);
	mutex_lock(&inner);
	filter_encode(f, "bytes", 5, &out);
}

START_TEST(a_violation_ends_the_process_and_names_both)
{
	ends_with(take_upwards, "taking VOLUME (", "while TREES is held (");
	ends_with(take_twice, "taking TREES (", "while TREES is held (");
	ends_with(read_under_a_leaf, "taking CONTENT_IO (", "while TREES is held (");
	ends_with(give_back_what_is_free, "TREES is given back (", "was not taken");
}
END_TEST

START_TEST(a_wait_wants_its_own_lock_and_no_other)
{
	ends_with(wait_with_two, "waiting with TREES (", "while VOLUME is held (");
	ends_with(wait_without, "TREES is given back (", "was not taken");
}
END_TEST

START_TEST(what_takes_long_wants_no_lock)
{
	ends_with(delete_with_a_lock, "an operation of the remote (", "while VOLUME is held (");
	ends_with(compress_with_a_lock, "compression (", "while TREES is held (");
}
END_TEST

#endif

START_TEST(downwards_is_allowed_and_given_back_in_any_order)
{
	for (int turn = 0; turn < 2; turn++) {
		mutex_lock(&outer);
		mutex_lock(&inner);
		mutex_unlock(&outer);
		mutex_unlock(&inner);
	}
	lock_none_held(LOCK_RANKS, "the end");
	mutex_lock(&inner);
	unit_error(cond_wait_until(&cond, &inner, 0), -ETIMEDOUT);
	lock_none_held(LOCK_TREES, "what is below");
	mutex_unlock(&inner);
}
END_TEST

static void *count_up(void *arg)
{
	unsigned *count = arg;

	for (int i = 0; i < 10000; i++) {
		SCOPED_LOCK(&outer);

		++*count;
	}
	return NULL;
}

START_TEST(locks_exclude)
{
	pthread_t threads[4];
	unsigned count = 0;

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, count_up, &count), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(count, 40000);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_lock");
	TCase *t = unit_case(s, "order");

#ifdef LOCK_CHECKS
	tcase_add_test(t, a_violation_ends_the_process_and_names_both);
	tcase_add_test(t, a_wait_wants_its_own_lock_and_no_other);
	tcase_add_test(t, what_takes_long_wants_no_lock);
#endif
	tcase_add_test(t, downwards_is_allowed_and_given_back_in_any_order);
	tcase_add_test(t, locks_exclude);
	return unit_run(s);
}
