/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP engine with servers that behave: what goes on the wire, and what is made of an answer. */
#include "lib/net/http.h"

#include "lib/net/open.h"
#include "tests/unit/http_unit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* A server and an engine for each test. */
static struct server server;
static struct engine engine;

static void begin(const struct scene *scenes, size_t count)
{
	server_start(&server, scenes, count);
	engine = engine_new();
}

static void end(void)
{
	engine_free(&engine);
	server_stop(&server);
}

/* One request; its status. */
static int status_of(const char *method, struct http_request q)
{
	struct http_answer cleanup_http_answer a = {0};

	unit_ok(engine_do(&engine, &server, method, "/x", q, &a));
	return a.status;
}

START_TEST(bodies_are_appended_and_the_connection_is_kept)
{
	const struct scene scenes[] = {{.answer = OK_ANSWER}};
	struct buf cleanup_buf out = {0};

	begin(scenes, 1);
	buf_put(&out, "had ", 4);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(status_of("GET", (struct http_request){.out = &out}), 200);
	ck_assert_str_eq(buf_str(&out), "had okokokokok");
	ck_assert_uint_eq(server_requests(&server), 5);
	ck_assert_uint_eq(server_connections(&server), 1);
	end();
}
END_TEST

START_TEST(a_body_goes_with_its_length_and_without_waiting)
{
	const struct scene scenes[] = {
		{.answer = "HTTP/1.1 201 Made\r\nContent-Length: 0\r\n\r\n"}};
	struct http_headers cleanup_http_headers headers = {0};
	struct http_request q = {
		.headers = &headers, .body = "hello", .body_len = 5, .has_body = true};
	struct buf cleanup_buf bodies = {0};

	begin(scenes, 1);
	unit_ok(http_headers_add(&headers, "X-Mine", "a: b"));
	ck_assert_int_eq(status_of("PUT", q), 201);
	ck_assert_int_eq(status_of("POST", q), 201);
	server_bodies(&server, &bodies);
	ck_assert_str_eq(buf_str(&bodies), "hellohello");
	ck_assert(server_was_told(&server, "PUT /x HTTP/1.1\r\n"));
	ck_assert(server_was_told(&server, "POST /x HTTP/1.1\r\n"));
	ck_assert(server_was_told(&server, "\r\nX-Mine: a: b\r\n"));
	ck_assert(server_was_told(&server, "\r\nContent-Length: 5\r\n"));
	ck_assert(!server_was_told(&server, "Expect"));
	ck_assert(!server_was_told(&server, "Content-Type"));
	ck_assert(!server_was_told(&server, "Transfer-Encoding"));
	end();
}
END_TEST

/* The URL without the host, whose port is another each time. */
static int sign(void *arg, const char *url, struct http_headers *headers)
{
	unsigned *calls = arg;
	const char *path = strrchr(url, '/');

	ck_assert(headers->list != NULL);
	(*calls)++;
	return strcmp(path, "/no") != 0 ? http_headers_add(headers, "X-Signed", path) : -ENOTSUP;
}

START_TEST(each_attempt_is_signed_for_its_url)
{
	const struct scene scenes[] = {
		{.answer = "HTTP/1.1 307 x\r\nLocation: /y\r\nContent-Length: 0\r\n\r\n"},
		{.answer = OK_ANSWER},
		{.answer = "HTTP/1.1 307 x\r\nLocation: /no\r\nContent-Length: 0\r\n\r\n"}};
	struct http_headers cleanup_http_headers headers = {0};
	struct http_answer cleanup_http_answer a = {0};
	unsigned calls = 0;
	struct http_request q = {.headers = &headers, .sign = sign, .sign_arg = &calls};

	begin(scenes, COUNT(scenes));
	unit_ok(http_headers_add(&headers, "X-Mine", "1"));
	ck_assert_int_eq(status_of("GET", q), 200);
	ck_assert_uint_eq(calls, 2);
	ck_assert(server_was_told(&server, "\r\nX-Mine: 1\r\nX-Signed: /x\r\n"));
	ck_assert(server_was_told(&server, "\r\nX-Mine: 1\r\nX-Signed: /y\r\n"));
	ck_assert(!server_was_told(&server, "\r\nX-Signed: /x\r\nX-Signed"));
	unit_error(engine_do(&engine, &server, "GET", "/x", q, &a), -ENOTSUP);
	end();
}
END_TEST

