/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs umount: seals, drains with a progress bar, unmounts, and waits until the process that served is gone. */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
#include "lib/volume/volume.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/mountpoint.h"
#include "tools/progress.h"
#include "tools/table.h"
#include "tools/target.h"

/* ---- the processes that serve a mount, and their end ---- */

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

	if (kill(pid, 0) < 0 && errno == ESRCH)
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

/* As mountinfo writes it; "" where it is not to be had. */
static void device_of(const char *path, char ret_device[MOUNTINFO_DEVICE_MAX])
{
	struct stat st;

	ret_device[0] = '\0';
	if (stat(path, &st) == 0)
		snprintf(ret_device, MOUNTINFO_DEVICE_MAX, "%u:%u", major(st.st_dev),
			 minor(st.st_dev));
}

int ending_find(const char *mount, struct ending *ret_ending)
{
	json_t *status = NULL;
	const char *cache;
	int code;

	ret_ending->mount = mount;
	device_of(mount, ret_ending->device);
	code = client_call(mount, json_pack("{s:s}", "op", "status"), &status);

	if (code != EXIT_DONE)
		return code;
	ret_ending->server = server_of(status, "pid");
	ret_ending->supervisor = server_of(status, "supervisor");
	cache = json_string_value(json_object_get(json_object_get(status, "cache"), "directory"));
	snprintf(ret_ending->cache, sizeof(ret_ending->cache), "%s", cache ? cache : "");
	json_decref(status);
	return EXIT_DONE;
}

bool ending_is_over(const struct ending *e)
{
	return (!e->server || has_ended(e->server)) && (!e->supervisor || has_ended(e->supervisor));
}

/* The mount is gone here, but not from other mount namespaces, or from another place of this one: says where. */
static int held_elsewhere(const struct ending *e)
{
	const char *path = e->mount, *device = e->device;
	cleanup_buf struct buf who = {0};
	pid_t pids[COPIES_MAX];
	size_t count;

	/* Its device is no more, and the number may be another mount's already. */
	if (volume_is_ending(e->cache, e->server))
		return EXIT_DONE;
	count = mountinfo_elsewhere(device, pids, COPIES_MAX);
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
		path, buf_str(&who), (int)e->server, path);
}

int ending_wait(const struct ending *e)
{
	int64_t start = clock_mono_ns(), next_look = start + COPIES_NS;

	while (!ending_is_over(e)) {
		int64_t now = clock_mono_ns();
		int code = now > next_look ? held_elsewhere(e) : EXIT_DONE;

		if (code != EXIT_DONE)
			return code;
		if (now > next_look)
			next_look += COPIES_NS;
		if (now > start + EXIT_LIMIT_NS)
			return cli_error(
				EXIT_FAILED,
				"unmounted, but process %d that served it has not ended yet",
				(int)e->server);
		usleep(5000);
	}
	return EXIT_DONE;
}

#define CLOSE_LIMIT_NS NS_PER_S
#define POLL_US	       5000

static int umount_dead(const char *path)
{
	char who[MOUNT_USERS_TEXT];
	int error = mountpoint_unmount(path, false);

	if (error == -EBUSY) {
		mountpoint_users(path, who);
		return cli_error(
			EXIT_CONFLICT,
			"%s: the mount is dead, and in use%s%s: end that first, or mount the volume "
			"again: `epochfs mount` takes the dead one away",
			path, *who ? " by " : "", who);
	}
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

/* What writers that were killed in this mount have left stays, though they are gone. */
static void tell_torn(const char *path)
{
	cleanup_buf struct buf text = {0};
	const json_t *torn;
	json_t *status = NULL;

	if (client_call(path, json_pack("{s:s}", "op", "status"), &status) != EXIT_DONE)
		return;
	torn = json_object_get(status, "torn");
	if (torn_text(torn, json_integer_value(json_object_get(torn, "mounted")), &text))
		fprintf(stderr,
			"epochfs umount: %s: %s; what is kept there stays for the next mount\n",
			path, buf_str(&text));
	json_decref(status);
}

static int in_use(const char *path, const char *who)
{
	return cli_error(EXIT_CONFLICT, "%s: in use%s%s; close what is open there and try again",
			 path, *who ? " by " : " by processes of other users", who);
}

/* The first file of which the mount knows that it is open for writing, and by whom; NULL: none. The caller's reference. */
static int find_writer(const char *path, json_t **ret_writer)
{
	json_t *status;
	int code = client_call(path, json_pack("{s:s}", "op", "status"), &status);

	if (code != EXIT_DONE)
		return code;
	*ret_writer = json_incref(
		json_array_get(json_object_get(json_object_get(status, "pending"), "open"), 0));
	json_decref(status);
	return EXIT_DONE;
}

/* Some processes cannot be looked into, but the mount knows what they write. It hears a moment after a close of its end. */
static int check_writers(const char *path)
{
	int64_t deadline = clock_mono_ns() + CLOSE_LIMIT_NS;
	json_t *writer;
	int code;

	while ((code = find_writer(path, &writer)) == EXIT_DONE && writer) {
		if (clock_mono_ns() >= deadline)
			code = cli_error(
				EXIT_CONFLICT,
				"%s: in use, open for writing: %s; close what is open there "
				"and try again",
				path, json_string_value(writer));
		json_decref(writer);
		if (code != EXIT_DONE)
			return code;
		usleep(POLL_US);
	}
	return code;
}

/* What is mounted in the mount keeps it, too, and no process need use that. */
static int check_mounts_below(const char *path)
{
	char real[PATH_MAX], below[MOUNTINFO_PATH_MAX];

	if (!realpath(path, real) || !mountinfo_below(real, below))
		return EXIT_DONE;
	return cli_error(EXIT_CONFLICT, "%s: something is mounted in it, at %s: unmount that first",
			 path, below);
}

int command_umount(int argc, char **argv)
{
	bool no_drain = false;
	const char *timeout = NULL, *path;
	const struct cli_place places[] = {
		{"no-drain", &no_drain, NULL}, {"timeout", NULL, &timeout}, {0}};
	int64_t timeout_ns = -1;
	char who[MOUNT_USERS_TEXT];
	struct ending serving;
	int code, error;

	code = cli_parse("umount", argc, argv, places, &path, 1, &error);
	if (code < 0)
		return error;
	if (code != 1)
		return cli_usage_error("umount", "needs a DIRECTORY");
	if (timeout && parse_duration(timeout, &timeout_ns))
		return cli_usage_error("umount", "--timeout %s: expected a time, such as 30s",
				       timeout);
	if (client_is_mount(path) == -ENOTCONN)
		return umount_dead(path);
	code = target_need_mount(path, "umount");
	if (code != EXIT_DONE)
		return code;
	/* Not sealed first: each try would make an epoch of whatever there is just now. */
	mountpoint_users(path, who);
	if (*who)
		return in_use(path, who);
	code = check_mounts_below(path);
	if (code == EXIT_DONE)
		code = check_writers(path);
	if (code == EXIT_DONE)
		code = finish(path, !no_drain, timeout_ns);
	if (code == EXIT_DONE)
		code = ending_find(path, &serving);
	if (code != EXIT_DONE)
		return code;
	tell_torn(path);
	error = mountpoint_unmount(path, false);
	mountpoint_users(path, who);
	if (error == -EBUSY)
		return in_use(path, who);
	if (error)
		return cli_error(EXIT_FAILED, "%s: cannot unmount: %s", path, strerror(-error));
	return ending_wait(&serving);
}
