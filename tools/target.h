/* SPDX-License-Identifier: Apache-2.0 */
/* A TARGET of the command: a mount point, a path in a mount, or a remote. */
#ifndef EPOCHFS_TOOLS_TARGET_H
#define EPOCHFS_TOOLS_TARGET_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include "lib/admin/catalog.h"
#include "lib/util/buf.h"

struct target {
	const char *name;	 /* as given; of a path in a mount, the mount point */
	char *mount;		 /* of such a path, or NULL */
	struct catalog *catalog; /* of a remote; NULL: a mount */
};

/* EXIT_DONE, or the exit code after the line. A dead mount says so. */
int target_open(const char *name, struct target *ret_target);
void target_close(struct target *t);
/*
 * A REMOTE as it is given, which is no mount: *ret_remote is `name`, or, of a path from here where something is there, `ret_path`, the same from /.
 * EXIT_DONE, or the exit code after the line.
 */
int target_remote(const char *name, char ret_path[PATH_MAX], const char **ret_remote);
/* "none", and all that has a ':' or begins with '/', below any fault+, are words that remotes know; the others are paths from here. */
bool target_is_relative(const char *name);
/* The mount that a path lies in; NULL: in none. The caller's to free. */
char *target_mount_of_path(const char *name);
/* A mount point is asked for: EXIT_DONE, or the exit code after the line. */
int target_need_mount(const char *name, const char *command);
/* The line of a mount whose process is gone. */
int target_dead_mount(const char *name);
/*
 * Nothing is mounted there. A copy of what was may go on in other mount namespaces, and with it the process that serves it: adds a process
 * of each that has an epochfs at that path. It may be another volume, of a container.
 */
void target_add_elsewhere(const char *name, struct buf *text);
/*
 * What a command takes where no TARGET is given: the mount that the working directory lies in. The caller's to free. EXIT_DONE, or the exit code after
 * a line, which says that the command needs `what`, such as "a TARGET".
 */
int target_here(const char *command, const char *what, char **ret_mount);

struct target_missing {
	const char *what; /* the command needs, such as "a TARGET and an EPOCH" */
	int others;	  /* operands that it needs beside the TARGET */
	int max;	  /* that it takes with it */
};
/*
 * Sees to it that the first operand is the TARGET: where it is left out, the mount that the command is called in; of a path in a mount, the mount. `operands` has
 * room for one more than `count`, which counts it then. *ret_mount is the caller's to free; NULL: all is as it was given. EXIT_DONE, or EXIT_USAGE after a line.
 */
int target_complete(const char *command, const struct target_missing *m, const char **operands,
		    int *count, char **ret_mount);
/* Does that, and opens it. */
int target_open_operands(const char *command, const struct target_missing *m, const char **operands,
			 int *count, struct target *ret_target);

/* The epochs as the control request "log" gives them, ascending; the caller's reference. */
int target_epochs(const struct target *t, json_t **ret_epochs);
/* Who writes to a remote, as catalog_lease gives it; of a target that is no mount. */
int target_lease(const struct target *t, json_t **ret_lease);
/* What the epochs hold and take (lib/epochs/usage.h); `read`: also from what is to be read from the remote first. */
int target_usage(const struct target *t, bool read, json_t **ret_usage);
/* What waits for parts of nodes, as catalog_waiting gives it; the caller's reference. */
int target_waiting(const struct target *t, json_t **ret_waiting);
/* The tags as an object name -> number; the caller's reference. */
int target_tags(const struct target *t, json_t **ret_tags);
/* A number from what people type; NULL means "latest". */
int target_resolve(const struct target *t, const char *epoch, uint64_t *ret_number);
/*
 * An epoch of a mount, and the URL of the remote where it is durable: waits until it is. *ret_remote NULL: the mount has no remote. The caller's to free.
 * `epoch` as for target_resolve.
 */
int target_remote_of_mount(const char *mount, const char *epoch, uint64_t *ret_number,
			   char **ret_remote);
/*
 * The URL of a mount's remote; NULL: it has none. The caller's to free. The key that the mount opened it with is put into the
 * environment for mount_options_limits, where there is none: so call that after this.
 */
int target_mount_remote(const char *mount, char **ret_remote);
/*
 * The remote that a TARGET means, for who works on the remote alone: *ret_url is `name`, or what then is *ret_other, the caller's to free: the remote
 * of a mount, or a path from /.
 */
int target_find_remote(const char *name, char **ret_other, const char **ret_url);
/* As the control requests "show" and "diff" answer (lib/admin/control.h); from 0: the epoch before. The caller's reference. */
int target_show(const struct target *t, uint64_t number, json_t **ret_shown);
int target_diff(const struct target *t, uint64_t from, uint64_t to, json_t **ret_diff);

#endif
