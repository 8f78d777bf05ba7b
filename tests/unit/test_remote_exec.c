/* SPDX-License-Identifier: Apache-2.0 */
/* Programs as remotes: what they are given, what their ends mean, and hostile ones. */
#include "lib/net/open.h"
#include "lib/remote/exec.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include "lib/util/clock.h"
#include "tests/unit/unit.h"

/* Opens a program that is this script for sh: $1 is the verb, $2 the key, $0 the script, in a fresh
 * folder. That, which the caller frees, in ret_dir (may be NULL). */
static struct remote *open_script(const char *script, const struct remote_limits *limits,
				  char **ret_dir)
{
	char *dir = unit_dir(), *path = unit_path(dir, "script"), *url = NULL;
	struct remote *r = NULL;

	unit_ok(io_replace_file(AT_FDCWD, path, script, strlen(script)));
	ck_assert_int_gt(asprintf(&url, "exec:sh '%s'", path), 0);
	unit_ok(remote_open_with(url, limits, &r));
	free(url);
	free(path);
	if (ret_dir)
		*ret_dir = dir;
	else
		free(dir);
	return r;
}

static void assert_words(const char *text, size_t count, const char *const *words)
{
	char **got = NULL;
	size_t n = 0;

	unit_ok(exec_words_split(text, &got, &n));
	ck_assert_uint_eq(n, count);
	for (size_t i = 0; i < count; i++)
		ck_assert_str_eq(got[i], words[i]);
	ck_assert_ptr_null(got[count]);
	exec_words_free(got);
}

START_TEST(words_are_split_by_the_documented_rule)
{
	char **words = NULL;
	size_t n = 0;

	assert_words("a", 1, (const char *[]){"a"});
	assert_words("  /x/y \t --o=1  z ", 3, (const char *[]){"/x/y", "--o=1", "z"});
	assert_words("p 'a b'c\\ d ''", 3, (const char *[]){"p", "a bc d", ""});
	assert_words("p 'a\\b' \\\\ \\'", 4, (const char *[]){"p", "a\\b", "\\", "'"});
	assert_words("p $HOME `x` %20 ?a=b", 5,
		     (const char *[]){"p", "$HOME", "`x`", "%20", "?a=b"});
	unit_error(exec_words_split("", &words, &n), -EINVAL);
	unit_error(exec_words_split("   ", &words, &n), -EINVAL);
	unit_error(exec_words_split("''", &words, &n), -EINVAL);
	unit_error(exec_words_split("p 'open", &words, &n), -EINVAL);
	unit_error(exec_words_split("p end\\", &words, &n), -EINVAL);
	unit_error(exec_words_split("p a\nb", &words, &n), -EINVAL);
	ck_assert_ptr_null(words);
}
END_TEST

START_TEST(a_program_must_be_there_when_the_remote_is_opened)
{
	char text[REMOTE_TEXT_MAX];
	struct remote *r = NULL;

	unit_error(remote_open("exec:", &r), -EINVAL);
	unit_error(remote_open("exec:./relative", &r), -EINVAL);
	unit_error(remote_open("exec:no-such-program-here x", &r), -ENOENT);
	unit_error(remote_open("exec:/no/such/program", &r), -ENOENT);
	unit_error(remote_open("exec:/etc/passwd", &r), -EACCES);
	ck_assert_ptr_nonnull(
		strstr(remote_open_strerror("exec:/no/such/program", -ENOENT, text), "program"));
}
END_TEST

