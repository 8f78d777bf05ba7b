/* SPDX-License-Identifier: Apache-2.0 */
/* The layer that encrypts what goes to the remote of an encrypted volume, and opens what comes back. */
#ifndef EPOCHFS_REMOTE_ENCRYPT_H
#define EPOCHFS_REMOTE_ENCRYPT_H

#include "lib/remote/encrypted.h"
#include "lib/remote/remote.h"

/*
 * Every object is encrypted (encrypted.h) but those that are read before there is a key: epochfs.json, what
 * lies below keys/, and probes (epochfs.probe-*). Sizes are those of the plain bytes, in listings too;
 * of what can be no encrypted object it is 0. Ranges are read with the segments around them. Keys in the remote stay
 * as they are.
 *
 * What was not encrypted here under that key in the remote, or was cut, comes as zeros, with a line in the log (of a pack, at debug level), once three
 * readings have brought it: no decoder takes zeros, so each treats it as it treats damage. Below packs/, where
 * each chunk is checked against its address by who reads it, only the segments that do not open are zeros:
 * a damaged one costs the chunks that lie in it, and no others. Anywhere else the whole object is.
 *
 * It may lie above or below a retry layer: equal bytes are encrypted alike, so a create whose answer was lost is
 * recognised by either.
 *
 * Takes over the caller's reference to `inner` on success, and leaves it alone on failure; a reference to `encryption`
 * is added. 0 or -ENOMEM.
 */
int remote_encrypt_new(struct remote *inner, struct encryption *encryption,
		       struct remote **ret_remote);

#endif
