/* SPDX-License-Identifier: Apache-2.0 */
/* The first contact with a remote, and the one line that says why a volume could not be opened. */
#ifndef EPOCHFS_META_OPENING_H
#define EPOCHFS_META_OPENING_H

#include "lib/format/volume_info.h"
#include "lib/meta/options.h"
#include "lib/remote/encrypt.h"
#include "lib/remote/remote.h"

/*
 * All that takes one gives 0 or -errno, and where it fails, a line for the user that says what, where and what to
 * do: opening_fail makes it. A message that is there already is kept.
 */
struct opening_message {
	char *text; /* owned; NULL: none yet, or no memory */
};
/* Gives `error`. */
int opening_fail(struct opening_message *m, int error, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* What a mount and the catalog (catalog.h) say alike of a remote. */

/* What volume_open promises, for an error of the remote. */
int contact_errno(int error);
/* Of remote_open. */
int contact_open_errno(int error);
/* The same, with the remote's own line. */
int contact_fail(struct remote *r, int error, struct opening_message *m);
/* Puts the layer that encrypts over *r, where the volume is encrypted (`encryption` not NULL): 0 or -ENOMEM. */
int contact_encrypt(struct remote **r, struct encryption *encryption);
/* Reads and checks epochfs.json; -ENOENT, without a line, where there is none. */
int contact_read(struct remote *r, struct volume_info *ret_info, struct opening_message *m);
/* Where epochfs.json is missing: -EBADMSG if anything else is there. */
int contact_check_empty(struct remote *r, const char *advice, struct opening_message *m);

#endif
