/* SPDX-License-Identifier: Apache-2.0 */
/* The two files that Amazon's tools share: credentials and configuration, by profile. Private to
 * lib/net. */
#ifndef EPOCHFS_NET_AWS_FILES_H
#define EPOCHFS_NET_AWS_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include "lib/util/cleanup.h"

/*
 * Grammar ("Configuration and credential file settings" in the AWS SDKs and Tools Reference Guide):
 * lines of `name = value` below a `[section]`; `#` or `;` as the first character makes a comment. In
 * the credentials file a section is a profile; in the configuration it is `[default]`, `[profile
 * NAME]` or `[services NAME]`, others are left out. An indented line below one without a value
 * belongs to it: `s3 =`, then `  addressing_style = path`, is the name "s3.addressing_style".
 */
struct aws_setting {
	char *section; /* of a profile its name, of services "services NAME" */
	char *name;
	char *value;
};

/* What both files held at one moment, that of credentials first. Zero-initialise; not changed once
 * read; freed and wiped with aws_files_free. */
struct aws_files {
	struct aws_setting *settings;
	size_t count;
};

/* Reads the files that AWS_SHARED_CREDENTIALS_FILE and AWS_CONFIG_FILE name, by default credentials
 * and config in ~/.aws; one that is missing holds nothing. 0, -ENOMEM, or why one cannot be read:
 * then *ret_path (to be freed) names it. */
int aws_files_read(struct aws_files *ret_files, char **ret_path);
void aws_files_free(struct aws_files *files);
#define cleanup_aws_files CLEANUP(aws_files_free)

/* Adds what the text of a file says. 0 or -ENOMEM; a line that is none of the above is left out. */
int aws_files_parse(struct aws_files *files, const char *text, size_t len, bool is_config);

/* The value (borrowed), or NULL where there is none or it is empty. */
const char *aws_files_get(const struct aws_files *files, const char *section, const char *name);

/* The variable's value, NULL also where it is empty. */
const char *env_value(const char *name);

#endif
