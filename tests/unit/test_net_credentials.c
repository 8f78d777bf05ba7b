/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials that expire: when they are fetched, by whom, and what others see meanwhile. */
#include "lib/net/credentials.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/syscall.h>
#include "lib/util/clock.h"
#include "tests/unit/unit.h"

#define THREADS 8

/* How far the wall clock of this process is ahead of the true one. */
static atomic_llong ahead_ns;

/* Stands in front of libc's. */
int clock_gettime(clockid_t id, struct timespec *ret_time)
{
	long r = syscall(SYS_clock_gettime, id, ret_time);

	if (r == 0 && id == CLOCK_REALTIME)
		*ret_time = clock_timespec(clock_ns(*ret_time) + atomic_load(&ahead_ns));
	return (int)r;
}

static void time_passes(int64_t ns)
{
	atomic_fetch_add(&ahead_ns, ns);
}

/* Gives numbered credentials, as it is told. */
struct giver {
	struct mutex lock;
	pthread_cond_t changed;
	unsigned fetches;
	unsigned at_once, most_at_once;
	int64_t life_ns; /* 0: for ever */
	int error;
	bool held; /* a fetch waits while this is set */
};

static int fetch(void *arg, struct credentials *ret_credentials)
{
	struct giver *g = arg;
	SCOPED_LOCK(&g->lock);

	g->fetches++;
	if (++g->at_once > g->most_at_once)
		g->most_at_once = g->at_once;
	pthread_cond_broadcast(&g->changed);
	while (g->held)
		cond_wait(&g->changed, &g->lock);
	g->at_once--;
	if (g->error)
		return g->error;
	ck_assert_int_gt(asprintf(&ret_credentials->key, "key%u", g->fetches), 0);
	ret_credentials->secret = strdup("secret");
	ret_credentials->expires_ns = g->life_ns ? clock_wall_ns() + g->life_ns : 0;
	return 0;
}

static void giver_start(struct giver *g, int64_t life_ns, struct credentials_cache **ret_cache)
{
	*g = (struct giver){.life_ns = life_ns};
	mutex_init(&g->lock, LOCK_TEST);
	unit_ok(cond_init_mono(&g->changed));
	unit_ok(credentials_cache_new(fetch, g, ret_cache));
}

static void hold(struct giver *g, bool held)
{
	SCOPED_LOCK(&g->lock);

	g->held = held;
	pthread_cond_broadcast(&g->changed);
}

static void wait_fetches(struct giver *g, unsigned count)
{
	SCOPED_LOCK(&g->lock);

	while (g->fetches < count)
		cond_wait(&g->changed, &g->lock);
}

static void assert_key(struct credentials_cache *c, const char *key)
{
	struct credentials cleanup_credentials got = {0};

	unit_ok(credentials_get(c, &got));
	ck_assert_str_eq(got.key, key);
}

struct asker {
	pthread_t thread;
	struct credentials_cache *c;
	char key[8];
};

static void *get_one(void *arg)
{
	struct asker *a = arg;
	struct credentials cleanup_credentials got = {0};

	if (credentials_get(a->c, &got) == 0)
		snprintf(a->key, sizeof(a->key), "%s", got.key);
	return NULL;
}

static void ask(struct asker *a, struct credentials_cache *c)
{
	*a = (struct asker){.c = c};
	ck_assert_int_eq(pthread_create(&a->thread, NULL, get_one, a), 0);
}

static void assert_answer(struct asker *a, const char *key)
{
	pthread_join(a->thread, NULL);
	ck_assert_str_eq(a->key, key);
}

START_TEST(what_lives_for_ever_or_long_is_fetched_once)
{
	static const int64_t lives[] = {0, 3600 * NS_PER_S};
	struct credentials_cache *c;
	struct giver g;

	giver_start(&g, lives[_i], &c);
	for (int i = 0; i < 5; i++)
		assert_key(c, "key1");
	ck_assert_uint_eq(g.fetches, 1);
	credentials_cache_free(c);
}
END_TEST

START_TEST(of_many_that_ask_first_one_fetches)
{
	struct credentials_cache *c;
	struct asker askers[THREADS];
	struct giver g;

	giver_start(&g, 0, &c);
	hold(&g, true);
	for (int i = 0; i < THREADS; i++)
		ask(&askers[i], c);
	wait_fetches(&g, 1);
	hold(&g, false);
	for (int i = 0; i < THREADS; i++)
		assert_answer(&askers[i], "key1");
	ck_assert_uint_eq(g.fetches, 1);
	credentials_cache_free(c);
}
END_TEST