START_TEST(an_empty_body_has_the_length_0)
{
	const struct scene scenes[] = {{.answer = OK_ANSWER}};

	begin(scenes, 1);
	ck_assert_int_eq(status_of("PUT", (struct http_request){.has_body = true}), 200);
	ck_assert(server_was_told(&server, "\r\nContent-Length: 0\r\n"));
	end();
}
END_TEST

START_TEST(a_large_body_waits_for_100_continue)
{
	const struct scene scenes[] = {{.answer = OK_ANSWER, .proceed = true}};
	size_t len = (2U << 20) + 1;
	cleanup_free char *body = calloc(1, len);
	struct http_request q = {.body = body, .body_len = len, .has_body = true};
	struct buf cleanup_buf bodies = {0};

	begin(scenes, 1);
	for (size_t i = 0; i < len; i++)
		body[i] = (char)(i * 7);
	ck_assert_int_eq(status_of("PUT", q), 200);
	ck_assert(server_was_told(&server, "\r\nExpect: 100-continue\r\n"));
	server_bodies(&server, &bodies);
	unit_same_bytes(bodies.data, bodies.len, body, len);
	end();
}
END_TEST

START_TEST(a_server_that_refuses_early_gets_no_body)
{
	const struct scene scenes[] = {{.answer = "HTTP/1.1 403 No\r\nContent-Length: 2\r\n\r\nno",
					.before_body = true,
					.then = CLOSE}};
	size_t len = 4U << 20;
	cleanup_free char *body = calloc(1, len);
	struct http_request q = {.body = body, .body_len = len, .has_body = true};
	struct buf cleanup_buf bodies = {0};

	begin(scenes, 1);
	ck_assert_int_eq(status_of("PUT", q), 403);
	server_bodies(&server, &bodies);
	ck_assert_uint_eq(bodies.len, 0);
	end();
}
END_TEST

START_TEST(expect_is_as_the_caller_wants)
{
	const struct scene scenes[] = {{.answer = OK_ANSWER, .proceed = true},
				       {.answer = OK_ANSWER}};
	struct http_headers cleanup_http_headers headers = {0};
	size_t len = 2U << 20;
	cleanup_free char *body = calloc(1, len);
	struct http_request q = {
		.body = "small", .body_len = 5, .has_body = true, .expect_continue = true};

	begin(scenes, COUNT(scenes));
	ck_assert_int_eq(status_of("PUT", q), 200);
	ck_assert(server_was_told(&server, "Expect: 100-continue"));
	server_forget(&server);
	/* XRootD 5.8 never answers where nothing follows. */
	q.body_len = 0;
	ck_assert_int_eq(status_of("PUT", q), 200);
	ck_assert(!server_was_told(&server, "Expect"));
	server_forget(&server);
	unit_ok(http_headers_add(&headers, "Expect", ""));
	q = (struct http_request){
		.headers = &headers, .body = body, .body_len = len, .has_body = true};
	ck_assert_int_eq(status_of("PUT", q), 200);
	ck_assert(!server_was_told(&server, "Expect"));
	end();
}
END_TEST

START_TEST(head_has_a_length_and_no_body)
{
	const struct scene scenes[] = {
		{.answer = "HTTP/1.1 200 OK\r\nContent-Length: 123456789012\r\n"
			   "ETag: \"e\"\r\n\r\n"},
		{.answer = OK_ANSWER}};
	struct http_answer cleanup_http_answer a = {0};

	begin(scenes, COUNT(scenes));
	unit_ok(engine_do(&engine, &server, "HEAD", "/x", (struct http_request){0}, &a));
	ck_assert_uint_eq(a.length, UINT64_C(123456789012));
	ck_assert_uint_eq(a.body.len, 0);
	ck_assert_int_eq(status_of("GET", (struct http_request){0}), 200);
	ck_assert_uint_eq(server_connections(&server), 1);
	end();
}
END_TEST

