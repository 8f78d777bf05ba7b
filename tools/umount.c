/* SPDX-License-Identifier: Apache-2.0 */
/* epochfs umount: seals, drains with a progress bar, unmounts, and waits until the process that served is gone. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lib/util/clock.h"
#include "lib/util/mountinfo.h"
#include "lib/util/parse.h"
#include "tools/cli.h"
#include "tools/client.h"
#include "tools/progress.h"
#include "tools/ending.h"
#include "tools/mountpoint.h"
#include "tools/target.h"

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
	error = mountpoint_unmount(path, false);
	mountpoint_users(path, who);
	if (error == -EBUSY)
		return in_use(path, who);
	if (error)
		return cli_error(EXIT_FAILED, "%s: cannot unmount: %s", path, strerror(-error));
	return ending_wait(&serving);
}