START_TEST(exit_codes_are_errors_and_their_reason_is_the_last_line)
{
	static const struct {
		int code, put, get, create;
	} codes[] = {{1, -EIO, -EIO, -EIO},
		     {2, -EINVAL, -EINVAL, -EINVAL},
		     {3, -ECONNREFUSED, -ECONNREFUSED, -ECONNREFUSED},
		     {4, -EACCES, -EACCES, -EACCES},
		     {5, -EIO, -ENOENT, -EIO},
		     {7, -ETIMEDOUT, -ETIMEDOUT, -ETIMEDOUT},
		     {8, -EIO, -EIO, -EEXIST},
		     {9, -ENOSPC, -EIO, -ENOSPC},
		     {77, -EIO, -EIO, -EIO},
		     {127, -EIO, -EIO, -EIO}};
	char *dir = NULL, *path, text[REMOTE_TEXT_MAX], digits[12];
	/* The probe (key epochfs.probe-*) is answered as a good program would. */
	struct remote *r = open_script("case $1,$2 in\n"
				       "capabilities*) echo range size put-if-absent; exit;;\n"
				       "get,epochfs.probe*) cat $0.d/probe; exit;;\n"
				       "delete,*) exit 0;;\n"
				       "put-if-absent,epochfs.probe*)\n"
				       " mkdir $0.d || exit 8; cat >$0.d/probe; exit;;\n"
				       "esac\n"
				       "echo first >&2; printf 'a\\033 reason\\n\\n' >&2\n"
				       "exit $(cat $(dirname $0)/code)\n",
				       NULL, &dir);
	struct buf cleanup_buf out = {0};

	path = unit_path(dir, "code");
	for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
		snprintf(digits, sizeof(digits), "%d", codes[i].code);
		unit_ok(io_replace_file(AT_FDCWD, path, digits, strlen(digits)));
		unit_error(remote_put(r, "k", "x", 1), codes[i].put);
		unit_error(remote_get(r, "k", 0, 10, &out), codes[i].get);
		unit_error(remote_put_if_absent(r, "k", "x", 1), codes[i].create);
	}
	remote_strerror(r, -EIO, text);
	ck_assert_ptr_nonnull(strstr(text, "put-if-absent ended with exit code 127: a  reason"));
	ck_assert_uint_eq(out.len, 0);
	remote_close(r);
	free(path);
	free(dir);
}
END_TEST

START_TEST(a_program_with_the_four_verbs_only_does_for_all)
{
	struct remote *r =
		open_script("o=${0%/*}/o-$(printf %s \"$2\" | tr / _)\n"
			    "case $1 in\n"
			    "put) cat >$o;;\n"
			    "get) [ $# = 2 ] || exit 99; [ -e $o ] || exit 5; cat $o;;\n"
			    "list) printf 'no size\\n12 a//b\\n';\n"
			    " [ -e ${0%/*}/o-d_k ] && echo 10 d/k; echo 3 elsewhere/k;;\n"
			    "delete) rm $o;;\n"
			    "*) exit 1;;\n"
			    "esac\n",
			    NULL, NULL);
	enum remote_create create = REMOTE_CREATE_NONE;
	struct buf cleanup_buf out = {0};
	uint64_t size = 0;

	unit_ok(remote_check_create(r, &create));
	ck_assert_int_eq(create, REMOTE_CREATE_CHECKED);
	unit_ok(remote_put(r, "d/k", "0123456789", 10));
	unit_ok(remote_get(r, "d/k", 3, 4, &out));
	ck_assert_str_eq(buf_str(&out), "3456");
	unit_ok(remote_get(r, "d/k", 8, REMOTE_TO_END, &out));
	ck_assert_str_eq(buf_str(&out), "345689");
	unit_ok(remote_size(r, "d/k", &size));
	ck_assert_uint_eq(size, 10);
	unit_error(remote_size(r, "d/other", &size), -ENOENT);
	unit_error(remote_size(r, "top", &size), -ENOENT);
	unit_ok(remote_put_if_absent(r, "top", "first", 5));
	unit_error(remote_put_if_absent(r, "top", "second", 6), -EEXIST);
	unit_ok(remote_size(r, "top", &size));
	ck_assert_uint_eq(size, 5);
	remote_close(r);
}
END_TEST

