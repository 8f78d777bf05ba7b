/* SPDX-License-Identifier: Apache-2.0 */
/* The retry layer: what it repeats, what it must not, when it gives up, and what it tells. */
#include "lib/net/open.h"
#include "lib/remote/remote.h"

#include <pthread.h>
#include <sched.h>
#include "lib/remote/remote_ops.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "tests/unit/unit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* A retry layer over `fault+memory:x?PARAMETERS`, and the memory below. */
struct stack {
	struct remote *below;
	struct remote *r;
};

static struct stack stack_with(const char *parameters, struct remote_retry_policy policy)
{
	struct remote *faulty = NULL;
	struct stack s = {0};
	char url[512];

	if (!policy.first_wait_ns)
		policy.first_wait_ns = NS_PER_MS / 10;
	if (!policy.longest_wait_ns)
		policy.longest_wait_ns = NS_PER_MS;
	snprintf(url, sizeof(url), "fault+memory:x?%s", parameters);
	unit_ok(remote_open("memory:x", &s.below));
	unit_ok(remote_open(url, &faulty));
	unit_ok(remote_retry_new(faulty, &policy, &s.r));
	return s;
}

static struct stack stack_of(const char *parameters)
{
	return stack_with(parameters, (struct remote_retry_policy){0});
}

static void stack_close(struct stack *s)
{
	remote_close(s->r);
	remote_close(s->below);
}

static void assert_holds(struct remote *r, const char *key, const char *text)
{
	struct buf cleanup_buf got = {0};

	unit_ok(remote_get(r, key, 0, REMOTE_TO_END, &got));
	ck_assert_str_eq(buf_str(&got), text);
}

static struct remote_state state_of(struct remote *r)
{
	struct remote_state state;

	remote_get_state(r, &state);
	return state;
}

START_TEST(failures_are_repeated_until_it_works)
{
	static const char *const kinds[] = {"error", "lost", "down"};
	struct buf cleanup_buf out = {0};
	struct stack s;
	char parameters[64];

	snprintf(parameters, sizeof(parameters), "put.%s=1&times=5", kinds[_i]);
	s = stack_of(parameters);
	unit_ok(remote_put(s.r, "k", "value", 5));
	assert_holds(s.below, "k", "value");
	ck_assert_uint_eq(state_of(s.r).retries, 5);
	ck_assert_uint_eq(state_of(s.r).failures, 0);
	stack_close(&s);

	s = stack_of("get.down=1&times=3");
	unit_ok(remote_put(s.r, "k", "value", 5));
	buf_put_u8(&out, '>');
	unit_ok(remote_get(s.r, "k", 0, 5, &out));
	ck_assert_str_eq(buf_str(&out), ">value");
	stack_close(&s);

	s = stack_of("delete.lost=1&times=3");
	unit_ok(remote_delete(s.r, "k"));
	ck_assert_uint_eq(state_of(s.r).retries, 3);
	stack_close(&s);
}
END_TEST

START_TEST(answers_are_not_repeated)
{
	static const struct {
		const char *parameters;
		int err;
	} cases[] = {{"put.denied=1", -EACCES}, {"put.enospc=1", -ENOSPC}};
	struct buf cleanup_buf out = {0};
	struct stack s;

	for (size_t i = 0; i < COUNT(cases); i++) {
		s = stack_of(cases[i].parameters);
		unit_error(remote_put(s.r, "k", "v", 1), cases[i].err);
		ck_assert_uint_eq(state_of(s.r).retries, 0);
		ck_assert_int_eq(state_of(s.r).last_error, cases[i].err);
		ck_assert_uint_eq(state_of(s.r).failures, 1);
		unit_error(remote_get(s.r, "k", 0, 1, &out), -ENOENT);
		ck_assert_uint_eq(state_of(s.r).failures, 0);
		stack_close(&s);
	}
	s = stack_of("");
	unit_ok(remote_put(s.r, "k", "v", 1));
	unit_error(remote_put_if_absent(s.r, "k", "v", 1), -EEXIST);
	unit_error(remote_put(s.r, "../k", "v", 1), -EINVAL);
	ck_assert_uint_eq(state_of(s.r).retries, 0);
	stack_close(&s);
}
END_TEST

