/* SPDX-License-Identifier: Apache-2.0 */
/* URLs of WebDAV remotes, and who we are there. */
#include "lib/net/dav.h"

#include <sys/stat.h>
#include "lib/net/open.h"
#include "lib/remote/remote.h"
#include "tests/unit/unit.h"

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static int parse(const char *text, struct dav_url *ret_url)
{
	struct remote_url cleanup_remote_url parts = {0};

	unit_ok(remote_url_parse(text, &parts));
	return dav_url_parse(&parts, ret_url);
}

/* No name, token or certificate of whoever runs the tests. */
static void forget(void)
{
	static const char *const names[] = {
		"EPOCHFS_DAV_USER", "EPOCHFS_DAV_PASSWORD", "EPOCHFS_DAV_PASSWORD_FILE",
		"BEARER_TOKEN",	    "BEARER_TOKEN_FILE",    "XDG_RUNTIME_DIR",
		"X509_USER_PROXY",  "X509_USER_CERT",	    "X509_USER_KEY",
		"X509_CERT_DIR",
	};

	for (size_t i = 0; i < COUNT(names); i++)
		unsetenv(names[i]);
}

START_TEST(places_are_taken_apart)
{
	static const struct {
		const char *text, *origin, *path, *decoded, *userpwd;
	} good[] = {
		{"http://h", "http://h", "", "", NULL},
		{"http://h/", "http://h", "", "", NULL},
		{"https://h:8443/a%20b/c//", "https://h:8443", "/a%20b/c", "/a b/c", NULL},
		{"http://[::1]:80/x", "http://[::1]:80", "/x", "/x", NULL},
		{"http://u@h/x", "http://h", "/x", "/x", "u:"},
		{"http://u%40d:p%3a%25:q@h/x", "http://h", "/x", "/x", "u@d:p:%:q"},
	};

	forget();
	for (size_t i = 0; i < COUNT(good); i++) {
		struct dav_url cleanup_dav_url u = {0};

		unit_ok(parse(good[i].text, &u));
		ck_assert_str_eq(u.origin, good[i].origin);
		ck_assert_str_eq(u.path, good[i].path);
		ck_assert_str_eq(u.path_decoded, good[i].decoded);
		ck_assert_int_eq(u.userpwd != NULL, good[i].userpwd != NULL);
		if (u.userpwd)
			ck_assert_str_eq(u.userpwd, good[i].userpwd);
	}
}
END_TEST

START_TEST(what_is_no_place_is_refused)
{
	static const char *const bad[] = {
		"http:",
		"http:/h/x",
		"http://",
		"http:///x",
		"http://:80/x",
		"http://h h/x",
		"http://h/a b",
		"http://h/a//b",
		"http://h/../x",
		"http://h/a/./b",
		"http://h/a%2fb",
		"http://h/%zz",
		"http://h/a%00",
		"http://:p@h/x",
		"http://a%3ab@h/x",
		"http://h/x\ny",
		"http://h/x?what=1",
		"http://h/x?ca=/f",
		"https://h/x?cert=relative",
		"https://h/x?create=maybe",
		"http://h/x#y",
		"http://h\\x/",
	};
	struct remote *r = NULL;
	char text[REMOTE_TEXT_MAX];

	forget();
	for (size_t i = 0; i < COUNT(bad); i++) {
		unit_error(remote_open(bad[i], &r), -EINVAL);
		remote_open_strerror(bad[i], -EINVAL, text);
		ck_assert_msg(strstr(text, "HOST[:PORT]") != NULL, "%s", text);
	}
	unit_error(remote_open("https://h/x?cert=/no/such/file", &r), -EINVAL);
	remote_open_strerror("https://h/x", -EINVAL, text);
	ck_assert_msg(strstr(text, "/no/such/file") != NULL, "%s", text);
}
END_TEST

static void put_file(const char *path, const char *text, mode_t mode)
{
	unit_ok(io_replace_file(AT_FDCWD, path, text, strlen(text)));
	ck_assert_int_eq(chmod(path, mode), 0);
}