START_TEST(the_head_of_an_answer_is_taken_apart)
{
	const struct scene scenes[] = {{.answer = "HTTP/1.1 206 Part\r\n"
						  "content-length:  3 \r\n"
						  "ETAG: \"a-b\"\r\n"
						  "Content-Range: bytes 0-2/10\r\n"
						  "Location: /there\r\n"
						  "Allow: GET, PUT\r\n"
						  "DAV: 1,2\r\n"
						  "Server: mine/1\r\n"
						  "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
						  "\r\nabc"},
				       {.answer = OK_ANSWER}};
	struct http_answer cleanup_http_answer a = {0};

	begin(scenes, COUNT(scenes));
	unit_ok(engine_do(&engine, &server, "GET", "/x", (struct http_request){0}, &a));
	ck_assert_int_eq(a.status, 206);
	ck_assert_uint_eq(a.length, 3);
	ck_assert_str_eq(a.etag, "\"a-b\"");
	ck_assert_str_eq(a.content_range, "bytes 0-2/10");
	ck_assert_str_eq(a.location, "/there");
	ck_assert_str_eq(a.allow, "GET, PUT");
	ck_assert_str_eq(a.dav, "1,2");
	ck_assert_str_eq(a.server, "mine/1");
	ck_assert_int_eq(a.date_ns, INT64_C(784111777) * NS_PER_S);
	ck_assert_str_eq(buf_str(&a.body), "abc");
	http_answer_free(&a);
	unit_ok(engine_do(&engine, &server, "GET", "/x", (struct http_request){0}, &a));
	ck_assert_str_eq(a.etag, "");
	ck_assert_int_eq(a.date_ns, 0);
	end();
}
END_TEST

START_TEST(the_text_of_an_error_does_not_go_to_out)
{
	const struct scene scenes[] = {
		{.answer = "HTTP/1.1 404 Not here\r\nContent-Length: 5\r\n\r\nwhat?"}};
	struct http_answer cleanup_http_answer a = {0};
	struct buf cleanup_buf out = {0};

	begin(scenes, 1);
	unit_ok(engine_do(&engine, &server, "GET", "/x", (struct http_request){.out = &out}, &a));
	ck_assert_int_eq(a.status, 404);
	ck_assert_str_eq(buf_str(&a.body), "what?");
	ck_assert_uint_eq(out.len, 0);
	end();
}
END_TEST

/* Ways to say where a body ends, and one to hide what it is: none is undone unasked. */
static const char *const framings[] = {
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nfour\r\n4;x=y\r\nmore\r\n0\r\n"
	"ETag: late\r\n\r\n",
	"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nfourmore",
	"HTTP/1.0 200 OK\r\n\r\nfourmore",
	"HTTP/1.0 200 OK\r\nContent-Length: 8\r\n\r\nfourmore",
	"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 8\r\n\r\nfourmore",
	"HTTP/1.1 103 Early\r\nETag: early\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"
	"fourmore",
};

START_TEST(a_body_comes_whole_however_it_is_framed)
{
	const struct scene scenes[] = {{.answer = framings[_i], .then = CLOSE}};
	struct http_answer cleanup_http_answer a = {0};
	struct buf cleanup_buf out = {0};

	begin(scenes, 1);
	unit_ok(engine_do(&engine, &server, "GET", "/x", (struct http_request){.out = &out}, &a));
	ck_assert_int_eq(a.status, 200);
	ck_assert_str_eq(buf_str(&out), "fourmore");
	ck_assert_str_eq(a.etag, "");
	ck_assert(!server_was_told(&server, "Accept-Encoding"));
	end();
}
END_TEST

START_TEST(credentials_go_at_once)
{
	const struct scene scenes[] = {{.answer = OK_ANSWER}};

	begin(scenes, 1);
	status_of("GET", (struct http_request){.userpwd = "user:pass:word"});
	ck_assert(server_was_told(&server, "\r\nAuthorization: Basic dXNlcjpwYXNzOndvcmQ=\r\n"));
	server_forget(&server);
	status_of("GET", (struct http_request){.bearer = "token"});
	ck_assert(server_was_told(&server, "\r\nAuthorization: Bearer token\r\n"));
	server_forget(&server);
	status_of("GET", (struct http_request){0});
	ck_assert_msg(!server_was_told(&server, "Authorization"), "kept by the handle");
	end();
}
END_TEST

