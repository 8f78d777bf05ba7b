/* SPDX-License-Identifier: Apache-2.0 */
/* Objects put to a WebDAV server into collections that are not there yet. */
#include "lib/remote/remote.h"
#include "tests/unit/http_unit.h"

#define MISSING "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
#define CREATED "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"
#define EXISTS	"HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n"

static struct remote *remote;

static void *create_a(void *arg)
{
	*(int *)arg = remote_put_if_absent(remote, "d/a", "a", 1);
	return NULL;
}

/* Some servers say 500 where the collection is missing. One thread has made it before another hears that. */
START_TEST(who_hears_late_that_a_collection_was_missing_tries_again)
{
	static const struct scene scenes[] = {
		{.answer = MISSING, .delay_ms = 300}, /* PUT d/a */
		{.answer = MISSING},		      /* PUT d/b */
		{.answer = CREATED},		      /* MKCOL d/ */
		{.answer = CREATED},		      /* PUT d/b */
		{.answer = EXISTS},		      /* MKCOL d/ */
		{.answer = CREATED},		      /* PUT d/a */
	};
	char url[128];
	struct server s;
	pthread_t other;
	int result = -1;

	server_start(&s, scenes, sizeof(scenes) / sizeof(*scenes));
	snprintf(url, sizeof(url), "%s/volume?create=conditional", s.base);
	unit_ok(remote_open(url, &remote));
	ck_assert_int_eq(pthread_create(&other, NULL, create_a, &result), 0);
	server_wait_requests(&s, 1);
	unit_ok(remote_put_if_absent(remote, "d/b", "b", 1));
	pthread_join(other, NULL);
	unit_ok(result);
	ck_assert_uint_eq(server_requests(&s), sizeof(scenes) / sizeof(*scenes));
	remote_close(remote);
	server_stop(&s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_dav_put");
	TCase *c = unit_case(s, "collections");

	tcase_add_test(c, who_hears_late_that_a_collection_was_missing_tries_again);
	return unit_run(s);
}
