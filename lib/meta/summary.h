/* SPDX-License-Identifier: Apache-2.0 */
/* Summary objects: the texts of many records in one object. Private to records.c. */
#ifndef EPOCHFS_META_SUMMARY_H
#define EPOCHFS_META_SUMMARY_H

#include <stdint.h>
#include "lib/remote/remote.h"
#include "lib/util/buf.h"

/*
 * {"format":1,"records":[{...},...]}: the records as they are (lib/format/record.h). It is untrusted: each text is decoded and
 * checked by who reads it, as if it came from its own object.
 */
#define SUMMARY_ENCODED_MAX (64u << 20)

/* Appends a record's text to a summary in the making (empty at first). */
int summary_add(struct buf *out, const char *text);
/* Ends it and puts it. */
int summary_put(struct remote *remote, uint64_t last, struct buf *out);
/* Each record's number and text, of the summaries that reach above `after`. A damaged summary is left out. fn non-zero ends. */
int summary_each(struct remote *remote, uint64_t after,
		 int (*fn)(void *arg, uint64_t number, const char *text), void *arg);
/* The same of one summary: -ENOENT, -EBADMSG where it is damaged, the remote's, or what fn gave. */
int summary_read(struct remote *remote, uint64_t last,
		 int (*fn)(void *arg, uint64_t number, const char *text), void *arg);
/* Deletes the summaries that may hold this epoch. */
int summary_forget(struct remote *remote, uint64_t number);

#endif
