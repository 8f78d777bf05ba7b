/* SPDX-License-Identifier: Apache-2.0 */
/* One writer at a time: taking, keeping and losing the lease. */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>
#include "lib/format/names.h"
#include "lib/remote/remote_ops.h"
#include "lib/util/clock.h"
#include "lib/util/hash.h"
#include "lib/volume/lease.h"
#include "lib/volume/lease_process.h"
#include "tests/unit/unit.h"

#define TTL  (1 * NS_PER_S)
#define MANY 8

static struct remote *remote;

static void start(void)
{
	unit_ok(remote_open("memory:lease", &remote));
}

static void stop(void)
{
	remote_close(remote);
}

/* Who is on another host, so that only the object tells whether he lives. */
static struct lease_terms elsewhere(const char *host)
{
	struct lease_terms terms = {
		.self = {.pid = 7, .pid_started = 8, .pid_namespace = 9, .ttl_ns = TTL}};

	unit_ok(uuid_make(terms.self.boot_id));
	snprintf(terms.self.host, sizeof(terms.self.host), "%s", host);
	return terms;
}

static struct lease_terms here(void)
{
	struct lease_terms terms = {.self = {.ttl_ns = TTL}};

	unit_ok(lease_process_self(&terms.self));
	return terms;
}

static struct lease *take(const struct lease_terms *terms)
{
	struct lease_info before = {0};
	struct lease *l = NULL;

	unit_ok(lease_take(remote, terms, &l, &before));
	return l;
}

static struct lease_view view_of(struct lease *l)
{
	struct lease_view view;

	lease_get(l, &view);
	return view;
}

static bool at_once(void *arg)
{
	(void)arg;
	return true;
}

static void count_wait(void *arg, const struct lease_info *holder, int64_t at_most_ns)
{
	ck_assert_int_eq(at_most_ns, holder->ttl_ns);
	++*(int *)arg;
}

static void put_object(const struct lease_info *l)
{
	cleanup_buf struct buf text = {0};
	char key[KEY_MAX];

	unit_ok(lease_encode(l, &text));
	lease_key(l->generation, key);
	unit_ok(remote_put(remote, key, text.data, text.len));
}

/* What `terms` get from a look that does not wait: 0, -EBUSY, or -EINTR for one that would. */
static int try_take(struct lease_terms terms)
{
	struct lease_info before = {0};
	struct lease *l = NULL;
	int error;

	terms.give_up = at_once;
	error = lease_take(remote, &terms, &l, &before);
	lease_free(l);
	return error;
}

/* ---- taking ---- */

START_TEST(a_free_one_is_taken_and_given_back)
{
	struct lease_terms terms = elsewhere("a");
	struct lease_info before = {.generation = 99}, now = {0};
	struct lease *l = NULL;

	start();
	unit_error(lease_look(remote, &now), -ENOENT);
	unit_ok(lease_take(remote, &terms, &l, &before));
	ck_assert_uint_eq(before.generation, 0);
	unit_ok(lease_renew(l, remote));
	unit_ok(lease_look(remote, &now));
	ck_assert_uint_eq(now.generation, 1);
	ck_assert_uint_eq(now.renewed, 1);
	ck_assert_str_eq(now.host, "a");
	unit_ok(lease_release(l, remote, 5));
	lease_free(l);
	terms = elsewhere("b");
	unit_ok(lease_take(remote, &terms, &l, &before));
	ck_assert_uint_eq(view_of(l).own.generation, 2);
	ck_assert(before.released);
	ck_assert_uint_eq(before.pending, 5);
	lease_free(l);
	stop();
}
END_TEST

START_TEST(a_process_that_is_there_is_refused_without_waiting)
{
	struct lease_terms terms = here();
	struct lease_info before = {0};
	struct lease *l, *second = NULL;
	int waits = 0;

	start();
	l = take(&terms);
	terms.waiting = count_wait;
	terms.arg = &waits;
	unit_error(lease_take(remote, &terms, &second, &before), -EBUSY);
	ck_assert_uint_eq(before.pid, (uint64_t)getpid());
	ck_assert_int_eq(waits, 0);
	unit_ok(lease_confirm(l, remote, 0));
	lease_free(l);
	stop();
}
END_TEST

