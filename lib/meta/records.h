/* SPDX-License-Identifier: Apache-2.0 */
/* The epochs' records in a remote: reading them all, one, writing one, dropping one. For mounts and for the catalog. */
#ifndef EPOCHFS_META_RECORDS_H
#define EPOCHFS_META_RECORDS_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/format/record.h"
#include "lib/remote/remote.h"
#include "lib/util/buf.h"

/*
 * Every SUMMARY_EVERY epochs one summary object, summaries/<20 digits of its last epoch>.json, holds the texts of their records, so that
 * a first look at a long run needs few requests. A summary is a copy: the records stay, and an epoch that a summary does not hold is read by itself.
 * Before an epoch is dropped, the summaries that may hold it are deleted.
 */
#define SUMMARY_EVERY 100

struct record_found {
	uint64_t number;
	const struct epoch_record *record; /* NULL: a tombstone, or damaged */
	bool dropped;			   /* a tombstone */
	uint64_t continues,
		continues_from; /* of the record, or of that which was dropped; 0: nothing */
	const char *text;	/* the record as it is stored, NUL-terminated */
};
/* Non-zero ends the walk and is returned. */
typedef int (*record_fn)(void *arg, const struct record_found *found);

/*
 * All epochs with a number above `after`, ascending; up to eight requests at once. What is damaged is logged, and given with record NULL and dropped false.
 * 0 or the remote's -errno.
 */
int records_each(struct remote *remote, uint64_t after, record_fn fn, void *arg);
/* The same, and the highest number that is used, so far as is known: also that of a record that is gone and that a summary has. 0: none. */
int records_each_used(struct remote *remote, uint64_t after, record_fn fn, void *arg,
		      uint64_t *ret_used);
/*
 * The same for those epochs alone that `wanted` picks by the number and the size of the object, in one listing: who has read
 * them before need not read them again. It is called for each, in no promised order.
 */
typedef bool (*record_wanted_fn)(void *arg, uint64_t number, uint64_t size);
int records_each_wanted(struct remote *remote, record_wanted_fn wanted, void *wanted_arg,
			record_fn fn, void *arg);
/* -ENOENT (also a tombstone), -EBADMSG, or the remote's. ret_text may be NULL; free it. */
int records_get(struct remote *remote, uint64_t number, struct epoch_record *ret_record,
		char **ret_text);
/* Whether both speak of the same sealing of the same machine. */
bool records_same_epoch(const struct epoch_record *a, const struct epoch_record *b);
/*
 * Puts a tombstone in the record's place. `ours` (may be NULL: any) is the record as who drops it has
 * it: where the remote has another writer's under this number, -EEXIST, and that stays.
 */
int records_drop(struct remote *remote, uint64_t number, const char *ours);
/*
 * What the tombstone of a dropped epoch keeps of its record; ret_text is to be freed. -EEXIST: the epoch is there; -ENODATA: the tombstone has no record;
 * -ENOENT: there is nothing; -EBADMSG: what is there is damaged; or the remote's.
 */
int records_dropped(struct remote *remote, uint64_t number, struct epoch_record *ret_record,
		    char **ret_text);
/* Writes the summary that ends with this epoch, where it is one that ends a summary. */
int records_summarize(struct remote *remote, uint64_t last);

/* The epoch of a tag: 0, -ENOENT, -EBADMSG where its object is damaged, or what the remote failed with. */
int records_tag(struct remote *remote, const char *name, uint64_t *ret_number);
/* Tags: calls fn for each; with number 0 for one whose object is damaged (logged). */
int records_tags(struct remote *remote, int (*fn)(void *arg, const char *name, uint64_t number),
		 void *arg);

/* ---- summaries: the texts of many records in one object ---- */

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
