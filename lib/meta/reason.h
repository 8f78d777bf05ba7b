/* SPDX-License-Identifier: Apache-2.0 */
/* Why an epoch is not complete: "NAME: why", of the first few files. */
#ifndef EPOCHFS_META_REASON_H
#define EPOCHFS_META_REASON_H

#include "lib/util/buf.h"

/* So many files are named. */
#define REASON_NAMED_MAX 4

/* Adds one; `named` counts all of them, from 0. */
void reason_add(struct buf *reason, unsigned *named, const char *name, const char *why);
/* After the last: how many more there are. */
void reason_end(struct buf *reason, unsigned named);

#endif