START_TEST(a_promise_that_is_not_kept_is_found_out)
{
	/* Says put-if-absent, and replaces. */
	struct remote *r = open_script("o=${0%/*}/o-$2\n"
				       "case $1 in\n"
				       "capabilities) echo put-if-absent;;\n"
				       "put|put-if-absent) cat >$o;;\n"
				       "get) [ -e $o ] || exit 5; cat $o;;\n"
				       "delete) rm $o;;\n"
				       "esac\n",
				       NULL, NULL);
	enum remote_create create = REMOTE_CREATE_NONE;

	unit_ok(remote_check_create(r, &create));
	ck_assert_int_eq(create, REMOTE_CREATE_CHECKED);
	unit_ok(remote_put_if_absent(r, "k", "first", 5));
	unit_error(remote_put_if_absent(r, "k", "second", 6), -EEXIST);
	remote_close(r);
}
END_TEST

START_TEST(input_is_a_whole_file_and_nothing_else_is_open)
{
	struct remote *r =
		open_script("[ $1 = put ] || exit 1\n"
			    "[ -f /dev/stdin ] && [ $(stat -Lc %s /dev/stdin) = 5 ] || exit 4\n"
			    "! (echo x 1<>/proc/self/fd/0) 2>/dev/null || exit 4\n"
			    "[ $(cat) = hello ] || exit 4\n"
			    "[ $(ps -o sid= -p $$) = $$ ] || exit 9\n"
			    "ls -l /proc/$$/fd | grep -q script-dir && exit 3\n"
			    "exit 0\n",
			    NULL, NULL);
	char *dir = unit_dir(), *path = unit_path(dir, "script-dir");
	int leaked = open(path, O_RDONLY | O_CREAT, 0600);

	unit_ok(remote_put(r, "k", "hello", 5));
	close(leaked);
	free(path);
	free(dir);
	remote_close(r);
}
END_TEST

START_TEST(hostile_output_is_bounded_and_refused)
{
	/* Says too much on standard error; lists without end, or what is no line. */
	struct remote *r =
		open_script("case $1,$2 in\n"
			    "put,*) head -c 3000000 /dev/zero >&2; yes | head -c 3000000;;\n"
			    "list,nul/) printf '5 nul/k\\0\\n';;\n"
			    "list,long/) printf '5 long/'; head -c 5000 /dev/zero | tr '\\0' k;"
			    " echo;;\n"
			    "list,cut/) printf '5 cut/k\\n5 cut/';;\n"
			    "list,dots/) printf '5 dots/../../etc/passwd\\n-1 dots/a\\n';"
			    " printf '99999999999999999999 dots/b\\n';;\n"
			    "size,*) echo 5five;;\n"
			    "capabilities,) echo size; yes no | head -c 2000;;\n"
			    "esac\n",
			    NULL, NULL);
	struct sought {
		int count;
	} none = {0};
	uint64_t size = 7;

	unit_ok(remote_put(r, "k", "x", 1));
	unit_error(remote_list(r, "nul/", (remote_list_fn *)NULL, &none), -EIO);
	unit_error(remote_list(r, "long/", (remote_list_fn *)NULL, &none), -EIO);
	unit_error(remote_list(r, "cut/", (remote_list_fn *)NULL, &none), -EIO);
	unit_ok(remote_list(r, "dots/", (remote_list_fn *)NULL, &none));
	unit_error(remote_size(r, "k", &size), -EIO);
	ck_assert_uint_eq(size, 7);
	remote_close(r);
}
END_TEST

START_TEST(death_by_a_signal_may_be_tried_again)
{
	struct remote *r = open_script("kill -9 $$\n", NULL, NULL);
	char text[REMOTE_TEXT_MAX];

	unit_error(remote_put(r, "k", "x", 1), -EIO);
	ck_assert_ptr_nonnull(strstr(remote_strerror(r, -EIO, text), "signal 9"));
	remote_close(r);
}
END_TEST

/* True while a process with the id that the file holds is there. */
static bool lives(const char *dir, const char *name)
{
	struct buf cleanup_buf text = {0};
	char *path = unit_path(dir, name);
	int error = io_read_file(AT_FDCWD, path, 32, &text);

	free(path);
	return !error && text.len && kill(atoi(buf_str(&text)), 0) == 0;
}

