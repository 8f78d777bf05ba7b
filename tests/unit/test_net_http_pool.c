/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP engine under many requests at once: the cap, how it adapts, rates, Retry-After,
 * cancelling. */
#include "lib/net/http.h"

#include "lib/net/http_internal.h"
#include "lib/net/open.h"
#include "lib/remote/rate.h"
#include "tests/unit/http_unit.h"

#define COUNT(a)  (sizeof(a) / sizeof((a)[0]))
#define BUSY	  "HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n"
#define CALLS	  10
#define BODY_SIZE (1U << 20)

static struct server server;
static struct engine engine;

static void begin(const struct scene *scenes, size_t count, struct remote_limits limits)
{
	server_start(&server, scenes, count);
	engine = engine_with(limits);
}

static void end(void)
{
	engine_free(&engine);
	server_stop(&server);
}

/* A request in a thread of its own. */
struct call {
	pthread_t thread;
	const char *method;
	struct http_request q;
	int result;
	int status;
};

static void *call_main(void *arg)
{
	struct call *c = arg;
	struct http_answer cleanup_http_answer a = {0};

	c->result = engine_do(&engine, &server, c->method, "/x", c->q, &a);
	c->status = a.status;
	return NULL;
}

static void call_start(struct call *c)
{
	if (!c->method)
		c->method = "GET";
	ck_assert_int_eq(pthread_create(&c->thread, NULL, call_main, c), 0);
}

static void call_join(struct call *c)
{
	pthread_join(c->thread, NULL);
}

/* ---- how many at once */

START_TEST(no_more_than_connections_work_at_once)
{
	const struct scene scenes[] = {{.answer = OK_ANSWER}};
	struct call calls[CALLS] = {0};

	begin(scenes, 1, (struct remote_limits){.connections = 3});
	server_gate(&server, true);
	for (int i = 0; i < CALLS; i++)
		call_start(&calls[i]);
	server_wait_requests(&server, 3);
	server_gate(&server, false);
	for (int i = 0; i < CALLS; i++) {
		call_join(&calls[i]);
		ck_assert_int_eq(calls[i].result, 0);
	}
	ck_assert_uint_eq(server_requests(&server), CALLS);
	ck_assert_uint_eq(server.most_working, 3);
	ck_assert_uint_eq(server_connections(&server), 3);
	end();
}
END_TEST

/* Takes `count` slots and gives them back so. */
static void round_of(struct http_pool *p, struct remote *owner, unsigned count,
		     enum http_outcome outcome)
{
	struct http_slot *slots[16];

	for (unsigned i = 0; i < count; i++)
		unit_ok(http_pool_take(p, owner, &slots[i]));
	for (unsigned i = 0; i < count; i++)
		http_pool_give(p, slots[i], outcome);
}

START_TEST(overload_halves_once_a_round_and_success_raises)
{
	struct remote *owner = NULL;
	struct http_pool pool;

	unit_ok(remote_open("memory:x", &owner));
	unit_ok(http_pool_init(&pool, 8));
	round_of(&pool, owner, 8, HTTP_OVERLOADED);
	ck_assert_uint_eq(http_pool_allowed(&pool), 4);
	round_of(&pool, owner, 4, HTTP_OVERLOADED);
	round_of(&pool, owner, 2, HTTP_OVERLOADED);
	round_of(&pool, owner, 1, HTTP_OVERLOADED);
	ck_assert_uint_eq(http_pool_allowed(&pool), 1);
	round_of(&pool, owner, 1, HTTP_SAYS_NOTHING);
	ck_assert_uint_eq(http_pool_allowed(&pool), 1);
	round_of(&pool, owner, 1, HTTP_WENT_WELL);
	ck_assert_uint_eq(http_pool_allowed(&pool), 2);
	round_of(&pool, owner, 2, HTTP_WENT_WELL);
	ck_assert_uint_eq(http_pool_allowed(&pool), 3);
	for (int i = 0; i < 100; i++)
		round_of(&pool, owner, 1, HTTP_WENT_WELL);
	ck_assert_uint_eq(http_pool_allowed(&pool), 8);
	http_pool_destroy(&pool);
	remote_close(owner);
}
END_TEST

