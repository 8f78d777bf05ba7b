/* SPDX-License-Identifier: Apache-2.0 */
/* URLs of remotes: their parts, what is refused, and what is shown of them. */
#include "lib/net/open.h"
#include "lib/remote/remote_url.h"

#include "tests/unit/unit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

START_TEST(urls_come_apart)
{
	static const struct {
		const char *text, *scheme, *rest, *query;
		bool plain, layered;
	} good[] = {
		{"/a/b c?d%41", "file", "/a/b c?d%41", NULL, true, false},
		{"/", "file", "/", NULL, true, false},
		{"file:///a%20b", "file", "///a%20b", NULL, false, false},
		{"memory:x", "memory", "x", NULL, false, false},
		{"memory:", "memory", "", NULL, false, false},
		{"none", "none", "", NULL, false, false},
		{"none?a=1", "none", "", "a=1", false, false},
		{"s3://b/p?region=r&x=?", "s3", "//b/p", "region=r&x=?", false, false},
		{"fault+/d?put.error=1", "fault", "/d", "put.error=1", false, true},
		{"fault+file:///d?", "fault", "file:///d", "", false, true},
		{"fault+fault+none?a", "fault", "fault+none", "a", false, true},
	};
	static const char *const bad[] = {"",	   " ",	 "./dir", "dir/sub", "File:///x", "a b:",
					  "+none", ":x", "-",	  "?a=b",    "fi le:///x"};
	struct remote_url url = {0};

	for (size_t i = 0; i < COUNT(bad); i++)
		unit_error(remote_url_parse(bad[i], &url), -EINVAL);
	ck_assert_ptr_null(url.scheme);
	for (size_t i = 0; i < COUNT(good); i++) {
		unit_ok(remote_url_parse(good[i].text, &url));
		ck_assert_str_eq(url.scheme, good[i].scheme);
		ck_assert_str_eq(url.rest, good[i].rest);
		ck_assert_pstr_eq(url.query, good[i].query);
		ck_assert_int_eq(url.plain, good[i].plain);
		ck_assert_int_eq(url.layered, good[i].layered);
		remote_url_free(&url);
	}
}
END_TEST

START_TEST(escapes_are_decoded_and_nul_is_refused)
{
	static const char *const bad[] = {"%", "a%2", "%zz", "%0g", "x%00y", "%%41"};
	char *out = NULL;

	for (size_t i = 0; i < COUNT(bad); i++)
		unit_error(remote_url_decode(bad[i], &out), -EINVAL);
	ck_assert_ptr_null(out);
	unit_ok(remote_url_decode("/a%20b%2Fc%c3%A4+%25", &out));
	ck_assert_str_eq(out, "/a b/c\xc3\xa4+%");
	free(out);
}
END_TEST

static int note_param(void *arg, const char *name, const char *value, const char *raw)
{
	buf_printf(arg, "[%s|%s|%s]", name, value, raw);
	return strcmp(name, "stop") == 0 ? 5 : 0;
}

START_TEST(parameters_come_in_order)
{
	struct buf cleanup_buf seen = {0};

	unit_ok(remote_url_each_param(NULL, note_param, &seen));
	unit_ok(remote_url_each_param("", note_param, &seen));
	unit_ok(remote_url_each_param("a=1&&b=%2F=x&c&d=", note_param, &seen));
	ck_assert_str_eq(buf_str(&seen), "[a|1|a=1][b|/=x|b=%2F=x][c||c][d||d=]");
	unit_error(remote_url_each_param("stop=1&a=1", note_param, &seen), 5);
	unit_error(remote_url_each_param("a=%4", note_param, &seen), -EINVAL);
}
END_TEST

