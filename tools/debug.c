/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs debug: one file for a bug report. */
#include "tools/debug.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/util/child.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/doctor.h"
#include "tools/target.h"

#define PATIENCE_NS (60 * NS_PER_S)
#define LOOK_MS	    50
#define READ_SIZE   ((size_t)1 << 16)
#define OUTPUT_MAX  ((size_t)64 << 20)
#define STEM	    "epochfs-debug"

/* ---- running what is asked ---- */

/* What has come so far; false: that was all. */
static bool take_output(struct child *c, struct buf *out)
{
	for (;;) {
		ssize_t n;

		if (out->len > OUTPUT_MAX || buf_reserve(out, READ_SIZE) < 0)
			return false;
		n = read(c->out, out->data + out->len, READ_SIZE);
		if (n < 0)
			return errno == EAGAIN || errno == EINTR;
		if (n == 0)
			return false;
		out->len += (size_t)n;
	}
}

static void follow(struct child *c, struct buf *out)
{
	int64_t until_ns = clock_mono_ns() + PATIENCE_NS;
	bool more = true;

	while (clock_mono_ns() < until_ns) {
		struct pollfd news[] = {{.fd = c->pidfd, .events = POLLIN},
					{.fd = more ? c->out : -1, .events = POLLIN},
					{.fd = c->err, .events = POLLIN}};

		poll(news, 3, LOOK_MS);
		child_listen(c);
		more = more && take_output(c, out);
		if (news[0].revents && !more)
			return;
	}
}

int debug_run(const char *const *argv, struct buf *out, char ret_said[DEBUG_SAID_MAX])
{
	cleanup_close int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	cleanup_child struct child c = NO_CHILD;
	int error = child_start(argv, null, &c), status;

	*ret_said = '\0';
	if (error) {
		snprintf(ret_said, DEBUG_SAID_MAX, "cannot be run: %s", strerror(-error));
		return -1;
	}
	follow(&c, out);
	status = child_end(&c);
	snprintf(ret_said, DEBUG_SAID_MAX, "%.*s", DEBUG_SAID_MAX - 1, child_last_line(&c));
	if (!WIFEXITED(status) && !*ret_said)
		snprintf(ret_said, DEBUG_SAID_MAX, "it did not end, and was ended");
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* ---- the folder, and the file that it becomes ---- */

void debug_put(struct debug_report *r, const char *name, struct buf *text)
{
	cleanup_buf struct buf shown = {0};
	cleanup_free char *path = NULL;
	int error;

	if (!text->len)
		return;
	scrub_put(&r->secrets, buf_str(text), text->len, &shown);
	error = r->secrets.failed || buf_error(&shown) || buf_error(text) ||
				text_print(&path, "%s/%s", r->folder, name) < 0
			? -ENOMEM
			: io_replace_file(AT_FDCWD, path, shown.data, shown.len);
	if (!r->error)
		r->error = error;
}

/* A place for the file that is in no mount: there it would become a part of the next epoch. */
static int choose_file(const char *given, char ret_path[PATH_MAX])
{
	const char *folder = getenv("TMPDIR");
	cleanup_free char *here = getcwd(NULL, 0), *mount = NULL, *parent = NULL;
	time_t now = time(NULL);
	struct tm tm;
	size_t len;

	if (given) {
		len = (size_t)snprintf(ret_path, PATH_MAX, "%s", given);
		parent = strrchr(given, '/')
				 ? strndup(given, (size_t)(strrchr(given, '/') - given + 1))
				 : strdup(".");
		mount = parent ? target_mount_of_path(parent) : NULL;
		if (mount)
			return cli_error(EXIT_USAGE,
					 "%s: it lies in the mount %s: name a file elsewhere",
					 given, mount);
	} else {
		mount = here ? target_mount_of_path(here) : NULL;
		gmtime_r(&now, &tm);
		len = (size_t)snprintf(ret_path, PATH_MAX,
				       "%s/" STEM "-%04d%02d%02d-%02d%02d%02d.tar",
				       here && !mount ? here
				       : folder	      ? folder
						      : "/tmp",
				       tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday, tm.tm_hour,
				       tm.tm_min, tm.tm_sec);
	}
	return len < PATH_MAX ? EXIT_DONE
			      : cli_error(EXIT_USAGE, "the path of the file is too long");
}

/* By tar(1), which is on every machine. `above` holds the folder. */
static int pack(const char *above, int fd, const char *path)
{
	const char *const argv[] = {"tar", "-C", above, "--owner=0", "--group=0",
				    "-cf", "-",	 STEM,	NULL};
	cleanup_buf struct buf tar = {0};
	char said[DEBUG_SAID_MAX];
	int error;

	if (debug_run(argv, &tar, said) != 0)
		return cli_error(EXIT_FAILED, "tar failed: %s", *said ? said : "is it installed?");
	error = buf_error(&tar) ? -ENOMEM : io_write_full(fd, tar.data, tar.len);
	return error ? cli_error(EXIT_FAILED, "%s: cannot be written: %s", path, strerror(-error))
		     : EXIT_DONE;
}

static int write_report(struct debug_report *r, int fd, const char *path)
{
	const char *temporary = getenv("TMPDIR");
	char above[PATH_MAX];
	int code;

	snprintf(above, sizeof(above), "%s/epochfs-debug-XXXXXX", temporary ? temporary : "/tmp");
	if (!mkdtemp(above))
		return cli_error(EXIT_FAILED, "%s: cannot make a folder: %s", above,
				 strerror(errno));
	if (snprintf(r->folder, sizeof(r->folder), "%s/" STEM, above) >= (int)sizeof(r->folder) ||
	    mkdir(r->folder, 0700) < 0)
		r->error = -ENAMETOOLONG;
	if (!r->error)
		debug_collect(r);
	code = r->error ? cli_error(EXIT_FAILED, "%s: cannot be written: %s", r->folder,
				    strerror(-r->error))
			: pack(above, fd, path);
	io_remove_tree(AT_FDCWD, above);
	return code;
}

/* ---- the command ---- */

static int debug(struct debug_report *r, const char *output)
{
	char path[PATH_MAX];
	int code = choose_file(output, path);
	cleanup_close int fd = -1;
	enum doctor_answer answer;

	if (code != EXIT_DONE)
		return code;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return cli_error(EXIT_FAILED, "%s: %s", path, strerror(errno));
	answer = doctor_ask(r->target);
	r->hangs = answer == DOCTOR_HANGS;
	if (answer == DOCTOR_ANSWERS)
		r->mount = strdup(r->target);
	else if (answer == DOCTOR_NO_MOUNT)
		r->mount = target_mount_of_path(r->target);
	code = write_report(r, fd, path);
	if (code == EXIT_DONE)
		puts(path);
	else
		unlink(path);
	return code;
}

int command_debug(int argc, char **argv)
{
	const char *output = NULL, *name = NULL;
	const struct cli_place places[] = {{"output", NULL, &output}, {0}};
	cleanup_free char *here = NULL;
	struct debug_report report = {0};
	int code, count = cli_parse("debug", argc, argv, places, &name, 1, &code);

	if (count < 0)
		return code;
	if (!name) {
		code = target_here("debug", "a TARGET", &here);
		if (code != EXIT_DONE)
			return code;
		name = here;
	}
	report.target = name;
	code = debug(&report, output);
	scrub_free(&report.secrets);
	buf_free(&report.done);
	free(report.mount);
	return code;
}
