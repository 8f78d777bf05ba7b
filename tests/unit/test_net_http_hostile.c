/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP engine with servers that lie, stall, cut off, or do not end; and with lost answers. */
#include "lib/net/http.h"

#include "tests/unit/http_unit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static struct server server;
static struct engine engine;

static void begin_with(const struct scene *scenes, size_t count, struct remote_limits limits)
{
	server_start(&server, scenes, count);
	engine = engine_with(limits);
}

static void begin(const struct scene *scenes, size_t count)
{
	begin_with(scenes, count, (struct remote_limits){0});
}

static void end(void)
{
	engine_free(&engine);
	server_stop(&server);
}

/* A GET that fails so, leaves `out` alone, and leaves the engine in order. */
static void fails_with(const struct scene *scene, struct remote_limits limits, int error)
{
	const struct scene scenes[] = {*scene, {.answer = OK_ANSWER}};
	struct http_answer cleanup_http_answer a = {0};
	struct buf cleanup_buf out = {0};
	struct http_request q = {.out = &out, .max_answer = 1000};

	begin_with(scenes, COUNT(scenes), limits);
	buf_put(&out, "had", 3);
	unit_error(engine_do(&engine, &server, "GET", "/x", q, &a), error);
	ck_assert_uint_eq(out.len, 3);
	ck_assert_int_eq(a.status, 0);
	unit_ok(engine_do(&engine, &server, "GET", "/x", q, &a));
	ck_assert_str_eq(buf_str(&out), "hadok");
	end();
}

