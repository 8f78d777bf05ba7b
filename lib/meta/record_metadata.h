/* SPDX-License-Identifier: Apache-2.0 */
/* What a metadata writer says of a checkpoint. */
#ifndef EPOCHFS_META_RECORD_METADATA_H
#define EPOCHFS_META_RECORD_METADATA_H

#include <jansson.h>
#include <stdbool.h>
#include "lib/format/record.h"

/*
 * The text is a JSON object with some of "db_type", "db_prefix", "path_type", "path_prefix" (texts) and "node_names" (an array of texts), as the record has
 * them (record.h). What it does not name stays as it is.
 */
#define METADATA_NAMES_MAX 1024

/* Whether `object` is such an object, within the limits of a record. */
bool metadata_valid(const json_t *object);
/* Puts it into the record: 0, -EINVAL or -ENOMEM. NULL says nothing. */
int metadata_set(struct epoch_record *r, const char *text);
/* Whether the record says all of it already. */
bool metadata_said(const struct epoch_record *r, const char *text);
/* Of parts of an epoch, the first that says something: 0 or -ENOMEM. */
int metadata_take(struct epoch_record *r, const struct epoch_record *part);

#endif
