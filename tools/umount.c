/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs umount: seals, drains with a progress bar, unmounts, and waits until the process that served is gone. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/drain.h"
#include "tools/mountpoint.h"

#define EXIT_LIMIT_NS (60 * NS_PER_S)

/* Also where nobody has asked for its exit code yet. */
static bool has_ended(pid_t pid)
{
	cleanup_buf struct buf text = {0};
	const char *state;
	char path[64];

	if (kill(pid, 0) < 0)
		return true;
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	if (io_read_file(AT_FDCWD, path, 4096, &text) != 0)
		return false;
	state = strrchr(buf_str(&text), ')'); /* the name before it may hold anything */
	return state && !strncmp(state, ") Z", 3);
}

/* The serving process, or 0: of a container, say, which counts its processes by itself, so that here the number
 * is that of another one. */
static pid_t server_of(const json_t *status, const char *which)
{
	json_int_t theirs = json_integer_value(json_object_get(status, "pid_namespace"));
	struct stat ours;

	if (stat("/proc/self/ns/pid", &ours) == 0 && theirs && (ino_t)theirs != ours.st_ino)
		return 0;
	return (pid_t)json_integer_value(json_object_get(status, which));
}

/* The serving process writes its last state after the kernel has let go: wait for its end, so that the next mount finds the cache free. */
static int wait_for_end(pid_t pid)
{
	int64_t deadline = clock_mono_ns() + EXIT_LIMIT_NS;

	while (pid > 0 && !has_ended(pid)) {
		if (clock_mono_ns() > deadline)
			return cli_error(
				EXIT_FAILED,
				"unmounted, but process %d that served it has not ended yet",
				(int)pid);
		usleep(5000);
	}
	return EXIT_DONE;
}

static int umount_dead(const char *path)
{
	int error = mountpoint_unmount(path, true);

	if (error)
		return cli_error(EXIT_FAILED, "%s: cannot take the dead mount away: %s", path,
				 strerror(-error));
	fprintf(stderr,
		"%s: the mount was dead; taken away. Closed files are kept: mount it again\n",
		path);
	return EXIT_DONE;
}

/* Seals, and drains unless told not to. */
static int finish(const char *path, bool drain, int64_t timeout_ns)
{
	json_t *response = NULL;
	int code =
		client_call(path, json_pack("{s:s, s:b}", "op", "finish", "drain", 0), &response);

	json_decref(response);
	if (code == EXIT_DONE && drain)
		code = drain_with_progress(path, timeout_ns);
	if (code == EXIT_DONE && drain)
		drain_changes(path);
	return code;
}

int command_umount(int argc, char **argv)
{
	bool no_drain = false;
	const char *timeout = NULL, *path;
	const struct cli_option options[] = {
		{"no-drain", 0, &no_drain, NULL}, {"timeout", 0, NULL, &timeout}, {0}};
	int64_t timeout_ns = -1;
	json_t *status = NULL;
	pid_t pid, supervisor;
	int code, mounted, error;

	code = cli_parse("umount", argc, argv, options, &path, 1, &error);
	if (code < 0)
		return error;
	if (code != 1)
		return cli_usage_error("umount", "needs a DIRECTORY");
	if (timeout && parse_duration(timeout, &timeout_ns))
		return cli_usage_error("umount", "--timeout %s: expected a time, such as 30s",
				       timeout);
	mounted = client_is_mount(path);
	if (mounted == -ENOTCONN)
		return umount_dead(path);
	if (mounted != 1)
		return cli_error(EXIT_NOT_FOUND, "%s: no volume is mounted there", path);
	code = finish(path, !no_drain, timeout_ns);
	if (code == EXIT_DONE)
		code = client_call(path, json_pack("{s:s}", "op", "status"), &status);
	if (code != EXIT_DONE)
		return code;
	pid = server_of(status, "pid");
	supervisor = server_of(status, "supervisor");
	json_decref(status);
	error = mountpoint_unmount(path, false);
	if (error == -EBUSY)
		return cli_error(
			EXIT_CONFLICT,
			"%s: in use; close what is open there (`fuser -vm %s` lists it) and try again",
			path, path);
	if (error)
		return cli_error(EXIT_FAILED, "%s: cannot unmount: %s", path, strerror(-error));
	code = wait_for_end(pid);
	return code == EXIT_DONE ? wait_for_end(supervisor) : code;
}
