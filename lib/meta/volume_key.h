/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and making encrypted volumes: from a passphrase or a key file, by the slots in the remote, to what encrypts. */
#ifndef EPOCHFS_META_VOLUME_KEY_H
#define EPOCHFS_META_VOLUME_KEY_H

#include "lib/format/key_slot.h"
#include "lib/format/names.h"
#include "lib/format/volume_info.h"
#include "lib/meta/opening.h"
#include "lib/remote/encrypt.h"
#include "lib/remote/remote.h"

/*
 * A volume is encrypted from its making, or not at all: where a key is given, a new one is. Its master key is random
 * and lies in no place but wrapped, in slots (format/key_slot.h): one for each passphrase or key file that
 * opens it. All functions read slots past any layer that encrypts.
 *
 * `limits` says which passphrase or key file is given: one of them (the key file, where both are), or none. A
 * passphrase is the first line of its file, without the newline, 1 to 1024 bytes; a key file is all its bytes, 32 to
 * 65536. Who lets others read that file is warned. All give 0 or an error of volume_open with its line in `m`, and
 * -EINVAL where the file cannot be a key.
 */
#define PASSPHRASE_MAX 1024u
#define KEY_FILE_MIN   32u
#define KEY_FILE_MAX   65536u
/* Slots above so many are not looked at, nor made: each passphrase among them costs half a second. */
#define KEY_SLOTS_MAX 32

/* Whether a key is given at all. */
bool volume_key_given(const struct remote_limits *limits);

/*
 * What encrypts the volume that `info` describes; *ret_encryption NULL: it is not encrypted. -EACCES: it is, and no key is given, or
 * one that does not open it; or it is not, and one is given. -EBADMSG: the key opens it, but epochfs.json is not
 * what was written with that key. `how` is for who gave none: how to give one to what he runs.
 */
#define VOLUME_KEY_OF_MOUNTS                                                                       \
	"-o passphrase-file=FILE or -o key-file=FILE (or in EPOCHFS_PASSPHRASE_FILE, EPOCHFS_KEY_FILE)"
#define VOLUME_KEY_OF_COMMANDS                                                                     \
	"--passphrase-file FILE or --key-file FILE (or in EPOCHFS_PASSPHRASE_FILE, EPOCHFS_KEY_FILE)"
int volume_key_open(struct remote *r, const struct volume_info *info,
		    const struct remote_limits *limits, const char *how,
		    struct encryption **ret_encryption, struct opening_message *m);

/*
 * Makes a new volume's `info` one that is encrypted with the key that is given, and puts the slot of that key: before
 * epochfs.json is there. Who finds then that another made the volume deletes `ret_slot` (a key in the remote).
 */
int volume_key_make(struct remote *r, const struct remote_limits *limits, struct volume_info *info,
		    char ret_slot[KEY_MAX], struct opening_message *m);

/* ---- for keys.c ---- */

/* The master key, in memory of secret_alloc (CRYPTO_KEY_SIZE bytes; the caller's), checked against epochfs.json, and the id of the slot that it
 * came from. Of an encrypted volume, with a key that is given. */
int volume_key_unwrap(struct remote *r, const struct volume_info *info,
		      const struct remote_limits *limits, uint8_t **ret_master,
		      char ret_id[KEY_ID_MAX], struct opening_message *m);
/* Puts a new slot for the key that is given. */
int volume_key_put(struct remote *r, const char *uuid, const struct remote_limits *limits,
		   const uint8_t master[CRYPTO_KEY_SIZE], char ret_id[KEY_ID_MAX],
		   struct opening_message *m);
/* The volume's slots, at most KEY_SLOTS_MAX, in no promised order; those that cannot be read have an `error` (-EBADMSG, -EPROTONOSUPPORT). Those of other
 * volumes are left out. */
struct found_slot {
	char id[KEY_ID_MAX];
	struct key_slot slot;
	int error;
};
struct found_slots {
	struct found_slot *slots; /* owned: free() */
	size_t count;
};
int volume_key_slots(struct remote *r, const char *uuid, struct found_slots *ret_slots,
		     struct opening_message *m);

#endif
