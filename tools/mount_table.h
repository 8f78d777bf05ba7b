/* SPDX-License-Identifier: Apache-2.0 */
/* The table of mount options. Private to mount_options.c. */
#ifndef EPOCHFS_TOOLS_MOUNT_TABLE_H
#define EPOCHFS_TOOLS_MOUNT_TABLE_H

#include <stddef.h>
#include "tools/mount_options.h"

struct option_row {
	const char *name;
	/* Sets the option from its text ("" where none was given): NULL, or what a right value looks
	 * like. The value lives as long as the options. */
	const char *(*set)(struct mount_options *o, const char *value);
	bool environment; /* EPOCHFS_NAME sets it too */
	bool limit;	  /* every contact with a remote obeys it: mount_options_limits */
};

extern const struct option_row mount_option_table[];
extern const size_t mount_option_count;

#endif