START_TEST(persisting_repeats_what_a_person_can_put_right)
{
	static const char *const kinds[] = {"denied", "enospc"};
	char parameters[64];
	struct stack s;

	snprintf(parameters, sizeof(parameters), "put.%s=1&times=4", kinds[_i]);
	s = stack_with(parameters, (struct remote_retry_policy){.persist = true});
	unit_ok(remote_put(s.r, "k", "v", 1));
	ck_assert_uint_eq(state_of(s.r).retries, 4);
	stack_close(&s);
}
END_TEST

START_TEST(a_create_whose_answer_was_lost_is_ours)
{
	struct stack s = stack_of("create.lost=1&times=1");

	unit_ok(remote_put_if_absent(s.r, "epochs/1", "ours", 4));
	assert_holds(s.below, "epochs/1", "ours");
	unit_error(remote_put_if_absent(s.r, "epochs/1", "ours", 4), -EEXIST);
	stack_close(&s);
	s = stack_of("create.lost=1&times=1");
	unit_ok(remote_put_if_absent(s.r, "epochs/1", "", 0));
	stack_close(&s);
}
END_TEST

START_TEST(a_create_that_another_won_is_not_ours)
{
	static const char *const others[] = {"them", "longer", "", "our"};
	struct stack s;

	/* The answer that was lost said that it exists. */
	s = stack_of("create.lost=1&times=1");
	unit_ok(remote_put(s.below, "epochs/1", others[_i], strlen(others[_i])));
	unit_error(remote_put_if_absent(s.r, "epochs/1", "ours", 4), -EEXIST);
	assert_holds(s.below, "epochs/1", others[_i]);
	stack_close(&s);
	/* The first answer that comes is -EEXIST: the same bytes make no difference. */
	s = stack_of("");
	unit_ok(remote_put(s.below, "epochs/1", "ours", 4));
	unit_error(remote_put_if_absent(s.r, "epochs/1", "ours", 4), -EEXIST);
	stack_close(&s);
}
END_TEST

START_TEST(damage_on_the_way_does_not_make_ours_anothers)
{
	char parameters[64];

	/* Among these seeds are answers lost, and then readings damaged, in every order. */
	for (int seed = 0; seed < 64; seed++) {
		struct stack s;

		snprintf(parameters, sizeof(parameters), "create.lost=0.5&get.damage=0.2&seed=%d",
			 seed);
		s = stack_of(parameters);
		unit_ok(remote_put_if_absent(s.r, "epochs/1", "ours", 4));
		stack_close(&s);
	}
}
END_TEST

START_TEST(a_large_object_is_compared_to_its_last_byte)
{
	size_t len = ((size_t)9 << 20) + 1;
	cleanup_free uint8_t *data = calloc(1, len);
	struct stack s = stack_of("create.lost=1&times=1");

	ck_assert_ptr_nonnull(data);
	unit_ok(remote_put_if_absent(s.r, "packs/1", data, len));
	stack_close(&s);
	s = stack_of("create.lost=1&times=1");
	unit_ok(remote_put(s.below, "packs/1", data, len));
	data[len - 1] = 1;
	unit_error(remote_put_if_absent(s.r, "packs/1", data, len), -EEXIST);
	stack_close(&s);
}
END_TEST

START_TEST(bounds_end_a_call_with_its_last_error)
{
	struct stack s = stack_with("all.down=1", (struct remote_retry_policy){.max_tries = 4});
	struct remote_state state;
	uint64_t size;

	unit_error(remote_size(s.r, "k", &size), -ECONNREFUSED);
	state = state_of(s.r);
	ck_assert_uint_eq(state.retries, 3);
	ck_assert_uint_eq(state.failures, 4);
	ck_assert_int_eq(state.last_error, -ECONNREFUSED);
	ck_assert_int_gt(state.failing_since_ns, 0);
	ck_assert_int_ge(state.last_failure_ns, state.failing_since_ns);
	ck_assert_uint_eq(state.waiting, 0);
	stack_close(&s);

	s = stack_with("all.error=1", (struct remote_retry_policy){.max_total_ns = 20 * NS_PER_MS});
	unit_error(remote_size(s.r, "k", &size), -EIO);
	stack_close(&s);

	/* A wait that would pass the limit is not begun: this ends at once, not in an hour. */
	s = stack_with("all.error=1", (struct remote_retry_policy){
					      .first_wait_ns = 3600 * NS_PER_S,
					      .longest_wait_ns = 3600 * NS_PER_S,
					      .max_total_ns = NS_PER_S,
				      });
	unit_error(remote_size(s.r, "k", &size), -EIO);
	stack_close(&s);
}
END_TEST

