/* SPDX-License-Identifier: Apache-2.0 */
/* Which mount a command means: the one that a path lies in, or the one that it is called in. */
#include "tools/target.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "lib/util/cleanup.h"
#include "lib/util/mountinfo.h"
#include "tools/cli.h"
#include "tools/client.h"

int target_dead_mount(const char *name)
{
	return cli_error(
		EXIT_FAILED,
		"%s: the process that served this mount is gone; mount it again: what was closed is kept",
		name);
}

#define HOLDERS_MAX 8

void target_add_elsewhere(const char *name, struct buf *text)
{
	pid_t pids[HOLDERS_MAX];
	char path[PATH_MAX];
	size_t count =
		realpath(name, path) ? mountinfo_epochfs_elsewhere(path, pids, HOLDERS_MAX) : 0;

	if (!count)
		return;
	buf_printf(text,
		   "; a volume is mounted at that path in the mount namespaces of processes ");
	for (size_t i = 0; i < count && i < HOLDERS_MAX; i++)
		buf_printf(text, "%s%d", i ? ", " : "", (int)pids[i]);
	buf_printf(
		text,
		": if it is this one, it is served until it is unmounted there, too (`nsenter -m -t PID umount %s`)",
		path);
}

/* The mount that a path without symlinks lies in: cut down to it. False: in none. */
static bool find_mount_above(char *path)
{
	struct statfs fs;

	if (statfs(path, &fs) < 0 || fs.f_type != FUSE_SUPER_MAGIC)
		return false;
	while (client_is_mount(path) != 1) {
		char *slash = strrchr(path, '/');

		if (!slash || slash == path)
			return false;
		*slash = '\0';
	}
	return true;
}

int target_here(const char *command, const char *what, char **ret_mount)
{
	cleanup_free char *path = getcwd(NULL, 0);

	if (!path)
		return cli_error(EXIT_FAILED, "the working directory: %s", strerror(errno));
	if (!find_mount_above(path))
		return cli_usage_error(command, "needs %s, or to be called in a mount", what);
	*ret_mount = steal_ptr(path);
	return EXIT_DONE;
}

char *target_mount_of_path(const char *name)
{
	cleanup_free char *path = strchr(name, ':') ? NULL : realpath(name, NULL);

	return path && find_mount_above(path) ? steal_ptr(path) : NULL;
}

/* What names an epoch, and could name a directory here: 7, 3-9. */
static bool is_number(const char *word)
{
	return *word && !word[strspn(word, "0123456789-")];
}

/* Called in a mount, a command's TARGET may be left out: a word that nothing here is called, or a number, is an epoch, a tag or a key. */
static bool is_target(const char *word)
{
	return !is_number(word) && (!target_is_relative(word) || access(word, F_OK) == 0);
}

int target_complete(const char *command, const struct target_missing *m, const char **operands,
		    int *count, char **ret_mount)
{
	cleanup_free char *here = getcwd(NULL, 0);
	bool in_mount = here && find_mount_above(here);

	*ret_mount = NULL;
	if (*count <= m->others && !in_mount)
		return cli_usage_error(command, "needs %s, or to be called in a mount", m->what);
	if (*count <= m->others || (in_mount && *count < m->max && !is_target(operands[0]))) {
		memmove(operands + 1, operands, (size_t)*count * sizeof(*operands));
		++*count;
		operands[0] = *ret_mount = steal_ptr(here);
		return *count > m->others ? EXIT_DONE
					  : cli_usage_error(command, "needs %s", m->what);
	}
	if (client_is_mount(operands[0]) != 0)
		return EXIT_DONE;
	*ret_mount = target_mount_of_path(operands[0]);
	if (*ret_mount)
		operands[0] = *ret_mount;
	return EXIT_DONE;
}

int target_need_mount(const char *name, const char *command)
{
	int mounted = client_is_mount(name);

	if (mounted == -ENOTCONN)
		return target_dead_mount(name);
	if (mounted != 1) {
		cleanup_buf struct buf more = {0};

		target_add_elsewhere(name, &more);
		return cli_error(EXIT_NOT_FOUND,
				 "%s: no volume is mounted there, and `epochfs %s` needs a mount%s",
				 name, command, buf_str(&more));
	}
	return EXIT_DONE;
}
