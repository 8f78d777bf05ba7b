/* SPDX-License-Identifier: Apache-2.0 */
/* The word that somebody meant who spelt another. */
#ifndef EPOCHFS_TOOLS_SUGGEST_H
#define EPOCHFS_TOOLS_SUGGEST_H

#include "tools/cli.h"

/* Each of them: " (did you mean `epochfs umount`?)", or "" where nothing comes near. The text is static. */
const char *suggest_command(const char *word);
/* `arg` as it stands in argv: "--jsn", "--kep=last:3". */
const char *suggest_option(const struct command *c, const char *arg);
/* Of -o. */
const char *suggest_mount_option(const char *word);

#endif