static const struct {
	struct scene scene;
	int error;
} liars[] = {
	/* Bodies that are not as long as they say. */
	{{.answer = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", .then = CLOSE}, -EIO},
	{{.answer = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", .then = RESET}, -EIO},
	{{.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nshort",
	  .then = CLOSE},
	 -EIO},
	{{.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
	  .then = CLOSE},
	 -EIO},
	{{.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
		    "ffffffffffffffffff\r\nx",
	  .then = CLOSE},
	 -EIO},
	/* Too much. */
	{{.answer = "HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", .then = HANG}, -EFBIG},
	{{.answer = "HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775807\r\n\r\nx",
	  .then = HANG},
	 -EFBIG},
	{{.answer = "HTTP/1.1 200 OK\r\n\r\n", .then = REPEAT, .again = "without end "}, -EFBIG},
	{{.answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	  .then = REPEAT,
	  .again = "5\r\nwords\r\n"},
	 -EFBIG},
	/* Heads without end. */
	{{.answer = "HTTP/1.1 200 OK\r\n", .then = REPEAT, .again = "X-More: and more\r\n"}, -EIO},
	{{.answer = "HTTP/1.1 200 OK\r\nX: ", .then = REPEAT, .again = "and more "}, -EIO},
	{{.then = REPEAT, .again = "HTTP/1.1 100 Continue\r\n\r\n"}, -EIO},
	/* No HTTP. */
	{{.answer = "SSH-2.0-OpenSSH_9.2\r\n", .then = CLOSE}, -EIO},
	{{.answer = "<html>nine</html>", .then = CLOSE}, -EIO},
	{{.answer = "HTTP/1.1 wrong\r\n\r\n", .then = CLOSE}, -EIO},
	{{.answer = "HTTP/9.9 200 OK\r\n\r\n", .then = CLOSE}, -EIO},
	{{.answer = "\0\0\0\0\0\0\0\0", .answer_len = 8, .then = CLOSE}, -EIO},
	/* Nothing, or half a head. */
	{{.then = CLOSE}, -EIO},
	{{.then = RESET}, -EIO},
	{{.answer = "HTTP/1.1 20", .then = CLOSE}, -EIO},
	{{.answer = "HTTP/1.1 200 OK\r\nContent-Le", .then = RESET}, -EIO},
};

START_TEST(a_lie_is_an_error_and_no_more)
{
	fails_with(&liars[_i].scene, (struct remote_limits){0}, liars[_i].error);
}
END_TEST

START_TEST(heads_without_end_are_left_by_us_before_curl_does)
{
	char line[201];
	const struct scene scenes[] = {
		{.answer = "HTTP/1.1 200 OK\r\n", .then = REPEAT, .again = line}};
	struct http_answer cleanup_http_answer a = {0};
	char text[REMOTE_TEXT_MAX];

	/* curl 8.8 and later take 5,000 lines. */
	snprintf(line, sizeof(line), "X-More: %0190u\r\n", 1U);
	begin(scenes, 1);
	unit_error(engine_do(&engine, &server, "GET", "/x", (struct http_request){0}, &a), -EIO);
	remote_strerror(engine.owner, -EIO, text);
	ck_assert_msg(strstr(text, "does not end") != NULL, "%s", text);
	end();
}
END_TEST

static const struct scene stallers[] = {
	{.then = HANG},
	{.answer = "HTTP/1.1 200 OK\r\n", .then = HANG},
	{.answer = "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", .then = HANG},
	{.answer = "HTTP/1.1 200 OK\r\n\r\n", .then = REPEAT, .again = "x", .pause_ms = 20},
	{.answer = "HTTP/1.1 200 OK\r\nX: ", .then = REPEAT, .again = "x", .pause_ms = 20},
};

START_TEST(a_server_that_stalls_is_left)
{
	fails_with(&stallers[_i], (struct remote_limits){.stall_timeout_ns = 200 * NS_PER_MS},
		   -ETIMEDOUT);
}
END_TEST

START_TEST(a_request_has_an_end)
{
	const struct scene scene = {
		.answer = "HTTP/1.1 200 OK\r\n\r\n", .then = REPEAT, .again = "x", .pause_ms = 20};

	fails_with(&scene, (struct remote_limits){.total_timeout_ns = 200 * NS_PER_MS}, -ETIMEDOUT);
}
END_TEST

START_TEST(a_server_that_reads_nothing_is_left)
{
	const struct scene scenes[] = {{.before_body = true, .then = HANG}};
	struct remote_limits limits = {.stall_timeout_ns = 200 * NS_PER_MS};
	struct http_answer cleanup_http_answer a = {0};
	struct http_request q = {.body_len = 64U << 20, .has_body = true};
	cleanup_free char *body = calloc(1, q.body_len);

	q.body = body;
	begin_with(scenes, 1, limits);
	/* Not read: what is in flight stays in the socket, and counts for nothing. */
	server_gate(&server, true);
	unit_error(engine_do(&engine, &server, "PUT", "/x", q, &a), -ETIMEDOUT);
	end();
}
END_TEST

START_TEST(an_answer_that_takes_long_is_waited_for_in_the_end)
{
	const struct scene scenes[] = {{.answer = OK_ANSWER, .delay_ms = 500}};
	struct remote_limits limits = {.stall_timeout_ns = 100 * NS_PER_MS};
	struct http_answer cleanup_http_answer a = {0};
	struct http_request q = {.body = "data", .body_len = 4, .has_body = true};
	int tries = 0, r;

	begin_with(scenes, 1, limits);
	do
		r = engine_do(&engine, &server, "PUT", "/x", q, &a);
	while (r == -ETIMEDOUT && ++tries < 10);
	unit_ok(r);
	ck_assert_int_ge(tries, 1);
	ck_assert_int_le(tries, 4);
	end();
}
END_TEST

START_TEST(nobody_there_is_refused)
{
	struct http_answer cleanup_http_answer a = {0};
	struct http_request q = {.method = "GET", .url = "http://127.0.0.1:1/"};

	engine = engine_new();
	unit_error(http_do(engine.http, &q, &a), -ECONNREFUSED);
	q.url = "http://no-such-host.invalid/";
	unit_error(http_do(engine.http, &q, &a), -ECONNREFUSED);
	engine_free(&engine);
}
END_TEST

START_TEST(what_is_beyond_a_body_is_no_answer)
{
	const struct scene scenes[] = {
		{.answer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
			   "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong"},
		{.answer = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nright"}};
	struct http_answer cleanup_http_answer a = {0};

	begin(scenes, COUNT(scenes));
	unit_ok(engine_do(&engine, &server, "GET", "/1", (struct http_request){0}, &a));
	ck_assert_str_eq(buf_str(&a.body), "ok");
	http_answer_free(&a);
	unit_ok(engine_do(&engine, &server, "GET", "/2", (struct http_request){0}, &a));
	ck_assert_str_eq(buf_str(&a.body), "right");
	end();
}
END_TEST

START_TEST(an_error_without_end_is_an_error)
{
	const struct scene scenes[] = {
		{.answer = "HTTP/1.1 500 No\r\n\r\n", .then = REPEAT, .again = "very "}};
	struct http_answer cleanup_http_answer a = {0};

	begin(scenes, 1);
	unit_ok(engine_do(&engine, &server, "GET", "/x", (struct http_request){0}, &a));
	ck_assert_int_eq(a.status, 500);
	ck_assert_uint_gt(a.body.len, 0);
	ck_assert_uint_le(a.body.len, 64U << 10);
	end();
}
END_TEST

START_TEST(long_values_of_headers_are_left_out)
{
	char head[9000];
	int len = snprintf(head, sizeof(head),
			   "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999999\r\n"
			   "Transfer-Encoding: chunked\r\nETag: \"%0200d\"\r\nLocation: %07000d\r\n"
			   "Server: ok\r\nDate: whenever\r\nNo colon\r\n: no name\r\n\r\n0\r\n\r\n",
			   1, 2);
	const struct scene scenes[] = {{.answer = head, .answer_len = (size_t)len}};
	struct http_answer cleanup_http_answer a = {0};
	int r;

	begin(scenes, 1);
	r = engine_do(&engine, &server, "GET", "/x", (struct http_request){0}, &a);
	/* curl may refuse the length; if not, we must not believe it. */
	if (r == 0) {
		ck_assert_uint_eq(a.length, UINT64_MAX);
		ck_assert_str_eq(a.etag, "");
		ck_assert_str_eq(a.location, "");
		ck_assert_str_eq(a.server, "ok");
		ck_assert_int_eq(a.date_ns, 0);
	} else
		ck_assert_int_eq(r, -EIO);
	end();
}
END_TEST

/* ---- redirects */

START_TEST(a_redirect_on_the_server_is_followed_whole)
{
	const struct scene scenes[] = {
		{.answer =
			 "HTTP/1.1 307 There\r\nLocation: /there/?a=b\r\nContent-Length: 0\r\n\r\n"},
		{.answer =
			 "HTTP/1.1 301 There\r\nLocation: ../again\r\nContent-Length: 3\r\n\r\nbye"},
		{.answer = OK_ANSWER}};
	struct http_answer cleanup_http_answer a = {0};
	struct buf cleanup_buf bodies = {0};
	struct http_request q = {
		.body = "data", .body_len = 4, .has_body = true, .userpwd = "user:secret"};

	begin(scenes, COUNT(scenes));
	unit_ok(engine_do(&engine, &server, "PUT", "/x", q, &a));
	ck_assert_int_eq(a.status, 200);
	ck_assert_str_eq(buf_str(&a.body), "ok");
	ck_assert_str_eq(a.location, "");
	ck_assert(server_was_told(&server, "PUT /there/?a=b HTTP/1.1\r\n"));
	ck_assert(server_was_told(&server, "PUT /again HTTP/1.1\r\n"));
	server_bodies(&server, &bodies);
	ck_assert_str_eq(buf_str(&bodies), "datadatadata");
	end();
}
END_TEST

START_TEST(a_redirect_elsewhere_is_an_answer)
{
	static const char *const schemes[] = {"http", "https"};
	const struct scene heard[] = {{.answer = OK_ANSWER}};
	struct http_answer cleanup_http_answer a = {0};
	struct http_request q = {.userpwd = "user:secret"};
	struct server other;
	char answer[2048];
	struct scene scenes[] = {{.answer = answer}};

	server_start(&other, heard, 1);
	snprintf(answer, sizeof(answer),
		 "HTTP/1.1 307 There\r\nLocation: %s%s/y\r\nContent-Length: 0\r\n\r\n", schemes[_i],
		 other.base + strlen("http"));
	begin(scenes, 1);
	unit_ok(engine_do(&engine, &server, "GET", "/x", q, &a));
	ck_assert_int_eq(a.status, 307);
	ck_assert_msg(strstr(a.location, "/y") != NULL, "%s", a.location);
	ck_assert_uint_eq(server_connections(&other), 0);
	end();
	server_stop(&other);
}
END_TEST

START_TEST(redirects_have_an_end)
{
	const struct scene scenes[] = {
		{.answer = "HTTP/1.1 308 Round\r\nLocation: /x\r\nContent-Length: 0\r\n\r\n"}};
	struct http_answer cleanup_http_answer a = {0};

	begin(scenes, 1);
	unit_ok(engine_do(&engine, &server, "GET", "/x", (struct http_request){0}, &a));
	ck_assert_int_eq(a.status, 308);
	ck_assert_uint_eq(server_requests(&server), 6);
	end();
}
END_TEST

/* ---- an answer that is lost on a connection that was kept */

static const struct {
	const char *method, *header;
	bool has_body, repeatable;
} lost[] = {
	{"GET", NULL, false, true},
	{"PUT", NULL, true, true},
	{"DELETE", NULL, false, true},
	{"PUT", "If-None-Match", true, false},
	{"DELETE", "If-Match", false, false},
	{"MKCOL", NULL, false, false},
	{"MOVE", NULL, false, false},
	{"POST", NULL, true, false},
	{"PUT", "x-goog-if-generation-match", true, false},
};

START_TEST(only_what_may_be_repeated_is_sent_again)
{
	const struct scene scenes[] = {
		{.answer = OK_ANSWER}, {.then = CLOSE}, {.answer = OK_ANSWER}};
	struct http_answer cleanup_http_answer a = {0};
	struct http_headers cleanup_http_headers headers = {0};
	struct http_request q = {.headers = &headers};

	begin(scenes, COUNT(scenes));
	unit_ok(engine_do(&engine, &server, "GET", "/kept", (struct http_request){0}, &a));
	http_answer_free(&a);
	if (lost[_i].header)
		unit_ok(http_headers_add(&headers, lost[_i].header, "*"));
	if (lost[_i].has_body) {
		q.body = "data";
		q.body_len = 4;
		q.has_body = true;
	}
	unit_error(engine_do(&engine, &server, lost[_i].method, "/x", q, &a),
		   lost[_i].repeatable ? 0 : -EIO);
	ck_assert_uint_eq(server_requests(&server), lost[_i].repeatable ? 3 : 2);
	end();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_http_hostile");
	TCase *t = unit_case(s, "answers");

	tcase_add_loop_test(t, a_lie_is_an_error_and_no_more, 0, COUNT(liars));
	tcase_add_test(t, heads_without_end_are_left_by_us_before_curl_does);
	tcase_add_test(t, what_is_beyond_a_body_is_no_answer);
	tcase_add_test(t, an_error_without_end_is_an_error);
	tcase_add_test(t, long_values_of_headers_are_left_out);
	t = unit_case(s, "times");
	tcase_add_loop_test(t, a_server_that_stalls_is_left, 0, COUNT(stallers));
	tcase_add_test(t, a_request_has_an_end);
	tcase_add_test(t, a_server_that_reads_nothing_is_left);
	tcase_add_test(t, an_answer_that_takes_long_is_waited_for_in_the_end);
	tcase_add_test(t, nobody_there_is_refused);
	t = unit_case(s, "redirects");
	tcase_add_test(t, a_redirect_on_the_server_is_followed_whole);
	tcase_add_loop_test(t, a_redirect_elsewhere_is_an_answer, 0, 2);
	tcase_add_test(t, redirects_have_an_end);
	t = unit_case(s, "lost answers");
	tcase_add_loop_test(t, only_what_may_be_repeated_is_sent_again, 0, COUNT(lost));
	return unit_run(s);
}
