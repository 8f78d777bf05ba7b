/* SPDX-License-Identifier: Apache-2.0 */
/* The configuration files: defaults of options, for all remotes or for those below a URL. */
#ifndef EPOCHFS_TOOLS_CONFIG_H
#define EPOCHFS_TOOLS_CONFIG_H

#include <limits.h>
#include <stddef.h>

/*
 * /etc/epochfs.conf, and then $XDG_CONFIG_HOME/epochfs/config, or $HOME/.config/epochfs/config. One that is not there is empty. As git's:
 *
 *   # for all remotes
 *   cache-dir = /local/epochfs
 *   [remote "s3://bucket/runs"]
 *           keep = "last:10,daily:7"    # in quotes, a '#' is none
 *
 * A section is for the remote of that URL and for those below it, whoever the user in a URL is. What counts is the user's file before that of
 * the machine, in a file the section with the longest URL, and of the same name in one place the last. Programs may be named in them: a file
 * that another user than root or this one can write is refused.
 */
struct config_entry {
	const char *file;
	unsigned line;
	const char *section; /* NULL: for all remotes */
	const char *name, *value;
};

/* Each is given what counts less before what counts more, for this remote (NULL: none). Its text lives as long as the program. The first that is not 0 ends it, and is returned; EXIT_USAGE after a line where a
 * file is wrong anywhere. */
typedef int config_fn(void *arg, const struct config_entry *e);
int config_each(const char *remote, config_fn *fn, void *arg);

/* Where they lie: 0 that of the machine, 1 that of the user; "": nowhere. */
#define CONFIG_FILES 2
void config_path(size_t which, char ret_path[PATH_MAX]);

#endif
