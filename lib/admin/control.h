/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the command to a mounted volume: one JSON object in, one out. */
#ifndef EPOCHFS_ADMIN_CONTROL_H
#define EPOCHFS_ADMIN_CONTROL_H

#include <jansson.h>
#include "lib/cache/context.h"
#include "lib/live/handle.h"
#include "lib/util/buf.h"

/*
 * Carried by the file .epochs/.control.
 *   {"op":"status"}                                  -> status (epochfs-integrations(7) lists the keys)
 *   {"op":"log"}                                     -> {"epochs":[...]}, ascending: the record's keys,
 *                                                       state, complete, error, tags
 *   {"op":"commit","tag":T,"step":N,"message":M,"whole":B,"metadata":{}} -> {"epoch":N}; whole: --whole, metadata: record_metadata.h
 *   {"op":"wait","epoch":"42","timeout_ms":N}        -> {"epoch":N}
 *   {"op":"rollback","epoch":E}                      -> {"epoch":N,"restores":N,"before":N}: the new one, whose tree it has, and what
 *                                                       was live, all of it
 *   {"op":"rm","epoch":E}                            -> {"epoch":N}
 *   {"op":"undrop","epoch":N,"tag":T}                -> {"epoch":N,"tag":T}: a dropped epoch is back, with
 *                                                       this tag; T absent: one that is made up
 *   {"op":"tag","epoch":E,"name":T,"replace":B}      -> {"epoch":N}
 *   {"op":"untag","name":T}                          -> {}
 *   {"op":"resolve","epoch":E}                       -> {"epoch":N}
 *   {"op":"seal"}                                    -> {"epoch":N}: seals if anything changed; the
 *                                                       newest epoch's number, 0 where there is none
 *   {"op":"resume"}                                  -> {"left":N,"to":N,"epoch":N}: resume.h; epoch 0: it stays
 *   {"op":"tags"}                                    -> {"tags":{name: number}}
 *   {"op":"show","epoch":E}                          -> {"epoch":{as in log},"files":[listing.h]}
 *   {"op":"diff","from":E,"to":E}                    -> listing.h; from absent: the epoch before `to`,
 *                                                       or where there is none, nothing
 *   {"op":"fetch","epoch":N,"entry":I,"offset":O,"length":L}
 *                                                    -> {}: that part of file I (from 1) of what show
 *                                                       lists is local; it may be evicted again
 *   {"op":"usage","read":B}                          -> what epochs hold and take (usage.h); read: also from
 *                                                       what is only in the remote
 *   {"op":"explain"}                                 -> {"facts":[...]}: what happened last, the oldest first (fact_log.h)
 *   {"op":"options"}                                 -> {"options":{NAME:{"value":V,"from":F}}}: what was given, and where
 *   {"op":"metrics"}                                 -> {"metrics":T}: the text that -o metrics gives out
 *   {"op":"repair","dry_run":B}                      -> what was restored in the remote, and what is gone (repair.h)
 *   {"op":"durability","value":V,"for_ms":N}         -> {}: V is "local" or "remote", as the option;
 *                                                       for_ms (or always): so long closes wait
 *   {"op":"finish","drain":B}                        -> {}; before an unmount: seals, drains
 * The mount itself answers (fs/control_file.c):
 *   {"op":"restart"}                                 -> {"pid":N}, of the process that ends
 *   {"op":"hold","mounted":B}                        -> {}: until this file is closed, signals do not end the mount; mounted:
 *                                                       by whoever asks, so where he dies it is unmounted
 *   {"op":"release","unmount":B}                     -> {}: that hold ends in order, and with `unmount` the mount
 * status has at least: pid (and pid_namespace, the inode of what it counts in), remote (printable), remote_url (as given), local_only, uuid, cache {directory}, epochs {current, latest},
 * held_elsewhere_by_pids (where other mount namespaces hold the mount: a process of each), upload {pending_epochs, oldest_epoch, bytes_done, bytes_total, error}; keys that end in _ns are times or intervals, bytes in bytes.
 * E is text as epochs_resolve takes it, or a number. An error: {"error":"one line","errno":N}, where
 * errno is positive; the command turns it into its exit code (tools/cli.h).
 */

/* Answers always (also to nonsense): 0, or -ENOMEM. `response` gets JSON text. */
int volume_control(struct volume *vol, const char *request, size_t len, interrupted_fn interrupted,
		   void *arg, struct buf *response);

/* Of a volume that nobody serves any more, by its cache directory: files of "torn" of its status, and
 * `next` after the newest of them. A new object, or NULL where that cannot be looked into. */
json_t *control_torn_left(const char *cache);

/* ---- for control*.c alone ---- */

/* The answer to "status": a new object, or NULL where memory runs out. */
json_t *control_status(struct volume *vol);

/* A part of a file of an epoch; `entry` counts as "files" of "show" do, from 1. */
struct control_range {
	uint64_t epoch, entry, offset, length;
};
/* Makes it local, as content_fetch does: its errors, and those of epochs_tree; -EINVAL: no such entry. */
int control_fetch(struct volume *vol, const struct control_range *range, interrupted_fn interrupted,
		  void *arg);

/* A request of the command while it is answered. */

static inline void cleanup_json_fn(json_t **j)
{
	json_decref(*j);
}
#define cleanup_json CLEANUP(cleanup_json_fn)

struct request {
	struct volume *vol;
	const json_t *json;
	interrupted_fn interrupted;
	void *arg;
	json_t *answer;	    /* set by the operation */
	char message[1024]; /* why it failed; empty: what errno says */
};

/* The epoch that a key names, by text or number. */
int request_epoch(struct request *r, const char *key, uint64_t *ret_number);
/* All tags: a new object of names and numbers. */
int request_tags(struct volume *vol, json_t **ret_tags);

/* Operations (control_status.c). */
int request_log(struct request *r);
int request_show(struct request *r);
int request_diff(struct request *r);
/* control.c */
int request_repair(struct request *r);

#endif
