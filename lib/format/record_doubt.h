/* SPDX-License-Identifier: Apache-2.0 */
/* Members of a record: the files that may not be whole, and which part of which node it is. For record_json.c and status. */
#ifndef EPOCHFS_FORMAT_RECORD_DOUBT_H
#define EPOCHFS_FORMAT_RECORD_DOUBT_H

#include <jansson.h>
#include "lib/format/record.h"

/* 0, -EINVAL where a field breaks a rule of record.h, -ENOMEM. */
int record_doubts_json(const struct record_doubt *doubts, size_t count, json_t **ret_value);
/* 0, -EBADMSG or -ENOMEM; both outputs are set in any case. */
int record_doubts_from(const json_t *value, struct record_doubt **ret_doubts, size_t *ret_count);

/* The member of a record that says which part of which node it is. Private to record_json.c. */

/* 0, -EINVAL where a field breaks a rule of record.h, -ENOMEM. */
int record_part_json(const struct record_part *p, json_t **ret_value);
/* 0, -EBADMSG or -ENOMEM; in any case the caller owns what is in `p` then. */
int record_part_from(const json_t *value, struct record_part *p);
/* The same of a list of at most RECORD_LIST_MAX; both outputs are set in any case. */
int record_parts_json(const struct record_part *parts, size_t count, json_t **ret_value);
int record_parts_from(const json_t *value, struct record_part **ret_parts, size_t *ret_count);

#endif
