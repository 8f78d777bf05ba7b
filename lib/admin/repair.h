/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Repairing a remote: what is damaged or missing there is restored from what the remote itself has twice, and from the local cache.
 *
 * From where. Index objects from the tables of packs. Chunks, recipes and trees from other packs, from whole contents in the cache's objects/ and from its
 * trees/. Records from summaries and the local state, summaries from records, tags from the local state, epochfs.json from the copy that each cache has, or
 * from a record. Each is checked by its hash, or, where it has none (records, tags), is the copy that was taken when it was whole.
 *
 * In which order. The lease is held (a mount has it). What is new is put first: packs, then the index object that names them, and read back. Only then is what it replaces condemned, by a list
 * of garbage collection (collection.h): the damaged object stays for the grace of a collection, as what readers may still use, and no collection that is under way can delete
 * what is relied upon: of both lists one is published, and the other side starts over. What holds something that could be restored from nowhere is condemned, too, so that no writer builds on
 * it; a collection does not delete it while an epoch names it. New packs have ids that were never condemned (store_heed).
 *
 * What is gone stays as it is, so that reads of it fail and fsck goes on to list it, until its epochs are dropped. But a tag that nobody can read is removed.
 *
 * Killed anywhere, or run again: what was put is found, the rest is done.
 */
#ifndef EPOCHFS_ADMIN_REPAIR_H
#define EPOCHFS_ADMIN_REPAIR_H

#include <stdbool.h>
#include <stdint.h>
#include "lib/admin/catalog.h"
#include "lib/meta/options.h"
#include "lib/volume/volume.h"

struct volume;

enum repair_outcome {
	REPAIR_RESTORED, /* or would be, in a dry run */
	REPAIR_GONE,	 /* it can be had from nowhere */
	REPAIR_NOTE,	 /* nothing is lost by it */
};

struct repair_how {
	bool dry_run; /* nothing is written, and no lease is taken */
	/* One line each: the object, the epoch and path that it hits ("" where none), what became of it. */
	void (*say)(void *arg, enum repair_outcome outcome, const char *key, const char *where,
		    const char *what);
	void (*progress)(void *arg, const struct catalog_progress *p); /* may be NULL */
	void *arg;
};

/* Epochs with a loss that are told by number. */
#define REPAIR_EPOCHS_MAX 64

struct repair_totals {
	uint64_t restored, gone;
	uint64_t condemned;			 /* objects that epochfs gc will delete now */
	uint64_t bytes_stored;			 /* in new packs and index objects */
	uint64_t gone_epochs[REPAIR_EPOCHS_MAX]; /* ascending, as far as there is room */
	size_t gone_epoch_count;
};

/*
 * Without a mount. Of the options count remote, limits, cache_dir (where the caches of this machine lie), lease_ns, take_over, patience_ns, threads. 0, also where something
 * is gone; else as volume_open_for_import, with a line: -EBUSY where a writer holds the lease, whose mount is to be named.
 */
int repair_remote(const struct volume_options *options, const struct repair_how *how,
		  struct repair_totals *ret_totals, char **ret_message);

/*
 * Both as JSON: { "dry_run", "restored": [{ "object", "where", "what" }], "gone": [...], "notes": [...], "gone_epochs": [7], "condemned", "bytes_stored" }.
 * Where the repair failed, the errors and the message of the above. The answer is the caller's.
 */
int repair_remote_json(const struct volume_options *options, bool dry_run,
		       void (*progress)(void *arg, const struct catalog_progress *p), void *arg,
		       json_t **ret_answer, char **ret_message);
int repair_mount_json(struct volume *vol, bool dry_run, json_t **ret_answer, char **ret_message);

#endif
