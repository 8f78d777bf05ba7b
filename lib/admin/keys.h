/* SPDX-License-Identifier: Apache-2.0 */
/* The passphrases and key files that open an encrypted volume: listed, added, removed. */
#ifndef EPOCHFS_ADMIN_KEYS_H
#define EPOCHFS_ADMIN_KEYS_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/format/names.h"
#include "lib/remote/remote.h"

/*
 * Each wraps the same master key (volume_key.h). Removing one keeps who has it from opening the volume by it; it does not
 * change the master key, which he may have kept, and rewrites nothing.
 *
 * `limits` as for catalog_open (catalog.h), with the passphrase or key file that opens the volume. The errors
 * and the message are catalog_open's, too; -EINVAL also where the volume is not encrypted.
 */
struct key_info {
	char id[KEY_ID_MAX];
	const char *
		kind; /* "passphrase" or "key-file"; NULL: it is damaged or of a newer version of epochfs */
	int64_t created_ns; /* wall clock; 0 with a damaged one */
};

/* Oldest first. No key needs to be given. Non-zero stops and is returned. */
int keys_each(const char *url, const struct remote_limits *limits,
	      int (*fn)(void *arg, const struct key_info *key), void *arg, char **ret_message);
/* Adds the passphrase or key file that `added` names. -EBUSY: there are as many as may be. */
int keys_add(const char *url, const struct remote_limits *limits, const struct remote_limits *added,
	     char ret_id[KEY_ID_MAX], char **ret_message);
/* -ENOENT: there is no such key; -EBUSY: it is the one that is given to open the volume, so perhaps the last that
 * anyone has. A damaged one may be removed, too. */
int keys_remove(const char *url, const struct remote_limits *limits, const char *id,
		char **ret_message);

#endif
