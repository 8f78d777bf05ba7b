/* SPDX-License-Identifier: Apache-2.0 */
/* The URLs of sftp: remotes, and servers that break the protocol. Real servers are in
 * tests/remotes. */
#include "lib/net/open.h"
#include "lib/net/sftp.h"

#include <sys/stat.h>
#include "lib/util/clock.h"
#include "tests/unit/unit.h"

static struct remote *open_ok(const char *url)
{
	struct remote *r = NULL;

	unit_ok(remote_open(url, &r));
	return r;
}

/* The words of ssh, from the one named on, parted by blanks. */
static void assert_command(const char *url, const char *from, const char *words)
{
	struct buf cleanup_buf text = {0};
	struct remote *r = open_ok(url);
	char **argv = ((struct sftp *)r)->argv;
	bool on = false;

	ck_assert_str_eq(argv[0], "ssh");
	for (size_t i = 0; argv[i]; i++) {
		on |= strcmp(argv[i], from) == 0;
		if (on)
			buf_printf(&text, " %s", argv[i]);
	}
	ck_assert_str_eq(buf_str(&text) + (text.len ? 1 : 0), words);
	remote_close(r);
}

static void assert_root(const char *url, const char *root)
{
	struct remote *r = open_ok(url);

	ck_assert_str_eq(((struct sftp *)r)->root, root);
	remote_close(r);
}

START_TEST(a_url_becomes_a_command_line)
{
	assert_command("sftp://host/d", "-s", "-s -- host sftp");
	assert_command("sftp://u@host:2222/d", "-p", "-p 2222 -l u -s -- host sftp");
	assert_command("sftp://a%40b@[::1]:22/d", "-p", "-p 22 -l a@b -s -- ::1 sftp");
	assert_command("sftp://[fe80::1]/d", "-s", "-s -- fe80::1 sftp");
	assert_command("sftp://h/d?key=/k%20y&known-hosts=~/kh", "UserKnownHostsFile=\"~/kh\"",
		       "UserKnownHostsFile=\"~/kh\" -o GlobalKnownHostsFile=/dev/null "
		       "-o IdentityFile=\"/k y\" -o IdentitiesOnly=yes -s -- h sftp");
}
END_TEST

START_TEST(a_path_is_absolute_or_below_the_home)
{
	assert_root("sftp://h/a/b", "/a/b/");
	assert_root("sftp://h/a/b///", "/a/b/");
	assert_root("sftp://h/", "/");
	assert_root("sftp://h/a%20b", "/a b/");
	assert_root("sftp://h/~", "");
	assert_root("sftp://h/~/", "");
	assert_root("sftp://h/~/runs/7", "runs/7/");
}
END_TEST

START_TEST(bad_urls_are_refused)
{
	static const char *const bad[] = {
		"sftp:",
		"sftp:/h/d",
		"sftp://",
		"sftp://h",
		"sftp:///d",
		"sftp://-oProxyCommand=x/d",
		"sftp://-l@h/d",
		"sftp://u:secret@h/d",
		"sftp://@h/d",
		"sftp://h:0/d",
		"sftp://h:65536/d",
		"sftp://h:x/d",
		"sftp://h h/d",
		"sftp://h/~other/d",
		"sftp://h/d%0a",
		"sftp://h/d?key=relative",
		"sftp://h/d?key=/a\"b",
		"sftp://h/d?key=/a&key=/b",
		"sftp://h/d?password=x",
		"sftp://u%0a@h/d",
	};
	struct remote *r = NULL;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		unit_error(remote_open(bad[i], &r), -EINVAL);
		ck_assert_ptr_null(r);
	}
}
END_TEST

START_TEST(the_host_key_is_checked_whatever_the_configuration_says)
{
	struct remote *r = open_ok("sftp://h/d");
	char **argv = ((struct sftp *)r)->argv;
	bool strict = false, localhost = false;

	for (size_t i = 1; argv[i]; i++) {
		strict |= strcmp(argv[i], "StrictHostKeyChecking=yes") == 0;
		localhost |= strcmp(argv[i], "NoHostAuthenticationForLocalhost=no") == 0;
	}
	ck_assert(strict && localhost);
	remote_close(r);
}
END_TEST

/* A remote whose `ssh` is this shell script. */
static struct remote *open_fake(const char *script, const struct remote_limits *limits)
{
	char *dir = unit_dir(), *path = unit_path(dir, "ssh"), *search = NULL;
	struct remote *r = NULL;

	unit_ok(io_replace_file(AT_FDCWD, path, script, strlen(script)));
	ck_assert_int_eq(chmod(path, 0700), 0);
	ck_assert_int_gt(asprintf(&search, "%s:%s", dir, getenv("PATH")), 0);
	ck_assert_int_eq(setenv("PATH", search, 1), 0);
	unit_ok(remote_open_with("sftp://host/dir", limits, &r));
	free(search);
	free(path);
	free(dir);
	return r;
}

