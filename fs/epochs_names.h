/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names in .epochs that people choose get a number, by which nodes and listings know them: tags for
 * as long as the mount lives, temporary symlinks (made to be renamed) until they are gone. Private
 * to fs/. Has a lock of its own; nothing is called under it.
 */
#ifndef EPOCHFS_FS_EPOCHS_NAMES_H
#define EPOCHFS_FS_EPOCHS_NAMES_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/util/buf.h"

struct epoch_names;

int epochs_names_new(struct epoch_names **ret_names);
void epochs_names_free(struct epoch_names *names);

/* What kind of name this is. */
enum epochs_name {
	EPOCHS_NAME_EPOCH,  /* "000042" */
	EPOCHS_NAME_NUMBER, /* "42", or digits that are no epoch's (number 0) */
	EPOCHS_NAME_LATEST,
	EPOCHS_NAME_CURRENT,
	EPOCHS_NAME_TORN,
	EPOCHS_NAME_CONTROL,
	EPOCHS_NAME_STEP,  /* "step=500"; others that begin so lead nowhere (number UINT64_MAX) */
	EPOCHS_NAME_OTHER, /* a tag's, perhaps */
};
/* ret_number: the epoch, or the step. */
enum epochs_name epochs_name_kind(const char *name, uint64_t *ret_number);
/* Whether it is made up to be renamed: ln's CuXXXXXX, or one that no tag may have. */
bool epochs_name_temporary(const char *name);

/* The number of a name: 0 without memory. */
uint64_t epochs_names_id(struct epoch_names *names, const char *name);
/* Appends the name of that number: 0, or -ENOENT. */
int epochs_names_get(struct epoch_names *names, uint64_t id, struct buf *out);

/* Temporary symlinks: -EEXIST, -ENOENT, -ENOMEM. */
int epochs_names_add_temporary(struct epoch_names *names, const char *name, uint64_t epoch);
int epochs_names_get_temporary(struct epoch_names *names, const char *name, uint64_t *ret_epoch);
int epochs_names_remove_temporary(struct epoch_names *names, const char *name);

#endif