START_TEST(a_process_that_is_gone_is_followed_at_once)
{
	struct lease_terms terms = here();
	struct lease_info old = terms.self;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	start();
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	old.generation = 1;
	unit_ok(uuid_make(old.holder));
	old.pid = (uint64_t)pid;
	put_object(&old);
	unit_ok(try_take(terms));
	/* Another process has the number by now. */
	old.generation = 3;
	old.pid = (uint64_t)getpid();
	old.pid_started--;
	put_object(&old);
	unit_ok(try_take(terms));
	/* In another namespace the number says nothing. */
	old.generation = 5;
	old.pid_namespace++;
	put_object(&old);
	unit_error(try_take(terms), -EINTR);
	stop();
}
END_TEST

START_TEST(a_child_that_nobody_waited_for_is_gone)
{
	struct lease_terms terms = here();
	struct lease_info old = terms.self;
	cleanup_buf struct buf text = {0};
	char path[64];
	siginfo_t ended;
	pid_t pid = fork();

	if (!pid)
		_exit(0);
	start();
	ck_assert_int_eq(waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT), 0);
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	unit_ok(io_read_file(AT_FDCWD, path, 4096, &text));
	ck_assert_ptr_nonnull(strstr(buf_str(&text), ") Z"));
	old.pid = (uint64_t)pid;
	ck_assert_int_eq(lease_process_of(&old, &terms.self), LEASE_PROCESS_GONE);
	waitpid(pid, NULL, 0);
	stop();
}
END_TEST

START_TEST(who_had_our_cache_is_gone)
{
	struct lease_terms terms = here();
	struct lease_info old = terms.self;

	start();
	old.generation = 1;
	unit_ok(uuid_make(old.holder));
	old.pid_namespace++; /* a container of this host */
	put_object(&old);
	unit_error(try_take(terms), -EINTR);
	terms.last_holder = old.holder;
	unit_ok(try_take(terms));
	/* On another host, or after another boot, the cache may be a copy. */
	old.generation = 3;
	unit_ok(uuid_make(old.boot_id));
	put_object(&old);
	unit_error(try_take(terms), -EINTR);
	stop();
}
END_TEST

/* ---- waiting ---- */

struct other {
	struct lease *lease;
	int renews; /* so often, at the beginning of a wait */
	int waits;
};

static void renew_other(void *arg, const struct lease_info *holder, int64_t at_most_ns)
{
	struct other *other = arg;

	ck_assert_int_eq(at_most_ns, holder->ttl_ns);
	other->waits++;
	for (int i = 0; i < other->renews; i++)
		unit_ok(lease_renew(other->lease, remote));
}

static void release_other(void *arg, const struct lease_info *holder, int64_t at_most_ns)
{
	struct other *other = arg;

	(void)holder;
	(void)at_most_ns;
	unit_ok(lease_release(other->lease, remote, 0));
}

START_TEST(one_elsewhere_that_renews_is_alive)
{
	struct lease_terms a = elsewhere("a"), b = elsewhere("b");
	struct other other = {.lease = NULL, .renews = 1};
	struct lease_info before = {0};
	struct lease *l = NULL;

	start();
	other.lease = take(&a);
	b.waiting = renew_other;
	b.arg = &other;
	unit_error(lease_take(remote, &b, &l, &before), -EBUSY);
	ck_assert_int_eq(other.waits, 1);
	ck_assert_str_eq(before.host, "a");
	unit_ok(lease_confirm(other.lease, remote, 0));
	lease_free(other.lease);
	stop();
}
END_TEST

