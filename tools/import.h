/* SPDX-License-Identifier: Apache-2.0 */
/* What `import` and `watch` share: the checks of their operands, and what they print of an epoch. */
#ifndef EPOCHFS_TOOLS_IMPORT_H
#define EPOCHFS_TOOLS_IMPORT_H

#include <limits.h>
#include <stdbool.h>
#include "lib/import/import.h"

/*
 * DIRECTORY is one, REMOTE is no mount point and does not lie in it: EXIT_DONE, or the exit code after the line. Of a path from here
 * *remote becomes `path`, the same from /.
 */
int importing_check(const char *command, const char *directory, const char **remote,
		    char path[PATH_MAX]);
/* REMOTE alone: likewise. */
int importing_check_remote(const char *command, const char **remote, char path[PATH_MAX]);
/* The local state does not lie in the directory: likewise. */
int importing_check_cache(const char *command, const char *directory, const struct import *imp);
/* Nor the catalog (may be NULL), which each epoch changes: likewise. */
int importing_check_catalog(const char *command, const char *directory, const char *catalog);

/* The epoch in one line, or with `json` as one object (on one line where `compact`), on stdout. */
void importing_print(const struct import_result *r, const char *directory, bool json, bool compact);

#endif