START_TEST(nothing_is_taken_from_the_surroundings)
{
	const struct scene scenes[] = {{.answer = OK_ANSWER}};
	cleanup_free char *home = unit_dir();
	cleanup_free char *netrc = unit_path(home, ".netrc");
	FILE *f = fopen(netrc, "w");

	ck_assert(f != NULL);
	fputs("machine 127.0.0.1 login user password secret\n", f);
	fclose(f);
	setenv("HOME", home, 1);
	setenv("NETRC", netrc, 1);
	setenv("http_proxy", "http://127.0.0.1:1", 1);
	setenv("ALL_PROXY", "http://127.0.0.1:1", 1);
	begin(scenes, 1);
	ck_assert_int_eq(status_of("GET", (struct http_request){0}), 200);
	ck_assert(!server_was_told(&server, "Authorization"));
	end();
}
END_TEST

START_TEST(only_http_is_spoken)
{
	static const char *const urls[] = {"file:///etc/passwd", "ftp://127.0.0.1/", "gopher://x/",
					   "not a url"};
	struct http_answer cleanup_http_answer a = {0};

	engine = engine_new();
	for (size_t i = 0; i < COUNT(urls); i++) {
		struct http_request q = {.method = "GET", .url = urls[i]};

		unit_error(http_do(engine.http, &q, &a), -EINVAL);
	}
	engine_free(&engine);
}
END_TEST

START_TEST(headers_cannot_be_smuggled)
{
	struct http_headers cleanup_http_headers headers = {0};

	unit_error(http_headers_add(&headers, "X", "a\r\nY: b"), -EINVAL);
	unit_error(http_headers_add(&headers, "X\n", "a"), -EINVAL);
	ck_assert(headers.list == NULL);
}
END_TEST

START_TEST(certificates_are_looked_at_when_the_engine_is_made)
{
	struct remote *owner = NULL;
	struct http *http = NULL;

	unit_ok(remote_open("memory:x", &owner));
	unit_error(http_new(owner, &(struct http_config){.ca_file = "/nowhere"}, &http), -EINVAL);
	unit_error(http_new(owner, &(struct http_config){.client_cert = "/etc/passwd"}, &http),
		   -EINVAL);
	ck_assert(http == NULL);
	remote_close(owner);
}
END_TEST

START_TEST(statuses_have_an_errno)
{
	static const struct {
		int status, err;
	} table[] = {{200, 0},		 {204, 0},	 {206, 0},	 {304, -EIO},
		     {401, -EACCES},	 {403, -EACCES}, {407, -EACCES}, {404, -ENOENT},
		     {410, -ENOENT},	 {409, -EIO},	 {412, -EIO},	 {413, -EFBIG},
		     {423, -EIO},	 {429, -EIO},	 {500, -EIO},	 {503, -EIO},
		     {501, -EOPNOTSUPP}, {507, -ENOSPC}, {0, -EIO}};

	for (size_t i = 0; i < COUNT(table); i++)
		ck_assert_int_eq(http_errno_of(table[i].status), table[i].err);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_http");
	TCase *t = unit_case(s, "requests");

	tcase_add_test(t, bodies_are_appended_and_the_connection_is_kept);
	tcase_add_test(t, a_body_goes_with_its_length_and_without_waiting);
	tcase_add_test(t, each_attempt_is_signed_for_its_url);
	tcase_add_test(t, an_empty_body_has_the_length_0);
	tcase_add_test(t, a_large_body_waits_for_100_continue);
	tcase_add_test(t, a_server_that_refuses_early_gets_no_body);
	tcase_add_test(t, expect_is_as_the_caller_wants);
	tcase_add_test(t, credentials_go_at_once);
	tcase_add_test(t, nothing_is_taken_from_the_surroundings);
	tcase_add_test(t, only_http_is_spoken);
	tcase_add_test(t, headers_cannot_be_smuggled);
	tcase_add_test(t, certificates_are_looked_at_when_the_engine_is_made);
	t = unit_case(s, "answers");
	tcase_add_test(t, head_has_a_length_and_no_body);
	tcase_add_test(t, the_head_of_an_answer_is_taken_apart);
	tcase_add_test(t, the_text_of_an_error_does_not_go_to_out);
	tcase_add_loop_test(t, a_body_comes_whole_however_it_is_framed, 0, COUNT(framings));
	tcase_add_test(t, statuses_have_an_errno);
	return unit_run(s);
}