/* No clock of another machine is believed: neither one far behind nor one far ahead. */
START_TEST(one_elsewhere_that_does_not_renew_lapses_whatever_its_clock_says)
{
	const int64_t since[] = {0, clock_wall_ns() + 3600 * NS_PER_S};

	start();
	for (uint64_t i = 0; i < 2; i++) {
		struct lease_terms a = elsewhere("a"), b = elsewhere("b");
		int64_t began = clock_mono_ns();
		int waits = 0;

		a.self.generation = 2 * i + 1;
		a.self.since_ns = since[i];
		unit_ok(uuid_make(a.self.holder));
		put_object(&a.self);
		b.waiting = count_wait;
		b.arg = &waits;
		lease_free(take(&b));
		ck_assert_int_ge(clock_mono_ns() - began, TTL);
		ck_assert_int_eq(waits, 1);
	}
	stop();
}
END_TEST

START_TEST(one_that_is_released_meanwhile_is_taken)
{
	struct lease_terms a = elsewhere("a"), b = elsewhere("b");
	struct other other = {.lease = NULL};
	struct lease *l;

	start();
	a.self.ttl_ns = 3600 * NS_PER_S;
	other.lease = take(&a);
	b.waiting = release_other;
	b.arg = &other;
	l = take(&b);
	ck_assert_uint_eq(view_of(l).own.generation, 2);
	lease_free(l);
	lease_free(other.lease);
	stop();
}
END_TEST

START_TEST(one_that_is_damaged_is_watched_like_any_other)
{
	struct lease_terms a = elsewhere("a");

	start();
	unit_ok(remote_put(remote, "lease/00000000000000000004.json", "{", 1));
	unit_ok(remote_put(remote, "lease/notes.txt", "x", 1));
	unit_error(try_take(a), -EINTR);
	a.take_over = true;
	unit_ok(try_take(a));
	unit_ok(remote_put(remote, "lease/00000000000000000009.json", "{\"format\": 3}", 13));
	unit_error(try_take(a), -EPROTONOSUPPORT);
	unit_ok(remote_put(remote, "lease/09223372036854775807.json", "{", 1));
	unit_error(try_take(a), -EBADMSG);
	stop();
}
END_TEST

/* ---- losing ---- */

START_TEST(who_lost_it_learns_so_and_writes_nothing)
{
	struct lease_terms a = elsewhere("a"), b = elsewhere("b");
	cleanup_buf struct buf was = {0}, is = {0};
	struct lease *old, *new;

	start();
	old = take(&a);
	b.take_over = true;
	new = take(&b);
	unit_ok(remote_get(remote, "lease/00000000000000000001.json", 0, REMOTE_TO_END, &was));
	/* Asked a moment ago: not asked again. */
	unit_ok(lease_confirm(old, remote, 3600 * NS_PER_S));
	unit_error(lease_confirm(old, remote, 0), -ESTALE);
	ck_assert(view_of(old).lost);
	ck_assert_str_eq(view_of(old).winner.host, "b");
	unit_error(lease_renew(old, remote), -ESTALE);
	unit_error(lease_release(old, remote, 0), -ESTALE);
	unit_ok(remote_get(remote, "lease/00000000000000000001.json", 0, REMOTE_TO_END, &is));
	unit_same_bytes(was.data, was.len, is.data, is.len);
	/* For good, whatever becomes of the other. */
	unit_ok(lease_release(new, remote, 0));
	unit_error(lease_confirm(old, remote, 3600 * NS_PER_S), -ESTALE);
	lease_free(old);
	lease_free(new);
	stop();
}
END_TEST

/* A renewal that was under way when its holder was stopped lands after all: in an old generation. */
START_TEST(a_late_renewal_of_the_old_holder_is_nobodys)
{
	struct lease_terms a = elsewhere("a"), b = elsewhere("b"), c = elsewhere("c");
	struct lease_info late, now = {0};
	struct lease *old, *new;

	start();
	old = take(&a);
	late = view_of(old).own;
	late.renewed++;
	new = take(&b); /* it lapsed */
	put_object(&late);
	unit_ok(lease_confirm(new, remote, 0));
	unit_ok(lease_look(remote, &now));
	ck_assert_str_eq(now.host, "b");
	unit_ok(lease_release(new, remote, 0));
	put_object(&late);
	unit_ok(try_take(c));
	unit_error(lease_confirm(old, remote, 0), -ESTALE);
	lease_free(old);
	lease_free(new);
	stop();
}
END_TEST