static int note_key(void *arg, const char *key, uint64_t size)
{
	buf_printf(arg, "%s=%llu ", key, (unsigned long long)size);
	return 0;
}

START_TEST(a_list_is_given_once_however_often_it_failed)
{
	/* The keys come, and then the failure. */
	struct stack s = stack_of("list.lost=1&times=3");
	struct buf cleanup_buf seen = {0};

	unit_ok(remote_put(s.r, "a", "", 0));
	unit_ok(remote_put(s.r, "b/c", "123", 3));
	unit_ok(remote_list(s.r, "", note_key, &seen));
	ck_assert_str_eq(buf_str(&seen), "a=0 b/c=3 ");
	ck_assert_uint_eq(state_of(s.r).retries, 3);
	stack_close(&s);
}
END_TEST

static int stop_at_first(void *arg, const char *key, uint64_t size)
{
	note_key(arg, key, size);
	return 77;
}

START_TEST(a_list_that_is_stopped_does_not_wait_for_its_rest)
{
	/* Each listing fails at its end: who waits for that waits for ever. */
	struct stack s = stack_of("list.lost=1");
	struct buf cleanup_buf seen = {0};

	unit_ok(remote_put(s.r, "a", "", 0));
	unit_ok(remote_put(s.r, "b/c", "123", 3));
	unit_error(remote_list(s.r, "", stop_at_first, &seen), 77);
	ck_assert_uint_eq(state_of(s.r).retries, 0);
	stack_close(&s);
}
END_TEST

struct waiting {
	struct remote *r;
	int result;
};

static void *put_in_thread(void *arg)
{
	struct waiting *w = arg;

	w->result = remote_put(w->r, "k", "v", 1);
	return NULL;
}

static void wait_until_waiting(struct remote *r, unsigned count)
{
	unit_until(state_of(r).waiting == count);
}

START_TEST(cancel_ends_every_wait_and_resume_allows_again)
{
	struct remote_retry_policy hours = {
		.first_wait_ns = 3600 * NS_PER_S,
		.longest_wait_ns = 3600 * NS_PER_S,
	};
	struct stack s = stack_with("put.down=1&times=4", hours);
	struct waiting w[4];
	pthread_t threads[4];

	for (size_t i = 0; i < COUNT(w); i++) {
		w[i] = (struct waiting){.r = s.r};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, put_in_thread, &w[i]), 0);
	}
	wait_until_waiting(s.r, COUNT(w));
	remote_cancel(s.r);
	for (size_t i = 0; i < COUNT(w); i++) {
		pthread_join(threads[i], NULL);
		unit_error(w[i].result, -ECANCELED);
	}
	ck_assert_uint_eq(state_of(s.r).waiting, 0);
	unit_error(remote_put(s.r, "k", "v", 1), -ECANCELED);
	remote_resume(s.r);
	unit_ok(remote_put(s.r, "k", "v", 1));
	stack_close(&s);
}
END_TEST

