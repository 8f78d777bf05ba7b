/* SPDX-License-Identifier: Apache-2.0 */
/* Worker threads: tasks, loops, errors, turns; threads on demand, and what can wait. */
#include "lib/store/pool.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include "lib/store/hash_index.h"
#include "lib/util/cleanup.h"
#include "lib/util/hash.h"
#include "tests/unit/no_threads.h"

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

/* ---- threads on demand ---- */

#define LONG_NS (3600 * NS_PER_S)

/* Ends when it is released. */
struct held_task {
	struct pool_task task;
	atomic_bool begun, release, ended;
	unsigned *count; /* one more at each beginning; NULL: not counted */
	unsigned number; /* what that was */
};

static void hold(struct pool_task *t)
{
	struct held_task *h = (struct held_task *)t;

	if (h->count)
		h->number = ++*h->count;
	atomic_store(&h->begun, true);
	while (!atomic_load(&h->release))
		usleep(100);
	atomic_store(&h->ended, true);
}

static struct held_task held(void)
{
	return (struct held_task){.task.run = hold};
}

static void release(struct held_task *tasks, size_t count)
{
	for (size_t i = 0; i < count; i++)
		atomic_store(&tasks[i].release, true);
}

static unsigned threads_here(void)
{
	DIR *dir = opendir("/proc/self/task");
	unsigned count = 0;

	ck_assert_ptr_nonnull(dir);
	while (readdir(dir))
		count++;
	closedir(dir);
	return count - 2;
}

static void *do_nothing(void *arg)
{
	return arg;
}

/* Without those of pools: ThreadSanitizer makes one of its own beside a process's first. */
static unsigned threads_before(void)
{
	pthread_t thread;

	ck_assert(!pthread_create(&thread, NULL, do_nothing, NULL));
	pthread_join(thread, NULL);
	usleep(50000); /* until the kernel has put it away */
	return threads_here();
}

START_TEST(what_is_waited_for_does_not_wait_for_what_can)
{
	struct held_task later[4], now = held();
	struct pool *p = NULL;

	unit_ok(pool_new_on_demand(3, 2, LONG_NS, &p));
	for (int i = 0; i < 4; i++) {
		later[i] = held();
		unit_ok(pool_offer(p, &later[i].task, POOL_LATER));
	}
	unit_until(later[0].begun && later[1].begun);
	unit_ok(pool_offer(p, &now.task, POOL_NOW));
	unit_until(now.begun);
	ck_assert(!later[2].begun && !later[3].begun);
	release(&now, 1);
	unit_until(now.ended);
	/* And its thread is free for the next of its kind alone. */
	usleep(20000);
	ck_assert(!later[2].begun && !later[3].begun);
	release(later, 4);
	pool_free(p);
	ck_assert(later[2].ended && later[3].ended);
}
END_TEST

/* Of one thread that becomes free: the tasks here began one after the other. */
START_TEST(what_is_waited_for_goes_first)
{
	struct held_task blocks[2] = {held(), held()}, tasks[4];
	struct pool *p = NULL;
	unsigned count = 0;

	unit_ok(pool_new_on_demand(2, 1, LONG_NS, &p));
	unit_ok(pool_offer(p, &blocks[0].task, POOL_LATER));
	unit_ok(pool_offer(p, &blocks[1].task, POOL_NOW));
	unit_until(blocks[0].begun && blocks[1].begun);
	for (int i = 0; i < 4; i++) {
		tasks[i] = held();
		tasks[i].count = &count;
		release(&tasks[i], 1);
		unit_ok(pool_offer(p, &tasks[i].task, i < 2 ? POOL_LATER : POOL_NOW));
	}
	release(&blocks[0], 1);
	unit_until(tasks[1].ended);
	ck_assert_uint_eq(tasks[2].number, 1);
	ck_assert_uint_eq(tasks[3].number, 2);
	ck_assert_uint_eq(tasks[0].number, 3);
	ck_assert_uint_eq(tasks[1].number, 4);
	release(&blocks[1], 1);
	pool_free(p);
}
END_TEST

START_TEST(what_waits_can_be_taken_back)
{
	struct held_task first = held(), second = held(), third = held();
	struct pool *p = NULL;

	unit_ok(pool_new_on_demand(2, 1, LONG_NS, &p));
	unit_ok(pool_offer(p, &first.task, POOL_LATER));
	unit_until(first.begun);
	unit_ok(pool_offer(p, &second.task, POOL_LATER));
	unit_ok(pool_offer(p, &third.task, POOL_LATER));
	ck_assert(!pool_withdraw(p, &first.task));
	ck_assert(pool_withdraw(p, &second.task));
	ck_assert(!pool_withdraw(p, &second.task));
	ck_assert(pool_withdraw(p, &third.task));
	/* Somebody waits for it by now. */
	unit_ok(pool_offer(p, &second.task, POOL_NOW));
	unit_until(second.begun);
	release(&first, 1);
	release(&second, 1);
	pool_free(p);
	ck_assert(!third.begun);
}
END_TEST