START_TEST(an_object_that_is_taken_away_is_a_lost_lease)
{
	struct lease_terms a = elsewhere("a"), b = elsewhere("b");
	struct lease *first, *second;

	start();
	first = take(&a);
	unit_ok(remote_delete(remote, "lease/00000000000000000001.json"));
	second = take(&b); /* the same generation */
	ck_assert_uint_eq(view_of(second).own.generation, 1);
	unit_error(lease_confirm(first, remote, 0), -ESTALE);
	unit_ok(remote_delete(remote, "lease/00000000000000000001.json"));
	unit_error(lease_renew(second, remote), -ESTALE);
	lease_free(first);
	lease_free(second);
	stop();
}
END_TEST

START_TEST(a_remote_that_is_away_loses_nothing)
{
	struct lease_terms a = elsewhere("a");
	struct remote *away = NULL;
	struct lease *l;

	start();
	l = take(&a);
	unit_ok(remote_open("fault+memory:lease?down=1&times=2", &away));
	unit_error(lease_renew(l, away), -ECONNREFUSED);
	unit_error(lease_confirm(l, away, 0), -ECONNREFUSED);
	ck_assert(!view_of(l).lost);
	unit_ok(lease_renew(l, away)); /* it is back */
	ck_assert_uint_eq(view_of(l).own.renewed, 1);
	remote_close(away);
	lease_free(l);
	stop();
}
END_TEST

static int count_object(void *arg, const char *key, uint64_t size)
{
	(void)key;
	(void)size;
	++*(uint64_t *)arg;
	return 0;
}

START_TEST(history_is_short)
{
	uint64_t count = 0;

	start();
	for (int i = 0; i < 3 * LEASE_KEEP; i++) {
		struct lease_terms a = elsewhere("a");
		struct lease *l = take(&a);

		unit_ok(lease_release(l, remote, 0));
		lease_free(l);
	}
	unit_ok(remote_list(remote, PREFIX_LEASE, count_object, &count));
	ck_assert_uint_eq(count, LEASE_KEEP);
	stop();
}
END_TEST

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
	Suite *s = suite_create("volume_lease");
	TCase *t = unit_case(s, "lease");

	tcase_add_test(t, a_free_one_is_taken_and_given_back);
	tcase_add_test(t, a_process_that_is_there_is_refused_without_waiting);
	tcase_add_test(t, a_process_that_is_gone_is_followed_at_once);
	tcase_add_test(t, a_child_that_nobody_waited_for_is_gone);
	tcase_add_test(t, who_had_our_cache_is_gone);
	tcase_add_test(t, one_elsewhere_that_renews_is_alive);
	tcase_add_test(t, one_elsewhere_that_does_not_renew_lapses_whatever_its_clock_says);
	tcase_add_test(t, one_that_is_released_meanwhile_is_taken);
	tcase_add_test(t, one_that_is_damaged_is_watched_like_any_other);
	tcase_add_test(t, who_lost_it_learns_so_and_writes_nothing);
	tcase_add_test(t, a_late_renewal_of_the_old_holder_is_nobodys);
	tcase_add_test(t, an_object_that_is_taken_away_is_a_lost_lease);
	tcase_add_test(t, a_remote_that_is_away_loses_nothing);
	tcase_add_test(t, history_is_short);
	tcase_add_loop_test(t, of_many_that_take_over_one_has_it, 0, 3);
	tcase_add_loop_test(t, of_many_that_take_it_by_force_the_last_has_it, 0, 3);
	tcase_add_test(t, where_creating_is_not_atomic_the_last_of_a_race_has_it);
	tcase_add_test(t, where_nothing_can_be_created_nobody_has_it);
	return unit_run(s);
}
