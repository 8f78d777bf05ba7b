/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the command to a mounted volume: one JSON object in, one out. */
#ifndef EPOCHFS_ADMIN_CONTROL_H
#define EPOCHFS_ADMIN_CONTROL_H

#include "lib/util/buf.h"
#include "lib/live/handle.h"

/*
 * Carried by the file .epochs/.control.
 *   {"op":"status"}                                  -> status (epochfs-integrations(7) lists the keys)
 *   {"op":"log"}                                     -> {"epochs":[...]}, ascending: the record's keys,
 *                                                       state, complete, error, tags
 *   {"op":"commit","tag":T,"step":N,"message":M,"whole":B,"metadata":{}} -> {"epoch":N}; whole: --whole, metadata: record_metadata.h
 *   {"op":"wait","epoch":"42","timeout_ms":N}        -> {"epoch":N}
 *   {"op":"rollback","epoch":E}                      -> {"epoch":N}, the new one
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

#endif
