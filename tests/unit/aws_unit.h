/* SPDX-License-Identifier: Apache-2.0 */
/* An environment in which nothing of this machine's user or host says where S3 is or with what keys. */
#ifndef EPOCHFS_TESTS_AWS_UNIT_H
#define EPOCHFS_TESTS_AWS_UNIT_H

#include "lib/util/cleanup.h"
#include "tests/unit/unit.h"

/* Takes every variable that begins so out of the environment. */
static inline void unset_all(const char *prefix)
{
	for (char **e = environ; *e;) {
		cleanup_free char *name = strndup(*e, strcspn(*e, "="));

		if (strncmp(name, prefix, strlen(prefix)) == 0)
			unsetenv(name);
		else
			e++;
	}
}

/* HOME is an empty directory, and there is no metadata service. */
static inline void aws_unit_environment(void)
{
	cleanup_free char *home = unit_dir();

	unset_all("AWS_");
	unset_all("GOOGLE_");
	unset_all("GS_");
	unset_all("GC");
	setenv("HOME", home, 1);
	setenv("AWS_EC2_METADATA_DISABLED", "true", 1);
}

/* Writes a file below HOME/.aws. */
static inline void aws_unit_file(const char *name, const char *text)
{
	cleanup_free char *dir = unit_path(getenv("HOME"), ".aws");
	cleanup_free char *path = unit_path(dir, name);

	unit_ok(io_mkdir_p(dir));
	unit_ok(io_replace_file(AT_FDCWD, path, text, strlen(text)));
}

#endif
