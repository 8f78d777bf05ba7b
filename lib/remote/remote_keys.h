/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that are collected, in a listing say, to be deleted together. */
#ifndef EPOCHFS_REMOTE_REMOTE_KEYS_H
#define EPOCHFS_REMOTE_REMOTE_KEYS_H

#include "lib/remote/remote.h"
#include "lib/util/buf.h"
#include "lib/util/cleanup.h"

/* Zero-initialise; free with remote_keys_free. Not thread-safe. */
struct remote_keys {
	struct buf text; /* each with its NUL */
	size_t count;
};

/* Copies the key: 0 or -ENOMEM, which remote_keys_delete tells too. */
int remote_keys_add(struct remote_keys *keys, const char *key);
void remote_keys_free(struct remote_keys *keys);
#define cleanup_remote_keys CLEANUP(remote_keys_free)

/* remote_delete_many of all of them, which stay in the list. */
int remote_keys_delete(struct remote *r, const struct remote_keys *keys);

#endif
