/* SPDX-License-Identifier: Apache-2.0 */
/* Options of a mount: -o name=value over EPOCHFS_NAME=value over the defaults. */
#ifndef EPOCHFS_TOOLS_MOUNT_OPTIONS_H
#define EPOCHFS_TOOLS_MOUNT_OPTIONS_H

#include <stdbool.h>
#include "fs/mount.h"
#include "lib/meta/options.h"

struct mount_options {
	struct volume_options volume;
	struct fs_options fs;
	const char *log_file; /* NULL: in the cache directory */
	bool nodes_auto;      /* nodes=auto: as the environment says (node_names.h) */
	bool supervise;	      /* another process starts this one again when it dies (supervise.h) */
	bool nonempty;	      /* mount over a directory that holds something */
	char *text;	      /* what the values point into; mount_options_free */
};

void mount_options_init(struct mount_options *o);
void mount_options_free(struct mount_options *o);
/* From the environment: EXIT_DONE, or the exit code after a message. */
int mount_options_environment(struct mount_options *o);
/* What every contact with a remote obeys, also a command's on its URL: the same, of these options
 * only. Its texts are the environment's. */
int mount_options_limits(struct remote_limits *ret_limits);
/* One "-o a=b,c,d" (a comma inside a value is written "\,"). Likewise. */
int mount_options_parse(struct mount_options *o, const char *list);
/* Nodes, run and name of the node, where the options want several nodes and leave that to the environment
 * (node_names.h). After the others. Likewise. */
int mount_options_nodes(struct mount_options *o);
/* Sets the option nodes: NULL, or what a right value looks like. */
const char *mount_options_set_nodes(struct mount_options *o, const char *value);
/* A copy that lives as long as the options; NULL: no memory. */
char *mount_options_keep(struct mount_options *o, const char *text);
/* What must fit together. Likewise. */
int mount_options_check(const struct mount_options *o);

#endif
