/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads: tasks, loops, errors, turns. */
#include "lib/store/pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include "lib/store/hash_index.h"
#include "lib/util/cleanup.h"
#include "lib/util/hash.h"
#include "tests/unit/unit.h"

#define ROUNDS 500

struct rounds {
	atomic_uint done[ROUNDS];
	size_t fail_at; /* ROUNDS: never */
};

static int round_done(void *arg, size_t i)
{
	struct rounds *r = arg;

	atomic_fetch_add(&r->done[i], 1);
	return i == r->fail_at ? -EDOM : 0;
}

START_TEST(a_loop_runs_each_round_once)
{
	struct rounds r = {.fail_at = ROUNDS};
	struct pool *p = NULL;

	unit_ok(pool_new(_i, POOL_ORDINARY, &p));
	unit_ok(pool_run(p, ROUNDS, round_done, &r));
	unit_ok(pool_run(p, 0, round_done, &r));
	for (size_t i = 0; i < ROUNDS; i++)
		ck_assert_uint_eq(r.done[i], 1);
	pool_free(p);
}
END_TEST

START_TEST(an_error_ends_the_loop)
{
	struct rounds r = {.fail_at = 10};
	struct pool *p = NULL;
	unsigned total = 0;

	unit_ok(pool_new(1, POOL_ORDINARY, &p));
	unit_error(pool_run(p, ROUNDS, round_done, &r), -EDOM);
	for (size_t i = 0; i < ROUNDS; i++)
		total += r.done[i];
	ck_assert_uint_eq(total, 11);
	/* The last round's too. */
	r.fail_at = ROUNDS - 1;
	unit_error(pool_run(p, ROUNDS, round_done, &r), -EDOM);
	pool_free(p);
}
END_TEST

/* A loop whose first round waits until the other one has ended. */
struct patient {
	struct pool *pool;
	atomic_bool begun, release;
	atomic_uint rounds;
};

static int wait_for_release(void *arg, size_t i)
{
	struct patient *p = arg;

	atomic_store(&p->begun, true);
	while (i == 0 && !atomic_load(&p->release))
		sched_yield();
	atomic_fetch_add(&p->rounds, 1);
	return 0;
}

static void *run_patient(void *arg)
{
	struct patient *p = arg;

	unit_ok(pool_run(p->pool, 1000, wait_for_release, p));
	return NULL;
}

START_TEST(a_long_loop_does_not_hold_up_a_short_one)
{
	struct patient patient = {0};
	struct rounds r = {.fail_at = ROUNDS};
	pthread_t thread;

	unit_ok(pool_new(2, POOL_ORDINARY, &patient.pool));
	ck_assert_int_eq(pthread_create(&thread, NULL, run_patient, &patient), 0);
	while (!atomic_load(&patient.begun))
		sched_yield();
	/* One thread is stuck in the long loop; the other serves both in turn. */
	unit_ok(pool_run(patient.pool, 5, round_done, &r));
	atomic_store(&patient.release, true);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(patient.rounds, 1000);
	pool_free(patient.pool);
}
END_TEST

struct counted_task {
	struct pool_task task;
	atomic_uint *count;
};

static void count_task(struct pool_task *t)
{
	atomic_fetch_add(((struct counted_task *)t)->count, 1);
}

START_TEST(tasks_all_run_before_the_pool_is_freed)
{
	struct counted_task tasks[100];
	struct pool *p = NULL;
	atomic_uint count = 0;

	unit_ok(pool_new(3, POOL_ORDINARY, &p));
	for (size_t i = 0; i < 100; i++) {
		tasks[i] = (struct counted_task){.task.run = count_task, .count = &count};
		pool_submit(p, &tasks[i].task);
	}
	pool_free(p);
	ck_assert_uint_eq(count, 100);
	pool_free(NULL);
}
END_TEST

struct numbered {
	struct hash hash;
	uint32_t number;
};

START_TEST(a_hash_index_finds_what_was_added)
{
	enum { COUNT = 5000 };
	struct numbered *items = calloc(COUNT, sizeof(*items));
	struct hash_index ix = {0};
	struct hash other;

	hash_of("other", 5, &other);
	ck_assert_uint_eq(hash_index_find(&ix, items, sizeof(*items), &other), HASH_INDEX_NONE);
	for (uint32_t i = 0; i < COUNT; i++) {
		/* Every other one differs from its neighbour only at its end. */
		uint32_t seed = i / 2;

		hash_of(&seed, sizeof(seed), &items[i].hash);
		items[i].hash.bytes[HASH_SIZE - 1] ^= (uint8_t)(i & 1);
		items[i].number = i;
		unit_ok(hash_index_add(&ix, items, sizeof(*items), i));
	}
	for (uint32_t i = 0; i < COUNT; i++)
		ck_assert_uint_eq(hash_index_find(&ix, items, sizeof(*items), &items[i].hash), i);
	ck_assert_uint_eq(hash_index_find(&ix, items, sizeof(*items), &other), HASH_INDEX_NONE);
	hash_index_free(&ix);
	free(items);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("store_pool");
	TCase *t = unit_case(s, "pool");

	tcase_add_loop_test(t, a_loop_runs_each_round_once, 1, 5);
	tcase_add_test(t, an_error_ends_the_loop);
	tcase_add_test(t, a_long_loop_does_not_hold_up_a_short_one);
	tcase_add_test(t, tasks_all_run_before_the_pool_is_freed);
	t = unit_case(s, "hash index");
	tcase_add_test(t, a_hash_index_finds_what_was_added);
	return unit_run(s);
}
