/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs umount: seals, drains with a progress bar, unmounts, and waits until the process that served is gone. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/util/buf.h"
#include "lib/util/cleanup.h"
#include "lib/util/clock.h"
#include "lib/util/io.h"
#include "lib/util/mountinfo.h"
#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/drain.h"
#include "tools/mountpoint.h"

#define EXIT_LIMIT_NS (60 * NS_PER_S)
/* A namespace that is just being set up may drop its copy of the mount by itself. */
#define COPIES_NS  (5 * NS_PER_S)
#define COPIES_MAX 8

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

/* The mount is gone here, but not from other mount namespaces, or from another place of this one: says where. */
static int held_elsewhere(const char *path, const char *device, pid_t pid)
{
	cleanup_buf struct buf who = {0};
	pid_t pids[COPIES_MAX];
	size_t count = mountinfo_elsewhere(device, pids, COPIES_MAX);

	if (mountinfo_has(0, device))
		buf_printf(&who, " in another place here (`grep ' %s ' /proc/self/mountinfo`)",
			   device);
	for (size_t i = 0; i < count && i < COPIES_MAX; i++)
		buf_printf(&who, "%s %d",
			   i	     ? ","
			   : who.len ? ", and in the mount namespaces of processes"
				     : " in the mount namespaces of processes",
			   (int)pids[i]);
	if (!who.len)
		return EXIT_DONE;
	return cli_error(
		EXIT_CONFLICT,
		"%s: unmounted, but still mounted%s: process %d serves it until it is unmounted there, too (`nsenter -m -t PID umount %s`)",
		path, buf_str(&who), (int)pid, path);
}

/* The serving process writes its last state after the kernel has let go: wait for its end, so that the next mount finds the cache free. */
static int wait_for_end(pid_t pid, const char *path, const char *device)
{
	int64_t start = clock_mono_ns(), next_look = start + COPIES_NS;

	while (pid > 0 && !has_ended(pid)) {
		int64_t now = clock_mono_ns();
		int code = now > next_look ? held_elsewhere(path, device, pid) : EXIT_DONE;

		if (code != EXIT_DONE)
			return code;
		if (now > next_look)
			next_look += COPIES_NS;
		if (now > start + EXIT_LIMIT_NS)
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

/* As mountinfo writes it; "" where it is not to be had. */
static void device_of(const char *path, char ret_device[MOUNTINFO_DEVICE_MAX])
{
	struct stat st;

	ret_device[0] = '\0';
	if (stat(path, &st) == 0)
		snprintf(ret_device, MOUNTINFO_DEVICE_MAX, "%u:%u", major(st.st_dev),
			 minor(st.st_dev));
}

int command_umount(int argc, char **argv)
{
	bool no_drain = false;
	const char *timeout = NULL, *path;
	const struct cli_option options[] = {
		{"no-drain", 0, &no_drain, NULL}, {"timeout", 0, NULL, &timeout}, {0}};
	int64_t timeout_ns = -1;
	json_t *status = NULL;
	char device[MOUNTINFO_DEVICE_MAX];
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
	device_of(path, device);
	error = mountpoint_unmount(path, false);
	if (error == -EBUSY)
		return cli_error(
			EXIT_CONFLICT,
			"%s: in use; close what is open there (`fuser -vm %s` lists it) and try again",
			path, path);
	if (error)
		return cli_error(EXIT_FAILED, "%s: cannot unmount: %s", path, strerror(-error));
	code = wait_for_end(pid, path, device);
	return code == EXIT_DONE ? wait_for_end(supervisor, path, device) : code;
}
