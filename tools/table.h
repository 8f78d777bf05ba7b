/* SPDX-License-Identifier: Apache-2.0 */
/* A table of text whose columns are as wide as what is in them. */
#ifndef EPOCHFS_TOOLS_TABLE_H
#define EPOCHFS_TOOLS_TABLE_H

#include <jansson.h>
#include <stddef.h>
#include "lib/util/buf.h"

#define TABLE_COLUMNS_MAX 12

/* Opaque; not thread-safe. */
struct table;

/* Headers with a '>' in front are of columns aligned to the right. NULL: no memory. */
struct table *table_new(const char *const *headers, size_t columns);
void table_free(struct table *t);
/* One row of as many cells as there are columns, copied, with what a terminal would obey escaped (text.h). 0 or -ENOMEM. */
int table_add(struct table *t, const char *const *cells);
/* To stdout. No line ends in blanks. */
void table_print(const struct table *t);

/* ---- Doubts of a record or a status as text for people. ---- */

/* "model.pt: its writer was killed, in doubt since epoch 2 (3m ago); settled by saving it again whole or removing it, or by epochfs commit --whole". */
void doubt_text(const json_t *doubt, struct buf *out);
/* The same of a list, as a list of texts; NULL: there are none. */
json_t *doubts_texts(const json_t *doubts);

/* ---- What killed writers left, in one line: "2 files of killed writers, 87 MiB, are in .epochs/torn (the newest: 12-dump), 3 more were not kept". ---- */

/* Of "torn" of a status, what came with this id or a later one; of what was not kept, only since the mount. False: nothing did. */
bool torn_text(const json_t *torn, json_int_t since, struct buf *out);

#endif