START_TEST(threads_are_made_for_work_and_end_without_it)
{
	unsigned before = threads_before();
	struct held_task tasks[5], again = held();
	struct pool *p = NULL;

	unit_ok(pool_new_on_demand(4, 1, 50 * NS_PER_MS, &p));
	ck_assert_uint_eq(threads_here(), before);
	for (int i = 0; i < 5; i++) {
		tasks[i] = held();
		unit_ok(pool_offer(p, &tasks[i].task, POOL_NOW));
		ck_assert_uint_eq(threads_here(), before + (unsigned)(i < 4 ? i + 1 : 4));
	}
	release(tasks, 5);
	unit_until(threads_here() == before);
	ck_assert(tasks[4].ended);
	/* One that ended is made again. */
	unit_ok(pool_offer(p, &again.task, POOL_LATER));
	unit_until(again.begun);
	release(&again, 1);
	pool_free(p);
}
END_TEST

START_TEST(no_thread_is_left_by_a_pool)
{
	unsigned before = threads_before();
	struct held_task tasks[20];
	struct pool *p = NULL;

	unit_ok(pool_new_on_demand(16, 8, LONG_NS, &p));
	for (int i = 0; i < 20; i++) {
		tasks[i] = held();
		release(&tasks[i], 1);
		unit_ok(pool_offer(p, &tasks[i].task, i % 2 ? POOL_LATER : POOL_NOW));
	}
	pool_free(p);
	/* The kernel may take a moment longer than a join to put a thread away. */
	unit_until(threads_here() == before);
	for (int i = 0; i < 20; i++)
		ck_assert(tasks[i].ended);
}
END_TEST

START_TEST(without_threads_a_task_is_refused)
{
	struct held_task later = held(), now = held(), more = held();
	struct pool *p = NULL;

	unit_ok(pool_new_on_demand(4, 2, LONG_NS, &p));
	no_threads(true);
	unit_error(pool_offer(p, &now.task, POOL_NOW), -EAGAIN);
	unit_error(pool_offer(p, &later.task, POOL_LATER), -EAGAIN);
	ck_assert(!pool_withdraw(p, &now.task) && !pool_withdraw(p, &later.task));
	no_threads(false);
	unit_ok(pool_offer(p, &later.task, POOL_LATER));
	unit_until(later.begun);
	/* The only thread is busy with what could wait. */
	no_threads(true);
	unit_error(pool_offer(p, &now.task, POOL_NOW), -EAGAIN);
	unit_ok(pool_offer(p, &more.task, POOL_LATER));
	no_threads(false);
	unit_ok(pool_offer(p, &now.task, POOL_NOW));
	unit_until(now.begun);
	release(&later, 1);
	release(&now, 1);
	release(&more, 1);
	pool_free(p);
	ck_assert(more.ended);
}
END_TEST

/* ---- loops that can wait ---- */

struct marked {
	struct pool *pool;
	atomic_bool waits;
	pthread_t thread;
	atomic_int tid;
	char mark;
	char *marks; /* of all loops: one a round */
};

static void mark(const struct marked *m)
{
	m->marks[strlen(m->marks)] = m->mark;
}

static int mark_round(void *arg, size_t i)
{
	(void)i;
	mark(arg);
	return 0;
}

static void *run_marked(void *arg)
{
	struct marked *m = arg;

	atomic_store(&m->tid, (int)syscall(SYS_gettid));
	unit_ok(pool_run_ahead(m->pool, 3, mark_round, m, &m->waits));
	return NULL;
}

static bool sleeps(int tid)
{
	char path[64], text[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = tid ? fopen(path, "re") : NULL;
	if (f) {
		ck_assert(fgets(text, sizeof(text), f));
		fclose(f);
	}
	return strstr(text, ") S ");
}

/* With the first round the other loops come; with the second, somebody waits for one of these. */
static int lead_round(void *arg, size_t i)
{
	struct marked *loops = arg;

	for (int k = 0; i == 0 && k < 2; k++) {
		ck_assert(!pthread_create(&loops[k].thread, NULL, run_marked, &loops[k]));
		unit_until(sleeps(loops[k].tid));
	}
	if (i == 1)
		loops[1].waits = true;
	mark(&loops[2]);
	return 0;
}

START_TEST(loops_that_can_wait_go_last)
{
	char marks[16] = "";
	struct marked loops[3] = {{.mark = 'a'}, {.mark = 'b'}, {.mark = 'c'}};
	struct pool *p = NULL;

	unit_ok(pool_new(1, POOL_ORDINARY, &p));
	for (int i = 0; i < 3; i++) {
		loops[i].pool = p;
		loops[i].marks = marks;
	}
	unit_ok(pool_run(p, 4, lead_round, loops));
	for (int i = 0; i < 2; i++)
		pthread_join(loops[i].thread, NULL);
	ck_assert_str_eq(marks, "ccbcbcbaaa");
	pool_free(p);
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
	t = unit_case(s, "on demand");
	tcase_add_test(t, what_is_waited_for_does_not_wait_for_what_can);
	tcase_add_test(t, what_is_waited_for_goes_first);
	tcase_add_test(t, what_waits_can_be_taken_back);
	tcase_add_test(t, threads_are_made_for_work_and_end_without_it);
	tcase_add_test(t, no_thread_is_left_by_a_pool);
	tcase_add_test(t, without_threads_a_task_is_refused);
	tcase_add_test(t, loops_that_can_wait_go_last);
	t = unit_case(s, "hash index");
	tcase_add_test(t, a_hash_index_finds_what_was_added);
	return unit_run(s);
}
