/* SPDX-License-Identifier: Apache-2.0 */
/* The value of the option metrics. */
#include "lib/metrics/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>
#include "tests/unit/unit.h"

START_TEST(a_host_and_a_port_make_a_socket)
{
	struct metrics_address a;
	const struct sockaddr_in *in = (const struct sockaddr_in *)&a.socket;
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)&a.socket;

	unit_ok(metrics_address_parse("127.0.0.1:9610", &a));
	ck_assert_int_eq(in->sin_family, AF_INET);
	ck_assert_uint_eq(ntohs(in->sin_port), 9610);
	ck_assert_uint_eq(ntohl(in->sin_addr.s_addr), INADDR_LOOPBACK);
	ck_assert_ptr_null(a.path);
	unit_ok(metrics_address_parse("[::1]:65535", &a));
	ck_assert_int_eq(in6->sin6_family, AF_INET6);
	ck_assert_uint_eq(ntohs(in6->sin6_port), 65535);
	ck_assert(IN6_IS_ADDR_LOOPBACK(&in6->sin6_addr));
}
END_TEST

START_TEST(a_path_is_one_of_a_socket_or_a_file)
{
	struct metrics_address a;
	const struct sockaddr_un *un = (const struct sockaddr_un *)&a.socket;

	unit_ok(metrics_address_parse("unix:/run/epochfs:1", &a));
	ck_assert_int_eq(un->sun_family, AF_UNIX);
	ck_assert_str_eq(un->sun_path, "/run/epochfs:1");
	ck_assert_str_eq(a.path, "/run/epochfs:1");
	unit_ok(metrics_address_parse("file:/var/lib/run7.prom", &a));
	ck_assert_int_eq(a.socket.ss_family, AF_UNSPEC);
	ck_assert_str_eq(a.path, "/var/lib/run7.prom");
}
END_TEST

START_TEST(anything_else_is_refused)
{
	static const char *const wrong[] = {
		"",
		"9610",
		":9610",
		"localhost:9610",
		"127.0.0.1",
		"127.0.0.1:",
		"127.0.0.1:0",
		"[::1]",
		"[::1:9610",
		"::1:9610",
		"[]:9610",
		"1.2.3.4:65536",
		"unix:",
		"unix:relative",
		"file:",
		"file:x.prom",
		"file:/dir/",
		"[127.0.0.1]:9610",
		"1.2.3.4.:9610",
	};
	char path[256] = "unix:/";
	struct metrics_address a;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_msg(metrics_address_parse(wrong[i], &a) == -EINVAL, "%s", wrong[i]);
	memset(path + strlen(path), 'x', 200);
	unit_error(metrics_address_parse(path, &a), -ENAMETOOLONG);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("metrics_address");
	TCase *t = unit_case(s, "address");

	tcase_add_test(t, a_host_and_a_port_make_a_socket);
	tcase_add_test(t, a_path_is_one_of_a_socket_or_a_file);
	tcase_add_test(t, anything_else_is_refused);
	return unit_run(s);
}