START_TEST(a_name_comes_from_the_url_or_the_environment)
{
	char *dir = unit_dir(), *file = unit_path(dir, "password");
	struct dav_url u = {0};

	forget();
	setenv("BEARER_TOKEN", "tok", 1);
	setenv("EPOCHFS_DAV_USER", "me", 1);
	unit_ok(parse("https://h/x", &u));
	ck_assert_str_eq(u.userpwd, "me:");
	ck_assert_ptr_null(u.token);
	dav_url_free(&u);
	put_file(file, " from file \nmore", 0600);
	setenv("EPOCHFS_DAV_PASSWORD_FILE", file, 1);
	unit_ok(parse("http://h/x", &u));
	ck_assert_str_eq(u.userpwd, "me:from file");
	dav_url_free(&u);
	setenv("EPOCHFS_DAV_PASSWORD", "direct", 1);
	unit_ok(parse("http://h/x", &u));
	ck_assert_str_eq(u.userpwd, "me:direct");
	dav_url_free(&u);
	unit_ok(parse("http://other:1@h/x", &u));
	ck_assert_str_eq(u.userpwd, "other:1");
	dav_url_free(&u);
	unsetenv("EPOCHFS_DAV_PASSWORD");
	setenv("EPOCHFS_DAV_PASSWORD_FILE", "/no/such/file", 1);
	unit_error(parse("http://h/x", &u), -ENOENT);
	free(file);
	free(dir);
}
END_TEST

static void assert_token(const struct dav_url *u, const char *token)
{
	struct buf cleanup_buf out = {0};

	unit_ok(dav_url_token(u, &out));
	ck_assert_str_eq(buf_str(&out), token);
}

START_TEST(a_token_is_found_as_wlcg_says)
{
	char *dir = unit_dir(), *file = unit_path(dir, "token"), *own = NULL;
	struct buf cleanup_buf out = {0};
	struct dav_url u = {0};

	forget();
	ck_assert_int_gt(asprintf(&own, "%s/bt_u%u", dir, geteuid()), 0);
	put_file(own, "own", 0600);
	setenv("XDG_RUNTIME_DIR", dir, 1);
	unit_ok(parse("https://h/x", &u));
	assert_token(&u, "own");
	dav_url_free(&u);
	/* One that others could have read, or put there, is not ours to send. */
	put_file(own, "own", 0644);
	unit_ok(parse("https://h/x", &u));
	ck_assert(!u.token_file || strcmp(u.token_file, own) != 0);
	dav_url_free(&u);
	put_file(file, "\n\tfirst \n", 0644);
	setenv("BEARER_TOKEN_FILE", file, 1);
	unit_ok(parse("https://h/x", &u));
	assert_token(&u, "first");
	put_file(file, "second", 0644);
	assert_token(&u, "second");
	put_file(file, "two words", 0644);
	unit_error(dav_url_token(&u, &out), -EACCES);
	ck_assert_int_eq(unlink(file), 0);
	unit_error(dav_url_token(&u, &out), -EACCES);
	dav_url_free(&u);
	setenv("BEARER_TOKEN", " direct\n", 1);
	unit_ok(parse("https://h/x", &u));
	assert_token(&u, "direct");
	dav_url_free(&u);
	/* Never where anybody can listen. */
	unit_ok(parse("http://h/x", &u));
	assert_token(&u, "");
	dav_url_free(&u);
	free(own);
	free(file);
	free(dir);
}
END_TEST

START_TEST(certificates_are_found_for_https_only)
{
	struct dav_url u = {0};

	forget();
	setenv("X509_USER_PROXY", "/proxy", 1);
	setenv("X509_USER_CERT", "/cert", 1);
	setenv("X509_USER_KEY", "/key", 1);
	setenv("X509_CERT_DIR", "/authorities", 1);
	unit_ok(parse("https://h/x", &u));
	ck_assert_str_eq(u.cert, "/proxy");
	ck_assert_ptr_null(u.key);
	ck_assert_str_eq(u.ca_dir, "/authorities");
	dav_url_free(&u);
	unsetenv("X509_USER_PROXY");
	unit_ok(parse("https://h/x?ca=/mine.pem&create=mkcol", &u));
	ck_assert_str_eq(u.cert, "/cert");
	ck_assert_str_eq(u.key, "/key");
	ck_assert_str_eq(u.ca_file, "/mine.pem");
	ck_assert_ptr_null(u.ca_dir);
	ck_assert_int_eq(u.create, DAV_CREATE_MKCOL);
	dav_url_free(&u);
	unit_ok(parse("https://h/x?cert=/of%20url", &u));
	ck_assert_str_eq(u.cert, "/of url");
	ck_assert_ptr_null(u.key);
	dav_url_free(&u);
	unit_ok(parse("http://h/x", &u));
	ck_assert_ptr_null(u.cert);
	ck_assert_ptr_null(u.ca_dir);
	dav_url_free(&u);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_dav_url");
	TCase *t = unit_case(s, "url");

	tcase_add_test(t, places_are_taken_apart);
	tcase_add_test(t, what_is_no_place_is_refused);
	tcase_add_test(t, a_name_comes_from_the_url_or_the_environment);
	tcase_add_test(t, a_token_is_found_as_wlcg_says);
	tcase_add_test(t, certificates_are_found_for_https_only);
	return unit_run(s);
}