static void wait_for(const char *dir, const char *name, bool alive)
{
	int64_t deadline = clock_mono_ns() + 30 * NS_PER_S;

	while (lives(dir, name) != alive) {
		ck_assert_int_lt(clock_mono_ns(), deadline);
		usleep(1000);
	}
}

/* It, and what it started, sleep and take no SIGTERM. */
#define SLEEPER                                                                                    \
	"trap '' TERM\n"                                                                           \
	"echo $$ >${0%/*}/self\n"                                                                  \
	"sleep 1000 & echo $! >${0%/*}/other\n"                                                    \
	"wait\n"

START_TEST(who_takes_too_long_is_ended_with_all_it_started)
{
	const struct remote_limits limits = {.total_timeout_ns = NS_PER_S};
	char *dir = NULL;
	struct remote *r = open_script(SLEEPER, &limits, &dir);

	unit_error(remote_put(r, "k", "x", 1), -ETIMEDOUT);
	wait_for(dir, "self", false);
	wait_for(dir, "other", false);
	remote_close(r);
	free(dir);
}
END_TEST

static void *put_it(void *r)
{
	return (void *)(intptr_t)remote_put(r, "k", "x", 1);
}

START_TEST(cancel_ends_a_run)
{
	char *dir = NULL;
	struct remote *r = open_script(SLEEPER, NULL, &dir);
	pthread_t thread;
	void *got;

	ck_assert_int_eq(pthread_create(&thread, NULL, put_it, r), 0);
	wait_for(dir, "other", true);
	remote_cancel(r);
	pthread_join(thread, &got);
	ck_assert_int_eq((intptr_t)got, -ECANCELED);
	wait_for(dir, "self", false);
	wait_for(dir, "other", false);
	remote_close(r);
	free(dir);
}
END_TEST

START_TEST(what_a_program_leaves_running_is_ended)
{
	char *dir = NULL;
	struct remote *r = open_script("sleep 1000 & echo $! >${0%/*}/other\n", NULL, &dir);

	unit_ok(remote_put(r, "k", "x", 1));
	wait_for(dir, "other", false);
	remote_close(r);
	free(dir);
}
END_TEST

START_TEST(no_more_run_at_once_than_there_are_connections)
{
	const struct remote_limits limits = {.connections = 2};
	/* A run that finds two others fails. */
	struct remote *r =
		open_script("d=${0%/*}\n"
			    "mkdir $d/a 2>/dev/null && m=a || { mkdir $d/b && m=b; } || exit 4\n"
			    "sleep 0.05; rmdir $d/$m\n",
			    &limits, NULL);
	pthread_t threads[8];
	void *got;

	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, put_it, r), 0);
	for (int i = 0; i < 8; i++) {
		pthread_join(threads[i], &got);
		ck_assert_int_eq((intptr_t)got, 0);
	}
	remote_close(r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("remote_exec");
	TCase *t = unit_case(s, "opening");

	tcase_add_test(t, words_are_split_by_the_documented_rule);
	tcase_add_test(t, a_program_must_be_there_when_the_remote_is_opened);
	t = unit_case(s, "protocol");
	tcase_add_test(t, exit_codes_are_errors_and_their_reason_is_the_last_line);
	tcase_add_test(t, a_program_with_the_four_verbs_only_does_for_all);
	tcase_add_test(t, a_promise_that_is_not_kept_is_found_out);
	tcase_add_test(t, input_is_a_whole_file_and_nothing_else_is_open);
	tcase_add_test(t, hostile_output_is_bounded_and_refused);
	t = unit_case(s, "ends");
	tcase_add_test(t, death_by_a_signal_may_be_tried_again);
	tcase_add_test(t, who_takes_too_long_is_ended_with_all_it_started);
	tcase_add_test(t, cancel_ends_a_run);
	tcase_add_test(t, what_a_program_leaves_running_is_ended);
	tcase_add_test(t, no_more_run_at_once_than_there_are_connections);
	return unit_run(s);
}
