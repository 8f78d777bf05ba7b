/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs doctor: what is wrong, and what to do. */
#include "tools/doctor.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lib/format/wire.h"
#include "lib/meta/listing.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/text.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/target.h"

/* ---- findings ---- */

__attribute__((format(printf, 5, 0))) static void add(struct doctor *d, const char *check, bool ok,
						      const char *what_to_do, const char *fmt,
						      va_list ap)
{
	cleanup_free char *what = NULL;
	json_t *finding;

	text_vprint(&what, fmt, ap);
	finding = json_pack("{s:s, s:b, s:o, s:o}", "check", check, "ok", (int)ok, "what",
			    listing_string(what ? what : ""), "do",
			    what_to_do ? listing_string(what_to_do) : json_null());
	if (!what || json_array_append_new(d->findings, finding))
		d->failed = true;
}

void doctor_ok(struct doctor *d, const char *check, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(d, check, true, NULL, fmt, ap);
	va_end(ap);
}

void doctor_note(struct doctor *d, const char *check, const char *what_to_do, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(d, check, true, what_to_do, fmt, ap);
	va_end(ap);
}

void doctor_wrong(struct doctor *d, const char *check, const char *what_to_do, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	add(d, check, false, what_to_do, fmt, ap);
	va_end(ap);
}

static bool is_ok(const json_t *finding)
{
	return json_is_true(json_object_get(finding, "ok"));
}

static void print_line(const json_t *finding)
{
	const char *what_to_do = json_string_value(json_object_get(finding, "do"));

	printf("%-5s  ", !is_ok(finding) ? "wrong" : what_to_do ? "note" : "ok");
	cli_put(json_string_value(json_object_get(finding, "what")));
	if (what_to_do) {
		fputs("; ", stdout);
		cli_put(what_to_do);
	}
	putchar('\n');
}

/* EXIT_FAILED where something is wrong. */
static int print(const struct doctor *d, bool json, bool quiet)
{
	cleanup_json json_t *shown = json_array();
	json_t *finding;
	int code = EXIT_DONE;
	size_t i;

	if (d->failed || !shown)
		return cli_error(EXIT_FAILED, "out of memory");
	json_array_foreach(d->findings, i, finding)
	{
		if (!is_ok(finding))
			code = EXIT_FAILED;
		if (!quiet || !is_ok(finding))
			json_array_append(shown, finding);
	}
	if (json)
		cli_print_json(shown, JSON_INDENT(2));
	else
		json_array_foreach(shown, i, finding) print_line(finding);
	return code;
}

/* ---- whether a mount answers ---- */

#define PATIENCE_NS (5 * NS_PER_S)

/* The exit status of a child; -1: not in time. It is not waited for further: the kernel may not let go of it. */
static int wait_for(pid_t pid)
{
	const struct timespec pause = {.tv_nsec = 5 * NS_PER_MS};
	int64_t until_ns = clock_mono_ns() + PATIENCE_NS;
	int status;

	while (clock_mono_ns() < until_ns) {
		if (waitpid(pid, &status, WNOHANG) == pid)
			return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
		nanosleep(&pause, NULL);
	}
	kill(pid, SIGKILL);
	return -1;
}

enum doctor_answer doctor_ask(const char *path)
{
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		int mounted = client_is_mount(path);

		_exit(mounted == -ENOTCONN ? DOCTOR_DEAD
		      : mounted == 1	   ? DOCTOR_ANSWERS
					   : DOCTOR_NO_MOUNT);
	}
	status = pid < 0 ? DOCTOR_NO_MOUNT : wait_for(pid);
	return status < 0 ? DOCTOR_HANGS : (enum doctor_answer)status;
}

void doctor_no_answer(struct doctor *d, const char *mount, enum doctor_answer answer)
{
	cleanup_free char *what_to_do = NULL;

	if (answer == DOCTOR_DEAD)
		text_print(
			&what_to_do,
			"mount it again (what was closed is kept), or take it away with `fusermount3 -u %s`",
			mount);
	else
		text_print(&what_to_do,
			   "is its process stopped, or its disk? `fusermount3 -uz %s` detaches it",
			   mount);
	doctor_wrong(d, "mounts", what_to_do ? what_to_do : "",
		     answer == DOCTOR_DEAD ? "%s: the process that served this mount is gone"
					   : "%s: the mount does not answer",
		     mount);
}

/* ---- the command ---- */

static int look_at(struct doctor *d, const char *name)
{
	enum doctor_answer answer = doctor_ask(name);
	cleanup_free char *mount = NULL;
	char path[PATH_MAX];
	int code;

	if (answer == DOCTOR_DEAD || answer == DOCTOR_HANGS) {
		doctor_no_answer(d, name, answer);
		return EXIT_DONE;
	}
	if (answer == DOCTOR_ANSWERS)
		return doctor_mount(d, name);
	mount = target_mount_of_path(name);
	if (mount)
		return doctor_mount(d, mount);
	code = target_remote(name, path, &name);
	return code == EXIT_DONE ? doctor_remote(d, name, NULL) : code;
}

int command_doctor(int argc, char **argv)
{
	bool json = false, quiet = false;
	const struct cli_place places[] = {{"json", &json, NULL}, {"quiet", &quiet, NULL}, {0}};
	struct doctor doctor = {0};
	const char *name = NULL;
	int code, count = cli_parse("doctor", argc, argv, places, &name, 1, &code);

	if (count < 0)
		return code;
	doctor.findings = json_array();
	if (!doctor.findings)
		return cli_error(EXIT_FAILED, "out of memory");
	if (name)
		code = look_at(&doctor, name);
	else
		doctor_machine(&doctor);
	if (!name || code == EXIT_DONE)
		code = print(&doctor, json, quiet);
	json_decref(doctor.findings);
	return code;
}
