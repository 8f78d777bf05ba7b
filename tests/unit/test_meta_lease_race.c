/* SPDX-License-Identifier: Apache-2.0 */
/* Many take the lease at once, also over remotes that cannot refuse to replace an object. */
#include <pthread.h>
#include "lib/net/open.h"
#include "lib/remote/remote_ops.h"
#include "tests/unit/lease_unit.h"

#define MANY 8

/* ---- races ---- */

struct racer {
	pthread_t thread;
	pthread_barrier_t *ready;
	struct remote *remote;
	struct lease *lease;
	int error;
	bool take_over;
};

/* Each on a host of its own; who has it goes on renewing until all are done. */
static void *race(void *arg)
{
	struct racer *r = arg;
	struct lease_terms terms = elsewhere("racer");
	struct lease_info before = {0};

	terms.take_over = r->take_over;
	pthread_barrier_wait(r->ready);
	r->error = lease_take(r->remote, &terms, &r->lease, &before);
	return NULL;
}

/* Starts MANY, renews for whoever has won while the others watch, and counts the winners. */
static int run_race(const char *url, bool take_over)
{
	struct racer r[MANY] = {{0}};
	pthread_barrier_t ready;
	int confirmed = 0;

	pthread_barrier_init(&ready, NULL, MANY);
	for (int i = 0; i < MANY; i++) {
		const struct remote_retry_policy policy = {.first_wait_ns = NS_PER_MS,
							   .longest_wait_ns = 5 * NS_PER_MS};
		struct remote *plain;

		unit_ok(remote_open(url, &plain));
		unit_ok(remote_retry_new(plain, &policy, &r[i].remote));
		r[i].ready = &ready;
		r[i].take_over = take_over;
		ck_assert_int_eq(pthread_create(&r[i].thread, NULL, race, &r[i]), 0);
	}
	for (int i = 0; i < MANY; i++)
		pthread_join(r[i].thread, NULL);
	for (int i = 0; i < MANY; i++) {
		ck_assert_msg(!r[i].error || r[i].error == -EBUSY, "%d", r[i].error);
		if (!r[i].error && lease_confirm(r[i].lease, r[i].remote, 0) == 0)
			confirmed++;
		lease_free(r[i].lease);
		remote_close(r[i].remote);
	}
	pthread_barrier_destroy(&ready);
	return confirmed;
}

static const char *const race_urls[] = {
	"memory:lease",
	"fault+memory:lease?create.lost=0.5&get.error=0.1&list.error=0.1&seed=3",
	"fault+memory:lease?create.lost=0.9&create.error=0.05&seed=4",
};

/* All see the same dead holder lapse, and take over at once: nobody takes it from who was faster. */
START_TEST(of_many_that_take_over_one_has_it)
{
	struct lease_terms dead = elsewhere("dead");

	start();
	dead.self.generation = 1;
	unit_ok(uuid_make(dead.self.holder));
	put_object(&dead.self);
	ck_assert_int_eq(run_race(race_urls[_i], false), 1);
	stop();
}
END_TEST

START_TEST(of_many_that_take_it_by_force_the_last_has_it)
{
	start();
	ck_assert_int_eq(run_race(race_urls[_i], true), 1);
	stop();
}
END_TEST

/* ---- remotes that cannot refuse ---- */

/* Objects in memory, whose create-if-absent replaces what is there, or is none at all. */
struct weak {
	struct remote base;
	struct remote *objects;
	enum remote_create create;
};

static int weak_put(struct remote *r, const char *key, const void *data, size_t len)
{
	return remote_put(((struct weak *)r)->objects, key, data, len);
}

static int weak_get(struct remote *r, const char *key, uint64_t offset, uint64_t len,
		    struct buf *out)
{
	return remote_get(((struct weak *)r)->objects, key, offset, len, out);
}

static int weak_list(struct remote *r, const char *prefix, remote_list_fn *fn, void *arg)
{
	return remote_list(((struct weak *)r)->objects, prefix, fn, arg);
}

static int weak_check_create(struct remote *r, enum remote_create *ret_create)
{
	*ret_create = ((struct weak *)r)->create;
	return 0;
}

static const struct remote_ops weak_ops = {
	.put = weak_put,
	.put_if_absent = weak_put,
	.get = weak_get,
	.list = weak_list,
	.check_create = weak_check_create,
};

static struct remote *weak_open(enum remote_create create)
{
	struct weak *w = calloc(1, sizeof(*w));

	w->objects = remote;
	w->create = create;
	unit_ok(remote_init(&w->base, &weak_ops, "test:weak", NULL));
	return &w->base;
}

/* All are told that they created it; the one whose object stayed has it, the others see that he lives. */
START_TEST(where_creating_is_not_atomic_the_last_of_a_race_has_it)
{
	struct racer r[MANY] = {{0}};
	struct remote *weak;
	pthread_barrier_t ready;
	int winners = 0;

	start();
	weak = weak_open(REMOTE_CREATE_CHECKED);
	pthread_barrier_init(&ready, NULL, MANY);
	for (int i = 0; i < MANY; i++) {
		r[i].ready = &ready;
		r[i].remote = weak;
		ck_assert_int_eq(pthread_create(&r[i].thread, NULL, race, &r[i]), 0);
	}
	for (int i = 0; i < MANY; i++)
		pthread_join(r[i].thread, NULL);
	for (int i = 0; i < MANY; i++) {
		winners += !r[i].error && lease_confirm(r[i].lease, weak, 0) == 0;
		lease_free(r[i].lease);
	}
	ck_assert_int_eq(winners, 1);
	pthread_barrier_destroy(&ready);
	remote_close(weak);
	stop();
}
END_TEST

START_TEST(where_nothing_can_be_created_nobody_has_it)
{
	struct lease_terms a = elsewhere("a");
	struct lease_info before = {0};
	struct remote *weak;
	struct lease *l = NULL;
	uint64_t count = 0;

	start();
	weak = weak_open(REMOTE_CREATE_NONE);
	a.take_over = true;
	unit_error(lease_take(weak, &a, &l, &before), -EOPNOTSUPP);
	unit_ok(remote_list(remote, "", count_object, &count));
	ck_assert_uint_eq(count, 0);
	remote_close(weak);
	stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("meta_lease_race");
	TCase *t = unit_case(s, "lease");

	tcase_add_loop_test(t, of_many_that_take_over_one_has_it, 0, 3);
	tcase_add_loop_test(t, of_many_that_take_it_by_force_the_last_has_it, 0, 3);
	tcase_add_test(t, where_creating_is_not_atomic_the_last_of_a_race_has_it);
	tcase_add_test(t, where_nothing_can_be_created_nobody_has_it);
	return unit_run(s);
}