START_TEST(a_busy_server_gets_one_request_at_a_time)
{
	struct scene scenes[CALLS + 1];
	struct call calls[CALLS] = {0};

	for (size_t i = 0; i < COUNT(scenes); i++)
		scenes[i] = (struct scene){.answer = BUSY};
	begin(scenes, COUNT(scenes), (struct remote_limits){.connections = 4});
	for (int i = 0; i < CALLS; i++) {
		call_start(&calls[0]);
		call_join(&calls[0]);
		ck_assert_int_eq(calls[0].status, 503);
	}
	server_gate(&server, true);
	for (int i = 0; i < CALLS; i++)
		call_start(&calls[i]);
	server_wait_requests(&server, CALLS + 1);
	server_forget(&server);
	server_gate(&server, false);
	for (int i = 0; i < CALLS; i++)
		call_join(&calls[i]);
	ck_assert_uint_eq(server_requests(&server), 2 * CALLS);
	ck_assert_uint_eq(server.most_working, 1);
	end();
}
END_TEST

/* ---- rates */

START_TEST(a_rate_makes_wait_for_what_was_taken)
{
	struct rate rate;
	int64_t now = 1000 * NS_PER_S, waited = 0;

	rate_init(&rate, 1000000);
	for (int i = 0; i < 100; i++) {
		int64_t wait = rate_take(&rate, 50000, now);

		ck_assert_int_ge(wait, 0);
		now += wait;
		waited += wait;
	}
	/* 4,950,000 bytes went before the last piece, less a tenth of a second that was saved. */
	ck_assert_int_eq(waited, 4850 * NS_PER_MS);
	rate_destroy(&rate);
}
END_TEST

START_TEST(who_asks_together_waits_in_turn)
{
	struct rate rate;
	int64_t now = 1000 * NS_PER_S;

	rate_init(&rate, 1000);
	ck_assert_int_eq(rate_take(&rate, 100, now), 0);
	ck_assert_int_eq(rate_take(&rate, 1000, now), 0);
	ck_assert_int_eq(rate_take(&rate, 1000, now), NS_PER_S);
	ck_assert_int_eq(rate_take(&rate, 1000, now), 2 * NS_PER_S);
	ck_assert_int_eq(rate_take(&rate, 1, now + 3 * NS_PER_S), 0);
	/* A long rest saves no more than a tenth of a second. */
	ck_assert_int_eq(rate_take(&rate, 1100, now + 1000 * NS_PER_S), 0);
	ck_assert_int_eq(rate_take(&rate, 1, now + 1000 * NS_PER_S), NS_PER_S);
	rate_destroy(&rate);
}
END_TEST

START_TEST(without_a_rate_nobody_waits)
{
	struct rate rate;

	rate_init(&rate, 0);
	ck_assert_int_eq(rate_take(&rate, SIZE_MAX, 1), 0);
	ck_assert_int_eq(rate_take(&rate, SIZE_MAX, 1), 0);
	ck_assert_uint_eq(rate_piece(&rate, SIZE_MAX), SIZE_MAX);
	rate_destroy(&rate);
	rate_init(&rate, 100000);
	ck_assert_uint_eq(rate_piece(&rate, 1 << 20), 10000);
	ck_assert_uint_eq(rate_piece(&rate, 7), 7);
	rate_destroy(&rate);
}
END_TEST

/* At a byte a second the first piece goes, and the next not for minutes: what came until then is
 * all that comes. */
START_TEST(uploads_keep_to_the_rate)
{
	const struct scene scenes[] = {{.answer = OK_ANSWER}};
	cleanup_free char *body = calloc(1, BODY_SIZE);
	struct call c = {.method = "PUT",
			 .q = {.body = body, .body_len = BODY_SIZE / 2, .has_body = true}};
	uint64_t came;

	begin(scenes, 1, (struct remote_limits){.upload_rate = 1});
	call_start(&c);
	mutex_lock(&server.lock);
	while (server.body_bytes == 0)
		cond_wait(&server.changed, &server.lock);
	mutex_unlock(&server.lock);
	remote_cancel(engine.owner);
	call_join(&c);
	ck_assert_int_eq(c.result, -ECANCELED);
	server_stop(&server);
	came = server.body_bytes;
	engine_free(&engine);
	ck_assert_uint_gt(came, 0);
	ck_assert_uint_le(came, 512);
}
END_TEST

START_TEST(downloads_keep_to_the_rate)
{
	static const char head[] = "HTTP/1.1 200 OK\r\nContent-Length: 1048576\r\n\r\n";
	cleanup_free char *answer = calloc(1, sizeof(head) + BODY_SIZE);
	const struct scene scenes[] = {{.answer = answer, .answer_len = strlen(head) + BODY_SIZE}};
	struct call c = {.q = {.max_answer = BODY_SIZE}};

	memcpy(answer, head, sizeof(head));
	begin(scenes, 1, (struct remote_limits){.download_rate = 1});
	call_start(&c);
	server_wait_requests(&server, 1);
	/* It cannot come to its end: the second piece waits for hours. */
	remote_cancel(engine.owner);
	call_join(&c);
	ck_assert_int_eq(c.result, -ECANCELED);
	end();
}
END_TEST