START_TEST(others_go_on_with_the_old_ones_while_one_renews)
{
	struct credentials_cache *c;
	struct giver g;
	struct asker renewer;

	/* Two minutes to live: renewed from the first minute on, so not yet. */
	giver_start(&g, 120 * NS_PER_S, &c);
	assert_key(c, "key1");
	assert_key(c, "key1");
	credentials_cache_free(c);

	/* What seems to have expired lives a minute, and is renewed from the half of it on. */
	giver_start(&g, -NS_PER_S, &c);
	assert_key(c, "key1");
	assert_key(c, "key1");
	ck_assert_uint_eq(g.fetches, 1);
	time_passes(31 * NS_PER_S);
	hold(&g, true);
	ask(&renewer, c);
	wait_fetches(&g, 2);
	assert_key(c, "key1");
	hold(&g, false);
	assert_answer(&renewer, "key2");
	assert_key(c, "key2");
	ck_assert_uint_eq(g.most_at_once, 1);
	credentials_cache_free(c);
}
END_TEST

START_TEST(a_failed_renewal_fails_nobody_until_they_expire)
{
	struct credentials cleanup_credentials got = {0};
	struct credentials_cache *c;
	struct giver g;

	giver_start(&g, 3600 * NS_PER_S, &c);
	assert_key(c, "key1");
	g.error = -ETIMEDOUT;
	time_passes(3400 * NS_PER_S);
	assert_key(c, "key1");
	assert_key(c, "key1");
	ck_assert_uint_eq(g.fetches, 2);
	time_passes(61 * NS_PER_S);
	assert_key(c, "key1");
	ck_assert_uint_eq(g.fetches, 3);
	time_passes(200 * NS_PER_S);
	unit_error(credentials_get(c, &got), -ETIMEDOUT);
	g.error = 0;
	assert_key(c, "key5");
	credentials_cache_free(c);
}
END_TEST

static void *get_error(void *arg)
{
	struct credentials cleanup_credentials got = {0};

	return (void *)(intptr_t)credentials_get(arg, &got);
}

START_TEST(who_waited_for_a_fetch_takes_its_failure)
{
	struct credentials_cache *c;
	pthread_t threads[THREADS];
	struct giver g;

	giver_start(&g, 0, &c);
	g.error = -EACCES;
	hold(&g, true);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, get_error, c), 0);
	wait_fetches(&g, 1);
	hold(&g, false);
	for (int i = 0; i < THREADS; i++) {
		void *error = NULL;

		pthread_join(threads[i], &error);
		ck_assert_int_eq((int)(intptr_t)error, -EACCES);
	}
	ck_assert_uint_eq(g.most_at_once, 1);
	credentials_cache_free(c);
}
END_TEST

START_TEST(what_a_server_refuses_is_fetched_anew_but_not_for_every_request)
{
	struct credentials cleanup_credentials first = {0}, second = {0};
	struct credentials_cache *c;
	struct giver g;

	giver_start(&g, 0, &c);
	unit_ok(credentials_get(c, &first));
	credentials_refused(c, &first);
	unit_ok(credentials_get(c, &second));
	ck_assert_str_eq(second.key, "key2");
	/* Another thread's late refusal of what is gone already. */
	credentials_refused(c, &first);
	assert_key(c, "key2");
	/* At once again: the giver is left alone. */
	credentials_refused(c, &second);
	assert_key(c, "key2");
	ck_assert_uint_eq(g.fetches, 2);
	credentials_cache_free(c);
}
END_TEST

START_TEST(a_copy_has_what_there_is)
{
	struct credentials cleanup_credentials copy = {0}, token = {.token = strdup("t")};

	unit_ok(credentials_copy(&token, &copy));
	ck_assert_ptr_null(copy.key);
	ck_assert_ptr_null(copy.secret);
	ck_assert_str_eq(copy.token, "t");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_credentials");
	TCase *t = unit_case(s, "cache");

	tcase_add_loop_test(t, what_lives_for_ever_or_long_is_fetched_once, 0, 2);
	tcase_add_test(t, of_many_that_ask_first_one_fetches);
	tcase_add_test(t, others_go_on_with_the_old_ones_while_one_renews);
	tcase_add_test(t, a_failed_renewal_fails_nobody_until_they_expire);
	tcase_add_test(t, who_waited_for_a_fetch_takes_its_failure);
	tcase_add_test(t, what_a_server_refuses_is_fetched_anew_but_not_for_every_request);
	tcase_add_test(t, a_copy_has_what_there_is);
	return unit_run(s);
}
