/* SPDX-License-Identifier: Apache-2.0 */
/* Log lines: one message is one line, whatever is in it. */
#include "lib/util/log.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/unit/unit.h"

static int log_file = -1;

static void log_to_a_file(void)
{
	cleanup_free char *dir = unit_dir();
	cleanup_free char *path = unit_path(dir, "log");

	log_file = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	ck_assert_int_ge(log_file, 0);
	log_set_fd(log_file);
}

static void log_to_stderr(void)
{
	log_set_fd(2);
	log_set_level(LOG_LEVEL_INFO);
	close(log_file);
}

/* All that was logged; the caller frees it. */
static char *logged(void)
{
	cleanup_buf struct buf b = {0};
	struct stat st;
	size_t len;

	ck_assert_int_eq(fstat(log_file, &st), 0);
	unit_ok(buf_reserve(&b, (size_t)st.st_size + 1));
	unit_ok(io_pread_full(log_file, b.data, (size_t)st.st_size, 0));
	b.len = (size_t)st.st_size;
	buf_put_u8(&b, 0);
	unit_ok(buf_error(&b));
	return buf_steal(&b, &len);
}

static size_t lines(const char *text)
{
	size_t n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

START_TEST(line_has_time_level_and_message)
{
	cleanup_free char *text = NULL;
	int year, month, day, hour, minute, second, ms, end = 0;

	log_warn("the remote is away: %s, %d", "timeout", 3);
	text = logged();
	ck_assert_int_eq(sscanf(text, "%4d-%2d-%2dT%2d:%2d:%2d.%3dZ %n", &year, &month, &day, &hour,
				&minute, &second, &ms, &end),
			 7);
	ck_assert_int_eq(end, 25);
	ck_assert_str_eq(text + end, "warning: the remote is away: timeout, 3\n");
}
END_TEST

START_TEST(lines_below_the_level_are_not_written)
{
	cleanup_free char *text = NULL;

	log_debug("unheard");
	log_info("first");
	log_set_level(LOG_LEVEL_ERROR);
	log_warn("unheard");
	log_error("second");
	log_set_level(LOG_LEVEL_DEBUG);
	log_debug("third");
	text = logged();
	ck_assert_uint_eq(lines(text), 3);
	ck_assert_ptr_null(strstr(text, "unheard"));
	ck_assert_ptr_nonnull(strstr(text, "info: first\n"));
	ck_assert_ptr_nonnull(strstr(text, "error: second\n"));
	ck_assert_ptr_nonnull(strstr(text, "debug: third\n"));
}
END_TEST

START_TEST(hostile_name_stays_on_its_line)
{
	cleanup_free char *text = NULL;

	log_error("cannot read '%s'", "a\nb\r\x1b[2J\x7f\tc");
	text = logged();
	ck_assert_uint_eq(lines(text), 1);
	ck_assert_ptr_nonnull(strstr(text, "error: cannot read 'a?b??[2J??c'\n"));
}
END_TEST

START_TEST(long_message_is_cut_and_still_a_line)
{
	cleanup_free char *text = NULL;
	char name[8192];

	memset(name, 'x', sizeof(name));
	name[sizeof(name) - 1] = '\0';
	log_error("%s", name);
	log_error("next");
	text = logged();
	ck_assert_uint_eq(lines(text), 2);
	ck_assert_ptr_nonnull(strstr(text, "xxx\n"));
	ck_assert_ptr_nonnull(strstr(text, "error: next\n"));
}
END_TEST

START_TEST(logging_keeps_errno)
{
	log_set_fd(1000000); /* the write fails with EBADF */
	errno = ENOSPC;
	log_error("lost");
	ck_assert_int_eq(errno, ENOSPC);
	log_set_fd(log_file);
}
END_TEST

static void *log_many(void *arg)
{
	for (int i = 0; i < 200; i++)
		log_info("thread %s line %d end", (const char *)arg, i);
	return NULL;
}

static void limit_size(rlim_t size)
{
	struct rlimit limit;

	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &limit), 0);
	limit.rlim_cur = size;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* What was begun stays, and the next line has its own. */
START_TEST(a_full_disk_cuts_a_line_and_joins_none)
{
	cleanup_free char *text = NULL;
	struct stat st;
	char *second;

	signal(SIGXFSZ, SIG_IGN);
	log_info("whole");
	ck_assert_int_eq(fstat(log_file, &st), 0);
	limit_size((rlim_t)st.st_size + 5);
	for (int i = 0; i <= _i; i++)
		log_info("cut or lost");
	limit_size(RLIM_INFINITY);
	log_info("there is room again");
	log_info("last");
	text = logged();
	ck_assert_uint_eq(lines(text), 4);
	second = strchr(text, '\n') + 1;
	ck_assert_int_eq(strcspn(second, "\n"), 5);
	ck_assert_ptr_nonnull(strstr(second + 6, "Z info: there is room again\n"));
	ck_assert_int_eq(strncmp(second + 6, text, 4), 0); /* it begins with the year */
}
END_TEST

/* Of a serving process that ended on a full disk, say. The end of the file belongs to the next one. */
START_TEST(a_line_that_another_process_left_is_not_joined)
{
	cleanup_free char *text = NULL;
	pid_t child;

	log_info("whole");
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		_exit(write(log_file, "cut", 3) == 3 ? 0 : 1);
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child) {
		log_info("of the next process");
		log_info("and once more");
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, NULL, 0), child);
	text = logged();
	ck_assert_ptr_nonnull(strstr(text, "whole\ncut\n2"));
	ck_assert_ptr_nonnull(strstr(text, "process\n2"));
	ck_assert_uint_eq(lines(text), 4);
}
END_TEST

START_TEST(lines_of_many_threads_do_not_mix)
{
	static const char *const names[] = {"a", "b", "c", "d"};
	cleanup_free char *text = NULL;
	pthread_t threads[4];
	char *save = NULL;

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, log_many, (void *)names[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	text = logged();
	ck_assert_uint_eq(lines(text), 800);
	for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char name;
		int number, end = 0;

		sscanf(line, "%*s info: thread %c line %d end%n", &name, &number, &end);
		ck_assert_msg(end && !line[end], "not one message: %s", line);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("util_log");
	TCase *t = unit_case(s, "lines");

	tcase_add_checked_fixture(t, log_to_a_file, log_to_stderr);
	tcase_add_test(t, line_has_time_level_and_message);
	tcase_add_test(t, lines_below_the_level_are_not_written);
	tcase_add_test(t, hostile_name_stays_on_its_line);
	tcase_add_test(t, long_message_is_cut_and_still_a_line);
	tcase_add_test(t, logging_keeps_errno);
	tcase_add_test(t, lines_of_many_threads_do_not_mix);
	tcase_add_loop_test(t, a_full_disk_cuts_a_line_and_joins_none, 0, 3);
	tcase_add_test(t, a_line_that_another_process_left_is_not_joined);
	return unit_run(s);
}