START_TEST(what_ssh_says_at_its_end_is_the_error)
{
	static const struct {
		const char *says;
		int error;
		const char *reason;
	} ends[] = {
		{"No ED25519 host key is known for host and you have requested strict checking.\n"
		 "Host key verification failed.",
		 -EACCES, "ssh-keyscan host >> ~/.ssh/known_hosts"},
		{"@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!  @\n"
		 "Host key verification failed.",
		 -EACCES, "ask its administrator"},
		{"u@host: Permission denied (publickey).", -EACCES, "?key=FILE"},
		{"subsystem request failed on channel 0", -EACCES, "no SFTP"},
		{"ssh: connect to host h port 22: Connection refused", -ECONNREFUSED, "refused"},
		{"ssh: Could not resolve hostname h: unknown", -ECONNREFUSED, "resolve"},
		{"ssh: connect to host h port 22: Connection timed out", -ETIMEDOUT, "timed out"},
		{"Broken pipe", -EIO, "the connection ended: Broken pipe"},
		{"", -EIO, "the connection ended"},
	};

	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		struct buf cleanup_buf script = {0}, out = {0};
		char text[REMOTE_TEXT_MAX];
		struct remote *r;

		buf_printf(&script, "#!/bin/sh\ncat >&2 <<'E'\n%s\nE\nexit 255\n", ends[i].says);
		r = open_fake(buf_str(&script), NULL);
		unit_error(remote_get(r, "k", 0, 1, &out), ends[i].error);
		remote_strerror(r, ends[i].error, text);
		ck_assert_msg(strstr(text, ends[i].reason) != NULL, "%s", text);
		remote_close(r);
	}
}
END_TEST

/* VERSION 3 without extensions; then what each case adds, whatever is asked. */
#define HELLO "printf '\\000\\000\\000\\005\\002\\000\\000\\000\\003'\n"

START_TEST(nonsense_ends_the_connection_and_is_no_answer)
{
	static const char *const answers[] = {
		"printf '\\377\\377\\377\\377'",      /* longer than any packet */
		"printf '\\000\\000\\000\\001\\145'", /* shorter than any */
		"printf '\\000\\000\\000\\005\\145\\000\\000\\000\\001'", /* a status without one */
		"printf '\\000\\000\\000\\012\\146\\000\\000\\000\\007\\000\\000\\000\\001h'", /* other id */
		"printf '\\000\\000\\000\\011\\146\\000\\000\\000\\001\\000\\001\\000\\000'", /* handle */
		"printf '\\000\\000\\000\\011\\147\\000\\000\\000\\001\\000\\000\\000\\000'", /* DATA */
		"head -c 100000 /dev/urandom | tr '\\000' '\\377'",
	};

	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++) {
		struct buf cleanup_buf script = {0}, out = {0};
		struct remote *r;

		buf_printf(&script, "#!/bin/sh\n" HELLO "%s\nexec sleep 1000\n", answers[i]);
		r = open_fake(buf_str(&script), NULL);
		unit_error(remote_get(r, "k", 0, 1, &out), -EIO);
		unit_error(remote_list(r, "", (remote_list_fn *)NULL, NULL), -EIO);
		ck_assert_uint_eq(out.len, 0);
		remote_close(r);
	}
}
END_TEST

START_TEST(a_server_of_another_version_is_refused)
{
	struct remote *r = open_fake("#!/bin/sh\n"
				     "printf '\\000\\000\\000\\005\\002\\000\\000\\000\\002'\n"
				     "exec sleep 1000\n",
				     NULL);
	uint64_t size;

	unit_error(remote_size(r, "k", &size), -EIO);
	remote_close(r);
}
END_TEST

START_TEST(silence_is_a_time_out)
{
	static const struct {
		const char *script;
		struct remote_limits limits;
	} cases[] = {
		{"#!/bin/sh\nexec sleep 1000\n",
		 {.connect_timeout_ns = NS_PER_S, .stall_timeout_ns = 1000 * NS_PER_S}},
		{"#!/bin/sh\n" HELLO "exec sleep 1000\n",
		 {.total_timeout_ns = NS_PER_S, .stall_timeout_ns = 1000 * NS_PER_S}},
		{"#!/bin/sh\n" HELLO "exec sleep 1000\n", {.stall_timeout_ns = NS_PER_S}},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct remote *r = open_fake(cases[i].script, &cases[i].limits);
		uint64_t size;

		unit_error(remote_size(r, "k", &size), -ETIMEDOUT);
		remote_close(r);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("net_sftp");
	TCase *t = unit_case(s, "URLs");

	tcase_add_test(t, a_url_becomes_a_command_line);
	tcase_add_test(t, a_path_is_absolute_or_below_the_home);
	tcase_add_test(t, bad_urls_are_refused);
	tcase_add_test(t, the_host_key_is_checked_whatever_the_configuration_says);
	t = unit_case(s, "servers");
	tcase_add_test(t, what_ssh_says_at_its_end_is_the_error);
	tcase_add_test(t, nonsense_ends_the_connection_and_is_no_answer);
	tcase_add_test(t, a_server_of_another_version_is_refused);
	tcase_add_test(t, silence_is_a_time_out);
	return unit_run(s);
}