START_TEST(what_waits_for_its_rate_does_not_stall)
{
	const struct scene scenes[] = {{.answer = OK_ANSWER}};
	char body[2048] = {0};
	struct http_answer cleanup_http_answer a = {0};
	struct http_request q = {.body = body, .body_len = sizeof(body), .has_body = true};

	begin(scenes, 1,
	      (struct remote_limits){.upload_rate = 2048,
				     .stall_timeout_ns = 100 * NS_PER_MS,
				     .total_timeout_ns = 200 * NS_PER_MS});
	unit_ok(engine_do(&engine, &server, "PUT", "/x", q, &a));
	end();
}
END_TEST

/* ---- Retry-After */

static const struct {
	const char *answer;
	int64_t least_s, most_s;
} asked[] = {
	{"HTTP/1.1 503 Busy\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n", 50, 60},
	{"HTTP/1.1 429 Slow\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n", 50, 60},
	{"HTTP/1.1 503 Busy\r\nDate: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
	 "Retry-After: Sun, 06 Nov 1994 08:51:37 GMT\r\nContent-Length: 0\r\n\r\n",
	 110, 120},
	{"HTTP/1.1 503 Busy\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n", 0,
	 0},
	{"HTTP/1.1 503 Busy\r\nRetry-After: 99999999999\r\nContent-Length: 0\r\n\r\n", 290, 300},
	{"HTTP/1.1 503 Busy\r\nRetry-After: -5\r\nContent-Length: 0\r\n\r\n", 0, 0},
	{"HTTP/1.1 503 Busy\r\nRetry-After: soon\r\nContent-Length: 0\r\n\r\n", 0, 0},
	{"HTTP/1.1 503 Busy\r\nRetry-After: Sun, 06 Nov 1994 08:51:37 GMT\r\n"
	 "Content-Length: 0\r\n\r\n",
	 0, 0},
	{"HTTP/1.1 500 Broken\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n", 0, 0},
	{"HTTP/1.1 200 OK\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n", 0, 0},
};

START_TEST(retry_after_holds_off)
{
	const struct scene scenes[] = {{.answer = asked[_i].answer}};
	struct http_answer cleanup_http_answer a = {0};
	int64_t held_off;

	begin(scenes, 1, (struct remote_limits){0});
	unit_ok(engine_do(&engine, &server, "GET", "/x", (struct http_request){0}, &a));
	held_off = remote_held_off(engine.owner);
	ck_assert_int_ge(held_off, asked[_i].least_s * NS_PER_S);
	ck_assert_int_le(held_off, asked[_i].most_s * NS_PER_S);
	end();
}
END_TEST

/* ---- cancelling */

START_TEST(cancel_ends_what_is_under_way_and_what_waits)
{
	const struct scene scenes[] = {{.answer = OK_ANSWER}};
	struct call calls[CALLS] = {0};
	struct http_answer cleanup_http_answer a = {0};

	begin(scenes, 1, (struct remote_limits){.connections = 2});
	server_gate(&server, true);
	for (int i = 0; i < CALLS; i++)
		call_start(&calls[i]);
	server_wait_requests(&server, 2);
	remote_cancel(engine.owner);
	for (int i = 0; i < CALLS; i++) {
		call_join(&calls[i]);
		ck_assert_int_eq(calls[i].result, -ECANCELED);
	}
	server_gate(&server, false);
	remote_resume(engine.owner);
	unit_ok(engine_do(&engine, &server, "GET", "/x", (struct http_request){0}, &a));
	ck_assert_int_eq(a.status, 200);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_http_pool");
	TCase *t = unit_case(s, "connections");

	tcase_add_test(t, no_more_than_connections_work_at_once);
	tcase_add_test(t, overload_halves_once_a_round_and_success_raises);
	tcase_add_test(t, a_busy_server_gets_one_request_at_a_time);
	t = unit_case(s, "rates");
	tcase_add_test(t, a_rate_makes_wait_for_what_was_taken);
	tcase_add_test(t, who_asks_together_waits_in_turn);
	tcase_add_test(t, without_a_rate_nobody_waits);
	tcase_add_test(t, uploads_keep_to_the_rate);
	tcase_add_test(t, downloads_keep_to_the_rate);
	tcase_add_test(t, what_waits_for_its_rate_does_not_stall);
	t = unit_case(s, "Retry-After");
	tcase_add_loop_test(t, retry_after_holds_off, 0, COUNT(asked));
	t = unit_case(s, "cancelling");
	tcase_add_test(t, cancel_ends_what_is_under_way_and_what_waits);
	return unit_run(s);
}
