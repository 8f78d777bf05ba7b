/* SPDX-License-Identifier: Apache-2.0 */
/* A TARGET of the command: a mount point, or a remote. */
#ifndef EPOCHFS_TOOLS_TARGET_H
#define EPOCHFS_TOOLS_TARGET_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include "lib/admin/catalog.h"

struct target {
	const char *name;	 /* as given */
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
/* A mount point is asked for: EXIT_DONE, or the exit code after the line. */
int target_need_mount(const char *name, const char *command);

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