START_TEST(secrets_are_not_shown)
{
	static const struct {
		const char *text, *shown;
	} cases[] = {
		{"https://user:pa:ss@host:80/x:y@z", "https://user:***@host:80/x:y@z"},
		{"https://user@host:443/p", "https://user@host:443/p"},
		{"fault+https://u:p@h/d?put.error=1", "fault+https://u:***@h/d?put.error=1"},
		{"s3://b/p?session-token=abc&region=eu&SecretKey=q%20w",
		 "s3://b/p?session-token=***&region=eu&SecretKey=***"},
		{"s3://b?x-amz-signature=1&password=", "s3://b?x-amz-signature=***&password="},
		{"/data/a:b@c?token=1", "/data/a:b@c?token=1"},
		{"memory:a:b@c", "memory:a:b@c"},
		{"memory:a\nb\033[1m", "memory:a?b?[1m"},
	};
	char shown[128], tiny[16];

	for (size_t i = 0; i < COUNT(cases); i++) {
		remote_url_redact(cases[i].text, shown, sizeof(shown));
		ck_assert_str_eq(shown, cases[i].shown);
	}
	remote_url_redact("https://user:password@host/path", tiny, sizeof(tiny));
	ck_assert_ptr_null(strstr(tiny, "pass"));
}
END_TEST

START_TEST(opening_says_what_is_wrong)
{
	static const struct {
		const char *url;
		int err;
		const char *says;
	} bad[] = {
		{"ftp://h/x", -EPROTONOSUPPORT,
		 "no such kind of remote; there are: /abs/dir, file:"},
		{"fault:x", -EPROTONOSUPPORT, "fault+URL"},
		{"none+none", -EPROTONOSUPPORT, "no such kind"},
		{"relative/dir", -EINVAL, "paths absolute"},
		{"relative", -EPROTONOSUPPORT, "paths absolute"},
		{"file://host/dir", -EINVAL, "not a remote"},
		{"file:relative", -EINVAL, "not a remote"},
		{"file:///tmp?x=1", -EINVAL, "not a remote"},
		{"file:///tmp/%00", -EINVAL, "not a remote"},
		{"memory:x?y", -EINVAL, "not a remote"},
		{"none:x", -EINVAL, "not a remote"},
		{"/no/such/parent/dir", -ENOENT, "the directory above it does not exist"},
		{"/dev/null", -ENOTDIR, "not a directory"},
		{"/dev/null/sub", -ENOTDIR, "not a directory"},
		{"fault+ftp://x", -EPROTONOSUPPORT, "no such kind"},
		{"fault+none?put.eror=1", -EINVAL, "not a remote"},
		{"ftps://u:secret@h/", -EPROTONOSUPPORT, "ftps://u:***@h/: no such kind"},
	};
	struct remote *r = NULL;
	char text[REMOTE_TEXT_MAX];

	for (size_t i = 0; i < COUNT(bad); i++) {
		unit_error(remote_open(bad[i].url, &r), bad[i].err);
		remote_open_strerror(bad[i].url, bad[i].err, text);
		ck_assert_msg(strstr(text, bad[i].says) != NULL, "%s", text);
		ck_assert_ptr_null(strchr(text, '\n'));
	}
	ck_assert_ptr_null(r);
	unit_ok(remote_open("memory:m", &r));
	for (int err = 1; err < 134; err++)
		ck_assert_ptr_eq(strstr(remote_strerror(r, -err, text), "memory:m: "), text);
	ck_assert_ptr_nonnull(strstr(remote_strerror(r, -ENOSPC, text), "full"));
	ck_assert_ptr_nonnull(strstr(remote_strerror(r, -EACCES, text), "permissions"));
	remote_close(r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_url");
	TCase *t = unit_case(s, "url");

	tcase_add_test(t, urls_come_apart);
	tcase_add_test(t, escapes_are_decoded_and_nul_is_refused);
	tcase_add_test(t, parameters_come_in_order);
	tcase_add_test(t, secrets_are_not_shown);
	tcase_add_test(t, opening_says_what_is_wrong);
	return unit_run(s);
}
