/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One suite over every kind of remote: what remote.h promises to those who use it at the same time. tests/remotes sets
 * EPOCHFS_TEST_REMOTE_FAILS where a server answers with errors while an object is replaced.
 */
#include <pthread.h>
#include <stdatomic.h>
#include "tests/unit/conformance_unit.h"

#define RACERS 8
#define ROUNDS 200

struct race {
	struct remote *remote[RACERS];
	int rounds;
	pthread_barrier_t start;
	atomic_int winners[ROUNDS];
	atomic_int winner[ROUNDS];
	atomic_int odd; /* answers other than 0 and -EEXIST */
	char first_odd[REMOTE_TEXT_MAX];
};

struct racer {
	struct race *race;
	int number;
};

static void *race_to_create(void *arg)
{
	struct racer *me = arg;
	struct race *race = me->race;
	char text[32], key[32];

	snprintf(text, sizeof(text), "racer %d", me->number);
	for (int round = 0; round < race->rounds; round++) {
		int r;

		snprintf(key, sizeof(key), "epochs/%03d/x", round);
		pthread_barrier_wait(&race->start);
		r = remote_put_if_absent(race->remote[me->number], key, text, strlen(text));
		if (r == 0) {
			atomic_fetch_add(&race->winners[round], 1);
			atomic_store(&race->winner[round], me->number);
		} else if (r != -EEXIST) {
			if (!atomic_fetch_add(&race->odd, 1))
				remote_strerror(race->remote[me->number], r, race->first_odd);
		}
	}
	return NULL;
}

/* Where a remote neither promises one winner nor keeps versions, there is at least one, and the object is a winner's. */
static void assert_round(struct race *race, int round, bool atomic)
{
	struct buf cleanup_buf got = {0};
	char text[32], key[32];

	snprintf(key, sizeof(key), "epochs/%03d/x", round);
	if (atomic) {
		ck_assert_int_eq(race->winners[round], 1);
		snprintf(text, sizeof(text), "racer %d", race->winner[round]);
		assert_holds(race->remote[0], key, text);
		return;
	}
	ck_assert_int_ge(race->winners[round], 1);
	unit_ok(remote_get(race->remote[0], key, 0, REMOTE_TO_END, &got));
	ck_assert_uint_eq(got.len, strlen("racer 0"));
}

START_TEST(of_eight_racing_creators_one_wins)
{
	enum remote_create create = REMOTE_CREATE_NONE;
	struct race race = {0};
	struct racer racers[RACERS];
	pthread_t threads[RACERS];
	char *dir = unit_dir();
	bool one_wins;

	ck_assert_int_eq(pthread_barrier_init(&race.start, NULL, RACERS), 0);
	for (int i = 0; i < RACERS; i++) {
		/* As one mount and as several: every second racer opens the remote for itself. */
		race.remote[i] = i % 2 ? remote_ref(race.remote[0]) : open_kind(_i, dir);
		racers[i] = (struct racer){&race, i};
	}
	unit_ok(remote_check_create(race.remote[1], &create));
	race.rounds = create == REMOTE_CREATE_ATOMIC ? ROUNDS : ROUNDS / 10;
	one_wins = create == REMOTE_CREATE_ATOMIC || remote_keeps_versions(race.remote[1]);
	for (int i = 0; i < RACERS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, race_to_create, &racers[i]), 0);
	for (int i = 0; i < RACERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_msg(race.odd == 0, "%d odd answers, the first: %s", race.odd, race.first_odd);
	for (int round = 0; round < race.rounds; round++)
		assert_round(&race, round, one_wins);
	for (int i = 0; i < RACERS; i++)
		remote_close(race.remote[i]);
	pthread_barrier_destroy(&race.start);
	free(dir);
}
END_TEST

#define BODY	 65536
#define REPLACES 100

struct replacing {
	struct remote *r;
	atomic_bool done;
	atomic_int torn;
	char first[100]; /* what the first torn one was */
};

static void note_torn(struct replacing *s, int error, const struct buf *got)
{
	if (atomic_fetch_add(&s->torn, 1) == 0)
		snprintf(s->first, sizeof(s->first),
			 "error %d, %zu bytes, the first %d, the last %d", error, got->len,
			 got->len ? got->data[0] : -1, got->len ? got->data[got->len - 1] : -1);
}

/* Each version is one byte repeated, and its length says which. */
static bool is_whole(const struct buf *got)
{
	for (size_t i = 0; i < got->len; i++)
		if (got->data[i] != got->data[0])
			return false;
	return got->len > BODY && got->len - BODY == got->data[0];
}

/* The server may answer with an error while an object is replaced. The layers above ask once more then. */
static bool server_fails;

static void *read_whole(void *arg)
{
	struct replacing *s = arg;

	while (!atomic_load(&s->done)) {
		struct buf cleanup_buf got = {0};
		int error = -EIO;
		bool again = true;

		for (int i = 0; again && i < 3; i++) {
			buf_reset(&got);
			error = remote_get(s->r, "object", 0, REMOTE_TO_END, &got);
			again = server_fails && remote_may_retry(error);
		}
		if (error || !is_whole(&got))
			note_torn(s, error, &got);
	}
	return NULL;
}

START_TEST(readers_see_the_old_or_the_new_object_whole)
{
	struct replacing s = {.r = fresh(_i)};
	struct buf cleanup_buf last = {0};
	uint8_t body[BODY + 256];
	pthread_t readers[3];

	memset(body, 1, sizeof(body));
	unit_ok(remote_put(s.r, "object", body, BODY + 1));
	for (size_t i = 0; i < COUNT(readers); i++)
		ck_assert_int_eq(pthread_create(&readers[i], NULL, read_whole, &s), 0);
	for (int i = 2; i < REPLACES; i++) {
		memset(body, i, sizeof(body));
		unit_ok(remote_put(s.r, "object", body, BODY + (size_t)i));
	}
	atomic_store(&s.done, true);
	for (size_t i = 0; i < COUNT(readers); i++)
		pthread_join(readers[i], NULL);
	/* Nobody replaces it any more. */
	unit_ok(remote_get(s.r, "object", 0, REMOTE_TO_END, &last));
	ck_assert(is_whole(&last) && last.data[0] == REPLACES - 1);
	ck_assert_msg(s.torn == 0, "%d were torn; the first: %s", s.torn, s.first);
	remote_close(s.r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_conformance_races");
	TCase *t = unit_case(s, "races");
	int count = kinds_to_test();

	server_fails = getenv("EPOCHFS_TEST_REMOTE_FAILS") != NULL;
	tcase_add_loop_test(t, of_eight_racing_creators_one_wins, 0, count);
	tcase_add_loop_test(t, readers_see_the_old_or_the_new_object_whole, 0, count);
	return unit_run(s);
}