START_TEST(an_outage_is_told_and_its_end_too)
{
	cleanup_free char *dir = unit_dir();
	cleanup_free char *control = unit_path(dir, "control");
	struct remote_state state;
	char parameters[PATH_MAX + 16];
	struct waiting w;
	pthread_t thread;
	struct stack s;

	snprintf(parameters, sizeof(parameters), "control=%s", control);
	s = stack_of(parameters);
	ck_assert_int_eq(state_of(s.r).last_failure_ns, 0);
	unit_ok(io_replace_file(AT_FDCWD, control, "down=1", 6));
	w = (struct waiting){.r = s.r};
	ck_assert_int_eq(pthread_create(&thread, NULL, put_in_thread, &w), 0);
	unit_until((state = state_of(s.r), state.failures >= 5));
	ck_assert_int_gt(state.failing_since_ns, 0);
	ck_assert_int_eq(state.last_error, -ECONNREFUSED);
	ck_assert_int_eq(unlink(control), 0);
	pthread_join(thread, NULL);
	unit_ok(w.result);
	state = state_of(s.r);
	ck_assert_int_eq(state.failing_since_ns, 0);
	ck_assert_uint_eq(state.failures, 0);
	ck_assert_int_eq(state.last_error, -ECONNREFUSED);
	ck_assert_uint_ge(state.retries, 5);
	stack_close(&s);
}
END_TEST

START_TEST(what_the_server_asked_for_is_kept)
{
	struct stack s = stack_of("size.error=1&times=1");
	int64_t before = clock_mono_ns();
	uint64_t size;

	/* The lowest layer was told, as an engine does; the longer of two counts. */
	remote_hold_off(s.r->inner, 50 * NS_PER_MS);
	remote_hold_off(s.r->inner, NS_PER_MS);
	unit_error(remote_size(s.r, "k", &size), -ENOENT);
	ck_assert_int_ge(clock_mono_ns() - before, 50 * NS_PER_MS);
	ck_assert_int_eq(remote_held_off(s.r), 0);
	stack_close(&s);

	/* No longer than a call may last, and no longer than five minutes. */
	s = stack_with("size.error=1",
		       (struct remote_retry_policy){.max_total_ns = 250 * NS_PER_S});
	remote_hold_off(s.r->inner, 86400 * NS_PER_S);
	ck_assert_int_le(remote_held_off(s.r), 300 * NS_PER_S);
	ck_assert_int_ge(remote_held_off(s.r), 290 * NS_PER_S);
	unit_error(remote_size(s.r, "k", &size), -EIO);
	ck_assert_uint_eq(state_of(s.r).failures, 1);
	stack_close(&s);
}
END_TEST

START_TEST(two_layers_share_one_remote)
{
	struct remote_retry_policy brief = {.first_wait_ns = 1, .max_tries = 2};
	struct remote *faulty = NULL, *patient = NULL, *quick = NULL;
	uint64_t size;

	unit_ok(remote_open("fault+memory:x?size.error=1&times=3", &faulty));
	unit_ok(remote_retry_new(remote_ref(faulty), NULL, &patient));
	unit_ok(remote_retry_new(faulty, &brief, &quick));
	unit_error(remote_size(quick, "k", &size), -EIO);
	unit_error(remote_size(patient, "k", &size), -ENOENT);
	ck_assert_str_eq(remote_name(quick), "fault+memory:x?size.error=1&times=3");
	remote_close(patient);
	unit_error(remote_size(quick, "k", &size), -ENOENT);
	ck_assert(!remote_is_none(quick));
	remote_close(quick);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_retry");
	TCase *t = unit_case(s, "retry");

	tcase_add_loop_test(t, failures_are_repeated_until_it_works, 0, 3);
	tcase_add_test(t, answers_are_not_repeated);
	tcase_add_loop_test(t, persisting_repeats_what_a_person_can_put_right, 0, 2);
	tcase_add_test(t, a_create_whose_answer_was_lost_is_ours);
	tcase_add_loop_test(t, a_create_that_another_won_is_not_ours, 0, 4);
	tcase_add_test(t, damage_on_the_way_does_not_make_ours_anothers);
	tcase_add_test(t, a_large_object_is_compared_to_its_last_byte);
	tcase_add_test(t, bounds_end_a_call_with_its_last_error);
	tcase_add_test(t, a_list_is_given_once_however_often_it_failed);
	tcase_add_test(t, a_list_that_is_stopped_does_not_wait_for_its_rest);
	tcase_add_test(t, cancel_ends_every_wait_and_resume_allows_again);
	tcase_add_test(t, an_outage_is_told_and_its_end_too);
	tcase_add_test(t, what_the_server_asked_for_is_kept);
	tcase_add_test(t, two_layers_share_one_remote);
	return unit_run(s);
}
